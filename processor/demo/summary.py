"""Counts what came in and what became of it, each beside the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.demo.check import DROPPED, CheckOutcome, Receipt
from processor.demo.picture import PictureTimes
from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.demo.aggregate import Aggregated, Hour
    from processor.demo.certify import DemoCertificate
    from processor.demo.drain import Drained
    from processor.generator.truth import Truth

_EXAMPLES = 2  # of a kind
COPIES = (RecordKind.RESEND, RecordKind.TAIL, RecordKind.LATE)


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One comparison."""

    what: str
    found: int
    truth: int

    @property
    def ok(self) -> bool:
        """Whether both agree."""
        return self.found == self.truth


@dataclass(slots=True)
class DemoChecks:
    """What a plain consumer found in one partition: the outcome, and the times for the picture."""

    outcome: CheckOutcome
    source_ms: NDArray[np.int64]
    sink_ms: NDArray[np.int64]
    kind: NDArray[np.uint8]

    def dropped_ms(self, kind: RecordKind) -> NDArray[np.int64]:
        """Event times of what was dropped, of one kind."""
        if self.outcome.fate.size != self.kind.size:
            return np.zeros(0, np.int64)
        rows: NDArray[np.bool_] = (self.kind == kind) & (self.outcome.fate == DROPPED)
        return self.source_ms[rows]


@dataclass(slots=True)
class DemoSummary:
    """All that the demo has to say at its end.

    Attributes:
        lines: Counts of records.
        aggregated: What Spark made of the clean topic.
        differences: Of the records and of the report, for people; empty where all agrees.
        certificate: What ``seqmark verify`` says.
        drained: How long it took.
        receipts: A few, to be shown.
    """

    lines: list[SummaryLine]
    aggregated: Aggregated
    differences: list[str]
    certificate: DemoCertificate
    drained: Drained
    records: int = field(default=0)
    receipts: Sequence[Receipt] = ()

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        agree = all(line.ok for line in self.lines)
        return agree and not self.wrong and self.certificate.ok

    @property
    def wrong(self) -> list[str]:
        """All differences, those of the aggregate too."""
        return [*self.differences, *self.aggregated.differences]

    @property
    def rate(self) -> float:
        """Records per second, the worker's start included."""
        return self.records / max(self.drained.seconds, 1e-9)

    @property
    def working_rate(self) -> float | None:
        """Records per second from the first commit on; None where it was too short to be seen."""
        return self.records / self.drained.working_s if self.drained.working_s > 0.1 else None

    def fields(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "ok": self.ok,
            "records": self.records,
            "counts": {line.what: {"found": line.found, "truth": line.truth} for line in self.lines},
            "hours": {hour.name: _hour(hour) for hour in self.aggregated.hours},
            "aggregate": {
                "rows": len(self.aggregated.found),
                "truth": len(self.aggregated.truth),
                "agree": self.aggregated.agree,
                "late": self.aggregated.late,
                "bad": self.aggregated.bad,
            },
            "worker_seconds": round(self.drained.seconds, 3),
            "records_per_second": round(self.rate),
            "spark_seconds": round(self.aggregated.seconds, 3),
            "differences": self.wrong,
            "certificate": self.certificate.ok,
            "receipts": [receipt.told for receipt in self.receipts],
        }


def _hour(hour: Hour) -> dict[str, Any]:
    if hour.open:
        return {"open": True, "spark": None, "truth": hour.truth.events, "revenue": None}
    revenue = {"spark": str(hour.found.revenue), "truth": str(hour.truth.revenue)}
    return {"open": False, "spark": hour.found.events, "truth": hour.truth.events, "revenue": revenue}


def count_lines(checked: Sequence[DemoChecks], truths: Sequence[Truth]) -> list[SummaryLine]:
    """Compare the counts that were found with the truth's."""
    passed: Counter[RecordKind] = Counter()
    dropped: Counter[RecordKind] = Counter()
    for each in checked:
        passed += each.outcome.passed
        dropped += each.outcome.dropped
    lines = [
        SummaryLine("in", sum(each.source_ms.size for each in checked), sum(map(len, truths))),
        SummaryLine("passed", sum(passed.values()), sum(int(truth.passes.sum()) for truth in truths)),
        SummaryLine("in the clean topic", sum(each.sink_ms.size for each in checked), 0),
    ]
    lines[2] = SummaryLine(lines[2].what, lines[2].found, lines[1].truth)
    again = SummaryLine(
        "passed again",
        sum(passed[kind] for kind in COPIES),
        sum(int((truth.passes & (truth.kind != RecordKind.FIRST)).sum()) for truth in truths),
    )
    if again.found or again.truth:
        lines.append(again)
    for kind in COPIES:
        expected = sum(int(((t.kind == kind) & (t.fault == 0) & ~t.passes).sum()) for t in truths)
        lines.append(SummaryLine(f"dropped: {kind.label}", dropped[kind], expected))
    lines.append(SummaryLine("dropped: first", dropped[RecordKind.FIRST], 0))
    receipts = sum(each.outcome.receipts for each in checked)
    lines.append(
        SummaryLine("receipts", receipts, sum(line.truth for line in lines if line.what.startswith("dropped")))
    )
    quarantined = sum(each.outcome.quarantined for each in checked)
    lines.append(SummaryLine("quarantined", quarantined, sum(int((t.fault > 0).sum()) for t in truths)))
    return lines


def examples(checked: Sequence[DemoChecks]) -> list[Receipt]:
    """Return a few receipts of each kind, of the first partitions that have some."""
    found = [receipt for each in checked for receipt in each.outcome.examples]
    return [receipt for kind in COPIES for receipt in [each for each in found if each.kind is kind][:_EXAMPLES]]


def times(checked: Sequence[DemoChecks]) -> PictureTimes:
    """Return what the picture shows."""
    return PictureTimes(
        np.concatenate([each.source_ms for each in checked]),
        np.concatenate([each.sink_ms for each in checked]),
        {kind: np.concatenate([each.dropped_ms(kind) for each in checked]) for kind in COPIES},
    )
