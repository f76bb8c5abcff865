"""Loads and stores several bytes at a time inside kernels.

Invariant: none reads beyond the span it is given. Words are little-endian whatever the machine.

Positions are unsigned, so that numba adds no wrap-around and LLVM makes one load of a constant number of bytes.
"""

from __future__ import annotations

import numpy as np

from processor.engine.jit import inlined


@inlined
def get_le(data, at, count):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read an integer of ``count`` bytes, little-endian, as uint64."""
    little = np.uint64(0)
    for little_j in range(count):
        little |= np.uint64(data[np.uint64(at + little_j)]) << np.uint64(8 * little_j)
    return little


@inlined
def get_be(data, at, count):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read an integer of ``count`` bytes, big-endian, as uint64."""
    got = np.uint64(0)
    for get_j in range(count):
        got = (got << np.uint64(8)) | np.uint64(data[np.uint64(at + get_j)])
    return got


@inlined
def put_be(out, at, value, count):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write the ``count`` low bytes of an integer, big-endian; return where they end."""
    for put_j in range(count):
        out[at + put_j] = np.uint8((np.uint64(value) >> np.uint64(8 * (count - 1 - put_j))) & np.uint64(255))
    return at + count
