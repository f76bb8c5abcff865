"""What observing never stops at, and what stops it as ever; and what the two hops of a route let by."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import StopError
from processor.ops.metrics import Metrics
from processor.pipeline.hop_kinds import FirstHopKind, HopKind
from processor.pipeline.hops import FirstHop, hops
from processor.pipeline.ports import OpenPartition, RouteTopics, Topics, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.config import Settings
from tests.property.judges.test_observed_slots import DEDUPS, LIMIT, Sent, ran, record
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import RecordingOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.wire.decode import Chunk

GOOD, AGAIN = Sent("a", 0, 1, 0, 0, "short", ""), Sent("a", 1, 1, 0, 0, "longish", "")
BAD, LONG = GOOD._replace(bad="no JSON"), GOOD._replace(size="long")


def records(*some: Sent) -> list[Record]:
    return [record(offset, each) for offset, each in enumerate(some)]


@pytest.mark.parametrize("mode", ["exact", "tagging", "renaming"])
def test_without_quarantine_what_cannot_be_judged_and_what_its_edit_makes_too_large_pass(mode: str) -> None:
    came = records(GOOD, BAD, AGAIN, GOOD)
    with pytest.raises(StopError, match="cannot be judged"):
        ran(DEDUPS[mode], [(False, came)], quarantine=False)
    found = ran(DEDUPS[mode], [(True, came)], quarantine=False)
    assert [each.value for each in found.topics.sink] == [each.value for each in came]
    assert not found.topics.quarantine


def test_without_quarantine_what_is_too_large_for_the_sink_stops_it_as_ever() -> None:
    with pytest.raises(StopError, match=f"needs max.message.bytes of at least .*it has {LIMIT}"):
        ran(DEDUPS["exact"], [(True, records(GOOD, LONG))], quarantine=False)


@pytest.mark.parametrize("mode", ["exact", "quarantining"])
def test_where_quarantine_does_not_take_a_copy_what_is_observed_only_passes(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Noise, which no codec makes smaller; the first is too large for the quarantine, the second is not.
    noise = random.Random(1).randbytes(400).hex().encode()
    came = records(GOOD, BAD, BAD, GOOD._replace(content=1), AGAIN)
    wide = came[1]._replace(value=b"{" + noise[:450])
    collides = came[3]._replace(value=json.dumps({"id": "a", "n": 7, "x": noise[:430].decode()}).encode())
    came[1], came[3] = wide, collides
    with pytest.raises(StopError, match=r"bad needs max\.message\.bytes of at least"):
        ran(DEDUPS[mode], [(False, came)], quarantine_limit=600)
    found = ran(DEDUPS[mode], [(True, came)], quarantine_limit=600)
    assert [each.value for each in found.topics.sink] == [each.value for each in came]
    assert came[2].value in [each.value for each in found.topics.quarantine]
    assert wide.value not in [each.value for each in found.topics.quarantine]
    assert "s:0:1: the record passes, observed; its copy goes to quarantine (value_not_json)" in caplog.text


class ObservedRoute:
    """Both hops of a routed pipeline, of one partition each; either may observe or not, and change that."""

    def __init__(self) -> None:
        self.output = RecordingOutput([])
        self._open: dict[bool, OpenPartition] = {}
        self._taken = 0

    def slot(self, *, first: bool, observe: bool) -> SlotPipeline:
        pipeline: dict[str, Any] = {
            "name": "p",
            "source": "s",
            "sink": "clean",
            "quarantine": "bad",
            "observe": observe,
            "dedup": {**DEDUPS["exact"], "route": "by-id"},
        }
        kafka, worker = {"bootstrap_servers": "localhost:9092"}, {"application_id": "app"}
        given = {"kafka": kafka, "worker": worker, "pipelines": [pipeline]}
        begin, end = hops(Settings.model_validate(given))
        assert isinstance(begin, FirstHop)
        limit = 100_000
        kind = HopKind(end, Topics(end.source, "clean", None, "changelog", limit, 0))
        if first:
            named = {"internal": "internal", "internal_limit_bytes": limit}
            kind = FirstHopKind(begin, RouteTopics("s", "clean", "bad", "positions", limit, limit, **named))  # type: ignore[arg-type]
        slot = SlotPipeline(kind, self.output, batches.DECODER, Encoder(), Metrics())
        if first not in self._open:
            judge = kind.judge()
            table = Table(MemoryStore(), judge.log)
            judge.load(table)
            position = new_position(0, b"definition 16 by", b"state id 16 byte", 1)
            self._open[first] = OpenPartition(0, table, judge, position)
        slot.partitions[0] = self._open[first]
        return slot

    def route(self, some: Sequence[Record], *, observe: bool) -> None:
        """Take records of the source in."""
        self._run(self.slot(first=True, observe=observe), chunk(by_hand(list(some)), position=some[0].offset))

    def judge(self, *, observe: bool) -> SlotPipeline:
        """Take in what stands in the internal topic, and was not."""
        raw, at = b"", 0
        for topic, number, sent in self.output.sent:
            for batch in sent if (topic, number) == ("internal", 0) else ():
                data = bytearray(batch.build(-1, -1, -1, transactional=True))
                data[:8] = at.to_bytes(8, "big")
                raw, at = raw + bytes(data), at + batch.count
        slot = self.slot(first=False, observe=observe)
        self._run(slot, chunk(raw, position=self._taken))
        self._taken = at
        return slot

    @staticmethod
    def _run(slot: SlotPipeline, what: Chunk) -> None:
        asyncio.run(slot.take(what))
        asyncio.run(slot.commit())


@pytest.mark.parametrize("second", [True, False])
def test_what_the_first_hop_has_let_by_passes_the_second_whatever_the_config_says_by_then(
    second: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    route = ObservedRoute()
    came = records(GOOD, BAD, AGAIN, GOOD._replace(id="b"))
    route.route(came, observe=True)
    slot = route.judge(observe=second)

    passed = [each.value for each in route.output.records("clean")]
    assert passed == [each.value for each in came if second or each.offset != 2]
    (copy,) = route.output.records("bad")
    assert [name for name, _ in copy.headers[-4:]] == [
        b"seqmark.observed",
        b"seqmark.error",
        b"seqmark.detail",
        b"seqmark.source",
    ]
    # It was counted as what it is where it was found.
    assert slot.partitions[0].judge.size()[0] == 2


def test_the_second_hop_remembers_nothing_of_what_was_let_by() -> None:
    observed, dropping = ObservedRoute(), ObservedRoute()
    later = GOOD._replace(id="c", second=9)
    some = records(GOOD, BAD._replace(second=12), AGAIN, later, GOOD._replace(second=3))
    for route, observe in ((observed, True), (dropping, False)):
        route.route(some, observe=observe)
        slot = route.judge(observe=observe)
        assert slot.partitions[0].judge.size()[0] == 2
        stats = slot.partitions[0].judge.take_clock_stats()
        assert stats is not None
        assert stats.clock_ms == some[3].timestamp
