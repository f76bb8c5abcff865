"""Reads from a Parquet file's footer where some of its columns lie, without a library.

A footer names all columns of all row groups, each with encodings, sizes and statistics; a library makes objects
of all of it, which takes longer than to look through a thousand ids. Here it is gone over once, and of the few
columns that are asked for by name six numbers per row group are kept::

    FileMetaData  2 schema       [SchemaElement  1 type, 3 repetition, 4 name, 5 children, 6 converted type]
                  3 rows         of all row groups
                  4 row groups   [RowGroup  1 columns [ColumnChunk  3 ColumnMetaData], 3 rows]
                  ColumnMetaData  1 type, 3 path, 4 codec, 5 values, 7 bytes, 9 data page, 11 dictionary page

A column counts where it stands at the top, is of 64-bit integers and may have nulls, as those of a batch are.
Of a footer that looks otherwise, or is damaged, nothing is returned, and a library has to read it. A zero ends
a struct wherever it stands, so a footer is believed only if it ends at its last byte, has all three of the
fields above, and its row groups together have its rows. Source: parquet.thrift, in Thrift's compact protocol.

Invariant: nothing is read outside the array that is given, whatever stands in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.thrift import (
    CUT,
    MOST_DEPTH,
    thrift_field,
    thrift_list,
    thrift_passed,
    thrift_text,
)
from processor.engine.bytes.varints import VARLONG_BYTES, varint
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_INT64, _OPTIONAL = 2, 1
_MOST_GROUPS = 1 << 15
"""A file may have so many row groups, as Parquet numbers them."""
_ROWS, _CODEC, _VALUES, _BYTES, _DATA, _DICTIONARY = range(6)
_KIND, _CONVERTED = range(2)
_SCHEMA_KNOWN, _ROWS_KNOWN, _GROUPS_KNOWN = 1, 2, 4
_NOT_THERE = -1


class ChunkPlace(NamedTuple):
    """Where the values of one column of one row group lie.

    Attributes:
        codec: As Parquet numbers it: 0 none, 6 zstd.
        values: How many it has, nulls included.
        size: Bytes, headers of pages included.
        data: Where its first data page begins, in the file.
        has_dictionary: Whether one stands before it.
    """

    codec: int
    values: int
    size: int
    data: int
    has_dictionary: bool


class _Names(NamedTuple):
    """Names, one after the other, and where each begins and the last one ends."""

    text: NDArray[np.uint8]
    bounds: NDArray[np.int64]


class FooterColumns:
    """What a footer says of some columns.

    Args:
        names: Of the columns.
        groups: int64[row groups, names, 6].
        kinds: int64[names, 2].
    """

    def __init__(self, names: Sequence[str], groups: NDArray[np.int64], kinds: NDArray[np.int64]) -> None:
        self._at = {name: at for at, name in enumerate(names)}
        self._groups, self._kinds = groups.tolist(), kinds.tolist()

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return len(self._groups)

    def rows(self, group: int) -> int:
        """Return how many rows a row group has."""
        return int(self._groups[group][0][_ROWS])

    def converted(self, name: str) -> int:
        """Return what a column's words stand for, as Parquet numbers it; -1: for themselves."""
        return int(self._kinds[self._at[name]][_CONVERTED])

    def place(self, group: int, name: str) -> ChunkPlace | None:
        """Return where a column lies; None: it is not of 64 bits, or cannot have nulls.

        Raises:
            KeyError: It is not there.
        """
        at = self._at[name]
        if self._kinds[at][_KIND] == _NOT_THERE:
            raise KeyError(name)
        _, codec, values, size, data, dictionary = self._groups[group][at]
        if self._kinds[at][_KIND] != 1 or min(codec, values, size, data) < 0:
            return None
        return ChunkPlace(codec, values, size, data, dictionary > 0)


