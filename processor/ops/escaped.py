"""Shows how many duplicates have escaped, as the escape gauge estimates it, to Prometheus and to people.

Pure numbers come in, one `EscapeReport` per pipeline of mode ``insert-id``; series are made when somebody
asks. All are since the worker's start, and of copies of records that this worker has judged, too: there can be
more.

    seqmark_escaped_duplicates{pipeline, reason}                about how many
    seqmark_escaped_duplicates_lower{pipeline, reason}          how many at least
    seqmark_escaped_duplicates_gap_windows{pipeline, reason}    histogram: how many windows after
    seqmark_escape_window_seconds{pipeline}                     a window that would catch 95 % of those
    seqmark_escape_sample_ratio{pipeline}                       the share of ids in the sample now
    seqmark_escape_sample_bytes{pipeline}                       what the sample takes
    seqmark_escape_gauge_failures_total{pipeline}               why it has switched itself off is in the log

Reasons: ``window``, the id had passed in this partition a window ago or more, so a longer window would have
caught the copy; ``partition``, it had passed in other partitions only, so ``route = "by-id"`` would have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

HORIZON_WINDOWS = 10
"""A copy that comes later than so many windows is not counted."""
CAUGHT_SHARE = 0.95
"""The share of escaped duplicates that a proposed window would have caught."""


BUCKETS = (0.05, 0.1, 0.5, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
"""Of the histogram, in windows; for other partitions mostly those below one."""


class EscapeReason(StrEnum):
    """What let a duplicate escape."""

    WINDOW = "window"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class EscapedCount:
    """How many escaped for one reason."""

    seen: int = 0
    """In the sample."""
    estimate: float = 0.0
    lower: float = 0.0
    gap_windows: tuple[tuple[float, float], ...] = tuple((gap, 0.0) for gap in BUCKETS)
    """How many (estimated) came at most so many windows after."""
    gap_sum_windows: float = 0.0
    first_windows: float = 0.0
    last_windows: float = 0.0
    """The least and the greatest gap seen."""
    caught_windows: float = 0.0
    """So many windows would have caught `CAUGHT_SHARE` of them."""


@dataclass(frozen=True, slots=True)
class EscapeReport:
    """What the gauge of one pipeline says."""

    window_s: float
    counts: Mapping[EscapeReason, EscapedCount] = field(
        default_factory=lambda: dict.fromkeys(EscapeReason, EscapedCount())
    )
    sample_ratio: float = 1.0
    sample_bytes: int = 0
    failures: int = 0
    off: bool = False
    """Whether it has switched itself off."""

    @property
    def window_to_catch_s(self) -> float | None:
        """The window that would have caught `CAUGHT_SHARE` of reason ``window``; None: none has escaped."""
        found = self.counts[EscapeReason.WINDOW]
        return found.caught_windows * self.window_s if found.seen else None

    @property
    def escaped(self) -> bool:
        """Whether any duplicate was seen to escape."""
        return any(count.seen for count in self.counts.values())

    def fields(self) -> dict[str, Any]:
        """Return the same for programs."""
        counts = {
            str(reason): {"estimate": count.estimate, "lower": count.lower}
            for reason, count in self.counts.items()
        }
        return {"escaped": {**counts, "window_s": self.window_to_catch_s}}

    def sentences(self) -> list[str]:
        """Say what escaped and what would have caught it; empty where nothing is known to have escaped."""
        said = []
        for reason, count in self.counts.items():
            if not count.seen:
                continue
            many = _many(count)
            ends = dict.fromkeys((_number(count.first_windows), _number(count.last_windows)))
            gaps = f"{' to '.join(ends)} windows"
            if reason is EscapeReason.WINDOW:
                seconds = self.window_to_catch_s or 0.0
                said.append(
                    f"{many} escaped: they came {gaps} after the record that had passed; a window of "
                    f"{window_text(seconds)} would catch {CAUGHT_SHARE:.0%} of them".replace("95%", "95 %")
                )
            else:
                said.append(
                    f"{many} escaped in other partitions, up to {_number(count.last_windows)} windows apart; "
                    'route = "by-id" would catch those inside the window'
                )
        return said


def _many(count: EscapedCount) -> str:
    low = math.floor(count.lower)
    if count.lower == count.estimate:
        return f"at least {low:,} duplicate{'' if low == 1 else 's'}"
    return f"about {round(count.estimate):,} duplicates (at least {low:,})"


def _number(windows: float) -> str:
    return f"{windows:.1f}" if windows >= 0.1 else "0"


def window_text(seconds: float) -> str:
    """Return a window as the config takes it, rounded up to a whole unit of at least a tenth of it."""
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 3 * unit_s:
            return f"{math.ceil(seconds / unit_s)}{unit}"
    return f"{max(1, math.ceil(seconds))}s"


class EscapeMetrics(Collector):
    """The series of all pipelines of one worker, made when they are asked for.

    Attributes:
        reports: By pipeline; each returns what there is to say now, and never raises.
    """

    def __init__(self) -> None:
        self.reports: dict[str, EscapeReport] = {}

    @override
    def collect(self) -> Iterator[Metric]:
        reports = dict(self.reports)
        yield from _counts(reports)
        yield _gaps(reports)
        yield from _sample(reports)

    def describe(self) -> Iterator[Metric]:
        """Tell the registry the names alone."""
        yield from EscapeMetrics().collect()


def _counts(reports: Mapping[str, EscapeReport]) -> Iterator[Metric]:
    labels = ("pipeline", "reason")
    number = GaugeMetricFamily(
        "seqmark_escaped_duplicates",
        "Duplicates that passed, by what let them, as a sample of ids says: copies of records that this worker "
        "has judged, too, since its start. There can be more.",
        labels=labels,
    )
    lower = GaugeMetricFamily(
        "seqmark_escaped_duplicates_lower",
        "At least so many of them, with 97.5 % confidence; all are counted where it is equal.",
        labels=labels,
    )
    for pipeline, report in reports.items():
        for reason, count in report.counts.items():
            for family, value in (number, count.estimate), (lower, count.lower):
                family.add_metric((pipeline, str(reason)), value)
    yield from (number, lower)


def _gaps(reports: Mapping[str, EscapeReport]) -> Metric:
    family = HistogramMetricFamily(
        "seqmark_escaped_duplicates_gap_windows",
        "How many windows after the record before them escaped duplicates came, as the sample says.",
        labels=("pipeline", "reason"),
    )
    for pipeline, report in reports.items():
        for reason, count in report.counts.items():
            buckets = [(str(gap), below) for gap, below in count.gap_windows]
            family.add_metric(
                (pipeline, str(reason)), [*buckets, ("+Inf", count.estimate)], count.gap_sum_windows
            )
    return family


def _sample(reports: Mapping[str, EscapeReport]) -> Iterator[Metric]:
    labels = ("pipeline",)
    window = GaugeMetricFamily(
        "seqmark_escape_window_seconds",
        "A window that would have caught 95 % of the duplicates that escaped for reason window.",
        labels=labels,
    )
    ratio = GaugeMetricFamily(
        "seqmark_escape_sample_ratio", "Share of ids that the escape gauge keeps; 0: it is off.", labels=labels
    )
    size = GaugeMetricFamily(
        "seqmark_escape_sample_bytes", "Memory of the escape gauge's sample of ids.", labels=labels
    )
    failures = CounterMetricFamily(
        "seqmark_escape_gauge_failures",
        "Failures of the escape gauge; it goes on, or is off, and nothing else is.",
        labels=labels,
    )
    for pipeline, report in reports.items():
        if (seconds := report.window_to_catch_s) is not None:
            window.add_metric((pipeline,), seconds)
        ratio.add_metric((pipeline,), 0.0 if report.off else report.sample_ratio)
        size.add_metric((pipeline,), report.sample_bytes)
        failures.add_metric((pipeline,), report.failures)
    yield from (window, ratio, size, failures)
