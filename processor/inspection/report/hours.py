"""Counts records per hour, and says whether they add up. Pure: columns of times in, counts out.

Memory is bounded by the hours that a plausible clock can show, not by the records: whatever lies outside
(a forged time, or a record without one) is counted as having no hour.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

HOUR_MS = 3_600_000
LAST_HOUR = 230 * 8766
"""The end of the year 2199, in hours of 1970 on: two million of them at most."""


class Fate(StrEnum):
    """What has become of a record of the source, in the words of the report."""

    CLEAN = "clean"
    DUPLICATE = "duplicate"
    LATE = "late"
    COLLISION = "collision"
    """Dropped: of those that are not, see `Flow.collided`."""
    QUARANTINED = "quarantined"
    WAITING = "not judged yet"


COLLIDES = {"drop": Fate.COLLISION, "quarantine": Fate.QUARANTINED}
"""What becomes of a collision, by ``on_collision``; by any other it is in the clean topic."""


class Hours:
    """Counts records by the hour of their timestamp (UTC)."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """By the hour's number, counted from 1970."""
        self.without = 0
        """Records whose time is no plausible one."""

    @property
    def total(self) -> int:
        """All that were added."""
        return self.counts.total() + self.without

    def add(self, timestamp_ms: NDArray[np.int64]) -> None:
        """Count the records of a column, int64[n]."""
        hours = timestamp_ms // HOUR_MS
        right = (hours >= 0) & (hours < LAST_HOUR)
        self.without += int(hours.size - np.count_nonzero(right))
        found, counts = np.unique(hours[right], return_counts=True)
        self.counts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    def less(self, *others: Hours) -> Hours:
        """Return what is left by the hour without ``others``; never below nothing."""
        rest = Hours()
        rest.counts = self.counts.copy()
        for other in others:
            rest.counts -= other.counts  # keeps what is above 0
        rest.without = max(self.without - sum(other.without for other in others), 0)
        return rest


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was read of one partition.

    Attributes:
        start: The first offset that is retained.
        stop: The last stable offset as it was when the reading began: what lies behind is not in the report.
        records: How many were there between them, aborted ones and control records left out.
    """

    topic: str
    partition: int
    start: int
    stop: int
    records: int


@dataclass(slots=True)
class Flow:
    """One pipeline, counted.

    Attributes:
        sink: None where verdicts take its place.
        duplicates: None where there is none: then what was dropped is what is missing elsewhere.
        quarantine: None where there is none.
        raw: Records of the source by the hour.
        fates: What became of them by the hour. What was dropped without a receipt is in ``DUPLICATE``.
        stretches: What was read.
        notes: What a reader has to know, sentences.
        problems: What could not be read, sentences: then the counts are not whole.
        collided: Collisions by the hour that are in the clean topic or in quarantine, by that fate: it counts
            them as well.
        on_collision: As configured; None without a fingerprint.
        observed: Receipts and copies in quarantine of records that passed all the same: they are clean.
        by_sequence: Whether records are judged by sequences: by ids none is late.
    """

    name: str
    source: str
    sink: str | None
    duplicates: str | None
    quarantine: str | None
    raw: Hours
    fates: Mapping[Fate, Hours]
    stretches: list[Stretch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    collided: Mapping[Fate, Hours] = field(
        default_factory=lambda: {Fate.CLEAN: Hours(), Fate.QUARANTINED: Hours()}
    )
    on_collision: str | None = None
    by_sequence: bool = True
    observed: int = 0

    @property
    def told_apart(self) -> list[Fate]:
        """The fates that this pipeline distinguishes, which are worth a column."""
        told = {
            Fate.LATE: self.duplicates is not None and (self.by_sequence or self.fates[Fate.LATE].total > 0),
            Fate.COLLISION: self.duplicates is not None and self._can_be(Fate.COLLISION, self.fates),
            Fate.QUARANTINED: self.quarantine is not None,
        }
        return [fate for fate in Fate if told.get(fate, True)]

    @property
    def collided_in(self) -> list[Fate]:
        """The fates beside ``COLLISION`` in which collisions are, or would be, and are counted once more."""
        told = self.collided if self.duplicates is not None else ()
        return [fate for fate in told if self._can_be(fate, self.collided)]

    @property
    def has_collisions(self) -> bool:
        """Whether the pipeline tells records of one id apart, or has done so."""
        return bool(self.on_collision is not None or self.collided_in or self.fates[Fate.COLLISION].total)

    def _can_be(self, fate: Fate, counted: Mapping[Fate, Hours]) -> bool:
        """Return whether collisions have this fate, as it was counted or by the config."""
        configured = self.on_collision is not None and COLLIDES.get(self.on_collision, Fate.CLEAN) is fate
        return configured or counted[fate].total > 0

    @staticmethod
    def collided_name(fate: Fate) -> str:
        """Return what collisions in this fate are called."""
        return f"collisions in {'quarantine' if fate is Fate.QUARANTINED else fate.value}"

    def fate_name(self, fate: Fate) -> str:
        """Return what a fate is called here: without receipts nobody knows which kind was dropped."""
        return "dropped" if fate is Fate.DUPLICATE and self.duplicates is None else fate.value

    def fate_words(self, fate: Fate) -> str:
        """Return the same where there is room to say what the verdict ``late`` means."""
        return f"{fate.value}: below the sequence watermark" if fate is Fate.LATE else self.fate_name(fate)

    @property
    def dropped(self) -> int:
        """Records that were kept out of the clean topic by the rules."""
        return sum(self.fates[fate].total for fate in (Fate.DUPLICATE, Fate.LATE, Fate.COLLISION))

    @property
    def unexplained(self) -> int:
        """Records of the source without a fate; negative where there are more fates than records."""
        return self.raw.total - sum(hours.total for hours in self.fates.values())

    @property
    def hours(self) -> range:
        """From the first hour in which anything was counted to the last; empty where nothing was."""
        seen = [hour for each in (self.raw, *self.fates.values()) for hour in each.counts]
        return range(min(seen), max(seen) + 1) if seen else range(0)
