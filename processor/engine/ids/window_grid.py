"""Judges the occurrences of some ids for many windows at once, by the rules of mode insert-id.

What `seqmark simulate` and `seqmark audit` say of windows. Each id is judged alone: of every window only what
its records pass, and what of them collides, is kept, so that any number of windows needs one array of
occurrences.

Sums per window are int64 or float64 ``[w, SUMS]``::

    passing | its square | colliding | its square | missed | its square

Passing are the records of an id that are no duplicates: those that pass, and collisions. Missed are those of
them whose content (without fingerprints: whose id) came before. Each is summed over ids, and so is its square,
from which the variance of a sample of ids follows.

Bloom filters know of an id only in which bucket of time it was remembered: it is forgotten with
its bucket, at most one bucket too late (`processor.engine.ids.bloom.window`). A bucket of 1 ms is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUMS = 6
_NEVER = -(2**62)
"""Earlier than any reading by more than any window: their sum does not overflow."""


@kernel
def judge_grid(
    first: NDArray[np.int64],
    partition: NDArray[np.int32],
    reading: NDArray[np.int64],
    variant: NDArray[np.int64],
    windows: NDArray[np.int64],
    buckets: NDArray[np.int64],
    refresh: bool,
    kept: bool,
    begin_ms: Int,
    step_ms: Int,
    sums: NDArray[np.float64],
    held: NDArray[np.int64],
) -> None:
    """Add to ``sums`` what becomes of the ids' records, and to ``held`` when they are remembered.

    Args:
        first: int64[u + 1], where the rows of each id begin; they end where the next one's do.
        partition: int32[n], equal where occurrences meet; those of one stand together within an id.
        reading: int64[n], the clock at each, rising within id and partition.
        variant: int64[n], content by a number from 0 on within the id; 0 everywhere without fingerprints.
        windows: int64[w], ms.
        buckets: int64[w], ms: what an id is forgotten with; 1: by itself. Above it there are no variants.
        refresh: Whether a duplicate renews what it is one of.
        kept: Whether a collision is remembered.
        begin_ms: Where the first of ``held``'s steps begins, not above any reading.
        step_ms: How long one is.
        sums: float64[w, SUMS].
        held: int64[w, steps + 1], how many more ids are remembered in a step than in the one before.
    """
    steps = held.shape[1] - 1
    most = np.int64(0)
    for row in range(variant.size):
        most = max(most, variant[row])
    last = np.empty(most + 1, np.int64)
    for number in range(first.size - 1):
        start, stop = first[number], first[number + 1]
        variants = np.int64(0)
        for row in range(start, stop):
            variants = max(variants, variant[row] + 1)
        for w in range(windows.size):
            window, bucket = windows[w], buckets[w]
            passing = np.int64(0)
            colliding = np.int64(0)
            latest = np.int64(_NEVER)
            ends = np.int64(_NEVER)
            since = np.int64(_NEVER)
            for row in range(start, stop):
                if row == start or partition[row] != partition[row - 1]:
                    if since != _NEVER:
                        _hold(held, w, since, ends, begin_ms, step_ms, steps)
                    latest = np.int64(_NEVER)
                    ends = np.int64(_NEVER)
                    since = np.int64(_NEVER)
                    for each in range(variants):
                        last[each] = _NEVER
                now, which = reading[row], variant[row]
                if now >= ends:
                    if since != _NEVER:
                        _hold(held, w, since, ends, begin_ms, step_ms, steps)
                    since = now
                    latest = now
                    ends = np.int64(_end(latest, window, bucket))
                    last[which] = now
                    passing += 1
                elif bucket > 1 or now < last[which] + window:
                    if refresh:
                        last[which] = now
                        latest = max(latest, now)
                        ends = np.int64(_end(latest, window, bucket))
                else:
                    passing += 1
                    colliding += 1
                    if kept:
                        last[which] = now
                        latest = max(latest, now)
                        ends = np.int64(_end(latest, window, bucket))
            if since != _NEVER:
                _hold(held, w, since, ends, begin_ms, step_ms, steps)
            missed = passing - variants
            sums[w, 0] += passing
            sums[w, 1] += np.float64(passing) * passing
            sums[w, 2] += colliding
            sums[w, 3] += np.float64(colliding) * colliding
            sums[w, 4] += missed
            sums[w, 5] += np.float64(missed) * missed


@kernel
def _end(latest: Int, window: Int, bucket: Int) -> Int:
    """Return the first reading at which an id is forgotten that was remembered at ``latest``."""
    if bucket > 1:
        latest = (latest // bucket + 1) * bucket - 1
    return latest + window


@kernel
def _hold(
    held: NDArray[np.int64], w: Int, since: Int, until: Int, begin_ms: Int, step_ms: Int, steps: Int
) -> None:
    """Note that an id is remembered from one time to before another."""
    held[w, min((since - begin_ms) // step_ms, steps)] += 1
    held[w, min((until - begin_ms) // step_ms + 1, steps)] -= 1


def warm_windows() -> None:
    """Compile or load the kernels, by one row."""
    one, row = np.ones(1, np.int64), np.zeros(1, np.int64)
    sums, held = np.zeros((1, SUMS)), np.zeros((1, 2), np.int64)
    judge_grid(np.arange(2), row.astype(np.int32), row, row, one, one, False, True, 0, 1, sums, held)
