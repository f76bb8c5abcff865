"""The content of a JSON value by Python's own parser: the set of its leaves. Slow, and easy to believe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Leaf = tuple[tuple[str | int, ...], str, str]
"""Path (a string for a member, a number for an element), kind, text."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def leaves(value: bytes, exclude: Sequence[str] = ()) -> frozenset[Leaf]:
    """Return the leaves of a value, which is JSON, without what pointers exclude.

    Args:
        value: Of equal member names the last counts, as in Python.
        exclude: JSON pointers.
    """
    parsed = json.loads(value, parse_int=Number, parse_float=Number)
    out = {tuple(each.replace("~1", "/").replace("~0", "~") for each in p.split("/")[1:]) for p in exclude}
    return frozenset(_leaves(parsed, (), out))


def _leaves(value: Any, path: tuple[str | int, ...], out: set[tuple[str, ...]]) -> Iterator[Leaf]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inside = [(step, each) for step, each in items if (*map(str, path), str(step)) not in out]
        if not inside:
            yield path, type(value).__name__, ""
        for step, each in inside:
            yield from _leaves(each, (*path, step), out)
    elif isinstance(value, str):
        yield path, "number" if isinstance(value, Number) else "string", value
    else:
        yield path, "word", str(value)


def content_hash(value: bytes, secret: bytes) -> bytes:
    """Return the 16 bytes by which a value is known, see `processor.engine.extract.json_content`."""
    key = derived_key(b"seqmark content", secret)
    total = [0, 0]
    for words in _hashed(json.loads(value, parse_int=Number, parse_float=Number), []):
        total = [(one + other) % 2**64 for one, other in zip(total, _words(sip(words, key)), strict=True)]
    return sip([3 | 16 << 8, *total], key)


def _hashed(value: Any, path: list[int]) -> Iterator[list[int]]:
    """Yield what is hashed of each leaf, containers among them."""
    if isinstance(value, dict | list):
        yield [*path, 16 + (8 if isinstance(value, dict) else 9)]
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _hashed(each, [*path, *_tagged(1, name.encode())])
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _hashed(each, [*path, 2 | index << 8])
    elif isinstance(value, Number):
        yield [*path, *_tagged(16 + 4, value.encode())]
    elif isinstance(value, str):
        yield [*path, *_tagged(16 + 6, value.encode())]
    else:
        kinds = {None: 1, False: 2, True: 3}
        yield [*path, *_tagged(16 + kinds[value], json.dumps(value).encode())]


def _tagged(tag: int, text: bytes) -> list[int]:
    return [tag | len(text) << 8, *_padded(text)]


def _padded(text: bytes) -> list[int]:
    return _words(text + bytes(-len(text) % 8))


def derived_key(purpose: bytes, secret: bytes) -> bytes:
    """Return a key of 16 bytes for a purpose."""
    return sip([*_words(purpose[: len(purpose) & ~7]), _last(purpose)], secret)


def _last(text: bytes) -> int:
    """Return SipHash's last word: what is left, and the length."""
    left = text[len(text) & ~7 :]
    return int.from_bytes(left, "little") | (len(text) & 255) << 56


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def sip(words: list[int], key: bytes) -> bytes:
    """Return SipHash-2-4-128 of whole words, the last one as it is given."""
    k0, k1 = _words(key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    for word in words:
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _rounds(v, 4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, 4)
    return low.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def _rounds(v: list[int], count: int) -> None:
    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) % 2**64

    for _ in range(count):
        v[0] = (v[0] + v[1]) % 2**64
        v[1] = turned(v[1], 13) ^ v[0]
        v[0] = turned(v[0], 32)
        v[2] = (v[2] + v[3]) % 2**64
        v[3] = turned(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) % 2**64
        v[3] = turned(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) % 2**64
        v[1] = turned(v[1], 17) ^ v[2]
        v[2] = turned(v[2], 32)
