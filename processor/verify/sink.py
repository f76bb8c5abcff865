"""Does the sink hold exactly what passes, as it came and in its order?

While it does, whole pieces are compared byte for byte by one kernel. From the first difference on records are
told apart by fingerprints, until both sides agree again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.engine.batch.fingerprints import PARTS
from processor.engine.verdict import Verdict
from processor.verify.align import LOOK_AHEAD, Advance, AlignedRecord, Aligner
from processor.verify.report import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.cursor import Cursor
    from processor.verify.recent import RecentRecords, SourceRecord
    from processor.verify.report import VerifyReport

_ALIGNED_WITHIN = 64
"""Records after a changed one of which one at least has to be as it must be; else it is taken for another."""


class SinkCheck(Aligner):
    """Compares what passes with the sink.

    Args:
        tape: The sink.
        report: Where violations go.
        history: The source near here.
    """

    def __init__(self, tape: Cursor, report: VerifyReport, history: RecentRecords) -> None:
        super().__init__(tape, report)
        self._history = history

    async def expect(self, columns: Columns, rows: NDArray[np.int64]) -> None:
        """Compare the passing ``rows`` with what comes next; all of `RecentRecords`'s rows are at hand."""
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
        marks = self._history.marks(columns, start, stop)
        for row in rows.tolist():
            yield AlignedRecord(int(columns.offset[row]), marks[row - start])

    def lines(self, columns: Columns, start: int, stop: int) -> Iterable[AlignedRecord]:
        """See `Aligner.lines`."""
        marks = self._history.marks(columns, start, stop)
        return map(AlignedRecord, columns.offset[start:stop].tolist(), marks)

    def count(self, records: int) -> None:
        """See `Aligner.count`."""
        self.report.sink += records

    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """See `Aligner.same`: the key says it all."""

    def missing(self, expected: AlignedRecord) -> None:
        """See `Aligner.missing`."""
        place = f"{self.tape.name}:{self.found.head.offset}" if self.found else f"the end of {self.tape.name}"
        self.report.add(Rule.LOST, expected.offset, f"passes, and is not in the sink; missed before {place}")

    def surplus(self, found: AlignedRecord) -> None:
        """See `Aligner.surplus`."""
        known = self._explained(found)
        here = f"{self.tape.name}:{found.offset}"
        if known is None:
            self.report.add(Rule.EXTRA, found.offset, f"{here} is nothing that passes in the source here")
        elif known.verdict is Verdict.QUARANTINE:
            detail = f"cannot be judged, and stands in the sink at {here}"
            self.report.add(Rule.NOT_QUARANTINED, known.offset, detail)
        elif known.verdict is Verdict.PASS:
            self.report.add(Rule.DUPLICATE_PASSED, known.offset, f"stands in the sink once more, at {here}")
        else:
            detail = f"is {known.verdict.label}, and stands in the sink at {here}"
            self.report.add(Rule.DUPLICATE_PASSED, known.offset, detail)

    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> Advance:
        """See `Aligner.neither`: a known record, a changed one, or a loss further than can be looked."""
        if self._explained(found) is not None:
            self.surplus(found)
            return Advance.FOUND
        parts = [name for name, part in PARTS.items() if _mark(expected)[part] != _mark(found)[part]]
        if "value" not in parts or self._aligned():
            detail = f"differs at {self.tape.name}:{found.offset} in: {', '.join(parts)}"
            self.report.add(Rule.CHANGED, expected.offset, detail)
            return Advance.BOTH
        self.missing(expected)
        return Advance.EXPECTED

    def _aligned(self) -> bool:
        """Whether what follows the heads is the same at the same distance, or nothing follows."""
        both = min(len(self.expected), len(self.found))
        if len(self.expected) == len(self.found) == 1:
            return True
        within = range(1, min(both, _ALIGNED_WITHIN))
        return any(self.expected.at(i).key == self.found.at(i).key for i in within)

    def _explained(self, found: AlignedRecord) -> SourceRecord | None:
        """Return the source record that this is: best one that must not pass, and of those the nearest."""
        known = self._history.same(_mark(found))
        place = self.expected.head.offset if self.expected else self.report.stop
        return min(
            known,
            key=lambda each: (
                each.verdict is Verdict.PASS,
                each.verdict is Verdict.QUARANTINE,
                abs(place - each.offset),
            ),
            default=None,
        )


def _mark(line: AlignedRecord) -> bytes:
    assert isinstance(line.key, bytes)  # noqa: S101 - made here
    return line.key
