"""Makes Arrow arrays of columns of events: what Spark takes from a Python source as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.events import FieldKind, FieldRule, gathered_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.events import Columns, EventColumns, KeptValues

_MOST_TEXT = 2**31 - 1
"""Bytes that 32-bit offsets reach; pieces are far smaller (`processor.wire.decode`)."""


def validity(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return a bitmap; None where everything is valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def number_array(kind: pa.DataType, valid: NDArray[np.bool_], numbers: NDArray[np.generic]) -> pa.Array:
    """Return an array of numbers that have Arrow's own layout."""
    return pa.Array.from_buffers(
        kind, valid.size, [validity(valid), pa.py_buffer(np.ascontiguousarray(numbers))]
    )


def text_array(
    kind: pa.DataType, valid: NDArray[np.bool_], offsets: NDArray[np.int64], data: NDArray[np.uint8]
) -> pa.Array:
    """Return an array of texts or bytes."""
    if offsets[-1] > _MOST_TEXT:
        raise ValueError(f"{offsets[-1]:,} bytes of text in one batch")
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, valid.size, buffers)


def field_array(
    rule: FieldRule, events: EventColumns, at: int, rows: NDArray[np.int64], keep: NDArray[np.bool_]
) -> pa.Array:
    """Return a field of some rows.

    Args:
        rule: The field's.
        events: What was read.
        at: Number of the field.
        rows: Those wanted.
        keep: bool[rows], false where null stands in any case.
    """
    column = events.fields[at]
    valid = column.valid[rows] & keep
    if rule.kind == FieldKind.TEXT:
        blank = events._replace(fields=[column._replace(valid=column.valid & (events.reason == 0))])
        return text_array(pa.string(), valid, *blank.gathered(0, rows))
    return _field_numbers(
        rule, valid, column.numbers if rows.size == column.valid.size else column.numbers[rows]
    )


def _field_numbers(rule: FieldRule, valid: NDArray[np.bool_], numbers: NDArray[np.generic]) -> pa.Array:
    """Return a field that is no text; doubles may be given by their bits."""
    match rule.kind:
        case FieldKind.BOOL:
            return pa.array(numbers.astype(np.bool_), pa.bool_(), mask=~valid)
        case FieldKind.DATE:
            return number_array(pa.date32(), valid, numbers.astype(np.int32))
        case FieldKind.TIMESTAMP:
            zone = None if rule.zone == "none" else "UTC"
            return number_array(pa.timestamp("us", zone), valid, numbers)
        case FieldKind.DECIMAL:
            return number_array(pa.decimal128(rule.precision, rule.scale), valid, numbers)
        case _:
            kind = pa.float64() if rule.kind == FieldKind.FLOAT else pa.int64()
            return number_array(kind, valid, numbers)


def bytes_array(
    columns: Columns, begin: NDArray[np.int64], length: NDArray[np.int64], rows: NDArray[np.int64]
) -> pa.Array:
    """Return keys or values of some records, null where a length is negative."""
    sizes = length[rows]
    valid = sizes >= 0
    offsets = np.zeros(rows.size + 1, np.int64)
    np.cumsum(np.where(valid, sizes, 0), out=offsets[1:])
    return text_array(pa.binary(), valid, offsets, gathered_spans(columns.data, begin[rows], offsets))


class GroupRows(NamedTuple):
    """The rows of groups, one behind the other: as many of each as the field has values of which most are kept.

    Attributes:
        first: int64[g], the number of each group's first row.
        group: int64[n], the group of each row.
    """

    first: NDArray[np.int64]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, groups: int, kept: Sequence[KeptValues]) -> GroupRows:
        """Lay rows out: of each group at least one."""
        rows = np.ones(groups, np.int64)
        for each in kept:
            rows = np.maximum(rows, np.bincount(each.group, minlength=groups))
        return cls(np.cumsum(rows) - rows, np.repeat(np.arange(groups), rows))

    def of_each(self, values: pa.Array) -> pa.Array:
        """Return what groups have, in each of their rows."""
        return values.take(pa.array(self.group))

    def of_first(self, values: pa.Array) -> pa.Array:
        """Return what groups have, in their first rows, and null in the others."""
        others = np.ones(self.group.size, np.bool_)
        others[self.first] = False
        return values.take(pa.array(self.group, mask=others))

    def of_kept(self, rule: FieldRule, kept: KeptValues) -> pa.Array:
        """Return the values of a field that are kept, a row each, and null in a group's other rows."""
        before = np.searchsorted(kept.group, np.arange(self.first.size))
        rows = self.first[kept.group] + np.arange(kept.group.size) - before[kept.group]
        valid = np.zeros(self.group.size, np.bool_)
        valid[rows] = True
        if rule.kind == FieldKind.TEXT:
            offsets = np.zeros(valid.size + 1, np.int64)
            offsets[1:][rows] = np.diff(kept.offsets)
            return text_array(pa.string(), valid, np.cumsum(offsets), kept.texts)
        numbers = np.zeros((valid.size, kept.numbers.shape[1]), np.int64)
        numbers[rows] = kept.numbers
        return _field_numbers(rule, valid, numbers if rule.kind == FieldKind.DECIMAL else numbers[:, 0])
