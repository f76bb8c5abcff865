"""Remembers the epochs that a scope has left, where epochs have no order but only differ.

An epoch is a hash of its value, of 128 bits. It is compared with at most 17 others, of which one in 2 * 10^37
is equal by chance: so equal hashes count as equal values. A scope keeps that of its epoch, and a row of
the pool (`processor.engine.watermark.scope_arrays`) once it has left one::

    uint64[33]: how many are remembered | hash[2], hash[2], ...: the one left last first

Invariant: 16 are remembered. What was left before them begins the scope anew, as a value that was never there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_LEFT = 16
LEFT_WORDS = 1 + 2 * MOST_LEFT


@kernel
def was_left(row: NDArray[np.uint64], first: Int, second: Int) -> bool:
    """Whether an epoch, the two words (int64) of its hash, is remembered."""
    for k in range(np.int64(row[0])):
        if row[1 + 2 * k] == np.uint64(first) and row[2 + 2 * k] == np.uint64(second):
            return True
    return False


@kernel
def leave(row: NDArray[np.uint64], first: Int, second: Int) -> None:
    """Remember the epoch that is left, in place of the one left first where there are many."""
    count = min(np.int64(row[0]), np.int64(MOST_LEFT - 1))
    for k in range(2 * count, 0, -1):
        row[k + 2] = row[k]
    row[1], row[2] = np.uint64(first), np.uint64(second)
    row[0] = np.uint64(count + 1)
