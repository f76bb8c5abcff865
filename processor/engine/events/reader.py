"""Reads the fields of events out of records' values: a column per field, and the reason where one is no event.

Invariant: an event is read as a whole or is bad. A row has either a reason, and then its columns mean nothing,
or a right value in each column. Of several faults it has the first in the fields' order. Reasons are those of
`spark_sink.values.parse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.events.exact import FIRST_MICROS, LAST_MICROS, ReadValue, read_default, read_exactly
from processor.engine.events.numbers import (
    ABSENT,
    LEFT,
    NULL,
    VALUE,
    read_bools,
    read_decimals,
    read_floats,
    read_ints,
    unread,
)
from processor.engine.events.rules import FieldKind, FieldRule
from processor.engine.events.texts import gather, read_texts
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from processor.engine.jit import inlined, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_matches import JsonMatches

# ISO 8601 with ``T``, colons and a point: ``2026-01-05T07:08:09.123+01:00``; or a whole number of seconds
# or milliseconds since 1970. States are those of `processor.engine.events.numbers`.

NO_ZONE, MAYBE_ZONE, ZONE = 0, 1, 2
"""Whether a text must not, may or has to say its zone."""
_SHORTEST = 19
"""``2026-01-05T07:08:09``."""
_MOST_OFFSET_MINUTES = 18 * 60
_MOST_SECONDS = 20_000_000_000
_INT_DIGITS = 18
_BAD = np.int64(-(2**62))
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@inlined
def _two(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return two digits as a number; at least 1,000 where they are none."""
    tens = np.int64(data[np.uint64(at)]) - 0x30
    ones = np.int64(data[np.uint64(at + 1)]) - 0x30
    two = tens * 10 + ones
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        two = np.int64(1000)
    return two


@inlined
def _day(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the days since 1970 of ``2026-01-05``; `_BAD` where ten bytes are no day.

    By Howard Hinnant's days_from_civil: years begin in March, so that a leap day is a year's last.
    """
    century = _two(data, at)
    rest = _two(data, at + 2)
    month = _two(data, at + 5)
    day = _two(data, at + 8)
    year = century * 100 + rest
    days = _BAD
    if (
        data[np.uint64(at + 4)] == 0x2D
        and data[np.uint64(at + 7)] == 0x2D
        and century < 100
        and rest < 100
        and year > 0
        and 1 <= month <= 12
        and day > 0
        and day <= _MONTH_DAYS[month]
        and (day < 29 or month != 2 or (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)))
    ):
        shifted = year - 1 if month <= 2 else year
        era = shifted // 400
        of_era = shifted - era * 400
        turned = month - 3 if month > 2 else month + 9
        of_year = (153 * turned + 2) // 5 + day - 1
        days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


@kernel
def read_dates(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read days, as days since 1970."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        if kind[row] == 6 and length[row] == 10:
            days = _day(data, start[row])
            if days != _BAD:
                out[row] = days
                state[row] = VALUE


@kernel
def read_timestamps(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    zone: int,
    out: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> None:
    """Read points in time, as microseconds since 1970."""
    for row in range(kind.size):
        out[row] = 0
        state[row] = unread(kind[row])
        at = start[row]
        stop = at + length[row]
        if kind[row] == 6 and length[row] >= _SHORTEST:
            days = _day(data, at)
            hour = _two(data, at + 11)
            minute = _two(data, at + 14)
            second = _two(data, at + 17)
            good = (
                days != _BAD
                and data[np.uint64(at + 10)] == 0x54
                and data[np.uint64(at + 13)] == 0x3A
                and data[np.uint64(at + 16)] == 0x3A
                and hour < 24
                and minute < 60
                and second < 60
            )
            at += _SHORTEST
            micros = np.int64(0)
            if good and at < stop and data[np.uint64(at)] == 0x2E:
                at += 1
                digits = 0
                while at < stop and 0x30 <= data[np.uint64(at)] <= 0x39:
                    if digits < 6:
                        micros = micros * 10 + np.int64(data[np.uint64(at)] - 0x30)
                    digits += 1
                    at += 1
                for _ in range(6 - digits):
                    micros *= 10
                good = 1 <= digits <= 9
            offset = np.int64(0)
            if good and at == stop:
                good = zone != ZONE
            elif good and zone == NO_ZONE:
                good = False
            elif good and data[np.uint64(at)] == 0x5A:
                good = at + 1 == stop
            elif good and stop - at == 6 and data[np.uint64(at + 3)] == 0x3A:
                hours = _two(data, at + 1)
                minutes = _two(data, at + 4)
                offset = hours * 60 + minutes
                sign = data[np.uint64(at)]
                good = sign in (0x2B, 0x2D) and minutes < 60 and offset <= _MOST_OFFSET_MINUTES
                if sign == 0x2D:
                    offset = -offset
            else:
                good = False
            if good:
                seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
                out[row] = seconds * 1_000_000 + micros
                state[row] = VALUE
        elif kind[row] == 4 and zone != NO_ZONE:
            negative = data[np.uint64(at)] == 0x2D
            if negative:
                at += 1
            if stop - at <= _INT_DIGITS:
                number = np.int64(0)
                while at < stop:
                    number = number * 10 + np.int64(data[np.uint64(at)] - 0x30)
                    at += 1
                if number <= _MOST_SECONDS:
                    number *= 1000
                # In milliseconds: they have room in 64 bits times a thousand as far as they are in range.
                if number <= LAST_MICROS // 1000:
                    found = -number * 1000 if negative else number * 1000
                    if found >= FIRST_MICROS:
                        out[row] = found
                        state[row] = VALUE


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
