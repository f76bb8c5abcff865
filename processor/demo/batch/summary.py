"""Counts what became of the archive's rows, each beside the truth, and tells it to programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Column, Table

from processor.demo.batch.archive import COLLISIONS_AT_REST, COPIES_AT_REST, DAYS, RowKind, all_rows
from processor.demo.summary import SummaryLine
from processor.demo.tables import mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.demo.batch.runs import ArchiveRuns
    from processor.demo.batch.stream import StreamRun


class DateLine(NamedTuple):
    """One date: rows of the table and their prices in cents, as found and as they must be."""

    date: str
    rows: int
    true_rows: int
    cents: int
    true_cents: int

    @property
    def ok(self) -> bool:
        """Whether both agree."""
        return (self.rows, self.cents) == (self.true_rows, self.true_cents)


@dataclass(slots=True)
class ArchiveSummary:
    """All that the demo has to say at its end."""

    lines: list[SummaryLine]
    dates: list[DateLine]
    runs: ArchiveRuns
    stream: StreamRun
    differences: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        agree = [*(line.ok for line in self.lines), *(each.ok for each in self.dates)]
        return not self.differences and all(agree)

    def fields(self) -> dict[str, Any]:
        """Return it for programs."""
        killed = self.runs.killed
        return {
            "ok": self.ok,
            "counts": {line.what: {"found": line.found, "truth": line.truth} for line in self.lines},
            "dates": {each.date: _date(each) for each in self.dates},
            "runs": {each.run: {"commit": each.commit, **each.counts} for each in self.runs.outcomes},
            "killed": {"signal": killed.signal, "files_left": killed.left, "rows_that_count": killed.counted},
            "differences": self.differences,
            "seconds": round(self.runs.seconds + self.stream.seconds, 3),
        }


def _date(line: DateLine) -> dict[str, Any]:
    return {
        "rows": {"found": line.rows, "truth": line.true_rows},
        "cents": {"found": line.cents, "truth": line.true_cents},
    }


def summarise_archive(runs: ArchiveRuns, stream: StreamRun, differences: Sequence[str]) -> ArchiveSummary:
    """Put what was found beside the truth; ``differences`` are those that the runs do not know."""
    checked, rows = runs.checked, list(all_rows(runs.days))
    truth = Counter(row.kind for row in rows)
    collisions = sum(truth[kind] for kind in COLLISIONS_AT_REST)
    read = sum(each.counts["read"] for each in runs.outcomes[:-1])
    lines = [
        SummaryLine("rows of three days", read, len(rows)),
        SummaryLine("kept", checked.kept.total(), truth[RowKind.FIRST] + collisions),
        *(SummaryLine(f"dropped: {kind.value}", checked.dropped[kind], truth[kind]) for kind in COPIES_AT_REST),
        *(
            SummaryLine(f"kept under a new id: {kind.value}", checked.kept[kind], truth[kind])
            for kind in COLLISIONS_AT_REST
        ),
        SummaryLine("receipts of collisions", checked.notes, collisions),
        SummaryLine("quarantined", checked.quarantined, truth[RowKind.BAD]),
        SummaryLine("lost although sent only once", truth[RowKind.FIRST] - checked.kept[RowKind.FIRST], 0),
        SummaryLine("rows of the killed run that count", runs.killed.counted, 0),
        *_stream_lines(stream),
    ]
    wrong = [*runs.differences, *stream.checked.differences, *differences]
    return ArchiveSummary(lines, _dates(runs), runs, stream, wrong)


def _stream_lines(stream: StreamRun) -> list[SummaryLine]:
    became, truth = stream.checked.became, Counter(row.kind for row in stream.rows)
    names = {
        "passed as they came": (RowKind.FIRST,),
        "dropped: copy of a row of the files": (RowKind.COPY_ACROSS,),
        "dropped: copy within the topic": (RowKind.COPY,),
        "passed under a new id: same id, other content": COLLISIONS_AT_REST,
        "quarantined on the topic": (RowKind.BAD,),
    }
    return [
        SummaryLine("clicks of the day on the topic", stream.checked.source, len(stream.rows)),
        *(
            SummaryLine(name, sum(became[kind] for kind in kinds), sum(truth[kind] for kind in kinds))
            for name, kinds in names.items()
        ),
    ]


def _dates(runs: ArchiveRuns) -> list[DateLine]:
    kept = {RowKind.FIRST, *COLLISIONS_AT_REST}
    rows, cents = Counter[int](), Counter[int]()
    for row in all_rows(runs.days):
        if row.kind in kept:
            rows[row.date] += 1
            cents[row.date] += row.price
    checked = runs.checked
    return [
        DateLine(name, checked.by_date[date], rows[date], checked.revenue[date], cents[date])
        for date, name in enumerate(DAYS)
    ]


def dates_table(dates: Sequence[DateLine]) -> Table:
    """Return what counts by date, beside the truth."""
    heads = ("kept rows", "truth", "revenue", "truth")
    table = Table("date (UTC)", *(Column(head, justify="right") for head in heads), "")
    for each in dates:
        sums = (f"{each.cents / 100:,.2f}", f"{each.true_cents / 100:,.2f}")
        table.add_row(each.date, f"{each.rows:,}", f"{each.true_rows:,}", *sums, mark(ok=each.ok))
    return table
