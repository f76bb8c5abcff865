"""Validates, unescapes and writes the strings of JSON values.

RFC 8259, section 7: UTF-8 that is well-formed (Unicode, table 3-7: no overlong forms, no surrogates, nothing
above U+10FFFF), control characters only as escapes. A surrogate that is an escape needs its other half.

Invariant: `string_end` reads nothing at or after ``stop``. The others read spans that it found valid; bytes
that are not UTF-8, which it forgives where it is told to, they leave as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import put_bytes
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bytes inside a string: 1 stands for itself, 0 ends the string, begins an escape or a longer character, or is
# a control character. 0x7F (DEL) is allowed unescaped.
PLAIN = np.zeros(256, np.uint8)
PLAIN[0x20:0x80] = 1
PLAIN[[0x22, 0x5C]] = 0

# What may follow a backslash -> the byte that it stands for; 0: nothing (u is looked at apart).
_ESCAPE = np.zeros(256, np.uint8)
for _written, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPE[_written] = _meant

# A byte -> what stands behind the backslash in its place; 0: it is written as four hexadecimal digits.
_SHORT = np.zeros(128, np.uint8)
for _meant, _written in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _SHORT[_meant] = _written
_LONG = np.frombuffer(b"u00", np.uint8).copy()
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()

# A hexadecimal digit -> its value; 255: it is none.
_HEX = np.full(256, 255, np.uint8)
_HEX[list(b"0123456789abcdef")] = range(16)
_HEX[list(b"ABCDEF")] = range(10, 16)

# Numbers that RFC 8259 does not know, as Python and Java write them; and where each begins and ends.
_NOT_FINITE = np.frombuffer(b"NaN-Infinity", np.uint8).copy()
_NOT_FINITE_WORDS = ((0, 3), (4, 12), (3, 12))


@inlined
def _hex4(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read four hexadecimal digits; -1 where they are none."""
    code = np.int64(-1)
    if stop - at >= 4:
        a = np.int64(_HEX[data[np.uint64(at)]])
        b = np.int64(_HEX[data[np.uint64(at + 1)]])
        c = np.int64(_HEX[data[np.uint64(at + 2)]])
        d = np.int64(_HEX[data[np.uint64(at + 3)]])
        # 255 is the only entry above 15.
        if (a | b | c | d) < 16:
            code = (a << 12) | (b << 8) | (c << 4) | d
    return code


