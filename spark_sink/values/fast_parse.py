"""Reads values by Spark's own JSON reader, where they are then certainly read right.

`from_json` is several times as fast as reading by way of VARIANT, but takes what is not right without a word.
So it is asked for types that hide nothing (strings and decimals as VARIANT, times as their text), and what it
gives is checked. The check may say no to a right value: `spark_sink.values.parse` then reads it exactly. It
must never say yes where that would say no, or would read something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

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
from spark_sink.values.schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

_OPTIONS = {
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_TIMESTAMP = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
_DATE = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}\z"


class ParsedRow(NamedTuple):
    """What was read of one field."""

    value: Column
    right: Column
    """Certainly as the model wants it; null counts as no."""
    length: Column | None
    """Bytes that the value has in JSON at least, quotes not counted; None: not known."""


def can_read(kind: FieldType) -> bool:
    """Return whether the direct way is open to any value of a type."""
    match kind:
        case MapType():
            # The reader keeps the first and the last of equal keys.
            return False
        case ListType(element=element):
            return can_read(element) and not _has_closed(element)
        case ObjectType():
            return all(can_read(member.type) for member in kind.members.values())
        case _:
            return True


def read_directly(text: Column, root: ObjectType, end: str) -> Column:
    """Return the reader's struct for a text; `check` says what it is worth.

    Args:
        text: The value.
        root: Its type, one that `can_read` says yes to.
        end: What is put behind the value, to see that nothing else is; in no value that is right.
    """
    element = _raw_type(root)
    element.add(end, spark.LongType())
    schema = spark.StructType(
        [
            spark.StructField("whole", spark.ArrayType(element)),
            spark.StructField("corrupt", spark.StringType()),
        ]
    )
    wrapped = sql.concat(sql.lit('{"whole":['), text, sql.lit(f',{{"{end}":1}}]}}'))
    return sql.from_json(wrapped, schema, _OPTIONS)


def check(raw: Column, text: Column, root: ObjectType, end: str) -> ParsedRow:
    """Check what `read_directly` gave.

    Args:
        raw: Its struct, as a column: it is referred to many times.
        text: The value.
        root: Its type.
        end: As it was given there.

    Returns:
        The event and whether it is certainly right.
    """
    read = _object(raw["whole"].getItem(0), root)
    right = (
        raw["corrupt"].isNull()
        & (sql.size(raw["whole"]) == 2)
        & (raw["whole"].getItem(1)[end] == 1)
        & raw["whole"].getItem(0).isNotNull()
        & sql.is_valid_utf8(text)
        # Halves of characters, which the reader replaces.
        & ~text.contains("\\ud")
        & ~text.contains("\\uD")
        & ~text.contains(end)
        & read.right
    )
    if _has_closed(root):
        right &= _nothing_unknown(text, root, read)
    return ParsedRow(read.value, sql.coalesce(right, sql.lit(False)), read.length)


def _nothing_unknown(text: Column, root: ObjectType, read: ParsedRow) -> Column:
    """Return whether objects have no fields but those that were read.

    What was read accounts for so many bytes, quotes aside, and no escape makes it seem more. Where the text
    has no more than these, there is no room for another field. Where it has more, which may be spaces, the
    fields of the outermost object are listed.
    """
    inner_closed = any(_has_closed(member.type) for member in root.members.values())
    names = sql.array(*[sql.lit(name) for name in root.members])
    listed = sql.size(sql.array_except(sql.json_object_keys(text), names)) == 0
    otherwise = sql.lit(False) if inner_closed else listed
    if read.length is None:
        return otherwise
    unquoted = sql.octet_length(sql.replace(text, sql.lit('"'), sql.lit("")))
    accounted = ~text.contains("\\") & (unquoted == read.length)
    return sql.when(sql.coalesce(accounted, sql.lit(False)), sql.lit(True)).otherwise(otherwise)


def _has_closed(kind: FieldType) -> bool:
    match kind:
        case ObjectType():
            return kind.closed or any(_has_closed(member.type) for member in kind.members.values())
        case ListType(element=element):
            return _has_closed(element)
        case _:
            return False


def _raw_type(kind: FieldType) -> spark.DataType:
    match kind:
        case ObjectType():
            return spark.StructType(
                [spark.StructField(name, _raw_type(member.type)) for name, member in kind.members.items()]
            )
        case ListType(element=element):
            return spark.ArrayType(_raw_type(element))
        case _:
            return _RAW[type(kind)]


_RAW: Mapping[type[FieldType], spark.DataType] = {
    TextType: spark.VariantType(),
    BoolType: spark.BooleanType(),
    IntType: spark.LongType(),
    FloatType: spark.DoubleType(),
    # As text a number would have been a double before.
    DecimalType: spark.VariantType(),
    TimestampType: spark.StringType(),
    DateType: spark.StringType(),
}


def _object(raw: Column, kind: ObjectType) -> ParsedRow:
    reads = {name: _member(raw[name], member) for name, member in kind.members.items()}
    value = sql.struct(*[read.value.alias(name) for name, read in reads.items()])
    right = sql.lit(True)
    for read in reads.values():
        right &= read.right
    # Braces, a colon behind each name and commas between.
    length = sql.lit(2 + sum(len(name.encode()) + 1 for name in reads) + len(reads) - 1)
    for read in reads.values():
        if read.length is None:
            return ParsedRow(value, right, None)
        length += read.length
    return ParsedRow(value, right, length)


def _member(raw: Column, member: Member) -> ParsedRow:
    read = _value(raw, member.type)
    null = sql.lit(None).cast(spark_type(member.type))
    nothing = raw.isNull()
    if isinstance(member.type, TextType | DecimalType):
        nothing |= sql.is_variant_null(raw)
    # The reader does not tell an absent field from null: only where both mean null may it be either.
    either = not member.required and member.null_allowed and member.default is None
    right = sql.when(nothing, sql.lit(either)).otherwise(read.right)
    return ParsedRow(sql.when(nothing, null).otherwise(read.value), right, read.length)


def _value(raw: Column, kind: FieldType) -> ParsedRow:
    match kind:
        case ObjectType():
            return _object(raw, kind)
        case ListType():
            return _list(raw, kind)
        case TextType():
            return _text(raw, kind)
        case BoolType():
            # Of what is absent no length is known.
            return ParsedRow(raw, raw.isNotNull(), sql.when(raw, sql.lit(4)).when(~raw, sql.lit(5)))
        case IntType():
            right = raw.between(kind.least, kind.most)
            right = right & raw.isin(*kind.values) if kind.values is not None else right
            return ParsedRow(raw, right, sql.octet_length(raw.cast("string")))
        case _:
            return _decimal(raw, kind) if isinstance(kind, DecimalType) else _written(raw, kind)


def _list(raw: Column, kind: ListType) -> ParsedRow:
    member = Member(type=kind.element, required=False, null_allowed=kind.element.nullable)
    right = sql.forall(raw, lambda each: sql.coalesce(_member(each, member).right, sql.lit(False)))
    if kind.length is not None:
        right &= sql.size(raw) == kind.length
    return ParsedRow(sql.transform(raw, lambda each: _member(each, member).value), right, None)


def _text(raw: Column, kind: TextType) -> ParsedRow:
    value = sql.try_variant_get(raw, "$", "string")
    right = sql.schema_of_variant(raw) == "STRING"
    if kind.values is not None:
        right &= value.isin(*kind.values)
    if kind.pattern is not None:
        right &= value.rlike(rf"\A(?:{kind.pattern})\z")
    return ParsedRow(value, right, sql.octet_length(value))


def _decimal(raw: Column, kind: DecimalType) -> ParsedRow:
    """Read a string, or a number that VARIANT holds exactly: its text then is no longer than in JSON."""
    exact = sql.schema_of_variant(raw).rlike(r"^(?:STRING|BIGINT|DECIMAL\([0-9]+,[0-9]+\))$")
    text = sql.when(exact, sql.try_variant_get(raw, "$", "string"))
    value = text.try_cast(spark_type(kind))
    places = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    right = value.isNotNull() & text.rlike(rf"^-?[0-9]{{1,38}}{places}\z")
    return ParsedRow(value, right, sql.octet_length(text))


def _written(raw: Column, kind: FieldType) -> ParsedRow:
    """Read what the reader gave as text: of a string, or a number as it stands in JSON."""
    value = raw.try_cast(spark_type(kind))
    pattern = _DATE
    if isinstance(kind, FloatType):
        return ParsedRow(raw, raw.isNotNull(), None)
    if isinstance(kind, TimestampType):
        pattern = _TIMESTAMP + (r"\z" if kind.zone == "none" else rf"{_ZONE}\z")
    return ParsedRow(value, value.isNotNull() & raw.rlike(pattern), sql.octet_length(raw))
