"""XXH64, as Spark's `xxhash64` and its HyperLogLog hash values: not keyed, and so no defence against anybody.

XXH64 (Yann Collet) with seed 42 over the bytes of a text, or over 4 or 8 little-endian bytes of a number.

Invariant: reads nothing beyond the span. Words are little-endian whatever the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import get_le
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEED = 42
"""Spark's."""
_MASK = 2**64 - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, _PRIMES)
_V1 = np.uint64((_SEED + _PRIMES[0] + _PRIMES[1]) & _MASK)
_V2 = np.uint64((_SEED + _PRIMES[1]) & _MASK)
_V3 = np.uint64(_SEED)
_V4 = np.uint64((_SEED - _PRIMES[0]) & _MASK)
_SHORT = np.uint64(_SEED + _PRIMES[4])
_OF_4 = np.uint64(_SEED + _PRIMES[4] + 4)
_OF_8 = np.uint64(_SEED + _PRIMES[4] + 8)
_29, _32, _33 = np.uint64(29), np.uint64(32), np.uint64(33)


@inlined
def _rotated(word, bits):  # type: ignore[no-untyped-def]  # inlined kernel
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inlined
def _lane(lane, word):  # type: ignore[no-untyped-def]  # inlined kernel
    return _rotated(lane + word * _P2, 31) * _P1


@inlined
def _joined(joined, lane):  # type: ignore[no-untyped-def]  # inlined kernel
    return (joined ^ _lane(np.uint64(0), lane)) * _P1 + _P4


@inlined
def _word_of_8(taken, word):  # type: ignore[no-untyped-def]  # inlined kernel
    return _rotated(taken ^ _lane(np.uint64(0), word), 27) * _P1 + _P4


@inlined
def _word_of_4(taken, word):  # type: ignore[no-untyped-def]  # inlined kernel
    return _rotated(taken ^ (word * _P1), 23) * _P2 + _P3


@inlined
def _finished(state):  # type: ignore[no-untyped-def]  # inlined kernel
    last = (state ^ (state >> _33)) * _P2
    last = (last ^ (last >> _29)) * _P3
    return last ^ (last >> _32)


@inlined
def xxhash64_of_int(number):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the hash of an integer of 32 bits; ``number`` is its lower half of uint64."""
    return _finished(_word_of_4(_OF_4, number & np.uint64(0xFFFFFFFF)))


@inlined
def xxhash64_of_long(number):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the hash of an integer of 64 bits, as uint64."""
    return _finished(_word_of_8(_OF_8, number))


@kernel
def xxhash64(data: NDArray[np.uint8], at: Int, size: Int) -> Int:
    """Return the hash of ``data[at:at + size]``."""
    end = at + size
    state = _SHORT
    if size >= 32:
        v1, v2, v3, v4 = _V1, _V2, _V3, _V4
        while at + 32 <= end:
            v1 = _lane(v1, get_le(data, at, 8))
            v2 = _lane(v2, get_le(data, at + 8, 8))
            v3 = _lane(v3, get_le(data, at + 16, 8))
            v4 = _lane(v4, get_le(data, at + 24, 8))
            at += 32
        state = _rotated(v1, 1) + _rotated(v2, 7) + _rotated(v3, 12) + _rotated(v4, 18)
        state = _joined(_joined(_joined(_joined(state, v1), v2), v3), v4)
    state += np.uint64(size)
    while at + 8 <= end:
        state = _word_of_8(state, get_le(data, at, 8))
        at += 8
    if at + 4 <= end:
        state = _word_of_4(state, get_le(data, at, 4))
        at += 4
    while at < end:
        state = _rotated(state ^ (np.uint64(data[np.uint64(at)]) * _P5), 11) * _P1
        at += 1
    return _finished(state)
