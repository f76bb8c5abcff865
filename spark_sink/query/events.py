"""Tells records that are events to be counted from those that are not. Pure: DataFrame to DataFrame.

Used twice with the same outcome: by the query as it runs, and when a batch is read again to write aside what
was not counted. What was summed up in the source `spark_sink.source.judged` tells apart.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from spark_sink.query.aggregate import TIME, path_column, window_column
from spark_sink.source.judged import AHEAD
from spark_sink.source.spans import PART_RECORDS
from spark_sink.values.parse import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from schemas.config import Sink
    from schemas.event import EventModel

BAD = "bad"
_NTH = "seqmark_nth"


def judged(records: DataFrame, sink: Sink, model: EventModel, *, max_ahead_ms: int | None) -> DataFrame:
    """Parse values and find their times.

    Args:
        records: Kafka's columns.
        sink: Which field holds the time.
        model: The model that the values follow.
        max_ahead_ms: How far an event may be ahead of its record's Kafka timestamp; None: any way. The
            timestamp is the record's own, and no clock: a batch that is read again judges the same.

    Returns:
        Kafka's columns, ``event``, ``seqmark_time`` and ``bad``: the reason why a record is no event, null
        where it is one. An event without a time would vanish in Spark; here it is bad. One from the future
        would close the windows of all others; it is bad too.
    """
    parsed = parse(records, model).withColumn(TIME, path_column(sink.time_field))
    untimed = sql.when(sql.col(TIME).isNull(), sql.lit(f"missing:{sink.time_field}"))
    reasons = [sql.col(BAD), untimed]
    if max_ahead_ms is not None:
        ahead = sql.unix_micros(TIME) - sql.unix_micros("timestamp") > max_ahead_ms * 1000
        reasons.append(sql.when(ahead, sql.lit(AHEAD)))
    return parsed.withColumn(BAD, sql.coalesce(*reasons))


def bad_parts() -> Column:
    """Return the parts of offsets that have a bad record, as an aggregate of what `judged` returns.

    Each is a `spark_sink.source.spans.SpanPart` that tells nothing of events.
    """
    first = sql.col("offset") - sql.col("offset") % PART_RECORDS
    last = first + (PART_RECORDS - 1)
    bad, events = sql.lit(1).alias("bad"), sql.lit(0).alias("events")
    part = sql.struct("partition", first.alias("first"), last.alias("last"), bad, events)
    return sql.collect_set(sql.when(sql.col(BAD).isNotNull(), part))


def right(judged_records: DataFrame) -> DataFrame:
    """Return the events among them."""
    return judged_records.where(sql.col(BAD).isNull())


def uncounted(judged_records: DataFrame, watermark_ms: int) -> DataFrame:
    """Return the records of a batch among which are all that are no events or were late, without ``event``.

    Every window that an event is in ends after it: none is closed where the event is not older than the
    watermark.
    """
    late = sql.col(TIME) < sql.timestamp_millis(sql.lit(watermark_ms))
    return judged_records.where(sql.col(BAD).isNotNull() | late).drop("event")


def by_any(uncounted_records: Sequence[DataFrame]) -> DataFrame:
    """Join what several models did not count of the same batch: each record once, bad where any says so."""
    if len(uncounted_records) == 1:
        return uncounted_records[0]
    place = Window.partitionBy("topic", "partition", "offset").orderBy(sql.col(BAD).asc_nulls_last())
    rows = reduce(DataFrame.unionByName, uncounted_records).withColumn(_NTH, sql.row_number().over(place))
    return rows.where(sql.col(_NTH) == 1).drop(_NTH)


def bad_records(judged_records: DataFrame) -> DataFrame:
    """Return the records that are no events, as they are written aside, with their ``reason``."""
    bad = judged_records.where(sql.col(BAD).isNotNull())
    return bad.select(*_as_text(), sql.col(BAD).alias("reason"))


def late_events(judged_records: DataFrame, sink: Sink, watermark_ms: int) -> DataFrame:
    """Return the events that Spark did not count, or not in each of their windows.

    Spark drops a row when its window ends at or below the watermark.

    Args:
        judged_records: The records of one batch, as `judged` returns them.
        sink: The aggregate, for its windows.
        watermark_ms: The watermark by which the batch's rows were late.

    Returns:
        The records as they are written aside, with ``reason`` (``late``), ``event_time``, ``watermark``,
        ``windows`` (those that were closed) and ``counted`` (in a window that was still open: with
        ``slide`` only).
    """
    watermark = sql.timestamp_millis(sql.lit(watermark_ms))
    events = right(judged_records).select(*_as_text(), sql.col(TIME).alias("event_time"))
    if sink.session_gap is not None:
        # What Spark calls a session before it joins those that overlap.
        end = sql.timestamp_micros(sql.unix_micros("event_time") + sink.session_gap * 1000)
        window = sql.struct(sql.col("event_time").alias("start"), end.alias("end"))
    else:
        window = window_column(sink, sql.col("event_time"))
    placed = events.withColumn("window", window)
    closed = sql.when(sql.col("window.end") <= watermark, sql.col("window"))
    told = (sql.lit("late").alias("reason"), "event_time", watermark.alias("watermark"))
    if sink.slide is None:
        late = placed.where(closed.isNotNull())
        return late.select(
            *_names(events), *told, sql.array("window").alias("windows"), sql.lit(False).alias("counted")
        )
    whole = placed.groupBy(*events.columns).agg(
        sql.sort_array(sql.collect_list(closed)).alias("windows"),
        (sql.max("window.end") > watermark).alias("counted"),
    )
    late = whole.where(sql.size("windows") > 0)
    return late.select(*_names(events), *told, "windows", "counted")


def _names(events: DataFrame) -> list[str]:
    return [name for name in events.columns if name != "event_time"]


def _as_text() -> list[object]:
    """Key and value as text where they are UTF-8, as base64 where they are not."""
    columns: list[object] = []
    for name in ("key", "value"):
        text = sql.try_validate_utf8(sql.col(name).cast("string"))
        binary = sql.when(text.isNull(), sql.base64(sql.col(name)))
        columns += [text.alias(name), binary.alias(f"{name}_base64")]
    return [*columns, "topic", "partition", "offset", "timestamp"]