@inlined
def longer(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many bytes follow the first one of a character above U+007F; 0: it is not well-formed.

    UTF-8 by Unicode, table 3-7: the second byte's range depends on the first, which keeps out overlong forms,
    surrogates and what is above U+10FFFF.
    """
    first = np.int64(data[np.uint64(at)])
    low = 0x80
    high = 0xBF
    following = 0
    if 0xC2 <= first <= 0xDF:
        following = 1
    elif 0xE0 <= first <= 0xEF:
        following = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        following = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    if following != 0:
        if stop - at <= following or data[np.uint64(at + 1)] < low or data[np.uint64(at + 1)] > high:
            following = 0
        for longer_j in range(2, following + 1):
            if data[np.uint64(at + longer_j)] < 0x80 or data[np.uint64(at + longer_j)] > 0xBF:
                following = 0
    return following


@kernel
def string_end(data: NDArray[np.uint8], at: int, stop: int, lenient: bool) -> tuple[int, int]:
    """Go on from a byte inside a string that is not plain, to the closing quote.

    Returns:
        Where the quote stands, -1 where the string is not valid; the string's `JsonKind`.
    """
    kind = 6
    while at < stop:
        byte = np.int64(data[np.uint64(at)])
        if PLAIN[data[np.uint64(at)]] != 0:
            at += 1
        elif byte == 0x22:
            return at, kind
        elif byte == 0x5C:
            kind = max(kind, 7)
            if stop - at < 2:
                return -1, kind
            if data[np.uint64(at + 1)] == 0x75:
                code = _hex4(data, at + 2, stop)
                if code < 0 or 0xDC00 <= code <= 0xDFFF:
                    return -1, kind
                at += 6
                if 0xD800 <= code <= 0xDBFF:
                    if stop - at < 6 or data[np.uint64(at)] != 0x5C or data[np.uint64(at + 1)] != 0x75:
                        return -1, kind
                    low = _hex4(data, at + 2, stop)
                    if low < 0xDC00 or low > 0xDFFF:
                        return -1, kind
                    at += 6
            elif _ESCAPE[data[np.uint64(at + 1)]] != 0:
                at += 2
            else:
                return -1, kind
        else:
            more = longer(data, at, stop)
            if more == 0:
                if byte < 0x80 or not lenient:  # a control character is never forgiven
                    return -1, kind
                kind = 11
            at += 1 + more
    return -1, kind


@kernel
def not_finite(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return where ``NaN``, ``Infinity`` or ``-Infinity`` ends that begins at a place; ``at``: none does."""
    for begin, end in _NOT_FINITE_WORDS:
        same = stop - at >= end - begin
        for j in range(end - begin if same else 0):
            same &= data[np.uint64(at + j)] == _NOT_FINITE[begin + j]
        if same:
            return at + end - begin
    return at


@inlined
def _escape(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    r"""Read the escape at ``at``, of a string that is valid up to ``stop``.

    Returns (its UTF-8 bytes, the first lowest; how many; the position behind it). A pair of ``\u`` is one.
    """
    packed = np.int64(_ESCAPE[data[np.uint64(at + 1)]])
    count = 1
    after = at + 2
    if data[np.uint64(at + 1)] == 0x75:
        code = _hex4(data, at + 2, stop)
        after = at + 6
        if 0xD800 <= code <= 0xDBFF:
            code = 0x10000 + ((code - 0xD800) << 10) + (_hex4(data, at + 8, stop) - 0xDC00)
            after = at + 12
        tail = 0x80 | (code & 0x3F)
        middle = 0x80 | ((code >> 6) & 0x3F)
        if code < 0x80:
            packed = code
        elif code < 0x800:
            packed = (0xC0 | (code >> 6)) | (tail << 8)
            count = 2
        elif code < 0x10000:
            packed = (0xE0 | (code >> 12)) | (middle << 8) | (tail << 16)
            count = 3
        else:
            packed = (
                (0xF0 | (code >> 18)) | ((0x80 | ((code >> 12) & 0x3F)) << 8) | (middle << 16) | (tail << 24)
            )
            count = 4
    return packed, count, after


@kernel
def unescape(data: NDArray[np.uint8], at: int, size: int, out: NDArray[np.uint8]) -> int:
    """Write a string's text, UTF-8, and return its bytes.

    Args:
        data: uint8[m].
        at: Where the string's span begins, as `find` gave it.
        size: The span's bytes.
        out: uint8[k], k >= size: text is never longer than its escapes.
    """
    stop = at + size
    written = 0
    while at < stop:
        byte = data[np.uint64(at)]
        if byte != 0x5C:
            # Runs without escapes are most of a text.
            while at < stop and data[np.uint64(at)] != 0x5C:
                out[np.uint64(written)] = data[np.uint64(at)]
                written += 1
                at += 1
        elif _ESCAPE[data[np.uint64(at + 1)]] != 0:  # of one letter, as nearly all are
            out[np.uint64(written)] = _ESCAPE[data[np.uint64(at + 1)]]
            written += 1
            at += 2
        else:
            packed, count, at = _escape(data, at, stop)
            for j in range(count):
                out[written + j] = np.uint8((packed >> (8 * j)) & 0xFF)
            written += count
    return written


def plain_texts(
    data: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    escaped: NDArray[np.bool_],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Write the texts of some spans one behind the other.

    Args:
        data: uint8[m].
        begin: int64[n], where each span begins.
        length: int64[n], its bytes.
        wanted: bool[n], which of them are written.
        escaped: bool[n], which of them have escapes, as `unescape` takes them.

    Returns:
        uint8[k], the texts; int64[n], where each begins; int64[n], its bytes, -1 where it is not wanted.
    """
    out = np.empty(int(length[wanted].sum()), np.uint8)
    at, size = np.zeros(begin.size, np.int64), np.full(begin.size, -1, np.int64)
    _write_texts(data, begin, length, wanted, escaped, out, at, size)
    return out, at, size


@kernel
def _write_texts(
    data: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    escaped: NDArray[np.bool_],
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> None:
    to: Int = 0
    for row in range(begin.size):
        if not wanted[row]:
            continue
        at[row] = to
        if escaped[row]:
            size[row] = unescape(data, begin[row], length[row], out[to:])
        else:
            size[row] = length[row]
            put_bytes(out, to, data, begin[row], length[row])
        to += size[row]


@kernel
def same_text(
    data: NDArray[np.uint8], at: int, size: int, text: NDArray[np.uint8], begin: int, end: int
) -> bool:
    """Whether a string with escapes, of a valid span, has the text ``text[begin:end]``."""
    stop = at + size
    while at < stop:
        if data[np.uint64(at)] == 0x5C:
            packed, count, at = _escape(data, at, stop)
        else:
            packed = np.int64(data[np.uint64(at)])
            count = 1
            at += 1
        if end - begin < count:
            return False
        for j in range(count):
            if text[begin + j] != (packed >> (8 * j)) & 0xFF:
                return False
        begin += count
    return begin == end


@kernel
def put_text(out: NDArray[np.uint8], begin: Int, data: NDArray[np.uint8], start: Int, count: Int) -> Int:
    """Write text as a JSON string, in its quotes, as Python's ``json.dumps`` does; what is above ASCII stays.

    Args:
        out: uint8[k], with room for ``6 * count + 2`` bytes.
        begin: Where the string begins.
        data: uint8[m].
        start: Where the text begins.
        count: Its bytes.

    Returns:
        The place behind it; -1: the text is not UTF-8.
    """
    stop = start + count
    out[begin] = np.uint8(34)
    to = begin + 1
    at = start
    while at < stop:
        byte = np.int64(data[at])
        if PLAIN[data[at]] != 0:
            out[to] = data[at]
            to += 1
            at += 1
        elif byte >= 0x80:
            more = longer(data, at, stop)
            if more == 0:
                return np.int64(-1)
            to = put_bytes(out, to, data, at, more + 1)
            at += more + 1
        else:
            out[to] = np.uint8(92)
            if _SHORT[byte] != 0:
                out[to + 1] = _SHORT[byte]
                to += 2
            else:
                to = put_bytes(out, to + 1, _LONG, 0, 3)
                out[to] = _DIGITS[byte >> 4]
                out[to + 1] = _DIGITS[byte & 15]
                to += 2
            at += 1
    out[to] = np.uint8(34)
    return to + 1
