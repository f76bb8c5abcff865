"""SipHash-2-4-128 identifies an id; without the key nobody can construct a collision.

SipHash-2-4 with 128 bits of output (Aumasson and Bernstein; the variant of their reference implementation with
``outlen = 16``). Two rounds a word and four at the end are what its authors call secure as a keyed hash; the
faster `siphash` (1-3) only places scopes, which are identified by their bytes, here the hash *is*
the id: with 128 bits, 100 million ids collide by chance once in 10^22 windows.

Invariant: reads nothing beyond the span. Words are little-endian whatever the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import get_le, get_le_rest
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY_BYTES = 16


def words_of_key(key: bytes) -> NDArray[np.uint64]:
    """Return uint64[2] for the kernels.

    Raises:
        ValueError: The key has not 16 bytes.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of SipHash has {KEY_BYTES} bytes, not {len(key)}")
    return np.frombuffer(key, "<u8").astype(np.uint64)


def derived_key(key: NDArray[np.uint64], purpose: bytes) -> NDArray[np.uint64]:
    """Return uint64[2], a key for another purpose: no hash is one of both."""
    return np.array(siphash128(np.frombuffer(purpose, np.uint8).copy(), 0, len(purpose), key), np.uint64)


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

    Who does not know ``key`` (uint64[2]) cannot choose bytes that collide.
    """
    v0, v1, v2, v3 = begin(key)
    v1 ^= np.uint64(0xEE)
    whole = size >> 3
    for k in range(whole):
        word = get_le(data, at + 8 * k, 8)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = get_le(data, at + 8 * whole, size & 7) | (np.uint64(size & 255) << np.uint64(56))
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(255)
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@inlined
def begin(key):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the state before the first word."""
    return (
        key[0] ^ np.uint64(0x736F6D6570736575),
        key[1] ^ np.uint64(0x646F72616E646F6D ^ 0xEE),
        key[0] ^ np.uint64(0x6C7967656E657261),
        key[1] ^ np.uint64(0x7465646279746573),
    )


@inlined
def absorb(v0, v1, v2, v3, word):  # type: ignore[no-untyped-def]  # inlined kernel
    """Take in 8 bytes."""
    a0, a1, a2, a3 = _round(v0, v1, v2, v3 ^ word)
    b0, b1, b2, b3 = _round(a0, a1, a2, a3)
    return b0 ^ word, b1, b2, b3


@inlined
def span_word(tag, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the word before a span's own: what it is, and how long."""
    return np.uint64(tag) | (np.uint64(size) << np.uint64(8))


@inlined
def absorb_part(v0, v1, v2, v3, data, at, size, tag):  # type: ignore[no-untyped-def]  # inlined kernel
    """Take in a span: what it is and its length, then its bytes in whole words, zeros behind the last."""
    p0, p1, p2, p3 = absorb(v0, v1, v2, v3, span_word(tag, size))
    part_words = size >> 3
    for part_j in range(part_words):
        p0, p1, p2, p3 = absorb(p0, p1, p2, p3, get_le(data, at + 8 * part_j, 8))
    if size & 7:
        p0, p1, p2, p3 = absorb(p0, p1, p2, p3, get_le_rest(data, at, size))
    return p0, p1, p2, p3


@inlined
def draw(lot, multiplier, word):  # type: ignore[no-untyped-def]  # inlined kernel
    """Take 8 bytes into a lot, see `absorb_part_drawn`; returns it and the next multiplier."""
    # High bits come down first: what differs there alone would be multiplied out of the word.
    drawn = lot + (word ^ (word >> np.uint64(32))) * multiplier
    return drawn, multiplier + np.uint64(0x9E3779B97F4A7C16)


@inlined
def absorb_part_drawn(v0, v1, v2, v3, data, at, size, tag, lot, multiplier):  # type: ignore[no-untyped-def]  # inlined kernel
    """Take in a span as `absorb_part` does, and its words into a lot without a key.

    A lot is a sum of products: it costs about 1 ns, because the processor does it while it waits for the hash.
    """
    d_word = span_word(tag, size)
    d0, d1, d2, d3 = absorb(v0, v1, v2, v3, d_word)
    d_lot, d_multiplier = draw(lot, multiplier, d_word)
    d_words = size >> 3
    for d_j in range(d_words):
        d_word = get_le(data, at + 8 * d_j, 8)
        d0, d1, d2, d3 = absorb(d0, d1, d2, d3, d_word)
        d_lot, d_multiplier = draw(d_lot, d_multiplier, d_word)
    if size & 7:
        d_word = get_le_rest(data, at, size)
        d0, d1, d2, d3 = absorb(d0, d1, d2, d3, d_word)
        d_lot, d_multiplier = draw(d_lot, d_multiplier, d_word)
    return d0, d1, d2, d3, d_lot, d_multiplier


@kernel
def end(v0: Int, v1: Int, v2: Int, v3: Int) -> tuple[Int, Int]:
    """Return the two words of the hash, after the last word (which holds the length)."""
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def siphash128(data: NDArray[np.uint8], at: Int, size: Int, key: NDArray[np.uint64]) -> tuple[Int, Int]:
    """Return the two words of the hash of ``data[at:at + size]``; for ``key`` see `words_of_key`."""
    v0, v1, v2, v3 = begin(key)
    whole = size >> 3
    for k in range(whole):
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, get_le(data, at + 8 * k, 8))
    last = np.uint64(size & 255) << np.uint64(56)
    if size & 7:
        last |= get_le_rest(data, at, size)
    v0, v1, v2, v3 = absorb(v0, v1, v2, v3, last)
    return end(v0, v1, v2, v3)
