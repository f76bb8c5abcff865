"""What do the contract's rules of mode insert-id say of these records?

A second naive model, beside that of `processor.generator.window`: it reads the ids out of the records' bytes,
and has a Python dictionary. It takes nothing from the engine or the generator. JSON is what Python's parser
takes, made strict.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.config import HeaderId, KeyId

if TYPE_CHECKING:
    from processor.generator import Record
    from schemas.config import IdPart, InsertIdDedup

MISSING = frozenset(
    {"header_missing", "header_malformed", "key_missing", "value_missing", "field_missing", "null"}
)
"""What ``on_missing`` decides of: a part that is not there, or null."""


class Number(str):
    """A JSON number, by its text."""

    __slots__ = ()


class FaultError(Exception):
    """The part cannot be judged; the message is the code, or ``null``."""


class Said(NamedTuple):
    """What the rules say of one record.

    Attributes:
        verdict: ``pass``, ``duplicate``, or the code of what cannot be judged.
        owner: Of a duplicate: the place of the record that passed, counted from 0.
        expires_ms: Of a duplicate.
    """

    verdict: str
    owner: int = -1
    expires_ms: int = 0


@dataclass
class Model:
    """Judges the records of one partition, in order; the worker's clock says ``now_ms`` all the while."""

    dedup: InsertIdDedup
    now_ms: int
    clock: int | None = None
    seen: int = 0
    ids: dict[tuple[Any, ...], tuple[int, int]] = field(default_factory=dict)

    def judge(self, record: Record) -> Said:
        """Judge the next record."""
        self.seen += 1
        faults = [fault for part in self.dedup.id if (fault := fault_of(record, part))]
        passing = self.dedup.on_missing == "pass"
        hard = [fault for fault in faults if not (passing and fault in MISSING)]
        if hard:
            return Said("field_type" if hard[0] == "null" else hard[0])
        now = self.now_ms
        if self.dedup.time == "record":
            now = min(record.timestamp_ms, self.now_ms + self.dedup.max_ahead)
        self.clock = now if self.clock is None else max(self.clock, now)
        if faults:
            return Said("pass")
        name = id_of(record, self.dedup)
        owner, reading = self.ids.get(name, (-1, 0))
        if owner < 0 or self.clock >= reading + self.dedup.window:
            self.ids[name] = self.seen - 1, self.clock
            return Said("pass")
        if self.dedup.refresh:
            reading = self.clock
            self.ids[name] = owner, reading
        return Said("duplicate", owner, reading + self.dedup.window)


def id_of(record: Record, dedup: InsertIdDedup) -> tuple[Any, ...]:
    """Return a record's id; a string and a number of the same text are two."""
    parts = [content(record, part) for part in dedup.id]
    return tuple((type(part).__name__, part) for part in parts)


def fault_of(record: Record, part: IdPart) -> str | None:
    """Return why a part cannot be judged, or None."""
    try:
        content(record, part)
    except FaultError as fault:
        return str(fault)
    return None


def content(record: Record, part: IdPart) -> bytes | str:
    """Return what a part says."""
    if isinstance(part, HeaderId):
        values = [value for name, value in record.headers if name == part.name]
        return _there(values[-1] if values else None, "header_malformed" if values else "header_missing")
    if isinstance(part, KeyId):
        return _there(record.key, "key_missing")
    found = _step_by_step(_parsed(_there(record.value, "value_missing")), part.pointer)
    if found is None:
        raise FaultError("null")
    if not isinstance(found, str):
        raise FaultError("field_type")
    return found


def _there(value: bytes | None, fault: str) -> bytes:
    if value is None:
        raise FaultError(fault)
    return value


def _parsed(value: bytes) -> Any:
    def refuse(_: str) -> Any:
        raise ValueError

    try:
        return json.loads(value.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse)
    except ValueError:
        raise FaultError("value_not_json") from None


def _step_by_step(found: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and re.fullmatch("0|[1-9][0-9]*", name) and int(name) < len(found):
            found = found[int(name)]
        else:
            raise FaultError("field_missing")
    return found
