"""Predicts for every window at once what mode insert-id would drop, with an interval. Pure.

What does not pass is all but what passes, and that is what is estimated: an id passes once per window at most,
however many records it has, so that a few ids with very many records do not spoil the estimate as they would
one of the duplicates themselves. Ids are in the sample by their hash, independently: the variance of a sum over
them is (1 - rate) / rate² times the sum of squares over the sample. An id outside the sample can still pass
more often than any within it: 65,536 counters of all records by hash tell how many ids there can be that have
very many, and each adds what it can pass at most. Where copies are few, those of the sample say more: the
narrower interval is taken.

With a route the clocks are those of the sink's partitions (`processor.engine.ids.sink_clocks`). Each row has
its timestamp too, as how far it lies below its source partition's clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.inspection.audit.rows import KeptRows, Occurrences, occurrences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.sink_clocks import SinkClocks

MOST_ROWS = 2**21
"""Rows of 32 bytes: 64 MiB, and about as much again while they are sorted."""
COUNTERS = 2**16
_MOST_BEHIND_MS = 2**31 - 1
"""25 days: what is later than that moves no clock."""
CONFIDENCE = 0.99
_SIGMAS = 2.576
"""Of a normal distribution 99 % lie within."""
_STEPS = 2_048
"""In time, for how many ids are remembered at once."""
_OUTLIER = 8
"""Standard deviations above the mean, from which on a counter holds an id with very many records."""
_HIDDEN = 4.6
"""Of so many divided by the rate one is in the sample with a chance of 99 %: ln 100."""
FOREVER_MS = 2**61


class IdSample:
    """All occurrences of a sample of ids.

    Attributes:
        judged: Records that were looked at, in the sample or not.
        counters: int64[COUNTERS], records by hash.
        begin_ms: The lowest reading of any; 0 before the first.
        end_ms: The highest.
        has_prints: Whether records have fingerprints.
        kept: The rows: hash, reading, partition, how far behind the clock, fingerprint.

    Args:
        prints: Whether records have fingerprints.
        most_rows: The bound.
        clocks: Of the sink's partitions, with a route; they take records beside this. None: all of them read
            what the source partitions' do.
    """

    def __init__(
        self, *, prints: bool = False, most_rows: int = MOST_ROWS, clocks: SinkClocks | None = None
    ) -> None:
        self.judged = self.begin_ms = self.end_ms = 0
        self.counters = np.zeros(COUNTERS, np.int64)
        self.has_prints = prints
        columns = np.uint64, np.int64, np.int32, np.int32, np.uint64
        self.kept = KeptRows(columns if prints else columns[:4], most_rows)
        self._partitions: set[int] = set()
        self._clocks = clocks

    @property
    def rate(self) -> float:
        """The chance of an id to be in the sample; 1: all are."""
        return self.kept.rate

    @property
    def partitions(self) -> int:
        """How many partitions records came from."""
        return max(1, len(self._partitions))

    def begin_of(self, *, route: bool) -> int:
        """Return the lowest reading of any record; with ``route`` by the clocks of the sink's partitions."""
        return min(self.begin_ms, self._clocks.earliest_ms) if route and self._clocks else self.begin_ms

    def add(
        self,
        partition: int,
        hashes: NDArray[np.uint64],
        reading_ms: NDArray[np.int64],
        prints: NDArray[np.uint64],
        timestamp_ms: NDArray[np.int64] | None = None,
    ) -> None:
        """Take the next records of a partition.

        Args:
            partition: Its number.
            hashes: uint64[n], a word of the ids' keyed hash.
            reading_ms: int64[n], the partition's clock at each.
            prints: uint64[n], fingerprints; uint64[0] where there are none.
            timestamp_ms: int64[n], the records' own, as far as they are believed; None: as the clock.
        """
        if not hashes.size:
            return
        low, high = int(reading_ms[0]), int(reading_ms[-1])
        self.begin_ms = min(self.begin_ms, low) if self.judged else low
        self.end_ms = max(self.end_ms, high) if self.judged else high
        self.judged += hashes.size
        self._partitions.add(partition)
        numbers = (hashes & np.uint64(COUNTERS - 1)).astype(np.int64)
        self.counters += np.bincount(numbers, minlength=COUNTERS)
        behind = reading_ms - (reading_ms if timestamp_ms is None else timestamp_ms)
        columns = (
            hashes,
            reading_ms,
            np.full(hashes.size, partition, np.int32),
            np.minimum(behind, _MOST_BEHIND_MS).astype(np.int32),
        )
        self.kept.add(*columns, *((prints,) if self.has_prints else ()))

    def ordered(self, *, route: bool) -> Occurrences:
        """Return the rows id by id; ``route``: all partitions meet, in the order of their clocks."""
        hashes, reading, partition, behind = map(self.kept.column, range(4))
        prints = self.kept.column(4) if self.has_prints else None
        if not route:
            return occurrences(hashes, partition, reading, prints)
        clock = None
        if self._clocks is not None:
            clock = self._clocks.readings(self._clocks.targets(hashes), reading, reading - behind)
        return occurrences(hashes, np.zeros_like(partition), reading, prints, clock)


