"""What becomes of a chunk in the two hops of a routed pipeline, over a recording output."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest

from processor.engine import repartition
from processor.errors import RebuildError, StopError
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import FirstHopKind, HopKind
from processor.pipeline.hops import FirstHop, Hop, hops
from processor.pipeline.ports import OpenPartition, RouteTopics, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.wire.codec import Codec
from processor.wire.decode import MAX_INFLATED_BYTES
from processor.wire.encode import Encoder
from schemas.config import Settings
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import RecordingOutput

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from processor.wire.decode import Chunk

SINK, INTERNAL = "routed.clean", "app-routed-repartition"


def both(*, quarantine: bool = True) -> tuple[FirstHop, Hop]:
    pipeline = {
        "name": "routed",
        "source": "routed.raw",
        "sink": SINK,
        "quarantine": "routed.quarantine" if quarantine else None,
        "dedup": {
            "mode": "insert-id",
            "id": [{"from": "header", "name": "id"}],
            "window": "1h",
            "route": "by-id",
        },
    }
    worker = {"application_id": "app", "state_dir": "state"}
    kafka = {"bootstrap_servers": "localhost:9092"}
    first, second = hops(Settings.model_validate({"kafka": kafka, "worker": worker, "pipelines": [pipeline]}))
    assert isinstance(first, FirstHop)
    return first, second


class Hops:
    """Both hops of one partition each, in memory, at offset 0."""

    def __init__(self, *, quarantine: bool = True) -> None:
        first, second = both(quarantine=quarantine)
        self.said: list[str] = []
        self.output = RecordingOutput(self.said)
        limit = 1_000_000
        topics = RouteTopics(
            first.source,
            SINK,
            first.quarantine,
            "positions",
            limit,
            limit,
            internal=INTERNAL,
            internal_limit_bytes=limit,
        )
        shared = self.output, batches.DECODER, Encoder(), Metrics()
        kinds = (
            FirstHopKind(first, topics),
            HopKind(second, Topics(INTERNAL, SINK, None, "changelog", limit, 0)),
        )
        self.first, self.second = (SlotPipeline(kind, *shared) for kind in kinds)
        for kind, pipeline in zip(kinds, (self.first, self.second), strict=True):
            pipeline.partitions[0] = _partition(kind.judge())

    def route(self, what: Chunk) -> Chunk:
        """Take a chunk of the source in; return what stands in the internal topic then."""
        asyncio.run(self.first.take(what))
        asyncio.run(self.first.commit())
        raw, at = b"", 0
        for topic, number, some in self.output.sent:
            for batch in some if (topic, number) == (INTERNAL, 0) else ():
                data = bytearray(batch.build(-1, -1, -1, transactional=True))
                data[:8] = at.to_bytes(8, "big")
                raw, at = raw + bytes(data), at + batch.count
        return chunk(raw)

    def judge(self, what: Chunk) -> None:
        """Take a chunk of the internal topic in."""
        asyncio.run(self.second.take(what))
        asyncio.run(self.second.commit())


def _partition(judge: Judge, store: MemoryStore | None = None) -> OpenPartition:
    table = Table(MemoryStore() if store is None else store, judge.log)
    judge.load(table)
    begins = new_position(0, b"definition 16 by", b"state id 16 byte", 1)
    return OpenPartition(0, table, judge, table.position() or begins)


def record(offset: int, name: bytes | None, value: bytes = b"v") -> Record:
    return Record(offset, 1_000, b"key", value, () if name is None else ((b"id", name),))


class FirstHopAlone:
    """The first hop's tries at partition 0, over what was committed."""

    def __init__(self, internal_limit: int, *, quarantine: bool) -> None:
        first, _ = both(quarantine=quarantine)
        topics = RouteTopics(
            first.source,
            SINK,
            first.quarantine,
            "positions",
            1_000_000,
            1_000_000,
            internal=INTERNAL,
            internal_limit_bytes=internal_limit,
            internal_partitions=8,
        )
        self._kind = FirstHopKind(first, topics)
        self._stops_before: dict[int, int] = {}
        self._store = MemoryStore()
        self.again()

    def again(self) -> None:
        """Begin the next try."""
        self.output = RecordingOutput([])
        shared = self.output, batches.DECODER, Encoder(), Metrics()
        self._pipeline = SlotPipeline(self._kind, *shared)
        self._pipeline.stops_before = self._stops_before
        self._pipeline.partitions[0] = _partition(self._kind.judge(), self._store)

    def take(self, what: Chunk) -> None:
        asyncio.run(self._pipeline.take(what))

    def sent(self, topic: str) -> int:
        """Return how many records went to a topic."""
        return sum(batch.count for to, _, some in self.output.sent if to == topic for batch in some)

    @property
    def committed(self) -> int:
        position = Table(self._store).position()
        return 0 if position is None else position.next_offset


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_at_the_internal_topics_limit_a_record_goes_on_or_is_quarantined_and_nothing_else_happens(
    codec: Codec,
) -> None:
    chosen = random.Random(codec)
    for number in range(8):
        value = json.dumps([chosen.randrange(10**6) for _ in range(200)]).encode()
        came = chunk(by_hand([record(0, b"id-%d" % number, value)], codec))
        roomy = FirstHopAlone(1_000_000, quarantine=True)
        roomy.take(came)
        (need,) = [batch.size for to, _, some in roomy.output.sent if to == INTERNAL for batch in some]
        for limit in range(need - 8, need + 1):
            tight = FirstHopAlone(limit, quarantine=True)
            tight.take(came)
            fits = limit >= need
            assert (tight.sent(INTERNAL), tight.sent("routed.quarantine")) == (int(fits), int(not fits))


