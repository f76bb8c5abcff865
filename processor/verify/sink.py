"""Compares what passes with the sink: exactly that, as it came and in its order.

While both agree, whole pieces are compared byte for byte by one kernel. From the first difference on
fingerprints identify records, until both sides agree again. Records that collide are compared as the config
lets them go on: the worker's own edits are written into copies of the records, which are read as columns again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.batch.fingerprints import PARTS
from processor.engine.verdict import Verdict
from processor.verify.align import LOOK_AHEAD, AlignedRecord, Aligner
from processor.verify.report import Rule
from processor.wire.edited import edited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.batch.edits import Edits
    from processor.verify.align import Stream
    from processor.verify.recent import RecentRecords, SourceRecord
    from processor.verify.report import VerifyReport

_ALIGNED_WITHIN = 64
"""At least one of so many records after a changed one has to be as it must be; else it counts as another."""


GOES = {
    "pass": "goes on as it came",
    "tag": "goes on with a tag",
    "rename": "goes on under a new id",
    "quarantine": "goes into quarantine",
    "drop": "is dropped",
}
"""What becomes of a record that collides, by ``on_collision``; for messages."""


class SinkCheck(Aligner):
    """Compares what passes with the sink; ``on_collision`` says what becomes of records that collide."""

    def __init__(
        self, stream: Stream, report: VerifyReport, recent: RecentRecords, on_collision: str = "pass"
    ) -> None:
        super().__init__(stream, report, recent)
        self._on_collision = on_collision

    async def expect(self, columns: Columns, rows: NDArray[np.int64], edits: Edits | None = None) -> None:
        """Compare the passing ``rows`` with what comes next, some of them with edits.

        ``columns`` has all of `RecentRecords`'s rows at hand.
        """
        for some, passing in _in_sink(columns, rows, edits):
            await self._expect(some, passing)

    async def _expect(self, columns: Columns, rows: NDArray[np.int64]) -> None:
        at = 0
        while at < rows.size:
            if self.even:
                at += await self.match(columns, rows[at:])
            if at < rows.size:
                step = rows[at : at + LOOK_AHEAD]
                self.expected.extend(self._expected(columns, step))
                at += step.size
                await self.settle(final=False)

    def _expected(self, columns: Columns, rows: NDArray[np.int64]) -> Iterator[AlignedRecord]:
        start, stop = int(rows[0]), int(rows[-1]) + 1
        marks = self.recent.marks(columns, start, stop)
        for row in rows.tolist():
            yield AlignedRecord(int(columns.offset[row]), marks[row - start])

    @override
    def read(self, columns: Columns, start: int, stop: int) -> Iterable[AlignedRecord]:
        marks = self.recent.marks(columns, start, stop)
        return map(AlignedRecord, columns.offset[start:stop].tolist(), marks)

    @override
    def count(self, records: int) -> None:
        self.report.sink += records

    @override
    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Do nothing: a fingerprint says it all."""

    @override
    def missing(self, expected: AlignedRecord) -> None:
        known = self.recent.at(expected.offset)
        why = self._collides(known) or "passes"
        if known is not None and known.observed:
            why = f"is {known.verdict.label}, passes as the pipeline observed"
        detail = f"{why}, and is not in the sink; missed before {self._place()}"
        self.report.add(Rule.LOST, expected.offset, detail)

    @override
    def surplus(self, found: AlignedRecord) -> None:
        known = self._explained(found)
        here = f"{self.cursor.name}:{found.offset}"
        if known is None:
            self.report.add(Rule.EXTRA, found.offset, f"{here} is nothing that passes in the source here")
            return
        collides = self._collides(known)
        rule = Rule.DUPLICATE_PASSED
        detail = f"{collides or f'is {known.verdict.label}'}, and stands in the sink at {here}"
        if known.verdict is Verdict.QUARANTINE and not known.observed:
            rule, detail = Rule.NOT_QUARANTINED, f"cannot be judged, and stands in the sink at {here}"
        elif self._passes(known):
            detail = f"stands in the sink once more, at {here}"
        elif collides and self._on_collision == "quarantine":
            rule = Rule.NOT_QUARANTINED
        elif collides and self._on_collision != "drop":
            detail = f"{collides}, and stands in the sink as it came, at {here}"
        self.report.add(rule, known.offset, detail)

    @override
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Report a known record, a changed one, or a loss further ahead than this looks."""
        known, here = self._explained(found), f"{self.cursor.name}:{found.offset}"
        collides = self._collides(self.recent.at(expected.offset))
        if known is not None and known.offset == expected.offset:
            # One record is expected with an edit, and found without.
            self.report.add(Rule.CHANGED, expected.offset, f"{collides}, and stands at {here} as it came")
            self.drop_both()
            return
        if known is not None:
            self.surplus(self.drop_found())
            return
        parts = [name for name, part in PARTS.items() if expected.key[part] != found.key[part]]
        if "value" not in parts or self._aligned():
            detail = f"differs at {here} in: {', '.join(parts)}"
            if collides:
                detail = f"{collides}, and {detail}"
            self.report.add(Rule.CHANGED, expected.offset, detail)
            self.drop_both()
        else:
            self.missing(self.expected.pop())

    def _aligned(self) -> bool:
        """Whether what follows the heads is the same at the same distance, or nothing follows."""
        both = min(len(self.expected), len(self.found))
        if len(self.expected) == len(self.found) == 1:
            return True
        within = range(1, min(both, _ALIGNED_WITHIN))
        return any(self.expected[i].key == self.found[i].key for i in within)

    def _explained(self, found: AlignedRecord) -> SourceRecord | None:
        """Return the source record that this is: best one that must not pass, and of those the nearest."""
        near = self.expected[0].offset if self.expected else self.report.stop

        def rank(known: SourceRecord) -> tuple[bool, bool, int]:
            distance = abs(near - known.offset)
            return self._passes(known), known.verdict is Verdict.QUARANTINE, distance

        return min(self.recent.same(found.key), key=rank, default=None)

    def _passes(self, known: SourceRecord) -> bool:
        """Whether the sink holds a record in this form."""
        collided = known.verdict is Verdict.COLLISION and self._on_collision == "pass"
        return known.verdict is Verdict.PASS or collided or known.observed

    def _collides(self, known: SourceRecord | None) -> str:
        """Say what becomes of a record that collides; of all others nothing."""
        if known is None or known.verdict is not Verdict.COLLISION or known.observed:
            return ""
        return f"collides with an earlier record, {GOES[self._on_collision]}"


def _in_sink(
    columns: Columns, rows: NDArray[np.int64], edits: Edits | None
) -> Iterator[tuple[Columns, NDArray[np.int64]]]:
    """Yield the passing ``rows`` (int64[k], rising) as the sink must have them: columns, and which of theirs.

    Without edits nothing is copied; else what is yielded holds `LOOK_AHEAD` records at most.
    """
    if edits is None:
        yield columns, rows
        return
    for start in range(0, rows.size, LOOK_AHEAD):
        some = rows[start : start + LOOK_AHEAD]
        ours = edits.between(int(some[0]), int(some[-1]))
        if ours.row.size:
            yield edited(columns, some, ours), np.arange(some.size)
        else:
            yield columns, some
