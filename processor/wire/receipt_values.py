"""Reads what receipts and notes say: the values that `processor.wire.receipts` writes.

What stands in a topic may have been written by anybody, so nothing is taken for a receipt that does not name a
source as a worker does. There is a way to read for each use::

    receipt_fields   the members, to be shown
    ReceiptValue     what it says of which record, to be followed
    own_receipts     which rows of many are about a source partition, and about which offsets
    receipt_kinds    what many say became of their records, to be counted
    strict_fields    the members, to be proved: what a parser forgives is wrong there
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from processor.engine.batch.columns import MOST_OFFSET
from processor.engine.verdict import RECEIPTED, Verdict
from processor.wire.receipts import OBSERVED, receipt_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

    Own = Callable[[Columns], tuple[NDArray[np.int64], NDArray[np.int64]]]
    """Returns int64[k], rows with entries of a source partition, and int64[k], the source offsets they name."""

COLLISION = Verdict.COLLISION.label
Epoch = int | str | dict[str, Any]
"""A number, or what is written of any bytes."""
MOST_RECEIPT_BYTES = 1024 * 1024
"""Longer ones are not followed: an id has few parts, of 4 KiB each."""


class RecordRef(NamedTuple):
    """A position in a topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    def as_json(self) -> dict[str, Any]:
        """Return it as programs read it."""
        return self._asdict()


_VERDICTS = {each.label for each in Verdict if RECEIPTED[each]}
_PLACE = rb'"partition":(\d{1,10}),"offset":(\d{1,19})[,}]'
_ANY_PLACE = re.compile(rb'\{"pipeline":"[^"\\]*","topic":"[^"\\]*",' + _PLACE)
_VERDICT = re.compile(rb'"verdict":"(?=(?:duplicate|late|collision)")')
_ACTION = re.compile(rb'"action":"(?=(?:drop|quarantine)")')
_PASSED = re.compile(b'"(?=%s":true,)' % OBSERVED.encode())


@dataclass(frozen=True)
class ReceiptValue:
    """What a receipt or a note says.

    Attributes:
        pipeline: Whose it is.
        source: The record that it is about.
        verdict: Of that: duplicate, late or collision.
        sequence: Its own; None, as of all that follows: it does not say.
        watermark: As it stood before it.
        epoch: Its own; where epochs have no order as a part of an id.
        id: Its parts.
        fingerprint: 16 hex digits.
        owner_fingerprint: Of the record that had passed.
        action: What became of a collision.
        new_id: What it was renamed to.
        owner: The record that had passed.
        backfill: The run that had brought it.
        expires_ms: From which reading of the clock on the id passes again.
        observed: Its record has passed all the same.
    """

    pipeline: str
    source: RecordRef
    verdict: str
    sequence: int | None
    watermark: int | None
    epoch: Epoch | None
    id: list[Any] | None
    fingerprint: str | None
    owner_fingerprint: str | None
    action: str | None
    new_id: str | None
    owner: RecordRef | None
    backfill: str | None
    expires_ms: int | None
    observed: bool

    @property
    def passed(self) -> bool:
        """Whether its record is in the clean topic."""
        return self.observed or (self.verdict == COLLISION and self.action not in {"drop", "quarantine"})

    @classmethod
    def read(cls, value: bytes | None) -> ReceiptValue | None:
        """Return what the value of a record of a duplicates topic says; None: it is no receipt."""
        said = receipt_fields(value) if value is not None and len(value) <= MOST_RECEIPT_BYTES else None
        if said is None or "pipeline" not in said:
            return None
        source, verdict = _ref(said), _word(said.get("verdict"))
        if source is None or verdict is None or verdict not in _VERDICTS:
            return None
        owner = said.get("owner")
        owner = owner if isinstance(owner, dict) else {}
        return cls(
            pipeline=str(said["pipeline"]),
            source=source,
            verdict=verdict,
            sequence=_number(said.get("sequence")),
            watermark=_number(said.get("watermark")),
            epoch=epoch if type(epoch := said.get("epoch")) in {int, str, dict} else None,
            id=said["id"] if isinstance(said.get("id"), list) else None,
            fingerprint=_word(said.get("fingerprint")),
            owner_fingerprint=_word(said.get("owner_fingerprint")),
            action=_word(said.get("action")),
            new_id=_word(said.get("new_id")),
            owner=_ref(owner),
            backfill=_word(owner.get("backfill")),
            expires_ms=_number(said.get("expires_at")),
            observed=said.get(OBSERVED) is True,
        )

    @classmethod
    def at(cls, columns: Columns, row: int) -> ReceiptValue | None:
        """Return what a row of a duplicates topic says; None: it is no receipt."""
        begin, size = int(columns.value[row]), int(columns.value_length[row])
        return cls.read(columns.data[begin : begin + size].tobytes() if size >= 0 else None)