def test_before_a_record_too_large_on_its_way_all_is_committed_by_the_next_try() -> None:
    hop = FirstHopAlone(3_000, quarantine=False)
    came = chunk(by_hand([record(0, b"a"), record(1, b"b", bytes(4_000)), record(2, b"c")]))
    with pytest.raises(RebuildError, match="before offset 1 of partition 0"):
        hop.take(came)
    assert hop.committed == 0

    hop.again()
    with pytest.raises(StopError) as caught:
        hop.take(came)
    said = str(caught.value)
    assert said.startswith("routed.raw:0:1: on its way to the partition of its id the record is too large")
    assert "set pipelines.quarantine for pipeline routed" in said
    assert "delete routed.raw:0 up to offset 2" in said
    assert (hop.sent(INTERNAL), hop.committed) == (1, 1)


def test_before_an_offset_that_no_source_ref_holds_all_is_committed_by_the_next_try() -> None:
    hop = FirstHopAlone(3_000, quarantine=True)
    last = repartition.MOST_OFFSET
    came = chunk(by_hand([record(last, b"a"), record(last + 1, b"b")]))
    with pytest.raises(RebuildError, match=f"before offset {last + 1}"):
        hop.take(came)
    hop.again()
    with pytest.raises(StopError, match="cannot be routed"):
        hop.take(came)
    assert hop.committed == last + 1


def test_records_pass_once_and_as_they_came() -> None:
    pipelines = Hops()
    some = [record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, None), record(4, b"c")]
    pipelines.judge(pipelines.route(chunk(by_hand(some))))
    assert [(each.value, each.headers) for each in pipelines.output.records(SINK)] == [
        (b"v", ((b"id", name),)) for name in (b"a", b"b", b"c")
    ]


def test_whatever_can_be_decoded_can_be_decoded_once_it_is_routed() -> None:
    # Where it came from makes a record larger. It is taken out of the source by then: nobody could go back.
    least = len(by_hand([record(0, b"a", b"")])) - 61
    # The lengths of the record and of its value take three bytes more each.
    value = bytes(MAX_INFLATED_BYTES - least - 6)
    came = chunk(by_hand([record(0, b"a", value)], Codec.ZSTD))
    (piece,) = batches.DECODER.pieces(came)
    assert int(piece.columns.end[0]) == MAX_INFLATED_BYTES

    pipelines = Hops()
    pipelines.judge(pipelines.route(came))

    assert [len(each.value or b"") for each in pipelines.output.records(SINK)] == [len(value)]


@pytest.mark.parametrize(
    ("damaged", "said"),
    [(False, "Set a quarantine topic for pipeline routed to go on"), (True, "cannot be decoded")],
)
def test_what_a_route_stops_at_is_stepped_over_by_what_knows_routes(
    damaged: bool,  # noqa: FBT001 - a parameter of the test
    said: str,
) -> None:
    pipelines = Hops(quarantine=False)
    batch = bytearray(by_hand([record(0, None)]))
    batch[-1] ^= damaged
    with pytest.raises(StopError) as caught:
        asyncio.run(pipelines.first.take(chunk(bytes(batch))))
    assert said in str(caught.value)
    assert "have kafka-delete-records.sh delete routed.raw:0 up to offset 1" in str(caught.value)
    assert "reset" not in str(caught.value)
