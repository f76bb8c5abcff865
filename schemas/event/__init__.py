"""Events as neutral types: the fields of a pydantic model, and what aggregates make of them.

Pure: neither Spark nor Kafka is needed to say what is wrong with an aggregate.
"""

from __future__ import annotations

from schemas.event.columns import Column, aggregate_columns, result_type
from schemas.event.faults import aggregate_faults
from schemas.event.model import EventModel, EventModelError
from schemas.event.types import (
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
    describe,
)

__all__ = [
    "BoolType",
    "Column",
    "DateType",
    "DecimalType",
    "EventModel",
    "EventModelError",
    "FieldType",
    "FloatType",
    "IntType",
    "ListType",
    "MapType",
    "Member",
    "ObjectType",
    "TextType",
    "TimestampType",
    "aggregate_columns",
    "aggregate_faults",
    "describe",
    "result_type",
]
