"""Hashes the ids of rows from columns, as the worker hashes those of records.

A text column's values are JSON strings, an integer column's are JSON numbers as a record would have them (plain
decimals), a boolean column's are JSON's words, a binary column's are bytes like a key or a header's value: the
same parts give the same hash as `processor.engine.extract.ids` makes of a record, under the same key. A null is
the fault ``field_missing``.

Invariant: a row has either a `Fault` or a hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.decimals import number_bytes, put_number
from processor.engine.bytes.siphash import words_of_key
from processor.engine.extract.ids import NO_CONTENT, NO_FINGERPRINT, NO_LOT, Ids, Text, hash_ids, texts
from processor.engine.extract.json_text import plain_texts
from processor.engine.extract.normalise import IdTextForm, Normal, PartTexts, normalised
from processor.engine.extract.parts import pooled
from processor.engine.jit import kernel
from processor.engine.rest.owned import owned
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FORMS = (IdTextForm.BYTES, IdTextForm.STRING, IdTextForm.NUMBER)
_BOOLEANS = np.frombuffer(b"truefalse", np.uint8)


class IdColumn(NamedTuple):
    """One part of n rows' ids; `of_text`, `of_integers` and `of_booleans` make it.

    Attributes:
        form: `IdTextForm.BYTES`, ``STRING``, ``NUMBER`` or ``BOOLEAN``.
        valid: bool[n], false where the value is null.
        offsets: int64[n + 1], where each value begins in the data.
        data: uint8[m].
    """

    form: IdTextForm
    valid: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    @classmethod
    def of_text(
        cls,
        form: IdTextForm,
        valid: NDArray[np.bool_],
        offsets: NDArray[np.integer],
        data: NDArray[np.uint8],
    ) -> IdColumn:
        """Return a column of strings or of bytes, as Arrow has them; a slice may have offsets that begin late.

        Raises:
            ValueError: The offsets are not those of so many values in this data, or another form.
        """
        at = owned(offsets, np.int64)
        if form not in _FORMS:
            raise ValueError(f"a column has no {form.name}")
        if at.size != valid.size + 1:
            raise ValueError(f"{at.size} offsets of {valid.size} values")
        if at[0] < 0 or at[-1] > data.size or (np.diff(at) < 0).any():
            raise ValueError("offsets lead out of the data, or go back")
        begin, end = int(at[0]), int(at[-1])
        return cls(form, owned(valid, np.bool_), at - begin, owned(data[begin:end], np.uint8))

    @classmethod
    def of_integers(cls, valid: NDArray[np.bool_], values: NDArray[np.integer]) -> IdColumn:
        """Return a column of integers of any width, signed or not.

        Raises:
            ValueError: There are not as many values.
        """
        if values.size != valid.size:
            raise ValueError(f"{values.size} values, {valid.size} of them said to be there or not")
        valid = owned(valid, np.bool_)
        if values.dtype == np.uint64:
            return cls(IdTextForm.NUMBER, valid, *_decimals(valid, owned(values, np.uint64)))
        return cls(IdTextForm.NUMBER, valid, *_decimals(valid, owned(values, np.int64)))

    @classmethod
    def of_booleans(cls, valid: NDArray[np.bool_], values: NDArray[np.bool_]) -> IdColumn:
        """Return a column of booleans, null where they are not valid."""
        size = np.where(valid, np.where(values, 4, 5), 0)
        begin = np.where(values, 0, 4)
        data, _, _ = plain_texts(_BOOLEANS, begin, size, owned(valid, np.bool_), np.zeros(valid.size, np.bool_))
        return cls(IdTextForm.BOOLEAN, owned(valid, np.bool_), np.append(0, np.cumsum(size)), data)


class RowIds(NamedTuple):
    """The ids of n rows.

    Attributes:
        ids: Their hashes, faults and fingerprints; ``hash[:, 0]`` is the low word, ``hash[:, 1]`` the high one.
    """

    ids: Ids

    def texts(self, row: int) -> list[Text]:
        """Return the parts of one id as a receipt shows them; the row has no fault."""
        return texts(self.ids, row)


def ids_of_columns(columns: Sequence[IdColumn], secret: bytes, normal: Sequence[Normal] = ()) -> RowIds:
    """Return the ids of rows, made of one column or of several in this order.

    Args:
        columns: Of equally many rows each.
        secret: 16 bytes, the key of the hash.
        normal: Of each column what does not count of it; empty: everything does.

    Raises:
        ValueError: There is no column, or they are of different lengths, or the key has another size.
    """
    if not columns or len({each.valid.size for each in columns}) > 1:
        raise ValueError("an id has one column at least, and all have as many rows")
    key, rows = words_of_key(secret), columns[0].valid.size
    fault = np.where(
        np.all([each.valid for each in columns], axis=0), np.uint8(0), np.uint8(Fault.FIELD_MISSING)
    )
    made = []
    for column, how in zip(columns, normal or [Normal.NONE] * len(columns), strict=True):
        spans = column.offsets[:-1], np.diff(column.offsets)
        part = PartTexts(column.data, np.full(rows, column.form, np.uint8), *spans)
        made.append(normalised(part, how) if how else part)
    data, form, begin, length = pooled(made)
    hashed, lot = np.zeros((rows, 2), np.uint64), np.full(rows, NO_LOT, np.uint64)
    none = np.zeros(rows, np.bool_)
    ids = Ids(hashed, fault, none, form, begin, length, NO_CONTENT, NO_FINGERPRINT, lot, data)
    hash_ids(ids, key)
    return RowIds(ids)


def _decimals(
    valid: NDArray[np.bool_], values: NDArray[np.int64] | NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets and data of integers as decimal text."""
    offsets = np.zeros(values.size + 1, np.int64)
    _measure(valid, values, offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    _write(valid, values, offsets, data)
    return offsets, data


@kernel
def _measure(
    valid: NDArray[np.bool_], values: NDArray[np.int64] | NDArray[np.uint64], offsets: NDArray[np.int64]
) -> None:
    for row in range(values.size):
        size = number_bytes(values[row]) if valid[row] else 0
        offsets[row + 1] = offsets[row] + size


@kernel
def _write(
    valid: NDArray[np.bool_],
    values: NDArray[np.int64] | NDArray[np.uint64],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
) -> None:
    for row in range(values.size):
        if valid[row]:
            put_number(data, offsets[row], offsets[row + 1] - offsets[row], values[row])
