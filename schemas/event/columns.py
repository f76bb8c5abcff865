"""Lists the columns of an aggregate's output, with their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.config.aggregate_rules import WINDOW_COLUMNS
from schemas.config.aggregates import AggregateCall, aggregate_call, output_column
from schemas.event.types import DecimalType, FieldType, FloatType, IntType, TimestampType

if TYPE_CHECKING:
    from schemas.config import Sink
    from schemas.event.model import EventModel

_MOST_DIGITS = 38


class Column(NamedTuple):
    """A column of the output."""

    name: str
    type: FieldType
    nullable: bool


def aggregate_columns(sink: Sink, model: EventModel) -> list[Column]:
    """Return the columns of an aggregate's rows: the window, the groups, the aggregates, in the config's order.

    Raises:
        ValueError: A column is not in the model; `aggregate_faults` says so beforehand, with every other fault.
    """
    columns = [Column(name, TimestampType(), nullable=False) for name in WINDOW_COLUMNS]
    for path in sink.group_by:
        kind = _resolved(model, path)
        columns.append(Column(output_column(path), kind, kind.nullable))
    for name, text in sink.aggregates.items():
        call = aggregate_call(text)
        kind = IntType() if call.function == "count" else result_type(call, _resolved(model, call.column))
        columns.append(Column(name, kind, kind.nullable))
    return columns


def result_type(call: AggregateCall, column: FieldType) -> FieldType:
    """Return the type of an aggregate over a column, as Spark makes it.

    Sums of ints have 64 bits, sums of decimals ten digits more, averages of decimals four more on both sides
    of the point (at most 38 in all). Minimum, maximum and percentiles are of the column's type; where a
    column may be null, they are where all of a group is.
    """
    nullable = column.nullable
    match call.function, column:
        case (("count" | "approx_count_distinct"), _):
            return IntType()
        case "sum", DecimalType(precision=precision, scale=scale):
            return DecimalType(precision=min(precision + 10, _MOST_DIGITS), scale=scale, nullable=nullable)
        case "avg", DecimalType(precision=precision, scale=scale):
            more = min(precision + 4, _MOST_DIGITS), min(scale + 4, _MOST_DIGITS)
            return DecimalType(precision=more[0], scale=more[1], nullable=nullable)
        case "avg", _:
            return FloatType(nullable=nullable)
        case "sum", IntType():
            return IntType(nullable=nullable)
        case _:
            return column


def _resolved(model: EventModel, path: str) -> FieldType:
    kind = model.resolve(path)
    if kind is None:
        raise ValueError(f"{model.name} has no column {path}")
    return kind
