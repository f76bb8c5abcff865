"""Checks single JSON values against their fields' types and converts them, as Spark expressions.

Values come as Spark's VARIANT: parsed JSON that still knows a string from a number. Each function returns the
value and the code of its fault, null where there is none. Nothing is converted that
would lose anything: a decimal is not rounded, a string is not taken for a number (but where pydantic reads
both, as for decimals and timestamps).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql
from pyspark.sql.types import LongType

from schemas.event import (
    BoolType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    TextType,
    TimestampType,
)
from spark_sink.values.schema import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

    from schemas.event.types import Scalar

# pydantic's rule (speedate): seconds up to here on both sides of 1970, milliseconds beyond.
_MOST_SECONDS = 20_000_000_000
# Years 1 and 9999, what Python's datetime holds; microseconds.
_FIRST_MICROS = -62_135_596_800_000_000
_LAST_MICROS = 253_402_300_799_999_999

_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[Tt _][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_ZONE = r"(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"


class Read(NamedTuple):
    """A value and the code of what is wrong with it.

    The code is null where nothing is; where it is not, the value means nothing.
    """

    value: Column
    fault: Column


def read_scalar(kind: Scalar, value: Column) -> Read:
    """Read a JSON value that is there and is not null.

    Args:
        kind: What it has to be.
        value: VARIANT. Referred to several times: a column or lambda variable, no expression of its own.

    Returns:
        The value as `spark_type` has it, and ``type``, ``value``, ``range``, ``scale`` or ``zone``.
    """
    match kind:
        case TextType():
            return _text(kind, value)
        case BoolType() | FloatType():
            return _bool(value) if isinstance(kind, BoolType) else _float(value)
        case IntType():
            return _int(kind, value)
        case DecimalType():
            return read_decimal(kind, _scalar_text(value))
        case DateType():
            return read_date(_string(value))
        case TimestampType():
            return read_timestamp(kind, _scalar_text(value))


def read_decimal(kind: DecimalType, text: Column) -> Read:
    """Read a decimal from a JSON number or a string's text; null text is a fault of type."""
    exponent = sql.regexp_extract(text, "[eE](.+)$", 1)
    # Digits behind the point that are not zeros at its end, less the exponent's shift.
    behind = sql.length(sql.regexp_extract(text, r"\.([0-9]*?)0*(?:[eE].*)?$", 1))
    zeros = sql.length(sql.regexp_extract(text, r"^[+-]?[0-9]*?(0*)\.?0*(?:[eE].*)?$", 1))
    shift = sql.when(exponent == "", sql.lit(0)).otherwise(exponent.try_cast("int"))
    places = sql.when(behind > 0, behind).otherwise(-zeros) - shift
    nothing = text.rlike(r"^[+-]?[0.]+(?:[eE]|$)")
    # To Spark's cast 0e400 has 400 digits.
    number = sql.when(nothing, sql.lit("0")).otherwise(text).try_cast(spark_type(kind))
    return Read(
        number,
        _first(
            (~_matches(text, rf"{_NUMBER}(?:[eE][+-]?[0-9]{{1,6}})?"), "type"),
            (~nothing & (places > kind.scale), "scale"),
            (number.isNull(), "range"),
        ),
    )


def read_date(text: Column) -> Read:
    """Read a day as ISO 8601 writes it."""
    date = text.try_cast("date")
    return Read(date, _first((~_matches(text, _DATE), "type"), (date.isNull(), "type")))


