"""Makes the declared aggregates of events: a row per window and group. Pure: it reads and writes nothing.

Windows begin where UTC's hours and days do (weeks on Thursdays: Spark counts from 1970-01-01). An event belongs
to the windows that begin at or before its time and end after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from schemas.config.aggregates import aggregate_call, output_column
from schemas.config.values import duration_words
from schemas.event import aggregate_columns
from spark_sink.values.schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from schemas.config import Sink
    from schemas.event import EventModel

TIME = "seqmark_time"
"""Column of the events' time; the event-time watermark belongs to it."""
_WINDOW = "seqmark_window"
FIELD = "field:"
"""Before a path, so that no field is mistaken for a column of ours."""

# Of percentiles: ranks are right to 1/10,000 of the group's events. Spark's own default.
_ACCURACY = 10_000


def path_column(path: str, root: str = "event") -> Column:
    """Return the column that a path such as ``user.country`` names in the event."""
    steps = ".".join(f"`{step}`" for step in path.split("."))
    return sql.col(f"`{root}`.{steps}")


def window_column(sink: Sink, time: Column) -> Column:
    """Return an event's window, a struct of ``start`` and ``end``.

    With ``slide`` a row is repeated for each of its windows. A session's window is, before sessions are
    joined, from the event's time to ``session_gap`` after it.
    """
    if sink.session_gap is not None:
        return sql.session_window(time, duration_words(sink.session_gap))
    if sink.window is None:
        raise ValueError(f"aggregate {sink.name} has neither window nor session_gap")
    slide = None if sink.slide is None else duration_words(sink.slide)
    return sql.window(time, duration_words(sink.window), slide)


def aggregate(events: DataFrame, sink: Sink, model: EventModel) -> DataFrame:
    """Return the aggregates of right events.

    Args:
        events: Right events: columns ``event`` (struct) and ``seqmark_time`` (timestamp, never null).
        sink: What to make of them.
        model: The events' model.

    Returns:
        The columns of `schemas.event.aggregate_columns`, with their types.
    """
    # Columns are called as their fields: Spark's plans, and what it writes of its state's keys, then say so.
    made, used = [], dict.fromkeys(sink.group_by)
    for name, declared in sink.aggregates.items():
        call = aggregate_call(declared)
        if call.column:
            used[call.column] = None
        made.append(_aggregate(call.function, call.percent, field_column(call.column)).alias(f"out_{name}"))
    picked = events.select(TIME, *(path_column(path).alias(FIELD + path) for path in used))
    return grouped(picked, sink, model, made)


def grouped(rows: DataFrame, sink: Sink, model: EventModel, made: Sequence[Column]) -> DataFrame:
    """Return the aggregates of rows, one per window and group.

    Args:
        rows: Columns ``seqmark_time`` and, each with `FIELD` before its path, the groups.
        sink: What to make of them.
        model: The events' model.
        made: The aggregates, called ``out_`` and their name.

    Returns:
        What `aggregate` does.
    """
    groups = [field_column(path) for path in sink.group_by]
    summed = (
        rows.withWatermark(TIME, duration_words(sink.watermark))
        .groupBy(window_column(sink, sql.col(TIME)).alias(_WINDOW), *groups)
        .agg(*made)
    )
    found = {
        "window_start": sql.col(f"{_WINDOW}.start"),
        "window_end": sql.col(f"{_WINDOW}.end"),
        **{output_column(path): groups[number] for number, path in enumerate(sink.group_by)},
        **{name: sql.col(f"out_{name}") for name in sink.aggregates},
    }
    return summed.select(
        *(
            found[column.name].cast(spark_type(column.type)).alias(column.name)
            for column in aggregate_columns(sink, model)
        )
    )


def field_column(path: str) -> Column:
    """Return the column of a field that was picked."""
    return sql.col(f"`{FIELD}{path}`")


def _aggregate(function: str, percent: float, column: Column) -> Column:
    if function == "count":
        return sql.count(sql.lit(1))
    if function == "percentile":
        return sql.percentile_approx(column, percent / 100, _ACCURACY)
    made: dict[str, Column] = {
        "sum": sql.sum(column),
        "min": sql.min(column),
        "max": sql.max(column),
        "avg": sql.avg(column),
        "approx_count_distinct": sql.approx_count_distinct(column),
    }
    return made[function]
