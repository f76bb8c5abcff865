"""Codes at the end of a quarantine are counted, the last hour before what is older."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.status.ask import DETAIL, ERROR, HOUR_MS, SOURCE, QuarantineReader, tallied
from processor.inspection.status.facts import QuarantineLook
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.wire.quarantine import OURS
from tests.support.explain.world import WorldClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.kafka.plain.consumer import Seen

TP = TopicPartition("q", 1)
SINCE_MS = 1_000


def record(code: str, timestamp_ms: int, offset: int) -> tuple[TopicPartition, Seen]:
    said = ((ERROR, code.encode()), (DETAIL, b"why"), (SOURCE, b"raw:1:%d" % offset))
    return TP, (None, b"value", said, timestamp_ms, offset)


def test_the_headers_are_those_that_a_worker_writes() -> None:
    assert tuple(name.encode() for name in (ERROR, DETAIL, SOURCE)) == OURS


def test_each_code_is_counted_with_its_newest_record() -> None:
    codes = tallied([record("a", 1_000, 1), record("b", 5_000, 2), record("b", 4_000, 3)], SINCE_MS)

    assert [(each.code, each.recent) for each in codes] == [("b", 2), ("a", 1)]
    assert (codes[0].example.offset, codes[0].example.source, codes[0].example.detail) == (2, "raw:1:2", "why")


def test_what_is_older_is_counted_apart_and_comes_last() -> None:
    seen = [record("old", 10, 1), record("old", 20, 2), record("new", 2_000, 3), record("new", 5, 4)]

    assert [(each.code, each.recent, each.older) for each in tallied(seen, SINCE_MS)] == [
        ("new", 1, 1),
        ("old", 0, 2),
    ]


def test_a_record_that_no_worker_wrote_is_shown_as_such() -> None:
    (tally,) = tallied([(TP, (b"k", None, (("x", None),), 2_000, 4))], SINCE_MS)

    assert (tally.code, tally.example.source) == ("not written by a worker", "")


def test_what_is_of_another_source_is_not_counted_for_a_pipeline_that_shares_the_quarantine() -> None:
    own = (TP, (None, b"", ((ERROR, b"a"), (SOURCE, b"orders:of:now:0:7")), 3_000, 4))
    nobodys = (TP, (b"k", None, (), 2_000, 5))
    found = QuarantineLook(tallied([record("a", 2_000, 1), record("a", 4_000, 2), own, nobodys], SINCE_MS))

    assert [(each.code, each.recent) for each in found.of("raw").tallies] == [
        ("a", 2),
        ("not written by a worker", 1),
    ]
    assert [each.example.source for each in found.of("orders:of:now").tallies] == ["orders:of:now:0:7", ""]
    assert [each.recent for each in (found.of("raw"), found.of("orders:of:now"), found.of("else"))] == [3, 2, 1]


class Records:
    """Reads a quarantine of one record per offset, as a consumer does that gets one at a time."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self.read: Counter[int] = Counter()

    async def __call__(
        self,
        options: Mapping[str, Any],
        spans: Mapping[Any, tuple[int, int]],
        most_bytes: int,
        deadline_s: float,
    ) -> list[tuple[TopicPartition, Seen]]:
        assert not options
        assert deadline_s > 0
        found: list[tuple[TopicPartition, Seen]] = []
        for tp, (start, stop) in spans.items():
            for offset in range(start, stop):
                if most_bytes <= 0:
                    return found
                self.read[offset] += 1
                most_bytes -= self._size_bytes
                said = ((ERROR, b"too_large"), (SOURCE, b"raw:0:%d" % offset))
                found.append((tp, (None, bytes(self._size_bytes), said, offset, offset)))
        return found


def look_at(count: int, reader: Records, now_ms: int = HOUR_MS) -> QuarantineLook:
    world, tp = WorldClient(), TopicPartition("q", 0)
    world.put("q", *[(None, b"", n, ()) for n in range(count)])
    client: Any = world

    async def run() -> QuarantineLook:
        limits = await bounds(client, [tp])
        return await QuarantineReader({}, reader).look(client, limits, now_ms)

    return asyncio.run(run())


@pytest.mark.parametrize(("size_bytes", "cut"), [(1_000_000, True), (1_000, False)])
def test_where_large_records_are_too_many_to_be_read_the_newest_are_and_the_look_says_so(
    size_bytes: int, *, cut: bool
) -> None:
    reader = Records(size_bytes)

    found = look_at(200, reader)

    assert found.cut is cut
    assert found.tallies[0].example.offset == 199
    assert found.recent == (34 if cut else 200) == reader.read.total()


def test_what_was_cut_of_older_records_alone_is_not_said_of_the_last_hour() -> None:
    found = look_at(200, Records(4_000_000), now_ms=2 * HOUR_MS)

    assert (found.recent, found.cut, found.tallies[0].example.offset) == (0, False, 199)
