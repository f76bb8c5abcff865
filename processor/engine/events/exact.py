"""Reads one JSON value by a field's rule: every form that there is, every fault.

The same rules as `spark_sink.values.parse` has for Spark: nothing is converted that would lose anything. A
number without an exponent that has at most 38 digits is exact, any other one is a double, as in Spark's
VARIANT; that decides what a decimal or a time takes of a number.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple

from processor.engine.events.rules import INT64_MAX, INT64_MIN, FieldKind
from processor.engine.extract.json_matches import JsonKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from processor.engine.events.rules import FieldRule

_MOST_DIGITS = 38
_MOST_SECONDS = 20_000_000_000
"""pydantic's rule (speedate): seconds up to here on both sides of 1970, milliseconds beyond."""
FIRST_MICROS = -62_135_596_800_000_000
"""Year 1, and 9999 below: what Python's datetime holds."""
LAST_MICROS = 253_402_300_799_999_999
_HUGE = 1e38
_PLACES_9 = Decimal(1).scaleb(-9)
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MOST_OFFSET_MINUTES = 18 * 60

_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY)
_TIME = re.compile(
    rf"({_DAY})[Tt _]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(?:[.,]([0-9]{{1,9}}))?)?"
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_DECIMAL = re.compile(rf"{_NUMBER}(?:[eE][+-]?[0-9]{{1,6}})?")
_SECONDS = re.compile(rf"{_NUMBER}(?:[eE][+-]?[0-9]{{1,3}})?")
_NUMBERS = (JsonKind.INTEGER, JsonKind.DECIMAL)
_STRINGS = (JsonKind.STRING, JsonKind.ESCAPED)
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class ReadValue(NamedTuple):
    """A value as its column holds it, and the code of what is wrong; with a code the value means nothing."""

    value: int | float | str | None
    fault: str = ""


_TYPE = ReadValue(None, "type")
_RANGE = ReadValue(None, "range")


def read_exactly(rule: FieldRule, kind: int, raw: bytes) -> ReadValue:
    """Read a JSON value that is there and is not null.

    Args:
        rule: What it has to be.
        kind: Its `JsonKind`.
        raw: Its token; of a string what stands between the quotes.
    """
    return _READERS[rule.kind](rule, kind, raw)


def read_default(rule: FieldRule) -> ReadValue:
    """Read what an absent field is taken for; the rule has a default.

    A default that breaks the rule is a fault of every value without the field.
    """
    value = json.loads(rule.default or "null")
    if isinstance(value, str):
        return read_exactly(rule, JsonKind.ESCAPED, json.dumps(value)[1:-1].encode())
    raw = (rule.default or "").strip()
    if isinstance(value, bool):
        return read_exactly(rule, JsonKind.TRUE if value else JsonKind.FALSE, raw.encode())
    if isinstance(value, int | float):
        whole = raw.lstrip("-").isdigit()
        return read_exactly(rule, JsonKind.INTEGER if whole else JsonKind.DECIMAL, raw.encode())
    return _TYPE


def _string(kind: int, raw: bytes) -> str | None:
    if kind == JsonKind.STRING:
        return raw.decode()
    return str(json.loads(b'"' + raw + b'"')) if kind == JsonKind.ESCAPED else None


def _number(raw: bytes) -> Decimal | float:
    """Return a JSON number as VARIANT keeps it: a decimal of at most 38 digits, or a double."""
    text = raw.decode()
    if "e" not in text and "E" not in text:
        number = Decimal(text)
        _, digits, exponent = number.as_tuple()
        if len(digits) <= _MOST_DIGITS and -int(exponent) <= _MOST_DIGITS:
            return number
    return float(text)


def _text_of(kind: int, raw: bytes) -> str | None:
    """Return a string's text, or a number as text."""
    if kind in _NUMBERS:
        number = _number(raw)
        return repr(number) if isinstance(number, float) else format(number, "f")
    return _string(kind, raw)


def _text(rule: FieldRule, kind: int, raw: bytes) -> ReadValue:
    text = _string(kind, raw)
    if text is None:
        return _TYPE
    if rule.values is not None and text not in rule.values:
        return ReadValue(None, "value")
    if rule.pattern is not None and re.fullmatch(rule.pattern, text) is None:
        return _TYPE
    return ReadValue(text)


def _bool(_: FieldRule, kind: int, __: bytes) -> ReadValue:
    return ReadValue(int(kind == JsonKind.TRUE)) if kind in {JsonKind.TRUE, JsonKind.FALSE} else _TYPE


def _int(rule: FieldRule, kind: int, raw: bytes) -> ReadValue:
    if kind not in _NUMBERS:
        return _TYPE
    number = _number(raw)
    if isinstance(number, float):
        return _RANGE if abs(number) >= _HUGE else _TYPE
    if number != number.to_integral_value():
        return _TYPE
    value = int(number)
    if not INT64_MIN <= value <= INT64_MAX or not rule.least <= value <= rule.most:
        return _RANGE
    if rule.values is not None and value not in rule.values:
        return ReadValue(None, "value")
    return ReadValue(value)


def _float(_: FieldRule, kind: int, raw: bytes) -> ReadValue:
    if kind in _NUMBERS:
        return ReadValue(float(raw))
    named = _NAMED.get(_string(kind, raw) or "")
    return _TYPE if named is None else ReadValue(named)


def _decimal(rule: FieldRule, kind: int, raw: bytes) -> ReadValue:
    text = _text_of(kind, raw)
    if text is None or _DECIMAL.fullmatch(text) is None:
        return _TYPE
    number = Decimal(text)
    if not number:
        return ReadValue(0)
    sign, digits, exponent = number.as_tuple()
    mantissa = "".join(map(str, digits)).lstrip("0").rstrip("0")
    power = int(exponent) + len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if -power > rule.scale:
        return ReadValue(None, "scale")
    if len(mantissa) + power + rule.scale > rule.precision:
        return _RANGE
    value = int(mantissa) * 10 ** (power + rule.scale)
    return ReadValue(-value if sign else value)


def _date(_: FieldRule, kind: int, raw: bytes) -> ReadValue:
    text = _string(kind, raw)
    days = None if text is None or _DATE.fullmatch(text) is None else _days(text)
    return _TYPE if days is None else ReadValue(days)


def _days(text: str) -> int | None:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _timestamp(rule: FieldRule, kind: int, raw: bytes) -> ReadValue:
    text = _text_of(kind, raw)
    if text is None:
        return _TYPE
    if rule.zone != "none" and _SECONDS.fullmatch(text) is not None:
        micros = _of_epoch(text)
        return _RANGE if micros is None else ReadValue(micros)
    match = _TIME.fullmatch(text)
    if match is None:
        return _TYPE
    zone = match[6]
    if (zone is None and rule.zone == "required") or (zone is not None and rule.zone == "none"):
        return ReadValue(None, "zone")
    micros = _of_match(match)
    return _TYPE if micros is None else ReadValue(micros)


def _of_match(match: re.Match[str]) -> int | None:
    days = _days(match[1])
    hour, minute, second = int(match[2]), int(match[3]), int(match[4] or 0)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    offset = 0
    zone = match[6] or "Z"
    if zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        offset = hours * 60 + minutes
        if minutes > 59 or offset > _MOST_OFFSET_MINUTES:
            return None
        offset = -offset if zone[0] == "-" else offset
    seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
    return seconds * 1_000_000 + int((match[5] or "0").ljust(6, "0")[:6])


def _of_epoch(text: str) -> int | None:
    """Return the microseconds of seconds or milliseconds since 1970; None: out of range."""
    try:
        number = _WIDE.quantize(Decimal(text), _PLACES_9)
    except InvalidOperation:
        return None
    if number.adjusted() >= _MOST_DIGITS - 9:
        return None
    if abs(number) > _MOST_SECONDS:
        number = _WIDE.quantize(_WIDE.divide(number, Decimal(1000)), _PLACES_9)
    micros = math.floor(_WIDE.multiply(number, Decimal(1_000_000)))
    return micros if FIRST_MICROS <= micros <= LAST_MICROS else None


_READERS: Mapping[FieldKind, Callable[[FieldRule, int, bytes], ReadValue]] = {
    FieldKind.TEXT: _text,
    FieldKind.BOOL: _bool,
    FieldKind.INT: _int,
    FieldKind.FLOAT: _float,
    FieldKind.DECIMAL: _decimal,
    FieldKind.DATE: _date,
    FieldKind.TIMESTAMP: _timestamp,
}
