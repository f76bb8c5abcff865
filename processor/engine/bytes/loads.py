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
def get_le_rest(data, at, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read the last ``size & 7`` bytes of a span, at least one, little-endian, as uint64.

    By loads of a constant number of bytes that overlap, each within the span: no loop over bytes.
    """
    rest_bytes = size & 7
    rest_end = at + size
    if size > 8:
        rest = get_le(data, rest_end - 8, 8) >> np.uint64(64 - 8 * rest_bytes)
    elif rest_bytes >= 4:
        rest = get_le(data, at, 4) | (get_le(data, rest_end - 4, 4) << np.uint64(8 * rest_bytes - 32))
    elif rest_bytes >= 2:
        rest = get_le(data, at, 2) | (get_le(data, rest_end - 2, 2) << np.uint64(8 * rest_bytes - 16))
    else:
        rest = get_le(data, at, 1)
    return rest


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
