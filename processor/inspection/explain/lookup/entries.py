"""Reads what receipts, notes and quarantined records say of the record that they are about.

What stands in a topic may have been written by anybody: what does not name a source as a worker does is
nobody's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from processor.inspection.explain.story import JudgedBy, Outcome, RecordRef
from processor.wire.quarantine import MOST_DIGITS, OURS, is_observed, read_record
from processor.wire.receipts import receipt_prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.ordered import Own

MOST_RECEIPT_BYTES = 1024 * 1024
"""Longer ones are not looked into: an id has few parts, of 4 KiB each."""
_MOST_OFFSET = 2**63 - 1
_NONE = np.zeros(0, np.int64)
_DROPPED = {"duplicate": Outcome.DUPLICATE, "late": Outcome.LATE, "collision": Outcome.COLLISION}


@dataclass(frozen=True)
class SaidReceipt:
    """What a receipt or a note says.

    Attributes:
        pipeline: Whose it is.
        source: The record that it is about.
        outcome: Of that.
        grounds: By what.
        owner: The record that had passed; None: it does not say.
        backfill: The run that had brought it.
        expires_ms: From which reading of the clock on the id passes again.
        observed: Its record has passed all the same.
    """

    pipeline: str
    source: RecordRef
    outcome: Outcome
    grounds: JudgedBy
    owner: RecordRef | None
    backfill: str | None
    expires_ms: int | None
    observed: bool

    @property
    def passed(self) -> bool:
        """Whether its record is in the clean topic."""
        action = self.grounds.action
        return self.observed or (self.outcome is Outcome.COLLISION and action not in {"drop", "quarantine"})


@dataclass(frozen=True)
class SaidQuarantined:
    """What a quarantined record says of itself."""

    source: RecordRef
    grounds: JudgedBy
    observed: bool


def own_receipts(pipeline: str, topic: str, partition: int) -> Own:
    """Return what finds the receipts and notes that a pipeline wrote of a source partition, among others."""
    begin = re.escape(receipt_prefix(pipeline, topic))
    pattern = re.compile(begin + rb'"partition":(\d{1,10}),"offset":(\d{1,19})[,}]')
    other = re.compile(rb'\{"pipeline":"[^"\\]*","topic":"[^"\\]*","partition":\d{1,10},"offset":\d{1,19}[,}]')

    def own(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        data = columns.data.data
        rows, named = [], []
        spans = zip(columns.value.tolist(), columns.value_length.tolist(), strict=True)
        for row, (at, size) in enumerate(spans):
            found = pattern.match(data, at, at + max(size, 0))
            if found is not None:
                number, offset = int(found[1]), int(found[2])
            elif size <= 0 or other.match(data, at, at + size) is not None:
                continue
            else:
                ref = _slow_ref(bytes(data[at : at + size]), pipeline) if size <= MOST_RECEIPT_BYTES else None
                if ref is None or ref.topic != topic:
                    continue
                number, offset = ref.partition, ref.offset
            if number == partition and offset <= _MOST_OFFSET:
                rows.append(row)
                named.append(offset)
        return np.array(rows, np.int64), np.array(named, np.int64)

    return own


def own_quarantined(topic: str, partition: int) -> Own:
    """Return what finds the quarantined records of a source partition among others."""

    def own(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = [(row, quarantined(columns, row)) for row in range(len(columns))]
        ours = [
            (row, said.source.offset)
            for row, said in found
            if said is not None and said.source[:2] == (topic, partition)
        ]
        if not ours:
            return _NONE, _NONE
        rows, named = np.array(ours, np.int64).T.copy()
        return rows, named

    return own


def receipt(value: bytes | None) -> SaidReceipt | None:
    """Return what the value of a record of a duplicates topic says; None: it is no receipt."""
    if value is None or len(value) > MOST_RECEIPT_BYTES:
        return None
    try:
        said = orjson.loads(value)
        source = _ref(said)
        outcome = _DROPPED[said["verdict"]]
        pipeline = said["pipeline"]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    owner = said.get("owner")
    owner = owner if isinstance(owner, dict) else {}
    return SaidReceipt(
        str(pipeline),
        source,
        outcome,
        JudgedBy(
            sequence=_number(said.get("sequence")),
            watermark=_number(said.get("watermark")),
            epoch=_number(said.get("epoch")),
            id=said["id"] if isinstance(said.get("id"), list) else None,
            fingerprint=_word(said.get("fingerprint")),
            owner_fingerprint=_word(said.get("owner_fingerprint")),
            action=_word(said.get("action")),
            new_id=_word(said.get("new_id")),
        ),
        _owner(owner),
        _word(owner.get("backfill")),
        _number(said.get("expires_at")),
        said.get("observed") is True,
    )


def receipt_at(columns: Columns, row: int) -> SaidReceipt | None:
    """Return what a row of a duplicates topic says; None: it is no receipt."""
    at, size = int(columns.value[row]), int(columns.value_length[row])
    return receipt(columns.data[at : at + size].tobytes() if size >= 0 else None)


def quarantined(columns: Columns, row: int) -> SaidQuarantined | None:
    """Return what a row of a quarantine says; None: no worker has written it."""
    return quarantined_by(read_record(columns, row)[3])


def quarantined_by(headers: Any) -> SaidQuarantined | None:
    """Return what the headers of a quarantined record say; None: no worker has written them."""
    ours = headers[-len(OURS) :]
    if tuple(name for name, _ in ours) != OURS:
        return None
    code, detail, where = ((content or b"").decode(errors="backslashreplace") for _, content in ours)
    topic, _, rest = where.rpartition(":")[0].rpartition(":")
    number, offset = rest, where.rpartition(":")[2]
    if not (_is_number(number) and _is_number(offset)):
        return None
    return SaidQuarantined(
        RecordRef(topic, int(number), int(offset)), JudgedBy(code=code, detail=detail), is_observed(headers)
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text) <= _MOST_OFFSET


def _slow_ref(value: bytes, pipeline: str) -> RecordRef | None:
    """Return what a receipt of another form is about; None: it is none of this pipeline."""
    try:
        said = orjson.loads(value)
        return _ref(said) if said["pipeline"] == pipeline else None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def _ref(said: dict[str, Any]) -> RecordRef:
    topic, partition, offset = said["topic"], said["partition"], said["offset"]
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int or offset < 0:
        raise ValueError
    return RecordRef(topic, partition, offset)


def _owner(said: dict[str, Any]) -> RecordRef | None:
    try:
        return _ref(said)
    except (KeyError, ValueError):
        return None


def _number(said: object) -> int | None:
    return said if type(said) is int else None


def _word(said: object) -> str | None:
    return said if isinstance(said, str) else None
