"""Loads and stores several bytes at a time inside kernels.

Invariant: none reads beyond the span it is given. Words are little-endian whatever the machine.
"""

from __future__ import annotations

import numpy as np

from processor.engine.jit import inlined


@inlined
def le64(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Load 8 bytes. Unsigned positions, so that numba adds no wrap-around and LLVM makes one load of it."""
    p = np.uint64(at)
    return (
        np.uint64(data[p])
        | (np.uint64(data[p + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[p + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[p + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[p + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[p + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[p + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[p + np.uint64(7)]) << np.uint64(56))
    )


@inlined
def be64(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Load 8 bytes, the first one highest; otherwise as `le64`."""
    p = np.uint64(at)
    return (
        np.uint64(data[p + np.uint64(7)])
        | (np.uint64(data[p + np.uint64(6)]) << np.uint64(8))
        | (np.uint64(data[p + np.uint64(5)]) << np.uint64(16))
        | (np.uint64(data[p + np.uint64(4)]) << np.uint64(24))
        | (np.uint64(data[p + np.uint64(3)]) << np.uint64(32))
        | (np.uint64(data[p + np.uint64(2)]) << np.uint64(40))
        | (np.uint64(data[p + np.uint64(1)]) << np.uint64(48))
        | (np.uint64(data[p]) << np.uint64(56))
    )


@inlined
def be32(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Load 4 bytes as uint64, the first one highest."""
    p = np.uint64(at)
    return (
        np.uint64(data[p + np.uint64(3)])
        | (np.uint64(data[p + np.uint64(2)]) << np.uint64(8))
        | (np.uint64(data[p + np.uint64(1)]) << np.uint64(16))
        | (np.uint64(data[p]) << np.uint64(24))
    )


@inlined
def le_tail(data, at, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Load the last 0 to 7 bytes, zeros above them."""
    tail_word = np.uint64(0)
    for tail_j in range(size):
        tail_word |= np.uint64(data[np.uint64(at + tail_j)]) << np.uint64(8 * tail_j)
    return tail_word


@inlined
def put_be(out, at, value, count):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write the ``count`` low bytes of an integer, big-endian; return where they end."""
    for put_j in range(count):
        out[at + put_j] = np.uint8((np.uint64(value) >> np.uint64(8 * (count - 1 - put_j))) & np.uint64(255))
    return at + count


@inlined
def get_be(data, at, count):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read an integer of ``count`` bytes, big-endian."""
    got = np.uint64(0)
    for get_j in range(count):
        got = (got << np.uint64(8)) | np.uint64(data[np.uint64(at + get_j)])
    return got
