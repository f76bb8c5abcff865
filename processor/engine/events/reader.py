"""Reads the fields of events out of records' values: a column per field, and the reason where one is no event.

Invariant: an event is read as a whole or is bad. A row has either a reason, and then its columns mean nothing,
or a right value in each column. Of several faults it has the first in the fields' order. Reasons are those of
`spark_sink.values.parse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.events.exact import ReadValue, read_default, read_exactly
from processor.engine.events.numbers import (
    ABSENT,
    LEFT,
    NULL,
    read_bools,
    read_decimals,
    read_floats,
    read_ints,
)
from processor.engine.events.rules import FieldKind, FieldRule
from processor.engine.events.texts import gather, read_texts
from processor.engine.events.times import MAYBE_ZONE, NO_ZONE, ZONE, read_dates, read_timestamps
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_matches import JsonMatches

_UUID_START = "(?:urn:uuid:)?"
"""How the pattern of a UUID begins; no other pattern does."""
_ZONES = {"none": NO_ZONE, "optional": MAYBE_ZONE, "required": ZONE}
_OBJECT = 0x7B
_WORD = 2**64
_HALF = 2**63


class FieldColumn(NamedTuple):
    """One field of n events.

    Attributes:
        valid: bool[n], false where it is null.
        numbers: int64[n], float64[n], or int64[n, 2] of a decimal, low word first; of a text where each begins.
        length: int64[n], bytes of a text; of other kinds without use.
    """

    valid: NDArray[np.bool_]
    numbers: NDArray[np.int64] | NDArray[np.float64]
    length: NDArray[np.int64]


class EventColumns(NamedTuple):
    """The events in n records.

    Attributes:
        data: uint8[m], where texts lie; good as long as the records are.
        extra: uint8[k], where those lie that begin at -1 or below: at ``-start - 1``.
        fields: A column per rule.
        reason: int32[n], 0: an event; otherwise what is wrong, a number of `EventReader.reasons`.
    """

    data: NDArray[np.uint8]
    extra: NDArray[np.uint8]
    fields: list[FieldColumn]
    reason: NDArray[np.int32]

    def gathered(self, at: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return offsets (one more than rows) and bytes of a text field's values, nothing for null ones."""
        column = self.fields[at]
        length = np.where(column.valid[rows], column.length[rows], 0)
        offsets = np.zeros(rows.size + 1, np.int64)
        np.cumsum(length, out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        gather(self.data, self.extra, column.numbers[rows], offsets, out)  # type: ignore[arg-type]  # a text's are ints
        return offsets, out


class EventReader:
    """Reads events by the rules of their fields.

    Args:
        rules: A field each; the order decides which of several faults is said.

    Attributes:
        reasons: By number; grows as new ones are met. The first is none.
    """

    def __init__(self, rules: Sequence[FieldRule]) -> None:
        self._rules = tuple(rules)
        self._fields = [_Field(rule) for rule in rules]
        self._pointers = Pointers.of([_pointer(rule.name) for rule in rules])
        self.reasons = ["", "null", "not_utf8", "not_json", "not_object"]
        self._numbers = {reason: number for number, reason in enumerate(self.reasons)}

    def read(self, columns: Columns) -> EventColumns:
        """Read all records."""
        data = columns.data
        found = look_up(data, columns.value, columns.value_length, self._pointers)
        reason = np.zeros(found.fault.size, np.int32)
        self._whole_values(columns, found, reason)
        extra: list[bytes] = []
        fields = [self._field(each, data, found, at, reason, extra) for at, each in enumerate(self._fields)]
        joined = np.frombuffer(b"".join(extra), np.uint8).copy() if extra else np.empty(0, np.uint8)
        return EventColumns(data, joined, fields, reason)

    def _whole_values(self, columns: Columns, found: JsonMatches, reason: NDArray[np.int32]) -> None:
        for row in np.flatnonzero(found.fault).tolist():
            if found.fault[row] == Fault.VALUE_MISSING:
                reason[row] = self._numbers["null"]
                continue
            begin = int(columns.value[row])
            raw = columns.data[begin : begin + int(columns.value_length[row])].tobytes()
            reason[row] = self._numbers["not_json" if _is_utf8(raw) else "not_utf8"]
        # Of what is valid JSON without any of the fields the first byte tells whether it is an object.
        nothing = (found.kind == 0).all(axis=0) & (found.fault == 0)
        for row in np.flatnonzero(nothing).tolist():
            begin = int(columns.value[row])
            raw = columns.data[begin : begin + int(columns.value_length[row])].tobytes()
            if raw.lstrip(b" \t\n\r")[0] != _OBJECT:
                reason[row] = self._numbers["not_object"]

    def _field(
        self,
        field: _Field,
        data: NDArray[np.uint8],
        found: JsonMatches,
        at: int,
        reason: NDArray[np.int32],
        extra: list[bytes],
    ) -> FieldColumn:
        kind, start, length = found.kind[at], found.start[at], found.length[at]
        numbers, state = field.read(data, kind, start, length)
        valid = np.ones(kind.size, np.bool_)
        odd = np.flatnonzero(state)
        if odd.size:
            odd = odd[reason[odd] == 0]
        if odd.size:
            place = sum(map(len, extra))
            self._odd_rows(
                field,
                _Span(data, kind, start, length),
                state,
                odd,
                _Target(valid, numbers, reason),
                extra,
                place,
            )
        return FieldColumn(valid, numbers, length)

    def _odd_rows(
        self,
        field: _Field,
        span: _Span,
        state: NDArray[np.uint8],
        odd: NDArray[np.int64],
        target: _Target,
        extra: list[bytes],
        place: int,
    ) -> None:
        """Fill in what the kernel has not read: nulls, defaults, and values in less usual forms."""
        rule, name = field.rule, field.rule.name
        for which, allowed, code in ((ABSENT, not rule.required, "missing"), (NULL, rule.null_allowed, "null")):
            rows = odd[state[odd] == which]
            if not rows.size:
                continue
            if which == ABSENT and field.default is not None:
                continue
            target.valid[rows] = False
            if not allowed:
                target.reason[rows] = self._number(f"{code}:{name}")
        for row in odd.tolist():
            if state[row] == LEFT:
                begin = int(span.start[row])
                raw = span.data[begin : begin + int(span.length[row])].tobytes()
                read = read_exactly(rule, int(span.kind[row]), raw)
            elif state[row] == ABSENT and field.default is not None:
                read = field.default
            else:
                continue
            if read.fault:
                target.reason[row] = self._number(f"{read.fault}:{name}")
                continue
            text = _put(target.numbers, row, read.value)
            if text is not None:
                target.numbers[row], span.length[row] = -place - 1, len(text)
                extra.append(text)
                place += len(text)

    def _number(self, reason: str) -> int:
        if reason not in self._numbers:
            self._numbers[reason] = len(self.reasons)
            self.reasons.append(reason)
        return self._numbers[reason]


class _Span(NamedTuple):
    """Where the tokens of a field lie."""

    data: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]


