"""Registers of distinct values as Spark fills them, in plain Python: XXH64 and HyperLogLog++."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from processor.engine.events import FieldKind, FieldRule

if TYPE_CHECKING:
    from collections.abc import Iterable

_BITS = 9
_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(word: int, bits: int) -> int:
    word &= _MASK
    return (word << bits | word >> (64 - bits)) & _MASK


def _lane(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2, 31) * _P1 & _MASK


def xxh64(raw: bytes, seed: int) -> int:
    """Return XXH64 as its specification has it."""
    at, state = 0, seed + _P5
    if len(raw) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= len(raw):
            lanes = [
                _lane(lane, each) for lane, each in zip(lanes, struct.unpack_from("<4Q", raw, at), strict=True)
            ]
            at += 32
        state = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            state = (state ^ _lane(0, lane)) * _P1 + _P4 & _MASK
    state = state + len(raw) & _MASK
    while at + 8 <= len(raw):
        state = _rotated(state ^ _lane(0, struct.unpack_from("<Q", raw, at)[0]), 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= len(raw):
        state = _rotated(state ^ struct.unpack_from("<I", raw, at)[0] * _P1 & _MASK, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in raw[at:]:
        state = _rotated(state ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


def bytes_of(rule: FieldRule, value: Any) -> bytes:
    """Return the bytes that Spark hashes of a value: of decimals the number without its point is given."""
    match rule.kind:
        case FieldKind.TEXT:
            return str(value).encode()
        case FieldKind.BOOL | FieldKind.DATE:
            return struct.pack("<i", value)
        case FieldKind.FLOAT:
            return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
        case FieldKind.DECIMAL if rule.precision > 18:
            bits = (value if value >= 0 else ~value).bit_length()
            return int(value).to_bytes(bits // 8 + 1, "big", signed=True)
        case _:
            return struct.pack("<q", value)


def registers_of(rule: FieldRule, values: Iterable[Any]) -> dict[int, int]:
    """Return how each register is filled."""
    found: dict[int, int] = {}
    for value in values:
        hashed = xxh64(bytes_of(rule, value), 42)
        rest = hashed << _BITS & _MASK | 1 << (_BITS - 1)
        register, zeros = hashed >> (64 - _BITS), 64 - rest.bit_length() + 1
        found[register] = max(found.get(register, 0), zeros)
    return found