def read_timestamp(kind: TimestampType, text: Column) -> Read:
    """Read a point in time from ISO 8601, or from seconds or milliseconds since 1970 as pydantic tells them."""
    # Spark's cast wants T, a point, Z, a colon in offsets, and seconds where there is a zone.
    tidy = sql.regexp_replace(sql.translate(text, "t _,z", "TTT.Z"), "([+-][0-9]{2})([0-9]{2})$", "$1:$2")
    tidy = sql.regexp_replace(tidy, "^(.{10}T[0-9]{2}:[0-9]{2})(?!:)", "$1:00")
    written = _matches(text, f"{_DATE}{_CLOCK}{_ZONE}?")
    zoned = text.rlike(rf"{_ZONE}$") & written & ~text.rlike(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    if kind.zone == "none":
        local = tidy.try_cast("timestamp_ntz")
        return Read(local, _first((~written, "type"), (zoned, "zone"), (local.isNull(), "type")))
    point = sql.when(zoned, tidy).otherwise(sql.concat(tidy, sql.lit("Z"))).try_cast("timestamp")
    number = _matches(text, _NUMBER + "(?:[eE][+-]?[0-9]{1,3})?")
    epoch = _epoch(text)
    needed = sql.lit(kind.zone == "required")
    return Read(
        sql.when(number, epoch).otherwise(point),
        _first(
            (~number & ~written, "type"),
            (~number & ~zoned & needed, "zone"),
            (~number & point.isNull(), "type"),
            (number & epoch.isNull(), "range"),
        ),
    )


def _epoch(text: Column) -> Column:
    number = text.try_cast("decimal(38,9)")
    seconds = sql.when(sql.abs(number) > _MOST_SECONDS, number / 1000).otherwise(number)
    micros = sql.floor(seconds.try_cast("decimal(26,9)") * 1_000_000).try_cast("bigint")
    return sql.when(micros.between(_FIRST_MICROS, _LAST_MICROS), sql.timestamp_micros(micros))


def _text(kind: TextType, value: Column) -> Read:
    text = _string(value)
    checks = [(text.isNull(), "type")]
    if kind.values is not None:
        checks.append((~text.isin(*kind.values), "value"))
    if kind.pattern is not None:
        checks.append((~_matches(text, kind.pattern), "type"))
    return Read(text, _first(*checks))


def _int(kind: IntType, value: Column) -> Read:
    number = sql.try_variant_get(value, "$", "bigint")
    name = sql.schema_of_variant(value)
    # Beyond 38 digits a number is a double to VARIANT, whatever it was in JSON.
    huge = (name == "DOUBLE") & (sql.abs(sql.try_variant_get(value, "$", "double")) >= 1e38)
    whole = (name == "BIGINT") | name.rlike(r"^DECIMAL\([0-9]+,0\)$")
    checks = [
        (~whole & ~huge, "type"),
        (huge | number.isNull(), "range"),
        (~number.between(sql.lit(kind.least).cast(LongType()), sql.lit(kind.most).cast(LongType())), "range"),
    ]
    if kind.values is not None:
        checks.append((~number.isin(*kind.values), "value"))
    return Read(number, _first(*checks))


def _bool(value: Column) -> Read:
    return Read(sql.try_variant_get(value, "$", "boolean"), _first((~_is(value, "BOOLEAN"), "type")))


def _float(value: Column) -> Read:
    special = _string(value)
    named = special.isin("NaN", "Infinity", "-Infinity")
    number = _is(value, "BIGINT") | _is(value, "DOUBLE") | _decimal(value)
    read = sql.when(number, sql.try_variant_get(value, "$", "double")).otherwise(special.try_cast("double"))
    return Read(read, _first((~number & ~sql.coalesce(named, sql.lit(False)), "type")))


def _string(value: Column) -> Column:
    return sql.when(_is(value, "STRING"), sql.try_variant_get(value, "$", "string"))


def _scalar_text(value: Column) -> Column:
    """Return a string's text, or a number as text."""
    number = _is(value, "BIGINT") | _is(value, "DOUBLE") | _decimal(value)
    return sql.when(number | _is(value, "STRING"), sql.try_variant_get(value, "$", "string"))


def _decimal(value: Column) -> Column:
    return sql.schema_of_variant(value).startswith("DECIMAL")


def _is(value: Column, name: str) -> Column:
    return sql.schema_of_variant(value) == name


def _matches(text: Column, pattern: str) -> Column:
    """Return whether a text matches as a whole; false where there is none."""
    return sql.coalesce(text.rlike(rf"\A(?:{pattern})\z"), sql.lit(False))


def _first(*checks: tuple[Column, str]) -> Column:
    """Return the code of the first check that is true, null where none is."""
    condition, code = checks[0]
    found = sql.when(condition, sql.lit(code))
    for condition, code in checks[1:]:
        found = found.when(condition, sql.lit(code))
    return found
