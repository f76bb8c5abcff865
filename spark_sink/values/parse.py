"""Reads the event that a record holds, or says what is wrong with its value.

Invariant: an event is read as a whole or is bad. No field is null that the value did not say to be so, or left
out where the model lets it. What is bad has a reason out of a set that depends on the model alone:

    null                        there is no value: a tombstone
    not_utf8, not_json          it is no text, or no JSON (RFC 8259) with nothing before or behind
    not_object                  it is JSON, but no object
    missing:PATH, null:PATH     a field is absent, or null, where it must be there
    type:PATH                   it has another type
    value:PATH                  it is none of the enum's or literal's values
    range:PATH                  a number that the column cannot hold, or beyond the bounds of an int
    scale:PATH                  a decimal with more places than the column has: it is not rounded
    zone:PATH                   a time without a zone where one is needed, or with one where none may be
    length:PATH                 a tuple with another number of elements
    unknown, unknown:PATH       an object has a field that its model forbids

`PATH` is as in the config, with ``[]`` for each element of a list or dict: ``items[].price``. Of several the
first in the model's order is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql
from pyspark.sql.types import LongType

from schemas.event import (
    BoolType,
    DateType,
    DecimalType,
    FieldType,
    FloatType,
    IntType,
    ListType,
    MapType,
    Member,
    ObjectType,
    TextType,
    TimestampType,
)
from spark_sink.values.fast_parse import can_read, check, read_directly
from spark_sink.values.schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from schemas.event import EventModel
    from schemas.event.types import Scalar

# Values come as Spark's VARIANT: parsed JSON that still knows a string from a number. Each function returns
# the value and the code of its fault, null where there is none. Nothing is converted that would lose
# anything: a decimal is not rounded, a string is not taken for a number (but where pydantic reads both, as
# for decimals and timestamps).

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


# Put behind the value, so that a parser that stops after the first value shows whether it was the last.
# Unlikely enough to be in no value; one that has it is called not_json.
_END = "6f2d1c0b-seqmark-end-of-value-93a7e45d"
# Columns on the way; Kafka has none that are called so.
_RAW, _EVENT, _RIGHT, _READ = "seqmark_raw", "seqmark_event", "seqmark_right", "seqmark_read"
# Of escapes that stand for half a character each, those without their other half. Escaped backslashes and
# whole pairs are taken away before.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"


def parse(records: DataFrame, model: EventModel) -> DataFrame:
    """Read the values of records.

    Of equal keys the last counts where `spark.sql.variant.allowDuplicateKeys` is set, as `spark_sink.session`
    does; elsewhere such a value is ``not_json``.

    Args:
        records: With Kafka's columns: ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``,
            ``timestamp``; others are kept.
        model: What values follow.

    Returns:
        The same rows with ``event`` (struct, as `spark_type` of the model; null where it is bad) and ``bad``
        (string; the reason, null where the value is right).
    """
    return _exactly(records, model.root) if not can_read(model.root) else _directly(records, model.root)


def _exactly(records: DataFrame, root: ObjectType) -> DataFrame:
    read = _let(sql.col("value"), lambda value: _root(value, root))
    return _apart(records, records, read)


def _directly(records: DataFrame, root: ObjectType) -> DataFrame:
    """Take what Spark's reader certainly reads right from there, and read the rest exactly."""
    text = sql.col("value").cast("string")
    raw = records.select("*", read_directly(text, root, _END).alias(_RAW))
    checked = check(sql.col(_RAW), text, root, _END)
    names = [sql.col(name) for name in records.columns]
    both = raw.select(*names, checked.value.alias(_EVENT), checked.right.alias(_RIGHT))
    exact = _let(sql.col("value"), lambda value: _root(value, root))
    direct = sql.struct(
        sql.col(_EVENT).cast(spark_type(root)).alias("value"), sql.lit(None).cast("string").alias("fault")
    )
    return _apart(records, both, sql.when(sql.col(_RIGHT), direct).otherwise(exact))


