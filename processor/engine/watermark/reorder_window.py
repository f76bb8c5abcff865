"""Remembers which of the W numbers below a watermark have been seen.

A scope's window is one int64, `state`, and a bitmap only where the numbers need one::

    state >= 0    a run: the `state` numbers right below the watermark were seen, no other in the window
    state < 0     row -state - 1 of the pool holds the scope's bitmap

A producer that counts without gaps never needs a bitmap; one that left a gap needs it until the gap has
left the window (word 0 of a row counts the numbers seen in one run, so that this is known), or until the
watermark jumps by more than W.

A row of the pool is uint64[1 + ring / 64]: the run, then a ring of bits. Number n stands at bit n mod ring,
where ring is the power of two that holds W (at least 64). A number's bit is written when the watermark passes
it, so bits of numbers that have left the window need no clearing. Numbers are taken modulo 2^64, and only
differences are compared: at the ends of int64 nothing overflows.

Where numbers wrap at N, those that came before the watermark has begun again stand below it all the same, as
negative ones: number n at the bit of n - N. So a bitmap is turned by N when its watermark wraps.

Invariant: numbers below the first of a scope (or of its epoch) count as not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUN = 0
"""The word of a row that counts the run below the watermark; a lower bound after late records."""


@kernel
def ring_bits(window: Int) -> Int:
    """Return the ring's size for a window of ``window`` numbers."""
    ring = np.int64(64)
    while ring < window:
        ring *= 2
    return ring


@kernel
def fill(row: NDArray[np.uint64], first: Int, count: Int, seen: bool) -> None:
    """Write the bits of ``count`` numbers from ``first`` (uint64), a word at a time."""
    mask = np.uint64((row.size - 1) * 64 - 1)
    number = np.uint64(first)
    left = np.int64(count)
    while left > 0:
        at = number & mask
        bit = np.int64(at & np.uint64(63))
        span = min(64 - bit, left)
        bits = (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - span)) << np.uint64(bit)
        word = np.int64(at >> np.uint64(6)) + 1
        if seen:
            row[word] |= bits
        else:
            row[word] &= ~bits
        number += np.uint64(span)
        left -= span


@kernel
def holds(row: NDArray[np.uint64], number: Int) -> bool:
    """Whether the bit of ``number`` (uint64) is set."""
    at = np.uint64(number) & np.uint64((row.size - 1) * 64 - 1)
    word = row[np.int64(at >> np.uint64(6)) + 1]
    return (word >> (at & np.uint64(63))) & np.uint64(1) != np.uint64(0)


@kernel
def unfold(row: NDArray[np.uint64], watermark: Int, run: Int) -> None:
    """Make a run below ``watermark`` (uint64) a bitmap."""
    row[:] = np.uint64(0)
    row[RUN] = np.uint64(run)
    fill(row, np.uint64(watermark) - np.uint64(run), run, True)


@kernel
def advance(row: NDArray[np.uint64], watermark: Int, distance: Int, window: Int) -> bool:
    """Move a bitmap from ``watermark`` (uint64) up by ``distance``, 1 to ``window``.

    Returns:
        Whether the window is one run again, all of it seen, so that the row can be given back.
    """
    fill(row, watermark, 1, True)
    if distance == 1:
        row[RUN] += np.uint64(1)
        return row[RUN] >= np.uint64(window)
    fill(row, np.uint64(watermark) + np.uint64(1), distance - 1, False)
    row[RUN] = np.uint64(0)
    return False


@kernel
def remember(row: NDArray[np.uint64], watermark: Int, distance: Int) -> None:
    """Note that the number ``distance`` below ``watermark`` (uint64) has been seen."""
    fill(row, np.uint64(watermark) - np.uint64(distance), 1, True)
    if np.uint64(distance) == row[RUN] + np.uint64(1):
        row[RUN] += np.uint64(1)


@kernel
def turn(row: NDArray[np.uint64], wraps: Int) -> None:
    """Move all bits down by ``wraps`` places, around the ring: the watermark has begun again."""
    words = row.size - 1
    shift = np.uint64(wraps) & np.uint64(words * 64 - 1)
    whole, bits = np.int64(shift >> np.uint64(6)), shift & np.uint64(63)
    old = row[1:].copy()
    for k in range(words):
        moved = old[(k + whole) & (words - 1)] >> bits
        if bits != np.uint64(0):
            moved |= old[(k + whole + 1) & (words - 1)] << (np.uint64(64) - bits)
        row[k + 1] = moved
