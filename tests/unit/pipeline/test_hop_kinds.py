"""What becomes of a chunk in the two hops of a routed pipeline, over a recording output."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
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


def _partition(judge: Judge) -> OpenPartition:
    table = Table(MemoryStore(), judge.log)
    judge.load(table)
    return OpenPartition(0, table, judge, new_position(0, b"definition 16 by", b"state id 16 byte", 1))


def record(offset: int, name: bytes | None, value: bytes = b"v") -> Record:
    return Record(offset, 1_000, b"key", value, () if name is None else ((b"id", name),))


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
