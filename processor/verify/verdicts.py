"""Compares what becomes of records with the verdict records: their ranges, what they skip, and why.

A verdict record is compared as a whole, once all of its range has been judged. Where one is missing or wrong,
its range is left out, and the comparison goes on behind it: nothing is reported twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC, LAST_DELTA
from processor.engine.verdict import Fault, Verdict
from processor.verify.align import Cursor
from processor.verify.report import Rule
from schemas.verdicts.record import UNKNOWN_TOPIC, Action, CorruptVerdictError, SourceSums, VerdictRecord, xored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.align import Stream
    from processor.verify.report import VerifyReport
    from processor.wire.decode import Piece


class _Judged(NamedTuple):
    """Records that were judged, and that no range has been compared with yet; all arrays are of n."""

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    passes: NDArray[np.bool_]
    fault: NDArray[np.uint8]
    verdict: NDArray[np.uint8]

    def rows(self, some: slice) -> _Judged:
        return _Judged(
            self.offset[some], self.timestamp[some], self.passes[some], self.fault[some], self.verdict[some]
        )


_NONE = np.zeros(0, np.int64)
_NOTHING = _Judged(_NONE, _NONE, _NONE.astype(np.bool_), _NONE.astype(np.uint8), _NONE.astype(np.uint8))


class VerdictCheck:
    """Compares one partition's verdict records.

    Args:
        stream: Of the topic, from the record on with which the ranges begin.
        report: Where findings go.
        topic_id: Of the source; zeros: not known.
        begin: The first offset that has to be in a range.
        counts: Whether what passes is counted here: there is no sink.
    """

    def __init__(
        self, stream: Stream, report: VerifyReport, topic_id: bytes, begin: int, *, counts: bool
    ) -> None:
        self._cursor = Cursor(stream)
        self._report = report
        self._topic_id = topic_id
        self._begin = self._covered = begin
        self._counts = counts
        self._first = True
        self._current: VerdictRecord | None = None
        self._judged = _NOTHING
        self._batches: list[tuple[int, int]] = []
        self._last_batch = begin - 1

    def note_batches(self, piece: Piece) -> None:
        """Note which batches of the source end in its next piece; before `expect` gets the records."""
        ends = piece.batches[:, BASE_OFFSET] + piece.batches[:, LAST_DELTA]
        for end, crc in zip(ends.tolist(), piece.batches[:, CRC].tolist(), strict=True):
            if self._last_batch < end < piece.next_offset:
                self._batches.append((end, crc))
                self._last_batch = end

    async def expect(
        self, columns: Columns, passes: NDArray[np.bool_], fault: NDArray[np.uint8], verdict: NDArray[np.uint8]
    ) -> None:
        """Take what becomes of the next records; the arrays are of n: whether it passes, `Fault`, `Verdict`."""
        before = int(np.searchsorted(columns.offset, self._begin))
        self._report.before_verdicts += int(np.count_nonzero(passes[:before])) if self._counts else 0
        columns = columns.rows(before, len(columns))
        passes, fault, verdict = passes[before:], fault[before:], verdict[before:]
        if not len(columns):
            return
        some = columns.offset.copy(), columns.timestamp.copy(), passes.copy(), fault.copy(), verdict.copy()
        joined = (np.concatenate([known, more]) for known, more in zip(self._judged, some, strict=True))
        self._judged = _Judged._make(joined)
        await self._compare(int(columns.offset[-1]) + 1)

    async def settle(self) -> None:
        """Conclude up to where the span ends: a range ends there, too."""
        await self._compare(self._report.stop)
        if self._covered < self._report.stop:
            self._missing(self._report.stop)

    async def exhausted(self) -> bool:
        """Whether every verdict record below the stream's floor is explained."""
        if self._current is not None:
            return False
        return not await self._cursor.ready(wait=False) or self._cursor.offset >= self._cursor.floor

    async def finish(self) -> None:
        """Report ranges that nobody has committed."""
        while not await self.exhausted():
            if self._current is None and await self._next(wait=False) is None:
                return
            if (found := self._current) is not None:
                detail = f"speaks of offsets {found.base} to {found.end - 1}, which no commit has taken in"
                self._wrong(found.base, detail)
                self._current = None

    async def _compare(self, known: int) -> None:
        """Compare all ranges that end at ``known`` or before it."""
        while self._covered < known and not self._report.given_up:
            found = self._current or await self._next(wait=True)
            if found is None or found.end > known:
                return
            stop = int(np.searchsorted(self._judged.offset, found.end))
            _Comparison(found, self._judged.rows(slice(stop)), self._sums(found, stop), self._report).all()
            self._report.sink += found.passed if self._counts else 0
            self._judged = self._judged.rows(slice(stop, None))
            self._covered, self._current = found.end, None

    def _sums(self, found: VerdictRecord, stop: int) -> SourceSums:
        ended = [crc for end, crc in self._batches if end < found.end]
        self._batches = self._batches[len(ended) :]
        return SourceSums().more(stop, xored(self._judged.timestamp[:stop]), np.array(ended, np.int64))

    async def _next(self, *, wait: bool) -> VerdictRecord | None:
        """Read on to the next record that goes on behind what is compared; None: there is none."""
        while await self._cursor.ready(wait=wait):
            columns, row = self._cursor.columns, self._cursor.row
            self._cursor.row += 1
            at, size = int(columns.value[row]), max(0, int(columns.value_length[row]))
            try:
                found = VerdictRecord.decode(columns.data[at : at + size].tobytes())
            except CorruptVerdictError as error:
                self._wrong(int(columns.offset[row]), str(error), of_source=False)
                continue
            if (problem := self._misplaced(found)) is not None:
                self._wrong(int(columns.offset[row]), problem, of_source=False)
                continue
            if found.base > self._covered:
                self._missing(found.base)
            self._first, self._current = False, found
            if found.end > found.base:
                return found
            self._current = None
        return None

    def _misplaced(self, found: VerdictRecord) -> str | None:
        if found.partition != self._report.partition:
            return f"is of source partition {found.partition}"
        if UNKNOWN_TOPIC not in {found.topic_id, self._topic_id} and found.topic_id != self._topic_id:
            return "was made from another topic by the source's name"
        if found.begins and not self._first:
            return f"says that the ranges begin at {found.base}, and there is one before it"
        if found.base < self._covered:
            return f"its range from {found.base} to {found.end - 1} overlaps with those up to {self._covered}"
        return None

    def _missing(self, end: int) -> None:
        """Report that no range covers what comes before ``end``, and leave it out."""
        detail = f"no verdict record speaks of offsets {self._covered} to {end - 1}; {self._cursor.name}"
        self._report.add(Rule.VERDICT_MISSING, self._covered, detail)
        self._judged = self._judged.rows(slice(int(np.searchsorted(self._judged.offset, end)), None))
        self._batches = [each for each in self._batches if each[0] >= end]
        self._covered = end

    def _wrong(self, offset: int, detail: str, *, of_source: bool = True) -> None:
        place = "" if of_source else f":{offset}"
        self._report.add(Rule.VERDICT_WRONG, offset, f"{self._cursor.name}{place}: {detail}")


