"""Counts what came in and what became of it, each beside the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.demo.check import COPIES, CheckOutcome, Receipt
from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.demo.aggregate import Aggregated, Hour
    from processor.demo.census import Census
    from processor.demo.processes import DemoCertificate, Drained
    from processor.demo.verdicts import TopicBytes
    from processor.generator.truth import Truth

_EXAMPLES = 2  # of a kind


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
    """What a plain consumer found in one partition: the outcome, event times for the picture, and offsets."""

    outcome: CheckOutcome
    source_ms: NDArray[np.int64]
    sink_ms: NDArray[np.int64]
    kind: NDArray[np.uint8]
    sink_offset: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def times_ms(self, kind: RecordKind, fate: int) -> NDArray[np.int64]:
        """Event times of what became of one kind: `PASSED`, `DROPPED` or `QUARANTINED`."""
        if self.outcome.fate.size != self.kind.size:
            return np.zeros(0, np.int64)
        rows: NDArray[np.bool_] = (self.kind == kind) & (self.outcome.fate == fate)
        return self.source_ms[rows]


@dataclass(slots=True)
class DemoSummary:
    """All that the demo has to say at its end; ``differences`` are those of the records and of the report."""

    lines: list[SummaryLine]
    aggregated: Aggregated | None
    """None where there is no Spark."""
    differences: list[str]
    certificate: DemoCertificate
    drained: Drained
    records: int
    receipts: Sequence[Receipt] = ()
    census: Census | None = None
    """What Spark counted, where the mode tells collisions apart."""
    taken: TopicBytes | None = None
    """What a clean topic takes, where the mode writes verdicts in its place."""

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return all(line.ok for line in self.lines) and not self.wrong and self.certificate.ok

    @property
    def wrong(self) -> list[str]:
        """All differences, those of the aggregate too."""
        return [*self.differences, *(self.aggregated.differences if self.aggregated else [])]

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
            **_aggregate(self.aggregated),
            "worker_seconds": round(self.drained.seconds, 3),
            "records_per_second": round(self.rate),
            "differences": self.wrong,
            "certificate": self.certificate.ok,
            "receipts": [each.told for each in self.receipts if each.kind in COPIES],
            "collisions": [each.told for each in self.receipts if each.kind not in COPIES],
            **({} if self.taken is None else {"bytes": self.taken._asdict()}),
        }


def _aggregate(found: Aggregated | None) -> dict[str, Any]:
    """Return what is told of the aggregate; without Spark there is none."""
    if found is None:
        return {"hours": {}, "aggregate": None, "spark_seconds": None}
    return {
        "hours": {hour.name: _hour(hour) for hour in found.hours},
        "aggregate": {
            "rows": len(found.found),
            "truth": len(found.truth),
            "agree": found.agree,
            "late": found.late,
            "bad": found.bad,
        },
        "spark_seconds": round(found.seconds, 3),
    }


def _hour(hour: Hour) -> dict[str, Any]:
    if hour.open:
        return {"open": True, "spark": None, "truth": hour.truth.events, "revenue": None}
    revenue = {"spark": str(hour.found.revenue), "truth": str(hour.truth.revenue)}
    return {"open": False, "spark": hour.found.events, "truth": hour.truth.events, "revenue": revenue}


def count_lines(
    checked: Sequence[DemoChecks], truths: Sequence[Truth], clean: str = "in the clean topic"
) -> list[SummaryLine]:
    """Compare the counts that were found with the truth's; ``clean`` says where what passed was found."""
    outcomes = [each.outcome for each in checked]
    passed = sum((each.passed for each in outcomes), Counter[RecordKind]())
    dropped = sum((each.dropped for each in outcomes), Counter[RecordKind]())
    passes, kinds, faults = (
        np.concatenate([getattr(truth, name) for truth in truths]) for name in ("passes", "kind", "fault")
    )
    must_drop = Counter(kinds[~passes & (faults == 0)].tolist())
    sure = int(passes.sum())
    lines = [
        SummaryLine("in", sum(each.source_ms.size for each in checked), kinds.size),
        SummaryLine("passed", passed.total(), sure),
        SummaryLine(clean, sum(each.sink_ms.size for each in checked), sure),
    ]
    again = int((passes & np.isin(kinds, list(COPIES))).sum())
    found = sum(passed[kind] for kind in COPIES)
    if found or again:
        lines.append(SummaryLine("passed again", found, again))
    collided = int((kinds == RecordKind.COLLISION).sum())
    if collided:
        noted = sum(each.notes for each in outcomes)
        lines += [
            SummaryLine("collisions passed", passed[RecordKind.COLLISION], collided),
            SummaryLine("notes of collisions", noted, collided),
        ]
    drops = [SummaryLine(f"dropped: {kind.label}", dropped[kind], must_drop[kind]) for kind in COPIES]
    return [
        *lines,
        *drops,
        SummaryLine("dropped: first", dropped[RecordKind.FIRST], 0),
        SummaryLine("receipts", sum(each.receipts for each in outcomes), sum(line.truth for line in drops)),
        SummaryLine("quarantined", sum(each.quarantined for each in outcomes), int((faults > 0).sum())),
    ]


def census_lines(found: Census, truth: Census) -> list[SummaryLine]:
    """Compare what Spark counted with what is there."""
    names = ("events", "ids", "users", "events saved", "users saved")
    return [SummaryLine(f"Spark: {name}", *pair) for name, *pair in zip(names, found, truth, strict=True)]


def examples(checked: Sequence[DemoChecks]) -> list[Receipt]:
    """Return a few receipts of each kind, of the first partitions that have some, then notes of collisions."""
    found = [receipt for each in checked for receipt in each.outcome.examples]
    kinds = (*COPIES, RecordKind.COLLISION)
    return [receipt for kind in kinds for receipt in [each for each in found if each.kind is kind][:_EXAMPLES]]
