r"""Writes rows of columns as JSON objects without blanks or nulls: what fingerprints of rows are made of.

    {"name":value,"name":value}

Members stand in the order of the columns. Texts are escaped as orjson does: quote, backslash, and control
characters by their short form where they have one, by `\u00xx` otherwise; all else stays UTF-8.

Invariant: the bytes are those that orjson makes of the same rows as dicts (a property test compares them).
Other bytes could be other fingerprints: copies of what is in a table would be taken for collisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.varints import put_bytes
from processor.engine.jit import kernel
from processor.engine.rest.json_rows import JsonRows
from processor.engine.rest.owned import owned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
_SIZES = np.array([2 if byte in _SHORT else 6 if byte < 32 else 1 for byte in range(256)], np.int64)
"""int64[256], how many bytes each takes."""
_LETTERS = np.array([ord(_SHORT.get(byte, "u")) for byte in range(256)], np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


class MemberColumn(NamedTuple):
    """One member of n objects; `of` makes it.

    Attributes:
        head: uint8[h], its name as JSON, with the colon.
        valid: bool[n], false where the object has no such member.
        begin: int64[n], where each value begins in the data.
        length: int64[n].
        data: uint8[m], JSON, or UTF-8 that becomes a string.
        text: Whether it is to become a string.
    """

    head: NDArray[np.uint8]
    valid: NDArray[np.bool_]
    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    data: NDArray[np.uint8]
    text: bool

    @classmethod
    def of(
        cls,
        name: bytes,
        valid: NDArray[np.bool_],
        spans: tuple[NDArray[np.integer], NDArray[np.integer]],
        data: NDArray[np.uint8],
        *,
        text: bool = False,
    ) -> MemberColumn:
        """Return a column.

        Args:
            name: As JSON, with its quotes.
            valid: See above.
            spans: Begin and length of each value; of those that are not valid they do not matter.
            data: See above; texts are valid UTF-8.
            text: See above.

        Raises:
            ValueError: Spans lead out of the data, or there are not as many.
        """
        begin, length = (owned(each, np.int64) for each in spans)
        valid = owned(valid, np.bool_)
        if not begin.size == length.size == valid.size:
            raise ValueError(f"{begin.size} and {length.size} spans of {valid.size} values")
        wrong = (begin < 0) | (length < 0) | (begin + length > data.size)
        if (wrong & valid).any():
            raise ValueError("spans lead out of the data")
        head = owned(np.frombuffer(name + b":", np.uint8), np.uint8)
        return cls(head, valid, begin, length, owned(data, np.uint8), text)


def json_of_columns(columns: Sequence[MemberColumn], rows: int) -> JsonRows:
    """Return so many rows as JSON.

    Raises:
        ValueError: A column has not as many.
    """
    if any(each.valid.size != rows for each in columns):
        raise ValueError(f"columns of other lengths than {rows}")
    sizes = np.full(rows, 2, np.int64)
    some = np.zeros(rows, np.bool_)
    for head, valid, begin, length, data, text in columns:
        _measure(head, valid, begin, length, data, text, some, sizes)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for head, valid, begin, length, data, text in columns:
        _put(head, valid, begin, length, data, text, offsets, at, out)
    _end(offsets, at, out)
    return JsonRows(out, offsets)


@kernel
def _measure(
    head: NDArray[np.uint8],
    valid: NDArray[np.bool_],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    data: NDArray[np.uint8],
    text: bool,
    some: NDArray[np.bool_],
    sizes: NDArray[np.int64],
) -> None:
    """Add what a column takes to the rows' sizes; ``some`` says which have a member already."""
    for row in range(valid.size):
        if not valid[row]:
            continue
        size = head.size + length[row]
        if text:
            size += 2
            first = np.uint64(begin[row])
            for k in range(np.uint64(length[row])):
                size += _SIZES[data[first + k]] - 1
        sizes[row] += size + some[row]
        some[row] = True


@kernel
def _put(
    head: NDArray[np.uint8],
    valid: NDArray[np.bool_],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    data: NDArray[np.uint8],
    text: bool,
    offsets: NDArray[np.int64],
    at: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Write a column's members; ``at`` is where each row goes on."""
    for row in range(valid.size):
        if not valid[row]:
            continue
        position = at[row]
        out[position] = 123 if position == offsets[row] else 44
        position = put_bytes(out, position + 1, head, 0, head.size)
        if not text:
            at[row] = put_bytes(out, position, data, begin[row], length[row])
            continue
        out[position] = 34
        to, first = np.uint64(position + 1), np.uint64(begin[row])
        for k in range(np.uint64(length[row])):
            byte = data[first + k]
            if _SIZES[byte] == 1:
                out[to] = byte
                to += np.uint64(1)
                continue
            out[to] = 92
            out[to + np.uint64(1)] = _LETTERS[byte]
            if _SIZES[byte] == 6:
                out[to + np.uint64(2)] = 48
                out[to + np.uint64(3)] = 48
                out[to + np.uint64(4)] = _HEX[byte >> 4]
                out[to + np.uint64(5)] = _HEX[byte & 15]
            to += np.uint64(_SIZES[byte])
        out[to] = 34
        at[row] = np.int64(to) + 1


@kernel
def _end(offsets: NDArray[np.int64], at: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    for row in range(at.size):
        if at[row] == offsets[row]:
            out[at[row]] = 123
        out[offsets[row + 1] - 1] = 125
