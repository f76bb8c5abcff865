"""How many events does a clean topic hold an hour? The short read that the demo ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.session import spark_session
from spark_sink.sources import read_topic
from spark_sink.transforms import event_times, hourly_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.config import Kafka

# A read of seconds: what the second compiler would make faster is over before it is done (measured:
# 14 instead of 19 s, start included, for 500,000 events on two busy cores).
_SHORT = "-XX:TieredStopAtLevel=1"


def count_hourly(
    kafka: Kafka, topic: str, *, say: Callable[[str], None] = lambda _: None
) -> dict[int | None, int]:
    """Return the number of events by the hour's start, ms since 1970 (None: events without a time).

    Starts Spark for it and stops it again.

    Raises:
        StopError: Spark cannot start, or cannot read the topic.
    """
    try:
        with spark_session("seqmark-counts", jvm_flags=_SHORT, say=say) as spark:
            counts = hourly_counts(event_times(read_topic(spark, kafka, topic)))
            # A row an hour: what is collected does not grow with the topic.
            rows = counts.selectExpr("unix_millis(hour) AS hour_ms", "events").collect()
    except (PySparkException, Py4JError) as error:
        raise StopError(f"Spark cannot count the events of {topic}: {error}") from error
    return {row["hour_ms"]: row["events"] for row in rows}
