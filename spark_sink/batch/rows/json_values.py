"""Makes values of JSON into those of a column's type, exactly, or says that they do not fit.

Numbers with a fraction or an exponent are decimals of Python's, with all digits that were written. A column of
floats takes the nearest float of those, which is what its type says; no other column takes a value that would
change in it.
"""

from __future__ import annotations

import json
import math
import re
import struct
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
MODEL_TIMES = {
    "required": pa.timestamp("s", "UTC"),
    "optional": pa.timestamp("s", "Etc/UTC"),
    "none": pa.timestamp("s"),
}
"""What says how a model reads times, by what it says of their zones; columns have microseconds of the same."""
_MOST_SECONDS = 20_000_000_000
"""Pydantic's rule for a model's numbers: seconds up to here on both sides of 1970, milliseconds beyond."""
_EXACT = re.compile(rb"\d[.eE]|\d{19}")
"""What orjson would make a float of: fractions, and whole numbers beyond 64 bits. In a text it does no harm."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ZONE = re.compile(r"[Tt ].*([Zz]|[+-]\d{2}(:?\d{2})?)$")
"""Behind a time of day: a date ends as a zone does."""
LEAST, MOST = -(2**63), 2**63 - 1
"""Whole numbers of 64 bits."""


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
    members = {each.name: each.type for each in kind} if types.is_struct(kind) else _unfit()
    names = members.keys() | value.keys()
    if len({name.lower() for name in names}) < len(names):  # which Spark cannot read, and no type has
        raise UnfitValueError
    return {name: made(value.get(name), each) for name, each in members.items()}


def _of_text(text: str, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind) and _NUMBER.fullmatch(text):
        return _decimal(Decimal(text), kind)
    if types.is_date(kind) and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return _unfit()
    return _text_time(text, kind) if types.is_timestamp(kind) else _unfit()


def _text_time(text: str, kind: Any) -> int:
    if kind in MODEL_TIMES.values() and _NUMBER.fullmatch(text):
        return _number_time(Decimal(text), kind)
    time_us, zoned = text_time(text), _ZONE.search(text)
    if time_us is None or (kind.tz is None if zoned else kind.tz == "UTC"):
        raise UnfitValueError
    return time_us


def _number(value: int | Decimal, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind):
        return _decimal(Decimal(value), kind)
    if types.is_floating(kind):
        try:
            found = float(value)
            if kind.bit_width == 32:
                (found,) = struct.unpack("f", struct.pack("f", found))
        except OverflowError:
            raise UnfitValueError from None
        if abs(found) == float("inf") or (isinstance(value, int) and int(found) != value):
            raise UnfitValueError
        return found
    if types.is_integer(kind) and isinstance(value, int):
        bits = kind.bit_width - 1
        if -(2**bits) <= value < 2**bits:
            return value
    if types.is_timestamp(kind):
        return _number_time(value, kind)
    raise UnfitValueError


def _number_time(value: int | Decimal, kind: Any) -> int:
    by_model = kind in MODEL_TIMES.values()
    # Looked at before it is counted with: 1e999999999 has a billion digits.
    number = Decimal(value)
    if number.copy_abs() > MOST_US or (kind.tz is None if by_model else isinstance(value, Decimal)):
        raise UnfitValueError
    time_us = math.floor(number * (1_000_000 if by_model and abs(number) <= _MOST_SECONDS else 1000))
    if not LEAST_US <= time_us <= MOST_US:
        raise UnfitValueError
    return time_us


def _decimal(value: Decimal, kind: Any) -> Decimal:
    """Return a decimal without zeros at its end, if all of its digits have room.

    Their number is looked at first, for it may be huge.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN and no infinity
    if not any(digits):
        return Decimal(0)
    zeros = next(at for at, digit in enumerate(reversed(digits)) if digit)
    least = exponent + zeros
    if value.adjusted() >= kind.precision - kind.scale or least < -kind.scale:
        raise UnfitValueError
    return Decimal((sign, digits[: len(digits) - zeros], least))


def _unfit() -> Any:
    raise UnfitValueError


def lacks_room(value: Any, kind: Any | None, declared: Any | None = None) -> bool:
    """Return whether a number in a value has no room in a type; what is no number is not looked at.

    Args:
        value: As JSON's reader gives it.
        kind: The type that the table has for it; None: none yet, so that fractions become `FRACTION`.
        declared: The type that the config gives, which `made` has looked at; None: none.
    """
    types = pa.types
    if (declared is not None and not types.is_nested(declared)) or (kind is not None and types.is_string(kind)):
        return False
    match value:
        case list():
            inside = _inside(kind), _inside(declared)
            return any(lacks_room(each, *inside) for each in value)
        case dict():
            return any(
                lacks_room(each, _inside(kind, name), _inside(declared, name)) for name, each in value.items()
            )
        case int() | Decimal() if not isinstance(value, bool):
            return _is_beyond(value, kind)
        case _:
            return False


def _is_beyond(value: int | Decimal, kind: Any | None) -> bool:
    types = pa.types
    takes = kind if kind is not None and (types.is_decimal(kind) or types.is_floating(kind)) else None
    if isinstance(value, int) and not LEAST <= value <= MOST:  # which is a text, and makes one of its column
        return takes is not None or (kind is not None and types.is_integer(kind))
    if isinstance(value, int) and takes is None:
        return False
    try:
        _number(value, takes or FRACTION)
    except UnfitValueError:
        return True
    return False


def _inside(kind: Any | None, name: str | None = None) -> Any | None:
    """Return the type of a list's elements, or of what an object has under a name; None: it has none."""
    types = pa.types
    if kind is None or not types.is_nested(kind):
        return None
    if types.is_map(kind):
        return kind.item_type if name is not None else None
    if types.is_list(kind):
        return kind.value_type if name is None else None
    at = -1 if name is None else kind.get_field_index(name)
    return None if at < 0 else kind.field(at).type


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
            if kind is not None:
                made(each, kind)
            if lacks_room(each, known.get(name), kind):
                return name
        except UnfitValueError:
            return name
    return ""