class _Target(NamedTuple):
    """What is written of a field, row by row."""

    valid: NDArray[np.bool_]
    numbers: NDArray[np.int64] | NDArray[np.float64]
    reason: NDArray[np.int32]


class _Field:
    """One rule, and what its kernel is given."""

    def __init__(self, rule: FieldRule) -> None:
        self.rule = rule
        self.default: ReadValue | None = None if rule.default is None else read_default(rule)
        texts = [] if rule.kind != FieldKind.TEXT else [str(each).encode() for each in rule.values or ()]
        self._allowed = np.frombuffer(b"".join(texts) or b"\0", np.uint8).copy()
        self._cut = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        ints = rule.values if rule.kind == FieldKind.INT and rule.values else ()
        self._values = np.array([int(each) for each in ints], np.int64)
        self._uuid = rule.pattern is not None and rule.pattern.startswith(_UUID_START)

    def read(
        self,
        data: NDArray[np.uint8],
        kind: NDArray[np.uint8],
        start: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64] | NDArray[np.float64], NDArray[np.uint8]]:
        """Return the column's numbers, and per row the state that a kernel leaves it in."""
        rule, state = self.rule, np.empty(kind.size, np.uint8)
        if rule.kind == FieldKind.FLOAT:
            floats = np.empty(kind.size, np.float64)
            read_floats(data, kind, start, length, floats, state)
            return floats, state
        out = np.empty((kind.size, 2) if rule.kind == FieldKind.DECIMAL else kind.size, np.int64)
        match rule.kind:
            case FieldKind.TEXT:
                out[:] = start
                if rule.pattern is not None and not self._uuid:
                    state[:] = np.where(kind < 2, ABSENT + kind, LEFT)
                else:
                    read_texts(data, kind, start, length, self._allowed, self._cut, self._uuid, state)
            case FieldKind.BOOL:
                read_bools(kind, out, state)
            case FieldKind.INT:
                read_ints(data, kind, start, length, rule.least, rule.most, self._values, out, state)
            case FieldKind.DECIMAL:
                read_decimals(data, kind, start, length, rule.precision, rule.scale, out, state)
            case FieldKind.DATE:
                read_dates(data, kind, start, length, out, state)
            case _:
                read_timestamps(data, kind, start, length, _ZONES[rule.zone], out, state)
        return out, state


def _pointer(name: str) -> str:
    """Return the JSON pointer (RFC 6901) to a member of this name."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _put(numbers: NDArray[np.int64] | NDArray[np.float64], row: int, value: float | str | None) -> bytes | None:
    """Write a value into its column; a text's bytes are returned."""
    if isinstance(value, str):
        return value.encode()
    if numbers.ndim == 2:
        whole = int(value or 0)
        low = whole % _WORD
        numbers[row] = low - _WORD if low >= _HALF else low, whole // _WORD
    else:
        numbers[row] = 0 if value is None else value
    return None