class _Comparison(NamedTuple):
    """A verdict record, and what it must say."""

    found: VerdictRecord
    judged: _Judged
    sums: SourceSums
    report: VerifyReport

    def all(self) -> None:
        """Report all that differs."""
        found, judged = self.found, self.judged
        skipped = judged.offset[~judged.passes]
        for offset in np.setdiff1d(found.skipped, skipped, assume_unique=True).tolist():
            detail = "passes, and the verdicts skip it"
            if offset not in judged.offset:
                detail = "the verdicts skip it, and the source has no such record"
            self.report.add(Rule.LOST, offset, detail)
        for row in np.flatnonzero(~judged.passes & ~np.isin(judged.offset, found.skipped)).tolist():
            if judged.fault[row]:
                rule, detail = Rule.NOT_QUARANTINED, "cannot be judged, and the verdicts let it pass"
            else:
                label = Verdict(int(judged.verdict[row])).label
                rule, detail = Rule.DUPLICATE_PASSED, f"is {label}, and the verdicts let it pass"
            self.report.add(rule, int(judged.offset[row]), detail)
        for offset, detail in [*self._codes(), *self._of_source()]:
            self.report.add(Rule.VERDICT_WRONG, offset, detail)

    def _codes(self) -> Iterator[tuple[int, str]]:
        found, judged = self.found, self.judged
        aside = np.flatnonzero(~judged.passes & (judged.fault != 0))
        right = dict(zip(judged.offset[aside].tolist(), judged.fault[aside].tolist(), strict=True))
        said = dict(zip(found.quarantined.tolist(), found.faults.tolist(), strict=True))
        names = {0: "nothing", **{each.value: each.code for each in Fault if each}}
        yield from _differing(right, said, names, "of quarantine")
        collided = np.flatnonzero(judged.verdict == Verdict.COLLISION)
        dropped = np.where(judged.fault[collided] != 0, Action.QUARANTINE, Action.DROP)
        actions = np.where(judged.passes[collided], Action.PASS, dropped)
        right = dict(zip(judged.offset[collided].tolist(), actions.tolist(), strict=True))
        said = dict(zip(found.collided.tolist(), found.actions.tolist(), strict=True))
        names = {0: "nothing", **{each.value: each.name.lower() for each in Action}}
        yield from _differing(right, said, names, "of its collision")

    def _of_source(self) -> Iterator[tuple[int, str]]:
        names = ("records", "timestamps", "batches", "batches_crc")
        for name in names:
            said, right = getattr(self.found.sums, name), getattr(self.sums, name)
            if said != right:
                yield self.found.base, f"the range from here on: {name} is {said}, must be {right}"


def _differing(
    right: dict[int, int], said: dict[int, int], names: dict[int, str], what: str
) -> Iterator[tuple[int, str]]:
    for offset in sorted(right.keys() | said.keys()):
        must, found = right.get(offset, 0), said.get(offset, 0)
        if must != found:
            yield offset, f"the verdicts say {names[found]} {what}, must be {names[must]}"