def receipt_fields(value: bytes | None) -> dict[str, Any] | None:
    """Return the members of a receipt's value; None: it is no object."""
    try:
        said = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None


def strict_fields(value: bytes) -> Any:
    """Return what a receipt's value is as JSON, of which nothing is forgiven: no member that stands twice.

    Raises:
        ValueError: It is none; says why.
        RecursionError: It is nested too deeply.
    """
    return json.loads(value.decode(), object_pairs_hook=_object, parse_constant=_constant)


def own_receipts(pipeline: str, topic: str, partition: int) -> Own:
    """Return what finds the receipts and notes that a pipeline wrote of a source partition, among others."""
    begin = re.escape(receipt_prefix(pipeline, topic))
    pattern = re.compile(begin + _PLACE)

    def own(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        data = columns.data.data
        rows, named = [], []
        spans = zip(columns.value.tolist(), columns.value_length.tolist(), strict=True)
        for row, (at, size) in enumerate(spans):
            found = pattern.match(data, at, at + max(size, 0))
            if found is not None:
                number, offset = int(found[1]), int(found[2])
            elif size <= 0 or _ANY_PLACE.match(data, at, at + size) is not None:
                continue
            else:
                said = receipt_fields(bytes(data[at : at + size])) if size <= MOST_RECEIPT_BYTES else None
                ref = None if said is None or said.get("pipeline") != pipeline else _ref(said)
                if ref is None or ref.topic != topic:
                    continue
                number, offset = ref.partition, ref.offset
            if number == partition and offset <= MOST_OFFSET:
                rows.append(row)
                named.append(offset)
        return np.array(rows, np.int64), np.array(named, np.int64)

    return own


class ReceiptKinds(NamedTuple):
    """What some receipts say; all arrays are bool[n].

    Attributes:
        observed: The record has passed all the same.
        late: It came late.
        collided: Its id had passed with other content.
        dropped: A collision was dropped.
        quarantined: A collision is in quarantine.
    """

    observed: NDArray[np.bool_]
    late: NDArray[np.bool_]
    collided: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    quarantined: NDArray[np.bool_]


def receipt_kinds(columns: Columns) -> ReceiptKinds:
    """Return what the records of a duplicates topic say, without any Python per record."""
    verdict, action = _first_letters(columns, _VERDICT), _first_letters(columns, _ACTION)
    observed = _first_letters(columns, _PASSED) == ord(OBSERVED[0])
    return ReceiptKinds(
        observed, verdict == ord("l"), verdict == ord("c"), action == ord("d"), action == ord("q")
    )


def _first_letters(columns: Columns, before: re.Pattern[bytes]) -> NDArray[np.uint8]:
    """Return uint8[n]: the letter behind what a pattern finds in each receipt; 0 where it finds nothing.

    Only a match inside a record's value counts, for a key may hold anything; inside a value the text cannot
    be forged, because JSON escapes the quotes of what an id holds.
    """
    letters = np.zeros(len(columns), np.uint8)
    if not len(columns):
        return letters
    data = columns.data
    first, last = int(columns.body[0]), int(columns.end[-1])
    text = data[first:last].tobytes()
    found = np.fromiter((match.end() for match in before.finditer(text)), np.int64) + first
    row = np.searchsorted(columns.body, found, side="right") - 1
    value, length = columns.value[row], columns.value_length[row]
    inside = (found >= value) & (found < value + length)
    letters[row[inside]] = data[found[inside]]
    return letters


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return fields


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _ref(said: dict[str, Any]) -> RecordRef | None:
    """Return which record the members of a receipt, or of its owner, name; None: none."""
    topic, partition, offset = (said.get(name) for name in RecordRef._fields)
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int or offset < 0:
        return None
    return RecordRef(topic, partition, offset)


def _number(said: object) -> int | None:
    return said if type(said) is int else None


def _word(said: object) -> str | None:
    return said if isinstance(said, str) else None
