"""Turns an event model into rules for the kernels, where they can check all of it.

Rules are what goes to Spark's tasks: as text in an option, so that a class that only a notebook has needs no
import there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from processor.engine.events import FieldKind, FieldRule
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.event import EventModel

__all__ = ["FieldKind", "FieldRule", "column_type", "read_rules", "rules_of", "why_not", "written"]

MOST_FIELDS = 62
"""What one walk over a value finds (`processor.engine.extract.pointers`)."""


def why_not(model: EventModel) -> str | None:
    """Return why the kernels cannot check a model's values; None: they can."""
    root = model.root
    if root.closed:
        return "it forbids unknown fields"
    if len(root.members) > MOST_FIELDS:
        return f"it has more than {MOST_FIELDS} fields"
    for name, member in root.members.items():
        if isinstance(member.type, ObjectType):
            return f"{name} is an object"
        if isinstance(member.type, ListType | MapType):
            return f"{name} is a list or a dict"
    return None


def rules_of(model: EventModel) -> list[FieldRule]:
    """Return a rule per field, in the model's order; `why_not` has to say nothing against it."""
    return [_rule(name, member) for name, member in model.root.members.items()]


def written(rules: Sequence[FieldRule]) -> str:
    """Return rules as text."""
    return json.dumps([list(rule) for rule in rules])


def read_rules(text: str) -> list[FieldRule]:
    """Return what `written` was given."""
    return [_read(fields) for fields in json.loads(text)]


def _read(fields: list[object]) -> FieldRule:
    rule = FieldRule(*fields)  # type: ignore[arg-type]  # as it was written
    values = None if rule.values is None else tuple(rule.values)
    return rule._replace(kind=FieldKind(rule.kind), values=values)  # type: ignore[arg-type]  # all of one type


def column_type(rule: FieldRule) -> spark.DataType:
    """Return the Spark type of a field's column."""
    match rule.kind:
        case FieldKind.DECIMAL:
            return spark.DecimalType(rule.precision, rule.scale)
        case FieldKind.TIMESTAMP:
            return spark.TimestampNTZType() if rule.zone == "none" else spark.TimestampType()
        case _:
            return _TYPES[rule.kind]


_TYPES: Mapping[FieldKind, spark.DataType] = {
    FieldKind.TEXT: spark.StringType(),
    FieldKind.BOOL: spark.BooleanType(),
    FieldKind.INT: spark.LongType(),
    FieldKind.FLOAT: spark.DoubleType(),
    FieldKind.DATE: spark.DateType(),
}


_PLAIN: Mapping[type[FieldType], FieldKind] = {
    BoolType: FieldKind.BOOL,
    FloatType: FieldKind.FLOAT,
    DateType: FieldKind.DATE,
}


def _rule(name: str, member: Member) -> FieldRule:
    rule = FieldRule(
        name,
        FieldKind.TEXT,
        required=member.required,
        null_allowed=member.null_allowed,
        default=member.default,
    )
    match member.type:
        case TextType(values=values, pattern=pattern):
            return rule._replace(values=values, pattern=pattern)
        case IntType(least=least, most=most, values=numbers):
            return rule._replace(kind=FieldKind.INT, least=least, most=most, values=numbers)
        case DecimalType(precision=precision, scale=scale):
            return rule._replace(kind=FieldKind.DECIMAL, precision=precision, scale=scale)
        case TimestampType(zone=zone):
            return rule._replace(kind=FieldKind.TIMESTAMP, zone=zone)
        case BoolType() | FloatType() | DateType():
            return rule._replace(kind=_PLAIN[type(member.type)])
        case other:
            raise ValueError(f"{name} is a {type(other).__name__}, which no kernel checks")
