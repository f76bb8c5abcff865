"""Reads single values out of the pages of a Parquet column, without reading the column.

Pages of the kind that `seqmark batch` writes for its own columns are known: data pages of version 1 whose
values are all there, as 64-bit words (PLAIN) or as packed differences (DELTA_BINARY_PACKED)::

    header | 4 B size of levels | varint 2 x values | 1 | words, little-endian
                                                        | or differences:
    values per block | parts per block | values | first | per block: least difference, 1 B width per part, parts

Of anything else nothing is returned, and a library has to read it: it also says what is wrong with a page that
is damaged. Sources: parquet.thrift, and Encodings.md beside it.

Invariant: nothing is read outside the arrays that are given, whatever stands in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.loads import get_le
from processor.engine.bytes.varints import VARINT_BYTES, VARLONG_BYTES, varint
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLAIN, DELTA = 0, 5
"""Encodings that are known, as Parquet numbers them."""
SLACK = 8
"""Bytes behind a page, which do not count: packed differences are read by loads of whole words."""
_MOST_LEVELS = 3
"""Of structures in a page's header: the header, what data pages have, their statistics."""
_TYPE, _INFLATED, _SIZE, _CRC, _VALUES, _ENCODING = range(6)
_NONE = -1


class PageHead(NamedTuple):
    """What a data page's header says.

    Attributes:
        begin: Where its content begins.
        size: Bytes of it.
        inflated: Bytes of it when decompressed.
        crc: CRC-32 of the content as it stands; None: there is none.
        values: How many it has, nulls included.
        encoding: Of the values.
    """

    begin: int
    size: int
    inflated: int
    crc: int | None
    values: int
    encoding: int


def page_head(chunk: NDArray[np.uint8], at: int, more: int = 0) -> PageHead | None:
    """Return what the header that begins there says; None: it is not that of a data page that is known.

    Args:
        chunk: A column chunk, writable and contiguous, or its begin.
        at: Where in it.
        more: Bytes of the chunk that are not there.
    """
    found = np.full(6, _NONE, np.int64)
    begin = int(_read_head(chunk, np.int64(at), found))
    kind, inflated, size, crc, values, encoding = found.tolist()
    if begin < 0 or kind != 0 or not 0 <= size <= chunk.size - begin + more or inflated < 0 or values < 0:
        return None
    return PageHead(begin, size, inflated, None if crc == _NONE else crc & 0xFFFFFFFF, values, encoding)


def values_begin(page: NDArray[np.uint8], values: int) -> int | None:
    """Return where a page's values begin behind their levels; None: some are null, or the levels are not known.

    Args:
        page: Its content, decompressed, and `SLACK`.
        values: How many it has.
    """
    begin = int(_skip_levels(page, np.int64(values)))
    return None if begin < 0 else begin