def footer_columns(footer: NDArray[np.uint8], names: tuple[str, ...]) -> FooterColumns | None:
    """Return what a footer says of some columns; None: it is damaged, or not known here.

    Args:
        footer: Its bytes, without length and magic, writable and contiguous.
        names: Of the columns.
    """
    asked = _spans(names)
    most = 8
    while most <= _MOST_GROUPS:
        groups = np.full((most, len(names), 6), _NOT_THERE, np.int64)
        kinds = np.full((len(names), 2), _NOT_THERE, np.int64)
        count = int(_read_file(footer, asked, groups, kinds))
        if count <= most:
            return None if count < 0 else FooterColumns(names, groups[:count], kinds)
        most = count
    return None


@lru_cache
def _spans(names: tuple[str, ...]) -> _Names:
    raw = [each.encode() for each in names]
    bounds = np.cumsum([0, *(len(each) for each in raw)], dtype=np.int64)
    return _Names(np.frombuffer(bytearray(b"".join(raw)), np.uint8), bounds)


@inlined
def _named(data, begin, end, names):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return which of the names stands there; -1: none."""
    text, bounds = names
    named = np.int64(_NOT_THERE)
    for each in range(bounds.size - 1):
        if bounds[each + 1] - bounds[each] == end - begin:
            same = True
            for k in range(end - begin):
                if data[begin + k] != text[bounds[each] + k]:
                    same = False
                    break
            if same:
                named = np.int64(each)
    return named


@kernel
def _read_file(
    data: NDArray[np.uint8],
    names: _Names,
    groups: NDArray[np.int64],
    kinds: NDArray[np.int64],
) -> Int:
    """Read a footer, keep as many row groups as fit; returns how many it has, -1: it is not known."""
    stack = np.zeros((MOST_DEPTH, 2), np.int64)
    stop, field, count = np.int64(data.size), np.int64(0), np.int64(0)
    known, rows, kept_rows = np.int64(0), np.int64(0), np.int64(0)
    at: Int = np.int64(0)
    while True:
        field, kind, at = thrift_field(data, at, stop, field)
        if at < 0:
            return CUT
        if kind == 0:
            whole = known == _SCHEMA_KNOWN | _ROWS_KNOWN | _GROUPS_KNOWN and rows == kept_rows
            return count if whole and at == stop else CUT
        if (field == 2 or field == 4) and kind == 9:  # noqa: PLR1714 - a set in a kernel is built each time
            many, kind, at = thrift_list(data, at, stop)
            if at < 0 or kind != 12 or many < 0:
                return CUT
            if field == 2:
                at = _read_schema(data, at, stop, many, names, kinds, stack)
                known |= _SCHEMA_KNOWN
            else:
                for group in range(many):
                    kept = groups[group] if group < len(groups) else groups[0]
                    at = _read_group(data, at, stop, names, kept, stack)
                    if at < 0 or kept[0, _ROWS] < 0:
                        return CUT
                    kept_rows += kept[0, _ROWS]
                count = many
                known |= _GROUPS_KNOWN
        elif field == 3 and kind == 6:
            rows, at = varint(data, at, stop, VARLONG_BYTES)
            known |= _ROWS_KNOWN
        else:
            at = thrift_passed(data, at, stop, kind, stack)
        if at < 0:
            return CUT


@kernel
def _read_schema(
    data: NDArray[np.uint8],
    at: Int,
    stop: Int,
    many: Int,
    names: _Names,
    kinds: NDArray[np.int64],
    stack: NDArray[np.int64],
) -> Int:
    """Read the schema's elements: of columns that are asked for whether they are of the kind that is known."""
    below = np.int64(0)  # how many elements are still to come that stand below one at the top
    for element in range(many):
        field, name = np.int64(0), np.int64(_NOT_THERE)
        physical, repetition, converted = np.int64(_NOT_THERE), np.int64(_NOT_THERE), np.int64(_NOT_THERE)
        children = np.int64(0)
        while True:
            field, kind, at = thrift_field(data, at, stop, field)
            if at < 0:
                return CUT
            if kind == 0:
                break
            if field == 4 and kind == 8:
                begin, at = thrift_text(data, at, stop)
                if at < 0:
                    return CUT
                name = _named(data, begin, at, names)
            elif kind == 5:
                value, at = varint(data, at, stop, VARLONG_BYTES)
                if field == 1:
                    physical = value
                elif field == 3:
                    repetition = value
                elif field == 5:
                    children = value
                elif field == 6:
                    converted = value
            else:
                at = thrift_passed(data, at, stop, kind, stack)
            if at < 0:
                return CUT
        if element == 0:
            continue
        if below == 0 and name >= 0:
            known = physical == _INT64 and repetition == _OPTIONAL and children == 0
            kinds[name, _KIND], kinds[name, _CONVERTED] = np.int64(known), converted
        below += (children if children > 0 else np.int64(0)) - np.int64(below > 0)
    return at


