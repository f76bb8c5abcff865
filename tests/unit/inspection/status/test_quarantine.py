"""Codes at the end of a quarantine are counted, the last hour before what is older."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.status.quarantine import DETAIL, ERROR, SOURCE, tallied
from processor.kafka.client import TopicPartition
from processor.wire.quarantine import OURS

if TYPE_CHECKING:
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