def _apart(records: DataFrame, parsed: DataFrame, read: Column) -> DataFrame:
    # A generator: filters and projections that come later are not merged with the parse, which would then
    # be made once for each of them.
    names = [sql.col(name) for name in records.columns]
    generated = parsed.select(*names, sql.explode(sql.array(read)).alias(_READ))
    return generated.select(
        *names, sql.col(_READ)["value"].alias("event"), sql.col(_READ)["fault"].alias("bad")
    )


def reasons(model: EventModel) -> list[str]:
    """Return every reason there can be for values of this model."""
    found = ["null", "not_utf8", "not_json", "not_object"]
    _reasons(model.root, "", found)
    return list(dict.fromkeys(found))


def _reasons(kind: FieldType, path: str, found: list[str]) -> None:
    codes = ["type"] if path else []
    if isinstance(kind, ObjectType):
        for name, member in kind.members.items():
            below = f"{path}.{name}" if path else name
            found += [f"missing:{below}"] if member.required else []
            found += [] if member.null_allowed else [f"null:{below}"]
            _reasons(member.type, below, found)
        found += ([f"unknown:{path}"] if path else ["unknown"]) if kind.closed else []
    elif isinstance(kind, ListType | MapType):
        inner = kind.element if isinstance(kind, ListType) else kind.value
        codes += ["length"]
        found += [] if inner.nullable else [f"null:{path}[]"]
        _reasons(inner, f"{path}[]", found)
    else:
        codes += ["value", "range", "scale", "zone"]
    found += [f"{code}:{path}" for code in codes]


def _root(value: Column, root: ObjectType) -> Column:
    text = value.cast("string")
    return sql.when(value.isNull(), _bad(root, "null")).otherwise(
        sql.when(~sql.is_valid_utf8(text), _bad(root, "not_utf8")).otherwise(_exact(text, root))
    )


def _exact(text: Column, root: ObjectType) -> Column:
    """Read the text by way of VARIANT: every kind of value, every fault."""
    wrapped = sql.concat(sql.lit("["), text, sql.lit(f',"{_END}"]'))

    def whole(parsed: Column) -> Column:
        return (
            (sql.try_variant_get(parsed, "$[1]", "string") == _END)
            & sql.try_variant_get(parsed, "$[2]", "variant").isNull()
            & ~text.contains(_END)
            & ~_has_half_characters(text)
        )

    def read(parsed: Column) -> Column:
        right = sql.coalesce(whole(parsed), sql.lit(False))
        value = _let(
            sql.try_variant_get(parsed, "$[0]", "map<string,variant>"),
            lambda fields: sql.when(fields.isNull(), _bad(root, "not_object")).otherwise(
                _members(fields, root, "")
            ),
        )
        return sql.when(~right, _bad(root, "not_json")).otherwise(value)

    return _let(sql.try_parse_json(wrapped), read)


def _has_half_characters(text: Column) -> Column:
    plain = sql.regexp_replace(text, r"\\\\", "")
    left = sql.regexp_replace(plain, _PAIR, "")
    return sql.when(text.contains("\\ud") | text.contains("\\uD"), left.rlike(_HALF)).otherwise(sql.lit(False))


def _value(kind: FieldType, value: Column, path: str) -> Column:
    """Read a value that is there and not null. Returns struct(value, fault)."""
    match kind:
        case ObjectType():
            return _let(
                sql.try_variant_get(value, "$", "map<string,variant>"),
                lambda fields: sql.when(fields.isNull(), _bad(kind, f"type:{path}")).otherwise(
                    _members(fields, kind, path)
                ),
            )
        case ListType():
            return _let(sql.try_variant_get(value, "$", "array<variant>"), lambda each: _list(each, kind, path))
        case MapType():
            return _let(
                sql.try_variant_get(value, "$", "map<string,variant>"), lambda each: _map(each, kind, path)
            )
        case _:
            read = read_scalar(kind, value)  # type: ignore[arg-type]  # what is left of the types
            return _struct(kind, Read(read.value, sql.concat(read.fault, sql.lit(f":{path}"))))