@kernel
def _read_group(
    data: NDArray[np.uint8],
    at: Int,
    stop: Int,
    names: _Names,
    kept: NDArray[np.int64],
    stack: NDArray[np.int64],
) -> Int:
    """Read a row group, and keep what it says of the columns that are asked for."""
    field, rows = np.int64(0), np.int64(_NOT_THERE)
    kept[:] = _NOT_THERE
    while True:
        field, kind, at = thrift_field(data, at, stop, field)
        if at < 0:
            return CUT
        if kind == 0:
            break
        if field == 1 and kind == 9:
            many, kind, at = thrift_list(data, at, stop)
            if at < 0 or kind != 12:
                return CUT
            for _ in range(many):
                inner = np.int64(0)
                while True:
                    inner, kind, at = thrift_field(data, at, stop, inner)
                    if at < 0 or kind == 0:
                        break
                    if inner == 3 and kind == 12:
                        at = _read_chunk(data, at, stop, names, kept, stack)
                    else:
                        at = thrift_passed(data, at, stop, kind, stack)
                    if at < 0:
                        break
                if at < 0:
                    return CUT
        elif field == 3 and kind == 6:
            rows, at = varint(data, at, stop, VARLONG_BYTES)
        else:
            at = thrift_passed(data, at, stop, kind, stack)
        if at < 0:
            return CUT
    kept[:, _ROWS] = rows
    return at


@kernel
def _read_chunk(
    data: NDArray[np.uint8],
    at: Int,
    stop: Int,
    names: _Names,
    kept: NDArray[np.int64],
    stack: NDArray[np.int64],
) -> Int:
    """Read a column's metadata, and keep them where the column is asked for."""
    field, name = np.int64(0), np.int64(_NOT_THERE)
    codec, values, size = np.int64(_NOT_THERE), np.int64(_NOT_THERE), np.int64(_NOT_THERE)
    page, dictionary = np.int64(_NOT_THERE), np.int64(_NOT_THERE)
    while True:
        field, kind, at = thrift_field(data, at, stop, field)
        if at < 0:
            return CUT
        if kind == 0:
            break
        if field == 3 and kind == 9:
            many, kind, at = thrift_list(data, at, stop)
            if at < 0 or kind != 8:
                return CUT
            for _ in range(many):
                begin, at = thrift_text(data, at, stop)
                if at < 0:
                    return CUT
                name = _named(data, begin, at, names) if many == 1 else np.int64(_NOT_THERE)
        elif kind == 5 or kind == 6:  # noqa: PLR1714 - a set in a kernel is built each time
            value, at = varint(data, at, stop, VARLONG_BYTES)
            if field == 4:
                codec = value
            elif field == 5:
                values = value
            elif field == 7:
                size = value
            elif field == 9:
                page = value
            elif field == 11:
                dictionary = value
        else:
            at = thrift_passed(data, at, stop, kind, stack)
        if at < 0:
            return CUT
    if name >= 0:
        kept[name, _CODEC], kept[name, _VALUES], kept[name, _BYTES] = codec, values, size
        kept[name, _DATA], kept[name, _DICTIONARY] = page, dictionary
    return at
