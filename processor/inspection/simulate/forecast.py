"""What a simulation has found for one way of judging, as tables, page and JSON show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.simulate.windows import WindowPrediction
    from schemas.config import InsertIdDedup, WatermarkDedup


class JudgingWay(NamedTuple):
    """One way of judging.

    Attributes:
        name: ``configured``; ``proposed`` where the records show another one; ``compared``: the configured one
            with another scope, or by content.
        dedup: The table ``dedup``.
        why: What speaks for it.
    """

    name: str
    dedup: InsertIdDedup | WatermarkDedup
    why: str

    @property
    def title(self) -> str:
        """How it is called in sentences."""
        return "for comparison" if self.name == "compared" else f"judged as {self.name}"


@dataclass(frozen=True)
class JudgedCounts:
    """What became of the records that were looked at, as far as no window decides it.

    Attributes:
        records: All of them.
        quarantined: By code, those that cannot be judged.
        unjudged: Those that pass for lack of an id.
        span_ms: How far the clocks went, from the first reading to the last.
        behind: Those with a timestamp below their partition's clock.
        ahead: Those with one further ahead of this machine's clock than is believed.
    """

    records: int
    quarantined: dict[str, int]
    unjudged: int = 0
    span_ms: int = 0
    behind: int = 0
    ahead: int = 0

    @property
    def judgeable(self) -> int:
        """How many got a verdict."""
        return self.records - self.unjudged - sum(self.quarantined.values())


class SharedPart(NamedTuple):
    """What became of the records that all ways have taken: who compares ways compares these.

    Attributes:
        records: All of them.
        faulty: Those that cannot be judged.
        passed: Those that the best reorder window lets pass; 0 in mode insert-id.
    """

    records: int
    faulty: int
    passed: int = 0


class ScopeOutcome(NamedTuple):
    """What windows do in one scope: where ids meet.

    Attributes:
        rows: Of each window, from short to long.
        forever: Of one that never ends.
        filtered: As ``rows``, by Bloom filters: an id goes with its bucket. Empty where there are
            fingerprints.
        curve: Of many windows, or none.
    """

    rows: Sequence[WindowPrediction]
    forever: WindowPrediction
    filtered: Sequence[WindowPrediction] = ()
    curve: Sequence[WindowPrediction] = ()

    def in_any_order(self, judged: int) -> ScopeOutcome:
        """Return it with bounds that hold in whatever order partitions are read that meet."""
        rows, filtered = (
            [row.in_any_order(self.forever, judged) for row in each] for each in (self.rows, self.filtered)
        )
        return self._replace(rows=rows, filtered=filtered)


@dataclass(frozen=True)
class IdForecast:
    """Mode insert-id.

    Attributes:
        way: How was judged.
        judged: See there.
        rate: The part of the ids that was looked at; 1: all.
        exact: Whether all was counted.
        partitions: How many the source has, and the sink with a route.
        apart: What windows do where equal ids of different partitions do not meet.
        together: What they do with ``route = "by-id"``.
        curve: Of many windows, as configured, from short to long.
        crossing: Copies whose first record is in another partition.
        meet: Whether records came from several partitions.
        shared: What all ways took.
    """

    way: JudgingWay
    judged: JudgedCounts
    rate: float
    exact: bool
    partitions: tuple[int, int]
    apart: ScopeOutcome
    together: ScopeOutcome
    curve: Sequence[WindowPrediction]
    crossing: float
    meet: bool
    shared: SharedPart

    @property
    def dedup(self) -> InsertIdDedup:
        """The table ``dedup``."""
        return self.way.dedup  # type: ignore[return-value]  # made of ways by ids only

    @property
    def order_matters(self) -> bool:
        """Whether what is configured depends on the order in which the partitions are read."""
        return self.dedup.route is not None and self.meet

    @property
    def configured(self) -> Sequence[WindowPrediction]:
        """What each window does in the scope of the config."""
        return (self.apart if self.dedup.route is None else self.together).rows


class ReorderRow(NamedTuple):
    """What one reorder window does: records by verdict, and what its scopes take.

    Attributes:
        new: Of those that it drops, how many have a content that never passed; about, with ``share`` below 1.
        share: The part of the numbers that was looked at for that.
    """

    reorder_window: int
    passed: int
    duplicates: int
    late: int
    scope_bytes: int = 0
    new: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class SequenceForecast:
    """Mode watermark.

    Attributes:
        way: How was judged.
        judged: See there.
        rows: By reorder window, rising.
        scopes: How many there are; 0: one per partition.
        stopped: Whether scopes became too many, and the rest was not judged.
        left_out: Reorder windows that would have taken too much memory, beside the configured one.
        shared: What all ways took.
    """

    way: JudgingWay
    judged: JudgedCounts
    rows: Sequence[ReorderRow]
    scopes: int
    stopped: bool
    left_out: Sequence[int]
    shared: SharedPart
    curve = ()
    """Of sequences there is none."""

    @property
    def dedup(self) -> WatermarkDedup:
        """The table ``dedup``."""
        return self.way.dedup  # type: ignore[return-value]  # made of ways by sequences only

    @property
    def configured(self) -> ReorderRow:
        """What the reorder window of the config does."""
        return next(row for row in self.rows if row.reorder_window == self.dedup.reorder_window)


Forecast = IdForecast | SequenceForecast


@dataclass
class Simulation:
    """All that was found for one pipeline.

    Attributes:
        pipeline: Its name.
        source: The topic.
        partitions: How many it has.
        forecasts: The configured way first.
        notes: What could not be read, or is to be known.
        cpu_s: What reading and judging took.
        changing: Members of the value that differ between copies.
        candidates: Places that nearly tell records apart, or rise, with what was counted of them.
    """

    pipeline: str
    source: str
    partitions: int
    forecasts: list[Forecast] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    changing: list[str] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
