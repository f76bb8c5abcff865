"""Reads and writes numbers of variable length, and runs of bytes, inside kernels.

Nearly every number in a record is of one byte; the loops over records are made for those, and call a function
for what is longer.

Invariant: no reader reads at or beyond the end it is given. Writers write into space that the caller has
bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

VARINT_BYTES = 5
"""32 bits in groups of 7: lengths, counts and offset deltas. Kafka's clients refuse longer ones."""
VARLONG_BYTES = 10
"""64 bits in groups of 7: timestamp deltas."""


@kernel
def _long_varint(data: NDArray[np.uint8], at: Int, stop: Int, most: int) -> tuple[Int, Int]:
    """Read a varint of several bytes, see `varint`.

    Kept out of the callers' loops, which it would slow down five times: not inlined, and left by returns only,
    since LLVM inlines the same with a break.
    """
    result = np.uint64(0)
    shift = np.uint64(0)
    position = np.uint64(at)
    for _ in range(most):
        if position >= np.uint64(stop):
            return np.uint64(0), np.int64(-1)
        byte = np.uint64(data[position])
        position += np.uint64(1)
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(128):
            return result, np.int64(position)
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-1)


@inlined
def varint(data, at, stop, most):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read a zigzag varint of at most ``most`` bytes; nearly all are of one.

    Returns (value, next position); the position is -1 where it is cut or too long.
    """
    if at >= stop or data[np.uint64(at)] >= np.uint8(128):
        result, position = _long_varint(data, at, stop, most)
    else:
        result = np.uint64(data[np.uint64(at)])
        position = np.int64(at + 1)
    value = np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1))
    return value, position


@kernel
def _long_varint_bytes(left: Int) -> Int:
    size = 1
    while left >= np.uint64(128):
        left >>= np.uint64(7)
        size += 1
    return size


@inlined
def varint_bytes(value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many bytes ``value`` takes as a zigzag varint."""
    left = np.uint64((value << 1) ^ (value >> 63))
    return 1 if left < np.uint64(128) else _long_varint_bytes(left)


@kernel
def _put_long_varint(out: NDArray[np.uint8], at: Int, left: Int) -> Int:
    position = np.uint64(at)
    while left >= np.uint64(128):
        out[position] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        position += np.uint64(1)
        left >>= np.uint64(7)
    out[position] = np.uint8(left)
    return np.int64(position + np.uint64(1))


@inlined
def put_varint(out, at, value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write ``value`` as a zigzag varint; return the position after it."""
    left = np.uint64((value << 1) ^ (value >> 63))
    if left >= np.uint64(128):
        position = _put_long_varint(out, at, left)
    else:
        out[np.uint64(at)] = np.uint8(left)
        position = np.int64(at + 1)
    return position


@inlined
def put_bytes(out, at, data, begin, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Copy bytes; return the position after them.

    Unsigned positions, so that numba adds no wrap-around: seven times as fast as a slice.
    """
    for i in range(np.uint64(size)):
        out[np.uint64(at) + i] = data[np.uint64(begin) + i]
    return at + size


def as_varint(value: int) -> bytes:
    """Return a zigzag varint, outside kernels."""
    left = (value << 1) ^ (value >> 63)
    if left < 0x80:
        return bytes((left,))
    out = bytearray()
    while left >= 0x80:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(content: bytes | None) -> bytes:
    """Return bytes with their length before them, outside kernels; None has length -1."""
    return as_varint(-1) if content is None else as_varint(len(content)) + content


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it, outside kernels; it is known to be whole."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
