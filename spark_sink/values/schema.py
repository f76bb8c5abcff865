"""Gives the Spark type of a field.

All fields may be null there: what must not be null is not told by the type, but by `spark_sink.values.parse`,
which calls a value bad rather than to read null where none was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    ObjectType,
    TextType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.event import Column

_SCALARS: Mapping[type[FieldType], Any] = {
    TextType: spark.StringType(),
    BoolType: spark.BooleanType(),
    IntType: spark.LongType(),
    FloatType: spark.DoubleType(),
    DateType: spark.DateType(),
}


def spark_type(kind: FieldType) -> spark.DataType:
    """Return the Spark type that holds every value of a field's type."""
    match kind:
        case DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case TimestampType():
            return spark.TimestampNTZType() if kind.zone == "none" else spark.TimestampType()
        case ListType(element=element):
            return spark.ArrayType(spark_type(element))
        case MapType(value=value):
            return spark.MapType(spark.StringType(), spark_type(value))
        case ObjectType():
            return spark.StructType(
                [spark.StructField(name, spark_type(each.type)) for name, each in kind.members.items()]
            )
        case _:
            return _SCALARS[type(kind)]


def output_schema(columns: Sequence[Column]) -> spark.StructType:
    """Return the schema of an aggregate's rows, from `schemas.event.aggregate_columns`."""
    return spark.StructType(
        [spark.StructField(each.name, spark_type(each.type), nullable=each.nullable) for each in columns]
    )