class Estimate(NamedTuple):
    """A number with the bounds between which it lies with a chance of `CONFIDENCE`."""

    value: float
    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether it was counted, not estimated."""
        return self.low == self.high

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low <= number <= self.high


def counted(number: float) -> Estimate:
    """Return a number that was counted."""
    return Estimate(number, number, number)


@dataclass(frozen=True, slots=True)
class WindowPrediction:
    """What one window would do.

    Attributes:
        window_ms: It.
        caught: Duplicates that are dropped.
        missed: Copies that pass again, because their id has expired, or is in another partition.
        collisions: Records whose id is remembered with other content.
        held: Ids that are remembered at once, at most.
    """

    window_ms: int
    caught: Estimate
    missed: Estimate
    collisions: Estimate
    held: Estimate

    @property
    def share(self) -> float:
        """The part of all copies that is caught; 1 where there are none."""
        copies = self.caught.value + self.missed.value
        return self.caught.value / copies if copies else 1.0

    def in_any_order(self, forever: WindowPrediction, judged: int) -> WindowPrediction:
        """Return it for partitions that meet, with bounds that hold in whatever order a worker reads them.

        The clock is the one of where they meet: read to its end before the others, one partition can make all
        that the others hold expire, or come when nothing of theirs can expire any more. Only the copies are
        bounded.

        Args:
            forever: What a window does that never ends: all copies are caught, or collide.
            judged: How many records there are.
        """

        def within(each: Estimate, most: float) -> Estimate:
            return Estimate(each.value, 0.0, max(each.high, most))

        copies = min(forever.caught.high + forever.missed.high + forever.collisions.high, judged)
        none = self.collisions.high == forever.collisions.high == 0
        return WindowPrediction(
            self.window_ms,
            within(self.caught, copies),
            within(self.missed, copies),
            self.collisions if none else Estimate(self.collisions.value, 0.0, float(judged)),
            within(self.held, forever.held.high),
        )


def predict(
    sample: IdSample,
    windows_ms: Sequence[int],
    *,
    route: bool,
    refresh: bool = False,
    kept: bool = True,
    buckets_ms: Sequence[int] = (),
) -> list[WindowPrediction]:
    """Return what each window would do.

    Args:
        sample: Of all records that can be judged.
        windows_ms: Each above 0.
        route: Whether equal ids of all partitions meet.
        refresh: Whether a duplicate renews its id.
        kept: Whether a collision is remembered.
        buckets_ms: Of each window, where Bloom filters remember ids; 1, or none: ids as such.
    """
    rows, windows = sample.ordered(route=route), np.array(windows_ms, np.int64)
    buckets = np.array(buckets_ms, np.int64) if buckets_ms else None
    sums, held = rows.judged(windows, buckets, refresh=refresh, kept=kept, end_ms=sample.end_ms, steps=_STEPS)
    span, parts = sample.end_ms - sample.begin_of(route=route), 1 if route else sample.partitions
    copies_squared = float(np.square(np.diff(rows.first) - 1.0).sum())
    found = []
    for n, window in enumerate(windows.tolist()):
        guess = _Guess(sample, sums[n], rows.variant.size, copies_squared, parts * (span // window + 1))
        # What was seen to pass, and to be dropped, bounds all from both sides.
        least, most = guess.dropped, sample.judged - float(sums[n, 0])
        narrow = min((guess.left_over(), guess.copies()), key=lambda each: each.high - each.low)
        caught = Estimate(*(min(max(each, least), most) for each in narrow))
        collisions = guess.total(2) if sample.has_prints else counted(0.0)
        found.append(WindowPrediction(window, caught, guess.total(4), collisions, guess.held(float(held[n]))))
    return found


@dataclass(frozen=True, slots=True)
class _Guess:
    """Goes from the sample to all ids, for one window."""

    sample: IdSample
    sums: NDArray[np.float64]
    records: int
    """Of the ids in the sample."""
    copies_squared: float
    """The sum over those of the square of all their records but one."""
    times: int
    """How often an id can pass, at most, where its content does not count."""

    @property
    def dropped(self) -> float:
        """How many records of the ids in the sample are dropped, for certain."""
        return self.records - float(self.sums[0])

    def left_over(self) -> Estimate:
        """Return the estimate of what is dropped by what passes: good whatever ids have very many records."""
        passing, judged = self.total(0), self.sample.judged
        return Estimate(judged - passing.value, judged - passing.high, judged - passing.low)

    def copies(self) -> Estimate:
        """Return the estimate of what is dropped by what is dropped of the sample: good where copies are few.

        Ids that have copies and are not in the sample are many, or have few: of more than 4.6 / rate one
        is in it, with a chance of 99 %, and what has more copies than a counter's noise is seen by the counter.
        """
        rate = self.sample.rate
        half = _SIGMAS * math.sqrt((1 - rate) / rate**2 * (self.copies_squared + _SIGMAS**2 / 4))
        half += _SIGMAS**2 / 2 * (1 - rate) / rate
        value = self.dropped / rate
        high = value + half
        if rate < 1:
            ids, _, noise = self._unseen()
            high += _HIDDEN / rate * noise + ids * float(self.sample.counters.max())
        return Estimate(value, value - half, high)

    def total(self, column: int) -> Estimate:
        """Return the estimate of a sum over all ids."""
        rate, judged, hidden = self.sample.rate, float(self.sample.judged), 0.0
        seen, squares = self.sums[column : column + 2].tolist()
        # Of few that were seen a normal distribution says too little (Wilson's score interval has these terms).
        variance = (1 - rate) / rate**2 * (squares + _SIGMAS**2 / 4)
        slack = _SIGMAS**2 / 2 * (1 - rate) / rate
        if rate < 1:
            ids, most, noise = self._unseen()
            variance += ids * most**2 * (1 - rate) / rate
            slack += most
            # Every id passes: the variance is of many. Of few that do it again the sample may have none.
            hidden = 0.0 if column == 0 else _HIDDEN / rate * min(most, noise)
        half, value = _SIGMAS * math.sqrt(variance) + slack, seen / rate
        return Estimate(min(value, judged), max(seen, value - half), min(judged, value + half + hidden))

    def held(self, sampled: float) -> Estimate:
        """Return the estimate of the ids that are remembered at once, from those of the sample."""
        rate = self.sample.rate
        half, value = _SIGMAS * math.sqrt((1 - rate) / rate**2 * sampled), sampled / rate
        return Estimate(value, max(sampled, value - half), value + half)

    def _unseen(self) -> tuple[int, float, float]:
        """Return how many ids can have very many records, what one can pass at most, and the noise."""
        mean, most = float(self.sample.counters.mean()), float(self.sample.counters.max())
        noise = _OUTLIER * math.sqrt(mean) + _OUTLIER
        outliers = int(np.count_nonzero(self.sample.counters > mean + noise))
        return outliers, most if self.sample.has_prints else min(most, float(self.times)), noise
