"""Writes numbers as decimal text inside kernels."""

from __future__ import annotations

import numpy as np

from processor.engine.jit import inlined

NUMBER_BYTES = 20
"""A sign and 19 digits."""
_POWERS = np.array([10**power for power in range(20)], np.uint64)
"""uint64[20]: counting digits by comparing is several times cheaper than by dividing."""
_PAIRS = np.frombuffer(b"".join(b"%02d" % pair for pair in range(100)), np.uint8)
"""uint8[200]: two digits are printed with one division."""


@inlined
def _magnitude(value):  # type: ignore[no-untyped-def]  # inlined kernel
    return np.uint64(value) if value >= 0 else np.uint64(0) - np.uint64(value)


@inlined
def number_bytes(value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many bytes a number takes as text."""
    left = _magnitude(value)
    digits = 1
    while digits < 20 and left >= _POWERS[digits]:
        digits += 1
    return digits if value >= 0 else digits + 1


@inlined
def put_number(out, at, size, value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a number of ``size`` bytes as text; returns the place behind it."""
    left = _magnitude(value)
    position = np.uint64(at + size)
    while left >= np.uint64(100):
        pair = np.uint64(2) * (left % np.uint64(100))
        left //= np.uint64(100)
        position -= np.uint64(2)
        out[position] = _PAIRS[pair]
        out[position + np.uint64(1)] = _PAIRS[pair + np.uint64(1)]
    if left >= np.uint64(10):
        out[position - np.uint64(2)] = np.uint8(np.uint64(48) + left // np.uint64(10))
    out[position - np.uint64(1)] = np.uint8(np.uint64(48) + left % np.uint64(10))
    if value < 0:
        out[at] = np.uint8(45)
    return at + size
