"""What is made of events? Pure: DataFrame to DataFrame, nothing is read or written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def event_times(records: DataFrame, field: str = "occurred_at") -> DataFrame:
    """Take the event time out of JSON values.

    Args:
        records: With the column ``value``, binary JSON.
        field: An ISO 8601 time at the value's top level.

    Returns:
        One column ``occurred_at`` (timestamp), a row a record; null where the value has no such time.
    """
    event = sql.from_json(records["value"].cast("string"), f"`{field}` TIMESTAMP")
    return records.select(event[field].alias("occurred_at"))


def hourly_counts(events: DataFrame) -> DataFrame:
    """Count events by the hour they occurred in.

    Args:
        events: With the column ``occurred_at`` (timestamp).

    Returns:
        ``hour`` (timestamp, its start; null for events without a time) and ``events`` (long), in order
        of the hour; hours without events are left out.
    """
    hour = sql.date_trunc("hour", events["occurred_at"]).alias("hour")
    return events.groupBy(hour).agg(sql.count("*").alias("events")).orderBy("hour")
