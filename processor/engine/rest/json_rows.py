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
from processor.engine.extract.ids import IdExtractor, hash_ids
from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import plain_texts
from processor.engine.extract.normalise import IdTextForm, Normal, PartTexts, normalised
from processor.engine.extract.parts import ValuePart, pooled
from processor.engine.extract.pointers import Pointers
from processor.engine.extract.value_walk import ContentOf, PointerWalk, ValueWalk
from processor.engine.rest.columns import IdColumn, RowIds
from processor.engine.rest.owned import owned
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.engine.extract.json_matches import JsonMatches

_READABLE = np.zeros(len(JsonKind), np.bool_)
"""By `JsonKind`, whether it can be a part of an id."""
_READABLE[JsonKind.FALSE : JsonKind.ESCAPED + 1] = True


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
        valid = (found.fault == 0) & (kind >= JsonKind.INTEGER) & (kind <= JsonKind.ESCAPED)
        text, _, size = plain_texts(
            self.data, found.start[at], found.length[at], valid, kind == JsonKind.ESCAPED
        )
        offsets = np.append(0, np.cumsum(np.maximum(size, 0)))
        return IdColumn(IdTextForm.BYTES, valid, offsets, text[: offsets[-1]])


class JsonIds:
    """Reads ids, and fingerprints where they are asked for, of rows of JSON text.

    Args:
        pointers: The parts of an id, in their order.
        secret: 16 bytes, the key of the hash.
        exclude: Pointers to what does not count in fingerprints; None: there are none.
        only_text: The part that has to be a string, since it may be renamed.
        as_bytes: Numbers of the parts that are bytes in the stream, a header's or the key's: the text of a
            string, of a number or of a boolean stands for them.
        normal: Of each part what does not count of it; empty: everything does.

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
        normal: Sequence[Normal] = (),
    ) -> None:
        of = None if exclude is None else FingerprintOf(ContentOf(tuple(exclude)))
        self._normal = list(normal or [Normal.NONE] * len(pointers))
        parts = [
            ValuePart(each, only_text=each == only_text, normal=Normal.NONE if number in as_bytes else how)
            for number, (each, how) in enumerate(zip(pointers, self._normal, strict=True))
        ]
        self._extractor = IdExtractor(parts, secret, fingerprint_of=of)
        self._walk = PointerWalk(pointers)
        self._as_bytes, self._key = tuple(as_bytes), words_of_key(secret)

    def read(self, rows: JsonRows) -> RowIds:
        """Return the ids of all rows."""
        columns = rows.columns()
        ids = self._extractor.extract(columns)
        odd = np.flatnonzero(ids.fault == Fault.FIELD_TYPE)
        if odd.size:
            # The first part that cannot be read says what is wrong.
            _, found = self._walk.read(rows.data, columns.value[odd], columns.value_length[odd])
            kind = np.stack([each.kind for each in found])
            first = _READABLE[kind].argmin(axis=0)
            null = kind[first, np.arange(odd.size)] == JsonKind.NULL
            ids.fault[odd[null]] = Fault.FIELD_MISSING
        return RowIds(self._hashed_as_bytes(ids) if self._as_bytes else ids)

    def _hashed_as_bytes(self, ids: Ids) -> Ids:
        """Hash once more what is made of bytes in the stream."""
        spans = zip(ids.form, ids.begin, ids.length, strict=True)
        made = [PartTexts(ids.data, *each) for each in spans]
        for k in self._as_bytes:
            plain = normalised(made[k], Normal.NONE)
            plain.form[plain.form != IdTextForm.NONE] = IdTextForm.BYTES
            made[k] = normalised(plain, self._normal[k]) if self._normal[k] else plain
        data, form, begin, length = pooled(made)
        ids = ids._replace(form=form, begin=begin, length=length, data=data)
        hash_ids(ids, self._key)
        return ids


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
    fault, _, hashes = walk.read(columns)
    assert fault is not None  # noqa: S101 - content of a value that has to be JSON is walked over
    prints, _ = fingerprints(columns, of, hashes[0], walk.key)
    return prints, fault
