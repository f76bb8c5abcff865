"""Estimates from a sample of ids how many duplicates escaped, and how many at least.

An escaped duplicate that was seen in a sample of 2^-L of all ids stands for 2^L (Horvitz and
Thompson, 1952). Ids are drawn, not duplicates: all that one id has let escape is seen, or nothing of
it. So the variance is that of whole ids: the n-th of one id that is seen with weight w adds
w (w - 1) (2 n - 1) to it, which sums up to the w (w - 1) n^2 of n seen.

The least is a quantile of the gamma distribution with the mean and variance of the estimate (Fay and Feuer,
1997), which holds for few and unequal weights, too. There is no most: of ids that were not drawn, and of
copies in partitions of other workers, nothing is known.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from processor.ops.escaped import BUCKETS, CAUGHT_SHARE, HORIZON_WINDOWS, EscapedCount

if TYPE_CHECKING:
    from numpy.typing import NDArray

BIN_WINDOWS = 0.05
"""How exactly gaps are kept: a proposed window is at most a twentieth of the present one too long."""
_QUANTILE = 2.576
"""Of the normal distribution, for 99.5 %."""


def least(estimate: float, variance: float) -> float:
    """Return the lower end of an estimate (Wilson and Hilferty, 1931; within 1 % from shape 1 on)."""
    if not variance:
        return estimate
    ninth = variance / (9 * estimate * estimate)
    return estimate * float(max(0.0, 1 - ninth - _QUANTILE * math.sqrt(ninth))) ** 3


class EscapeEstimate:
    """What escaped for one reason."""

    def __init__(self) -> None:
        self._bins = np.zeros(round(HORIZON_WINDOWS / BIN_WINDOWS), np.float64)
        self._seen = 0
        self._estimate = self._variance = self._gap_sum = 0.0
        self._first, self._last = math.inf, 0.0

    def add(
        self, weight: NDArray[np.float64], before: NDArray[np.int64], gap_windows: NDArray[np.float64]
    ) -> None:
        """Count what was seen to escape.

        Args:
            weight: float64[n], for how many each stands.
            before: int64[n], how many its id had let escape before.
            gap_windows: float64[n], how many windows after the record before it came.
        """
        if not weight.size:
            return
        self._seen += weight.size
        self._estimate += float(weight.sum())
        self._variance += float((weight * (weight - 1) * (2 * before + 1)).sum())
        self._gap_sum += float((weight * gap_windows).sum())
        self._first = min(self._first, float(gap_windows.min()))
        self._last = max(self._last, float(gap_windows.max()))
        place = np.clip((gap_windows / BIN_WINDOWS).astype(np.int64), 0, self._bins.size - 1)
        np.add.at(self._bins, place, weight)

    def count(self) -> EscapedCount:
        """Return what there is to say."""
        if not self._seen:
            return EscapedCount()
        below = np.cumsum(self._bins)
        reached = [float(below[round(each / BIN_WINDOWS) - 1]) for each in BUCKETS]
        caught = int(np.searchsorted(below, CAUGHT_SHARE * self._estimate * (1 - 1e-12)))
        return EscapedCount(
            self._seen,
            self._estimate,
            max(least(self._estimate, self._variance), self._seen),
            tuple(zip(BUCKETS, reached, strict=True)),
            self._gap_sum,
            self._first,
            self._last,
            min(caught + 1, self._bins.size) * BIN_WINDOWS,
        )