def words_at(page: NDArray[np.uint8], begin: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64, the words of some rows, which rise, of a page of words.

    Args:
        page: Its content, decompressed, and `SLACK`.
        begin: Where its values begin.
        rows: Rising.

    Raises:
        ValueError: A row lies outside.
    """
    if rows.size and (begin < 0 or rows[0] < 0 or begin + 8 * (int(rows[-1]) + 1) > page.size - SLACK):
        raise ValueError("rows outside of the page")
    found = np.empty(rows.size, np.int64)
    _gather(page, np.int64(begin), rows, found)
    return found


def differences_at(
    page: NDArray[np.uint8], begin: int, values: int, rows: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return int64, the values of some rows of a page of packed differences; None: it is not a whole one.

    Args:
        page: Its content, decompressed, and `SLACK`.
        begin: Where its values begin.
        values: How many it has.
        rows: Of them, rising.
    """
    found = np.empty(rows.size, np.int64)
    if page.size < SLACK or begin < 0:
        return None
    return found if _undelta(page, np.int64(begin), np.int64(values), rows, found) else None


@kernel
def _read_head(data: NDArray[np.uint8], at: Int, found: NDArray[np.int64]) -> Int:
    """Read a header in Thrift's compact protocol; returns where it ends, -1: it is cut or not known."""
    stop = np.int64(data.size)
    field = np.zeros(_MOST_LEVELS + 1, np.int64)
    level = 1
    while level > 0:
        if at >= stop:
            return np.int64(_NONE)
        byte = np.int64(data[at])
        at += 1
        if byte == 0:
            level -= 1
            continue
        kind, step = byte & 15, byte >> 4
        if step == 0:
            # The number of the field itself, which no header of Parquet needs.
            return np.int64(_NONE)
        field[level] += step
        if kind == 12:
            # Only what data pages of version 1 have, field 5, is known; statistics below it are passed over.
            if level == _MOST_LEVELS or (level == 1 and field[1] != 5):
                return np.int64(_NONE)
            level += 1
            field[level] = 0
        elif 4 <= kind <= 6:
            value, at = varint(data, at, stop, VARLONG_BYTES)
            if at < 0:
                return np.int64(_NONE)
            if level == 1 and field[1] <= 4:
                found[field[1] - 1] = value
            elif level == 2 and field[2] <= 2:
                found[3 + field[2]] = value
        elif kind == 8:
            value, at = varint(data, at, stop, VARINT_BYTES)
            size = (value << 1) ^ (value >> 63)  # which is not written zigzag
            if at < 0 or size < 0 or size > stop - at:
                return np.int64(_NONE)
            at += size
        elif kind != 1 and kind != 2:  # noqa: PLR1714 - a set in a kernel is built each time
            return np.int64(_NONE)
    return at


@kernel
def _skip_levels(page: NDArray[np.uint8], values: Int) -> Int:
    stop = np.int64(page.size) - SLACK
    if stop < 4:
        return np.int64(_NONE)
    end = 4 + np.int64(get_le(page, 0, 4))
    if end > stop:
        return np.int64(_NONE)
    at = np.int64(4)
    seen = np.int64(0)
    while at < end:
        value, at = varint(page, at, end, VARLONG_BYTES)
        run = (value << 1) ^ (value >> 63)
        # One run of ones after the other; bits that are packed are not looked at.
        if at < 0 or run < 0 or run & 1 or at >= end or page[at] != 1:
            return np.int64(_NONE)
        seen += run >> 1
        at += 1
    return end if seen == values else np.int64(_NONE)


@kernel
def _gather(page: NDArray[np.uint8], begin: Int, rows: NDArray[np.int64], found: NDArray[np.int64]) -> None:
    for k in range(rows.size):
        found[k] = np.int64(get_le(page, begin + 8 * rows[k], 8))


@kernel
def _undelta(
    page: NDArray[np.uint8], at: Int, values: Int, rows: NDArray[np.int64], found: NDArray[np.int64]
) -> bool:
    stop = np.int64(page.size) - SLACK
    head = np.zeros(4, np.int64)
    for k in range(4):
        value, at = varint(page, at, stop, VARLONG_BYTES)
        if at < 0:
            return False
        head[k] = value if k == 3 else (value << 1) ^ (value >> 63)  # only the first value is written zigzag
    block, parts, count = head[0], head[1], head[2]
    if count != values or parts < 1 or parts > 512 or block < 1 or block > 1 << 20:
        return False
    size = block // parts
    if size * parts != block or size & 31 != 0:
        return False
    last = np.uint64(head[3])
    wanted, row = 0, np.int64(0)
    while wanted < rows.size and rows[wanted] == 0 and count > 0:
        found[wanted] = np.int64(last)
        wanted += 1
    while wanted < rows.size and row + 1 < count:
        least, at = varint(page, at, stop, VARLONG_BYTES)
        if at < 0 or at + parts > stop:
            return False
        widths = at
        at += parts
        for part in range(parts):
            if row + 1 >= count or wanted == rows.size:
                break
            width = np.int64(page[widths + part])
            if width > 64 or at + (size * width >> 3) > stop:
                return False
            mask = (
                np.uint64(0xFFFFFFFFFFFFFFFF)
                if width == 64
                else (np.uint64(1) << np.uint64(width)) - np.uint64(1)
            )
            for k in range(min(size, count - 1 - row)):
                bit = k * width
                shift = np.uint64(bit & 7)
                place = at + (bit >> 3)
                packed = get_le(page, place, 8) >> shift if width else np.uint64(0)
                if shift + np.uint64(width) > np.uint64(64):
                    packed |= np.uint64(page[place + 8]) << (np.uint64(64) - shift)
                last += np.uint64(least) + (packed & mask)
                row += 1
                while wanted < rows.size and rows[wanted] == row:
                    found[wanted] = np.int64(last)
                    wanted += 1
            at += size * width >> 3
    return wanted == rows.size
