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
from processor.engine.extract.ids import IdExtractor, IdTextForm, ValuePart, hash_ids
from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import unescape
from processor.engine.extract.pointers import Pointers
from processor.engine.extract.value_walk import ContentOf, ValueWalk
from processor.engine.jit import kernel
from processor.engine.rest.columns import IdColumn, RowIds
from processor.engine.rest.owned import owned
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
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

    def look_up(self, *pointers: str) -> JsonMatches:
        """Return what pointers lead to in each row: kind, and where its text stands in the data."""
        columns = self.columns()
        return look_up(columns.data, columns.value, columns.value_length, Pointers.of(pointers))

    def texts(self, found: JsonMatches, at: int) -> IdColumn:
        """Return the text of what one of the pointers led to, as bytes; null where there is none.

        Args:
            found: What `look_up` returned.
            at: Which of its pointers.
        """
        kind = found.kind[at]
        valid = (found.fault == 0) & _READABLE[kind]
        data, begin, length = _plain(
            self.data, found.start[at], found.length[at], valid & (kind == JsonKind.ESCAPED)
        )
        offsets = np.zeros(valid.size + 1, np.int64)
        np.cumsum(np.where(valid, length, 0), out=offsets[1:])
        gathered = np.empty(int(offsets[-1]), np.uint8)
        _gather(data, begin, offsets, gathered)
        return IdColumn(IdTextForm.BYTES, valid, offsets, gathered)


class JsonIds:
    """Reads ids, and fingerprints where they are asked for, of rows of JSON text.

    Args:
        pointers: The parts of an id, in their order.
        secret: 16 bytes, the key of the hash.
        exclude: Pointers to what does not count in fingerprints; None: there are none.
        only_text: The part that has to be a string, since it may be renamed.
        as_bytes: Numbers of the parts that are bytes in the stream, a header's or the key's: the text of a
            string or of a number stands for them.

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
        as_bytes: Collection[int] = (),
    ) -> None:
        of = None if exclude is None else FingerprintOf(ContentOf(tuple(exclude)))
        parts = [ValuePart(each, only_text=each == only_text) for each in pointers]
        self._extractor = IdExtractor(parts, secret, fingerprint_of=of)
        self._pointers = Pointers.of(pointers)
        self._as_bytes, self._key = tuple(as_bytes), words_of_key(secret)

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
        return RowIds(self._hash_as_bytes(rows.data, ids), ids)

    def _hash_as_bytes(self, data: NDArray[np.uint8], ids: Ids) -> NDArray[np.uint8]:
        """Hash once more what is made of bytes in the stream; returns what the spans then lead into."""
        for k in self._as_bytes:
            form = ids.form[k]
            escaped = (ids.fault == 0) & (form == IdTextForm.ESCAPED)
            data, ids.begin[k], ids.length[k] = _plain(data, ids.begin[k], ids.length[k], escaped)
            form[ids.fault == 0] = IdTextForm.BYTES
        if self._as_bytes:
            hash_ids(data, ids, self._key)
        return data


def _plain(
    data: NDArray[np.uint8], begin: NDArray[np.int64], length: NDArray[np.int64], escaped: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the data with the text of strings with escapes behind it, and the spans that lead there."""
    rows = np.flatnonzero(escaped)
    if not rows.size:
        return data, begin, length
    begin, length, at = begin.copy(), length.copy(), data.size
    parts = [data]
    for row in rows.tolist():
        out = np.empty(int(length[row]), np.uint8)
        out = out[: unescape(data, int(begin[row]), int(length[row]), out)]
        begin[row], length[row] = at, out.size
        parts.append(out)
        at += out.size
    return np.concatenate(parts), begin, length


@kernel
def _gather(
    data: NDArray[np.uint8], begin: NDArray[np.int64], offsets: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    """Copy spans one behind the other; ``offsets`` say where each begins."""
    for row in range(begin.size):
        at = begin[row] - offsets[row]
        for k in range(offsets[row], offsets[row + 1]):
            out[k] = data[at + k]


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
