"""Predicts for every window at once what mode insert-id would drop, with an interval. Pure.

What does not pass is all but what passes, and that is what is estimated: an id passes once per window at most,
however many records it has, so that a few ids with very many records do not spoil the estimate as they would
one of the duplicates themselves. Ids are in the sample by their hash, independently: the variance of a sum over
them is (1 - rate) / rate² times the sum of squares over the sample. An id outside the sample can still pass
more often than any within it: counters of all records by hash tell how many ids there can be that have very
many, and each adds what it can pass at most. Where copies are few, those of the sample say more: the narrower
interval is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.window_grid import SUMS, judge_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.inspection.simulate.id_sample import IdSample, Occurrences

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
    windows = np.array(windows_ms, np.int64)
    buckets = np.array(buckets_ms, np.int64) if buckets_ms else np.ones(windows.size, np.int64)
    rules = _Rules(windows, buckets, refresh, kept, sample.begin_of(route=route))
    sampled, pinned = (
        _judge(sample, sample.ordered(route=route, pinned=each), rules) for each in (False, True)
    )
    found = []
    for n, window in enumerate(windows.tolist()):
        guess = _Guess(sample, sampled, pinned, window, rules.begin_ms, parts=1 if route else sample.partitions)
        # What was seen to pass, and to be dropped, bounds all from both sides.
        least, most = guess.dropped(n), sample.judged - guess.seen(n, 0)
        narrow = min((guess.left_over(n), guess.copies(n)), key=lambda each: each.high - each.low)
        caught = Estimate(*(min(max(each, least), most) for each in narrow))
        collisions = guess.total(n, 2) if sample.has_prints else Estimate(0.0, 0.0, 0.0)
        found.append(WindowPrediction(window, caught, guess.total(n, 4), collisions, guess.held(n)))
    return found


def in_any_order(
    rows: Sequence[WindowPrediction], forever: WindowPrediction, judged: int
) -> list[WindowPrediction]:
    """Return predictions for partitions that meet, with bounds that hold in whatever order a worker reads them.

    The clock is the one of where they meet: read to its end before the others, one partition can make all that
    the others hold expire, or come when nothing of theirs can expire any more. Only the copies are bounded.

    Args:
        rows: In the order of the clocks.
        forever: What a window does that never ends: all copies are caught, or collide.
        judged: How many records there are.
    """
    copies = forever.caught.high + forever.missed.high + forever.collisions.high
    return [
        WindowPrediction(
            row.window_ms,
            Estimate(row.caught.value, 0.0, max(row.caught.high, min(copies, judged))),
            Estimate(row.missed.value, 0.0, max(row.missed.high, min(copies, judged))),
            row.collisions
            if row.collisions.high == forever.collisions.high == 0
            else Estimate(row.collisions.value, 0.0, float(judged)),
            Estimate(row.held.value, 0.0, max(row.held.high, forever.held.high)),
        )
        for row in rows
    ]


class _Rules(NamedTuple):
    """What ids are judged by."""

    windows: NDArray[np.int64]
    buckets: NDArray[np.int64]
    refresh: bool
    kept: bool
    begin_ms: int
    """Not above any reading."""


class _Judged(NamedTuple):
    """What some ids come to.

    Attributes:
        sums: float64[w, SUMS].
        held: int64[w], ids remembered at once, at most.
        records: How many they have.
        merged: Ids with rows that stand for several records.
        copies_squared: The sum over ids of the square of all their records but one.
    """

    sums: NDArray[np.float64]
    held: NDArray[np.int64]
    records: int
    merged: int
    copies_squared: float


def _judge(sample: IdSample, rows: Occurrences, rules: _Rules) -> _Judged:
    windows, buckets, refresh, kept, _ = rules
    sums = np.zeros((windows.size, SUMS))
    held = np.zeros((windows.size, _STEPS + 1), np.int64)
    begin = int(rows.reading_ms.min()) if rows.reading_ms.size else sample.begin_ms
    step = (sample.end_ms - begin) // _STEPS + 1
    judge_grid(*rows, windows, buckets, refresh, kept, begin, step, sums, held)
    peak = held[:, :-1].cumsum(axis=1).max(axis=1, initial=0)
    merged, squares = 0, 0.0
    if rows.first.size > 1:
        squares = float(np.square(np.add.reduceat(rows.records, rows.first[:-1]) - 1.0).sum())
        merged = int(np.count_nonzero(np.maximum.reduceat(rows.records, rows.first[:-1]) > 1))
    return _Judged(sums, peak, int(rows.records.sum()), merged, squares)


@dataclass(frozen=True, slots=True)
class _Guess:
    """Goes from the sample to all ids, for one window."""

    sample: IdSample
    sampled: _Judged
    pinned: _Judged
    window_ms: int
    begin_ms: int
    parts: int
    """In how many partitions an id is remembered by itself, at most."""

    @property
    def times(self) -> float:
        """How often an id can pass in a partition, at most, where its content does not count."""
        return (self.sample.end_ms - self.begin_ms) // self.window_ms + 1

    def seen(self, n: int, column: int) -> float:
        """Return a sum over the ids in the sample."""
        return float(self.sampled.sums[n, column] + self.pinned.sums[n, column])

    def dropped(self, n: int) -> float:
        """Return how many records of the ids in the sample are dropped, for certain."""
        return 0.0 if self.sample.merged_ms else self.sampled.records + self.pinned.records - self.seen(n, 0)

    def left_over(self, n: int) -> Estimate:
        """Return the estimate of what is dropped by what passes: good whatever ids have very many records."""
        passing, judged = self.total(n, 0), self.sample.judged
        return Estimate(judged - passing.value, judged - passing.high, judged - passing.low)

    def copies(self, n: int) -> Estimate:
        """Return the estimate of what is dropped by what is dropped of the sample: good where copies are few.

        Ids that have copies and are not in the sample are many, or have few: of more than 4.6 / rate one
        is in it, with a chance of 99 %, and what has more copies than a counter's noise is seen by the counter.
        """
        rate = self.sample.rate
        known, sampled = (each.records - float(each.sums[n, 0]) for each in (self.pinned, self.sampled))
        half = _SIGMAS * math.sqrt((1 - rate) / rate**2 * (self.sampled.copies_squared + _SIGMAS**2 / 4))
        half += _SIGMAS**2 / 2 * (1 - rate) / rate + self._late()
        value = known + sampled / rate
        high = value + half
        if rate < 1:
            ids, _, noise = self._unseen()
            high += _HIDDEN / rate * noise + ids * float(self.sample.unpinned_counters.max(initial=0))
        return Estimate(value, value - half, high)

    def total(self, n: int, column: int) -> Estimate:
        """Return the estimate of a sum over all ids."""
        rate, judged, hidden = self.sample.rate, float(self.sample.judged), 0.0
        # Of few that were seen a normal distribution says too little (Wilson's score interval has these terms).
        variance = (1 - rate) / rate**2 * (float(self.sampled.sums[n, column + 1]) + _SIGMAS**2 / 4)
        slack = _SIGMAS**2 / 2 * (1 - rate) / rate + self._late()
        if rate < 1:
            ids, most, noise = self._unseen()
            variance += ids * most**2 * (1 - rate) / rate
            slack += most
            # Every id passes: the variance is of many. Of few that do it again the sample may have none.
            hidden = 0.0 if column == 0 else _HIDDEN / rate * min(most, noise)
        half = _SIGMAS * math.sqrt(variance) + slack
        value = float(self.pinned.sums[n, column]) + float(self.sampled.sums[n, column]) / rate
        high = min(judged, value + half + hidden)
        return Estimate(min(value, judged), max(self.seen(n, column), value - half), high)

    def held(self, n: int) -> Estimate:
        """Return the estimate of the ids that are remembered at once."""
        rate, sampled, pinned = self.sample.rate, float(self.sampled.held[n]), float(self.pinned.held[n])
        half = _SIGMAS * math.sqrt((1 - rate) / rate**2 * sampled)
        value = pinned + sampled / rate
        return Estimate(value, max(sampled + pinned, value - half), value + half)

    def _late(self) -> float:
        """Return by how much passes of merged ids can be wrong: each late by one stretch, the last missed."""
        if not self.sample.merged_ms:
            return 0.0
        late = self.times * min(1.0, self.sample.merged_ms / self.window_ms) + 1
        return (self.pinned.merged + self.sampled.merged / self.sample.rate) * late * self.parts

    def _unseen(self) -> tuple[int, float, float]:
        """Return how many ids can have very many records, what one can pass at most, and the noise."""
        counters = self.sample.unpinned_counters
        if not counters.size:
            return 0, 0.0, 0.0
        mean = float(counters.mean())
        noise = _OUTLIER * math.sqrt(mean) + _OUTLIER
        outliers = int(np.count_nonzero(counters > mean + noise))
        most = float(counters.max())
        return outliers, most if self.sample.has_prints else min(most, self.parts * self.times), noise
