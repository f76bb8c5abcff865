"""Makes values of JSON into those of a column's type, exactly, or says that they do not fit.

Numbers with a fraction or an exponent are decimals of Python's, with all digits that were written. A column of
floats takes the nearest float of those, which is what its type says; no other column takes a value that would
change in it.
"""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from spark_sink.batch.rows.times import LEAST_US, MOST_US, text_time

if TYPE_CHECKING:
    from collections.abc import Mapping

FRACTION = pa.decimal128(38, 18)
"""Of fractions, where nothing says their type: 20 digits before the point, one more than 64 bits have."""
_EXACT = re.compile(rb"\d[.eE]|\d{19}")
"""What orjson would make a float of: fractions, and whole numbers beyond 64 bits. In a text it does no harm."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ZONE = re.compile(r"([Zz]|[+-]\d{2}(:?\d{2})?)$")


class UnfitValueError(Exception):
    """A value that does not go into a column without being changed."""


def read_object(line: bytes) -> dict[str, object] | None:
    """Return the object of a line that is JSON; None: it is none, or has a number that cannot be held."""
    try:
        exact = _EXACT.search(line)
        value = json.loads(line, parse_float=Decimal) if exact else orjson.loads(line)
    except (ValueError, InvalidOperation):
        return None
    return value if isinstance(value, dict) else None


def json_text(value: Any) -> str:
    """Return the JSON of a value; numbers keep the digits that they were written with."""
    try:
        return orjson.dumps(value, default=_as_written).decode()
    except TypeError:  # a whole number beyond 64 bits
        return orjson.dumps(_whole_as_written(value), default=_as_written).decode()


def _as_written(value: Any) -> orjson.Fragment:
    return orjson.Fragment(str(value))


def _whole_as_written(value: Any) -> Any:
    match value:
        case dict():
            return {name: _whole_as_written(each) for name, each in value.items()}
        case list():
            return [_whole_as_written(each) for each in value]
        case int() if not isinstance(value, bool):
            return _as_written(value)
        case _:
            return value


def made(value: Any, kind: Any) -> Any:
    """Return a value as Arrow takes it for a column of this type.

    Raises:
        UnfitValueError: It does not fit.
    """
    if value is None:
        return None
    types = pa.types
    if types.is_string(kind):
        return value if isinstance(value, str) else json_text(value)
    if isinstance(value, list | dict):
        return _nested(value, kind)
    if isinstance(value, bool):
        return value if types.is_boolean(kind) else _unfit()
    return _of_text(value, kind) if isinstance(value, str) else _number(value, kind)


def _nested(value: list[Any] | dict[str, Any], kind: Any) -> Any:
    types = pa.types
    if isinstance(value, list):
        return [made(each, kind.value_type) for each in value] if types.is_list(kind) else _unfit()
    if types.is_map(kind):
        return [(name, made(each, kind.item_type)) for name, each in value.items()]
    return (
        {each.name: made(value.get(each.name), each.type) for each in kind}
        if types.is_struct(kind)
        else _unfit()
    )


def _of_text(text: str, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind) and _NUMBER.fullmatch(text):
        return _decimal(Decimal(text), kind)
    if types.is_date(kind) and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return _unfit()
    time_us = text_time(text) if types.is_timestamp(kind) else None
    if time_us is None or (kind.tz is None) == bool(_ZONE.search(text)):
        return _unfit()
    return time_us


def _number(value: int | Decimal, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind):
        return _decimal(Decimal(value), kind)
    if types.is_floating(kind):
        try:
            found = float(value)
        except OverflowError:
            raise UnfitValueError from None
        if abs(found) == float("inf") or (isinstance(value, int) and int(found) != value):
            raise UnfitValueError
        return found
    if types.is_integer(kind) and isinstance(value, int):
        bits = kind.bit_width - 1
        if -(2**bits) <= value < 2**bits:
            return value
    if types.is_timestamp(kind) and isinstance(value, int) and LEAST_US <= value * 1000 <= MOST_US:
        return value * 1000
    raise UnfitValueError


def _decimal(value: Decimal, kind: Any) -> Decimal:
    """Return a decimal, if all of its digits have room; their number is looked at first, for it may be huge."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN and no infinity
    if not any(digits):
        return Decimal(0)
    least = exponent + next(at for at, digit in enumerate(reversed(digits)) if digit)
    if value.adjusted() >= kind.precision - kind.scale or least < -kind.scale:
        raise UnfitValueError
    return value


def _unfit() -> Any:
    raise UnfitValueError


def lacks_room(value: Any, kind: Any | None) -> bool:
    """Return whether a number in a value has no room in a type; what is no number is not looked at.

    Args:
        value: As JSON's reader gives it.
        kind: The type that the table has for it; None: none yet, so that fractions become `FRACTION`.
    """
    types = pa.types
    match value:
        case list():
            inside = kind.value_type if kind is not None and types.is_list(kind) else None
            return any(lacks_room(each, inside) for each in value)
        case dict():
            known = (
                {each.name: each.type for each in kind} if kind is not None and types.is_struct(kind) else {}
            )
            return any(lacks_room(each, known.get(name)) for name, each in value.items())
        case int() | Decimal() if not isinstance(value, bool):
            takes = kind if kind is not None and (types.is_decimal(kind) or types.is_floating(kind)) else None
            if takes is None and (isinstance(value, int) or (kind is not None and types.is_string(kind))):
                return False
            try:
                _number(value, takes or FRACTION)
            except UnfitValueError:
                return True
        case _:
            pass
    return False


def misfits(value: Mapping[str, object], declared: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the name of a column that takes no value of an object; empty: there is none.

    Args:
        value: The object.
        declared: By column the type that the config gives.
        known: Types of the table that is there, for all others.
    """
    for name, each in value.items():
        kind = declared.get(name)
        try:
            if kind is None and lacks_room(each, known.get(name)):
                return name
            if kind is not None:
                made(each, kind)
        except UnfitValueError:
            return name
    return ""
