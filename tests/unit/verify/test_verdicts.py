"""The comparison of verdicts begins where they begin, and says what comes before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.batch.columns import BASE_OFFSET, CRC, LAST_DELTA
from processor.engine.verdict import Verdict
from processor.verify.report import VerifyReport
from processor.verify.verdicts import VerdictCheck
from processor.wire.decode import Chunk
from schemas.verdicts.record import SourceSums, VerdictRecord, xored
from tests.support.kafka.topics import Record
from tests.support.verify.compared import Listed
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.wire.decode import Piece

DUPLICATES = np.array([3, 13])


def pieces() -> Iterator[Piece]:
    """Yield a source of twenty records in two batches, of which `DUPLICATES` are duplicates."""
    for start in (0, 10):
        batch = batches.by_hand(batches.run(start, start + 10))
        yield from batches.DECODER.pieces(Chunk("s", 0, start, batch))


def written(begin: int) -> list[Record]:
    """Return what a worker writes that goes over to verdicts at an offset."""
    sums = SourceSums()
    for piece in pieces():
        times = piece.columns.timestamp[piece.columns.offset >= begin]
        ends = piece.batches[:, BASE_OFFSET] + piece.batches[:, LAST_DELTA]
        sums = sums.more(times.size, xored(times), piece.batches[ends >= begin, CRC])
    skipped = DUPLICATES[begin <= DUPLICATES]
    both = VerdictRecord(0, begin, begin, begins=True), VerdictRecord(0, begin, 20, sums, skipped=skipped)
    return [Record(0, at, None, each.encode(), (), 0, create_time=True) for at, each in enumerate(both)]


def compared(verdicts: list[Record], begin: int, *, counts: bool) -> VerifyReport:
    report = VerifyReport("p", 0, 0, 20)
    check = VerdictCheck(Listed("v", verdicts, 1), report, bytes(16), begin, counts=counts)
    asyncio.run(_compare(check))
    return report


async def _compare(check: VerdictCheck) -> None:
    for piece in pieces():
        passes = ~np.isin(piece.columns.offset, DUPLICATES)
        verdict = np.where(passes, Verdict.PASS, Verdict.DUPLICATE).astype(np.uint8)
        check.note_batches(piece)
        await check.expect(piece.columns, passes, np.zeros(passes.size, np.uint8), verdict)
    await check.settle()
    await check.finish()


@pytest.mark.parametrize("begin", [0, 5, 10, 20])
def test_what_came_before_a_pipeline_went_over_to_verdicts_is_not_compared_with_them(begin: int) -> None:
    verdicts = written(begin) if begin < 20 else []
    report = compared(verdicts, begin, counts=True)
    assert report.ok, report.violations
    assert report.sink + report.before_verdicts + DUPLICATES.size == 20
    assert report.before_verdicts == begin - np.count_nonzero(begin > DUPLICATES)
    assert compared(verdicts, begin, counts=False).before_verdicts == 0, "it is in the sink, which is compared"


def test_a_range_that_is_missing_behind_where_they_begin_is_found() -> None:
    report = compared(written(10), 5, counts=True)
    assert [(each.offset, each.rule) for each in report.violations] == [(5, "verdict_missing")]