def _members(fields: Column, kind: ObjectType, path: str) -> Column:
    """Read an object from its fields, map<string,variant>."""
    reads = [
        _let(
            sql.try_element_at(fields, sql.lit(name)),
            _member_reader(member, f"{path}.{name}" if path else name),
        ).alias(f"f{index}")
        for index, (name, member) in enumerate(kind.members.items())
    ]

    def joined(read: Column) -> Column:
        each = [read[f"f{index}"] for index in range(len(reads))]
        value = sql.struct(*[one["value"].alias(name) for one, name in zip(each, kind.members, strict=True)])
        faults = [one["fault"] for one in each]
        if kind.closed:
            unknown = sql.exists(sql.map_keys(fields), lambda key: ~key.isin(*kind.members))
            faults.append(sql.when(unknown, sql.lit(f"unknown:{path}" if path else "unknown")))
        return _struct(kind, Read(value, sql.coalesce(*faults)))

    return _let(sql.struct(*reads), joined)


def _member_reader(member: Member, path: str) -> Callable[[Column], Column]:
    kind = member.type
    absent = _bad(kind, f"missing:{path}") if member.required else _null(kind)
    if member.default is not None:
        absent = _let(sql.parse_json(sql.lit(member.default)), lambda value: _value(kind, value, path))
    null = _null(kind) if member.null_allowed else _bad(kind, f"null:{path}")

    def read(value: Column) -> Column:
        return (
            sql.when(value.isNull(), absent)
            .when(sql.is_variant_null(value), null)
            .otherwise(_value(kind, value, path))
        )

    return read


def _element(kind: FieldType, path: str) -> Callable[[Column], Column]:
    return _member_reader(Member(type=kind, null_allowed=kind.nullable), path)


def _list(elements: Column, kind: ListType, path: str) -> Column:
    reader = _element(kind.element, f"{path}[]")

    def joined(reads: Column) -> Column:
        value = sql.transform(reads, lambda each: each["value"])
        return _struct(kind, Read(value, _first_fault(sql.transform(reads, lambda each: each["fault"]))))

    read = _let(sql.transform(elements, reader), joined)
    if kind.length is not None:
        read = sql.when(sql.size(elements) != kind.length, _bad(kind, f"length:{path}")).otherwise(read)
    return sql.when(elements.isNull(), _bad(kind, f"type:{path}")).otherwise(read)


def _map(fields: Column, kind: MapType, path: str) -> Column:
    reader = _element(kind.value, f"{path}[]")

    def joined(reads: Column) -> Column:
        value = sql.transform_values(reads, lambda _, each: each["value"])
        faults = sql.transform(sql.map_values(reads), lambda each: each["fault"])
        return _struct(kind, Read(value, _first_fault(faults)))

    read = _let(sql.transform_values(fields, lambda _, each: reader(each)), joined)
    return sql.when(fields.isNull(), _bad(kind, f"type:{path}")).otherwise(read)


def _first_fault(faults: Column) -> Column:
    return sql.try_element_at(sql.filter(faults, lambda each: each.isNotNull()), sql.lit(1))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Evaluate ``value`` once for all places where ``body`` refers to it."""
    return sql.transform(sql.array(value), body).getItem(0)


def _struct(kind: FieldType, read: Read) -> Column:
    def joined(both: Column) -> Column:
        value = sql.when(both["fault"].isNull(), both["value"]).cast(spark_type(kind))
        return sql.struct(value.alias("value"), both["fault"].alias("fault"))

    # Bound first: a fault is a long expression, and is referred to twice.
    return _let(sql.struct(read.value.alias("value"), read.fault.cast("string").alias("fault")), joined)


def _bad(kind: FieldType, fault: str) -> Column:
    return sql.struct(sql.lit(None).cast(spark_type(kind)).alias("value"), sql.lit(fault).alias("fault"))


def _null(kind: FieldType) -> Column:
    return sql.struct(
        sql.lit(None).cast(spark_type(kind)).alias("value"), sql.lit(None).cast("string").alias("fault")
    )
