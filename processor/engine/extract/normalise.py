"""Writes parts of ids in one way, where others mean the same: UUIDs, whole numbers, letters of either case.

What is of another form stays as it is, and never becomes equal to what is: a text that is no UUID is none in
our way of writing it either, so no record is taken for another one's copy::

    UUID      {6F9619FF8B86D0 11-B42D00CF4FC964FF}     6f9619ff-8b86-d011-b42d-00cf4fc964ff
    INTEGER   "007"  7  7.0  70e-1                     the number 7
    LOWER     Straße É A                               straße É a

- UUID: 32 hexadecimal digits, dashes anywhere among them, braces around them or none. Texts and bytes.
- INTEGER: a JSON number or a text of one, leading zeros allowed, whose value is whole, however large; with an
  exponent only up to `MOST_DIGITS` digits. It becomes a number.
- LOWER: A to Z. Texts and bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.varints import put_bytes
from processor.engine.extract.json_text import unescape
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class IdTextForm(IntEnum):
    """What a part's span holds; values of the ``form`` column (uint8)."""

    NONE = 0
    BYTES = 1
    STRING = 2
    NUMBER = 3
    ESCAPED = 4
    """A JSON string with escapes; hashed as `STRING`, by its text."""
    CONTENT = 5
    """The value's content, by its hash."""
    BOOLEAN = 6


class Normal(IntEnum):
    """What of a part does not count."""

    NONE = 0
    UUID = 1
    INTEGER = 2
    LOWER = 3

    @classmethod
    def of(cls, word: str | None) -> Normal:
        """Return the one of a config's word; none: everything counts."""
        return cls[word.upper()] if word else cls.NONE


class PartTexts(NamedTuple):
    """One part of n records.

    Attributes:
        data: uint8[m].
        form: uint8[n], `IdTextForm` values.
        at: int64[n], where each text begins in the data.
        length: int64[n], its bytes.
    """

    data: NDArray[np.uint8]
    form: NDArray[np.uint8]
    at: NDArray[np.int64]
    length: NDArray[np.int64]


MOST_DIGITS = 40
_ROOM = MOST_DIGITS + 1
"""What a text may grow to: a UUID is of 36 bytes, a number with an exponent of a sign and `MOST_DIGITS`."""
# A hexadecimal digit -> itself, in lower case; 0: it is none.
_HEX_DIGIT = np.zeros(256, np.uint8)
_HEX_DIGIT[list(b"0123456789abcdefABCDEF")] = list(b"0123456789abcdefabcdef")
_UUID_DIGITS = 32


def normalised(texts: PartTexts, how: Normal) -> PartTexts:
    """Return texts written in the one way; strings come without escapes."""
    size = texts.length[(texts.form != IdTextForm.NONE) & (texts.form != IdTextForm.CONTENT)]
    out = np.empty(int(np.maximum(size, _ROOM).sum()), np.uint8)
    form, at, length = texts.form.copy(), np.zeros_like(texts.at), np.zeros_like(texts.length)
    _normalise(texts, int(how), PartTexts(out, form, at, length))
    return PartTexts(out, form, at, length)


@kernel
def _normalise(texts: PartTexts, how: int, made: PartTexts) -> None:
    data, _, begins, lengths = texts
    out, form, at, length = made
    digits = np.empty(_UUID_DIGITS, np.uint8)
    to: Int = 0
    for row in range(form.size):
        what = form[row]
        if what in (0, 5):
            continue
        size: Int = lengths[row]
        if what == 4:
            size = np.int64(unescape(data, begins[row], lengths[row], out[to:]))
            form[row] = 2
        else:
            put_bytes(out, to, data, begins[row], size)
        at[row] = to
        is_text = what in (1, 2, 4)
        if how == 1 and is_text:
            size = _uuid(out, to, size, digits)
        elif how == 2 and (is_text or what == 3):
            written = np.int64(_integer(out, to, size))
            if written > 0:
                size = written
                form[row] = 3
        elif how == 3 and is_text:
            for j in range(to, to + size):
                if 65 <= out[j] <= 90:
                    out[j] |= np.uint8(32)
        length[row] = size
        to += size


@kernel
def _uuid(out: NDArray[np.uint8], at: Int, size: Int, digits: NDArray[np.uint8]) -> Int:
    """Write the UUID that stands at ``at`` in lower case with dashes; returns its bytes, if any."""
    begin, stop = at, at + size
    if size > 1 and out[begin] == 123 and out[stop - 1] == 125:
        begin, stop = begin + 1, stop - 1
    count = 0
    for j in range(begin, stop):
        if out[j] == 45:
            continue
        digit = _HEX_DIGIT[out[j]]
        if digit == 0 or count == _UUID_DIGITS:
            return size
        digits[count] = digit
        count += 1
    if count != _UUID_DIGITS:
        return size
    to = at
    for k in range(_UUID_DIGITS):
        if k in (8, 12, 16, 20):
            out[to] = np.uint8(45)
            to += 1
        out[to] = digits[k]
        to += 1
    return to - at


@kernel
def _integer(out: NDArray[np.uint8], at: Int, size: Int) -> Int:
    """Write the whole number that stands at ``at`` in digits alone; returns its bytes, 0 if it is none."""
    stop = at + size
    negative = size > 0 and out[at] == 45
    begin = at + 1 if negative else at
    point = _digits_end(out, begin, stop)
    last = point  # behind the last digit of the mantissa
    if point < stop and out[point] == 46:
        last = _digits_end(out, point + 1, stop)
        if last == point + 1:
            return np.int64(0)
    if point == begin:
        return np.int64(0)
    exponent: Int = 0
    if last < stop:
        exponent = np.int64(_exponent(out, last, stop))
        if exponent < -_FAR or exponent > _FAR:
            return np.int64(0)
    # What is left of the digits without zeros around, and the power of ten behind them.
    power = exponent - max(last - point - 1, np.int64(0))
    high = last
    while high > begin and (out[high - 1] == 48 or high - 1 == point):
        high -= 1
        if high != point:
            power += 1
    low = begin
    while low < high and (out[low] == 48 or low == point):
        low += 1
    if low == high:
        out[at] = np.uint8(48)
        return np.int64(1)
    count = high - low - (1 if low < point < high else 0)
    if power < 0 or (last < stop and count + power > MOST_DIGITS):
        return np.int64(0)
    to = begin
    for j in range(low, high):
        if j != point:
            out[to] = out[j]
            to += 1
    for _ in range(power):
        out[to] = np.uint8(48)
        to += 1
    return to - at


_FAR = 1_000_000_000_000
"""An exponent beyond is none for us; mantissas of so many digits do not fit a record."""


@kernel
def _digits_end(out: NDArray[np.uint8], at: Int, stop: Int) -> Int:
    while at < stop and 48 <= out[at] <= 57:
        at += 1
    return at


@kernel
def _exponent(out: NDArray[np.uint8], at: Int, stop: Int) -> Int:
    """Return the exponent from its letter on; beyond `_FAR` if it is none."""
    none = np.int64(_FAR + 1)
    if out[at] | 32 != 101 or stop - at < 2:
        return none
    begin = at + 2 if out[at + 1] == 45 or out[at + 1] == 43 else at + 1
    if begin == stop or _digits_end(out, begin, stop) != stop:
        return none
    found = np.int64(0)
    for j in range(begin, stop):
        found = min(found * 10 + np.int64(out[j] - 48), none)
    return -found if out[at + 1] == 45 else found
