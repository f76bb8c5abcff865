"""Counts and sums events up, and finds their extremes: one number per group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.events.groups import MOST_GROUPS
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def _count(
    group: NDArray[np.int32], valid: NDArray[np.bool_], begin: int, end: int, out: NDArray[np.int64]
) -> None:
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            out[group[row]] += 1


@kernel
def _sum_ints(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    out: NDArray[np.int64],
) -> bool:
    """Add; returns whether a sum has left its 64 bits."""
    left = False
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            was = out[group[row], 0]
            more = numbers[row]
            now = was + more
            left |= ((was ^ now) & (more ^ now)) < 0
            out[group[row], 0] = now
    return left


@kernel
def _sum_floats(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.float64],
    begin: int,
    end: int,
    out: NDArray[np.float64],
) -> None:
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            out[group[row]] += numbers[row]


@kernel
def _sum_wide(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    out: NDArray[np.int64],
) -> bool:
    """Add numbers of 128 bits, low word first; returns whether a sum has left them."""
    left = False
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            at = group[row]
            low = np.uint64(out[at, 0]) + np.uint64(numbers[row, 0])
            carry = np.int64(1) if low < np.uint64(numbers[row, 0]) else np.int64(0)
            was = out[at, 1]
            more = numbers[row, 1]
            now = was + more + carry
            left |= ((was ^ now) & (more ^ now)) < 0
            out[at, 0] = np.int64(low)
            out[at, 1] = now
    return left


@kernel
def _extreme_ints(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    most: bool,
    seen: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Keep the least, or the ``most``; ``seen`` counts the values there were before."""
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            at = group[row]
            if seen[at] == 0 or (numbers[row] > out[at, 0] if most else numbers[row] < out[at, 0]):
                out[at, 0] = numbers[row]
            seen[at] += 1


@kernel
def _extreme_floats(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.float64],
    begin: int,
    end: int,
    most: bool,
    seen: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """As `_extreme_ints`, by Spark's order: NaN is above all, and of the two zeros the first one stays."""
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            at = group[row]
            number, was = numbers[row], out[at]
            if most:
                beyond = number > was or (np.isnan(number) and not np.isnan(was))
            else:
                beyond = number < was or (np.isnan(was) and not np.isnan(number))
            if seen[at] == 0 or beyond:
                out[at] = number
            seen[at] += 1


@kernel
def _extreme_wide(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    most: bool,
    seen: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            at = group[row]
            high, low = numbers[row, 1], np.uint64(numbers[row, 0])
            larger = high > out[at, 1] or (high == out[at, 1] and low > np.uint64(out[at, 0]))
            equal = high == out[at, 1] and low == np.uint64(out[at, 0])
            if seen[at] == 0 or (larger if most else not larger and not equal):
                out[at, 0] = np.int64(low)
                out[at, 1] = high
            seen[at] += 1


class Accumulator:
    """One number per group: a count, a sum, the least or the most of a field.

    Args:
        function: ``count``, ``sum``, ``min`` or ``max``.
        floats: Whether it is of floating-point numbers, or sums integers as such.
        wide: Whether numbers have 128 bits.
    """

    def __init__(self, function: str, *, floats: bool = False, wide: bool = False) -> None:
        self._function, self._floats, self._wide = function, floats, wide
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        self.counts = np.zeros(MOST_GROUPS, np.int64)
        self.numbers = np.zeros((MOST_GROUPS, 2 if self._wide else 1), np.int64)
        self.sums = np.zeros(MOST_GROUPS if self._floats else 0, np.float64)

    def add(
        self,
        group: NDArray[np.int32],
        valid: NDArray[np.bool_],
        numbers: NDArray[np.int64] | NDArray[np.float64],
        begin: int,
        end: int,
    ) -> bool:
        """Take in rows ``begin`` to ``end``; returns whether a sum has left the bits that it has."""
        left = False
        if self._function in {"min", "max"}:
            if self._floats:
                most = self._function == "max"
                _extreme_floats(group, valid, numbers, begin, end, most, self.counts, self.sums)  # type: ignore[arg-type]  # floats
                return left
            extreme = _extreme_wide if self._wide else _extreme_ints
            extreme(group, valid, numbers, begin, end, self._function == "max", self.counts, self.numbers)  # type: ignore[arg-type]  # ints
            return left
        _count(group, valid, begin, end, self.counts)
        if self._function == "sum":
            if self._floats:
                _sum_floats(group, valid, numbers.astype(np.float64, copy=False), begin, end, self.sums)
            else:
                added = _sum_wide if self._wide else _sum_ints
                left = bool(added(group, valid, numbers, begin, end, self.numbers))  # type: ignore[arg-type]  # ints
        return left
