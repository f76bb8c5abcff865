"""Loads, hashes and checksums bytes eight at a time inside kernels.

Three things that have to look at every byte of a scope or a page: loads of 8 bytes, a keyed hash, a checksum
(whose step is in `processor.engine.bytes.crc32c`). numba has no fast one of any of them.

Invariant: none reads beyond the span it is given. Words are little-endian whatever the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.crc32c import crc_byte, crc_word
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
def _rotl(value, bits):  # type: ignore[no-untyped-def]  # inlined kernel
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]  # inlined kernel
    a = v0 + v1
    b = _rotl(v1, 13) ^ a
    a = _rotl(a, 32)
    c = v2 + v3
    d = _rotl(v3, 16) ^ c
    a = a + d
    d = _rotl(d, 21) ^ a
    c = c + b
    b = _rotl(b, 17) ^ c
    c = _rotl(c, 32)
    return a, b, c, d


@kernel
def siphash(data: NDArray[np.uint8], at: Int, size: Int, key: NDArray[np.uint64]) -> Int:
    """Return SipHash-1-3 of ``data[at:at + size]`` (Aumasson and Bernstein; the variant of Rust and CPython).

    Who does not know ``key`` (uint64[2]) cannot choose bytes that meet.
    """
    v0 = key[0] ^ np.uint64(0x736F6D6570736575)
    v1 = key[1] ^ np.uint64(0x646F72616E646F6D)
    v2 = key[0] ^ np.uint64(0x6C7967656E657261)
    v3 = key[1] ^ np.uint64(0x7465646279746573)
    whole = size >> 3
    for k in range(whole):
        word = le64(data, at + 8 * k)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = le_tail(data, at + 8 * whole, size & 7) | (np.uint64(size & 255) << np.uint64(56))
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(255)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def crc32c(data: NDArray[np.uint8], at: Int, size: Int, before: Int) -> Int:
    """Return the CRC-32C of ``data[at:at + size]`` behind bytes whose CRC-32C is ``before`` (0: none)."""
    crc = np.uint64(before) ^ np.uint64(0xFFFFFFFF)
    whole = size >> 3
    for k in range(whole):
        crc = crc_word(crc, le64(data, at + 8 * k))
    for k in range(8 * whole, size):
        crc = crc_byte(crc, np.uint64(data[at + k]))
    return crc ^ np.uint64(0xFFFFFFFF)
