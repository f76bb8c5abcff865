"""Reads ids and fingerprints of rows out of their JSON text, with the kernels that read the worker's values.

A row of a file of JSON lines is judged by its own text. A row of a table has a fingerprint by the same kernels
over the JSON text that Spark makes of it, so there is one definition of equal content.

Faults are those of the stream, ``value_not_json``, ``field_missing`` and ``field_type``, but for one: null is
``field_missing``, as it is in a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import Columns
from processor.engine.bytes.siphash import words_of_key
from processor.engine.extract.fingerprint import FingerprintOf, fingerprints
from processor.engine.extract.ids import IdExtractor, ValuePart
from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from processor.engine.extract.value_walk import ContentOf, ValueWalk
from processor.engine.rest.columns import RowIds
from processor.engine.rest.owned import owned
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.extract.json_matches import JsonMatches

_READABLE = np.zeros(10, np.bool_)
"""By `JsonKind`, whether it can be a part of an id."""
_READABLE[[JsonKind.INTEGER, JsonKind.DECIMAL, JsonKind.STRING, JsonKind.ESCAPED]] = True


def pointer_of(column: str) -> str:
    """Return the JSON pointer (RFC 6901) to a member of this name."""
    return "/" + column.replace("~", "~0").replace("/", "~1")


class JsonRows(NamedTuple):
    """The JSON text of n rows; `of` makes it.

    Attributes:
        data: uint8[m].
        offsets: int64[n + 1], where each row's text begins in the data; it ends where the next one begins.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, data: NDArray[np.uint8], offsets: NDArray[np.integer]) -> JsonRows:
        """Return rows of text; whitespace around it, a line's end too, does not count.

        Raises:
            ValueError: The offsets lead out of the data, or go back.
        """
        at = owned(offsets, np.int64)
        if not at.size or at[0] < 0 or at[-1] > data.size or (np.diff(at) < 0).any():
            raise ValueError("offsets lead out of the data, or go back")
        return cls(owned(data, np.uint8), at)

    def columns(self) -> Columns:
        """Return them as records that have a value and nothing else."""
        columns = Columns.empty(self.offsets.size - 1, self.data)
        for each in columns.table:
            each[:] = 0
        columns.key_length[:] = -1
        columns.value[:], columns.value_length[:] = self.offsets[:-1], np.diff(self.offsets)
        return columns

    def look_up(self, pointer: str) -> JsonMatches:
        """Return what one pointer leads to in each row: kind, and where its text stands in the data."""
        columns = self.columns()
        return look_up(columns.data, columns.value, columns.value_length, Pointers.of([pointer]))


class JsonIds:
    """Reads ids, and fingerprints where they are asked for, of rows of JSON text.

    Args:
        pointers: The parts of an id, in their order.
        secret: 16 bytes, the key of the hash.
        exclude: Pointers to what does not count in fingerprints; None: there are none.
        only_text: The part that has to be a string, since it may be renamed.

    Raises:
        ValueError: A pointer that is none, no pointer, or a key of another size.
    """

    def __init__(
        self,
        pointers: Sequence[str],
        secret: bytes,
        *,
        exclude: Sequence[str] | None = None,
        only_text: str | None = None,
    ) -> None:
        of = None if exclude is None else FingerprintOf(ContentOf(tuple(exclude)))
        parts = [ValuePart(each, only_text=each == only_text) for each in pointers]
        self._extractor = IdExtractor(parts, secret, fingerprint_of=of)
        self._pointers = Pointers.of(pointers)

    def read(self, rows: JsonRows) -> RowIds:
        """Return the ids of all rows."""
        columns = rows.columns()
        ids = self._extractor.extract(columns)
        odd = np.flatnonzero(ids.fault == Fault.FIELD_TYPE)
        if odd.size:
            # The first part that cannot be read says what is wrong.
            found = look_up(rows.data, columns.value[odd], columns.value_length[odd], self._pointers)
            first = _READABLE[found.kind].argmin(axis=0)
            null = found.kind[first, np.arange(odd.size)] == JsonKind.NULL
            ids.fault[odd[null]] = Fault.FIELD_MISSING
        return RowIds(rows.data, ids)


def fingerprints_of(
    rows: JsonRows, exclude: Sequence[str], secret: bytes
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return uint64[n] fingerprints of rows, and uint8[n] `Fault` codes of those that are not JSON.

    Args:
        rows: Their text.
        exclude: Pointers to what does not count, with all below it.
        secret: 16 bytes, the key of the ids' hash.

    Raises:
        ValueError: A pointer that is none, or a key of another size.
    """
    of = FingerprintOf(ContentOf(tuple(exclude)))
    walk, columns = ValueWalk([], [of.content], words_of_key(secret)), rows.columns()
    found, hashes = walk.read(columns)
    assert found is not None  # noqa: S101 - content of a value that has to be JSON is walked over
    prints, _ = fingerprints(columns, of, hashes[0], walk.key)
    return prints, found.fault
