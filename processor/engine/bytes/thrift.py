"""Reads Thrift's compact protocol inside kernels: heads of fields and lists, and what is passed over.

    field   4 bits more than the number before it (0: the number follows), 4 bits kind; 0 ends a struct
    list    4 bits how many (15: the number follows), 4 bits kind
    kinds   1, 2 booleans, 3 a byte, 4 to 6 zigzag varints, 7 eight bytes, 8 a text, 9, 10 lists, 12 a struct

Source: thrift-compact-protocol.md. Maps are not known: Parquet has none.

Invariant: nothing is read at or beyond the end that is given; what is cut there has the position -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import VARINT_BYTES, VARLONG_BYTES, varint
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_DEPTH = 16
"""Of values within values that are passed over: those of a Parquet footer are three deep."""
CUT = np.int64(-1)
_STRUCT = -1
"""Stands in the stack in place of a list's kind."""


@inlined
def thrift_field(data, at, stop, field):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read a field's head; returns (its number, its kind, next position); kind 0 ends a struct."""
    head_kind = np.int64(0)
    if at < stop:
        head_byte = np.int64(data[at])
        at += 1
        head_kind = head_byte & 15
        field += head_byte >> 4
        if head_kind != 0 and head_byte >> 4 == 0:
            field, at = varint(data, at, stop, VARINT_BYTES)
    else:
        at = CUT
    return field, head_kind, at


@inlined
def thrift_list(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read a list's head; returns (how many values, their kind, next position)."""
    list_kind, list_count = np.int64(0), np.int64(0)
    if at < stop:
        list_byte = np.int64(data[at])
        at += 1
        list_kind, list_count = list_byte & 15, list_byte >> 4
        if list_count == 15:
            list_value, at = varint(data, at, stop, VARINT_BYTES)
            list_count = (list_value << 1) ^ (list_value >> 63)  # which is not written zigzag
    else:
        at = CUT
    return list_count, list_kind, at


@inlined
def thrift_text(data, at, stop):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read a text's length; returns (where it begins, where it ends), the end is -1 where it is cut."""
    text_value, text_at = varint(data, at, stop, VARINT_BYTES)
    text_size = (text_value << 1) ^ (text_value >> 63)
    text_end = text_at + text_size
    if text_at < 0 or text_size < 0 or text_end > stop:
        text_end = CUT
    return text_at, text_end


@kernel
def thrift_passed(data: NDArray[np.uint8], at: Int, stop: Int, kind: Int, stack: NDArray[np.int64]) -> Int:
    """Return where a value ends; -1: it is cut, or not known. ``stack``: int64[`MOST_DEPTH`, 2]."""
    depth, stack[0, 0], stack[0, 1] = 0, kind, 1
    field = np.int64(0)
    while depth >= 0 and 0 <= at <= stop:
        in_struct = stack[depth, 0] == _STRUCT
        if in_struct:
            field, now, at = thrift_field(data, at, stop, field)
            if now == 0 or at < 0:
                depth -= 1
                continue
        elif stack[depth, 1] == 0:
            depth -= 1
            continue
        else:
            now = stack[depth, 0]
            stack[depth, 1] -= 1
        if now <= 2:
            at += 0 if in_struct else 1
        elif now == 3:
            at += 1
        elif now <= 6:
            _, at = varint(data, at, stop, VARLONG_BYTES)
        elif now == 7:
            at += 8
        elif now == 8:
            _, at = thrift_text(data, at, stop)
        elif depth + 1 == MOST_DEPTH or now == 11 or now > 12:
            return CUT
        else:
            depth += 1
            stack[depth, 0], stack[depth, 1] = _STRUCT, 0
            if now < 12:
                stack[depth, 1], stack[depth, 0], at = thrift_list(data, at, stop)
                if stack[depth, 0] == 0 or stack[depth, 1] < 0 or stack[depth, 1] > stop:
                    return CUT
    return at if at <= stop else CUT
