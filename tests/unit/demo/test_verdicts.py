"""Does the demo take the clean stream out of a source as the page says, and see verdicts that are wrong?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.demo.tables import bytes_table
from processor.demo.verdicts import TopicBytes, clean_records
from schemas.verdicts.record import SourceSums, VerdictRecord

if TYPE_CHECKING:
    from processor.kafka.plain.consumer import Seen

# Offset 4 is a control record.
SOURCE: list[Seen] = [(b"key", b"%d" % at, (), 1_000 + at, at) for at in (0, 1, 2, 3, 5, 6)]


def verdict(base: int, end: int, *skipped: int, records: int) -> VerdictRecord:
    return VerdictRecord(
        0, base, end, SourceSums(records), begins=base == 0, skipped=np.array(skipped, np.int64)
    )


def told(*verdicts: VerdictRecord) -> list[Seen]:
    return [(None, each.encode(), (), 0, 2 * number) for number, each in enumerate(verdicts)]


def taken(*verdicts: VerdictRecord) -> tuple[list[int], list[str]]:
    found, wrong = clean_records(0, SOURCE, told(*verdicts))
    return [record[4] for record in found], wrong


def test_what_is_not_skipped_is_taken_in_order() -> None:
    right = verdict(0, 3, 1, records=3), verdict(3, 7, 5, 6, records=3)
    assert taken(*right) == ([0, 2, 3], [])


def test_verdicts_that_end_too_soon_miscount_or_leave_a_gap_are_said() -> None:
    first = verdict(0, 3, 1, records=3)
    assert taken(first) == ([0, 2], ["3 records at the end of partition 0 have no verdict"])
    _, miscounted = taken(first, verdict(3, 7, records=4))
    assert miscounted == ["the verdict at offset 2 of partition 0 speaks of 4 records, there are 3"]
    _, gap = taken(first, verdict(5, 7, records=2))
    assert "leaves a gap" in gap[0]


def test_the_bytes_that_are_saved_are_those_of_the_clean_topic_less_the_verdicts() -> None:
    shown = bytes_table(TopicBytes(source=5_000, clean=4_000, verdicts=40, records=100, copied=95))
    cells = [list(column.cells) for column in shown.columns]
    assert cells[1] == ["5,000", "40", "4,000", "3,960"]
    assert cells[2] == ["50.00", "0.40", "40.00", "39.60"]
    assert cells[3][-1] == "99.00% of the clean topic"
