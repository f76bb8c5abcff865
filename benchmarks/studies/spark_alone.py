"""Runs Spark alone, the rival of `benchmarks.studies.spark`: one query from the raw topic to the aggregate.

``python -m benchmarks.studies.spark_alone CONFIG SINK PORT`` runs the sink of a config on its pipeline's raw
topic until all that was there is done, duplicates dropped by `dropDuplicatesWithinWatermark` on the event's id.
All else is the sink's own: parsing, aggregate, output, RocksDB, partitions, memory, metrics on PORT.
``--compare FOLDER`` prints how many rows each way has written, and fails where they differ.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from processor.config.load import load
from schemas.config.values import duration_words
from schemas.event import EventModel, aggregate_columns
from spark_sink.outputs import open_output
from spark_sink.outputs.output import OutputPlace
from spark_sink.outputs.parquet import dated
from spark_sink.query.aggregate import TIME, path_column, window_column
from spark_sink.query.events import judged, right
from spark_sink.query.progress import Reports, SinkMetrics
from spark_sink.query.sources import stream_topic
from spark_sink.session import spark_session
from spark_sink.values.schema import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Settings, Sink

ID = "event_id"
"""What tells a resent event: the generator gives each its own."""
MOST_PARTITIONS = 8
"""As the sink has it: more do not help one machine."""
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, MOST_PARTITIONS)),
    "spark.scheduler.mode": "FAIR",
}


def main(config: Path, name: str, port: int) -> None:
    """Run it."""
    settings = load(config)
    (sink,) = (each for each in settings.aggregates if each.name == name)
    model = EventModel.load(sink.event)
    metrics, ended = SinkMetrics(), threading.Event()
    metrics.open(name)
    stop_serving = metrics.serve("127.0.0.1", port)
    with spark_session("spark-alone", master="local[*]", settings=SETTINGS) as spark:
        reports = Reports(metrics.take, lambda _: ended.set())
        spark.streams.addListener(reports)
        rows = deduplicated(spark, settings, sink, model)
        output = open_output(OutputPlace(spark, sink, settings.kafka, create_topics=True, say=print))
        output.prepare(aggregate_columns(sink, model))
        writer = dated(rows).writeStream.queryName(name).outputMode(output.mode)
        query = output.start(writer.option("checkpointLocation", sink.checkpoint).trigger(availableNow=True))
        query.awaitTermination()
        ended.wait(30)  # its last report comes from another thread
        spark.streams.removeListener(reports)
    stop_serving()


def deduplicated(spark: SparkSession, settings: Settings, sink: Sink, model: EventModel) -> DataFrame:
    """Return the aggregate of a raw topic's events, each counted once."""
    topic, limit = settings.pipelines[0].source, sink.max_offsets_per_trigger
    records = stream_topic(spark, settings.kafka, topic, batch_records=limit, accept_loss=False)
    judged_rows = judged(records, sink, model, max_ahead_ms=sink.max_ahead)
    events = right(judged_rows).withColumn(ID, sql.col(f"event.{ID}"))
    once = events.withWatermark(TIME, duration_words(sink.watermark)).dropDuplicatesWithinWatermark([ID])
    # The sink's own aggregate sets the watermark again, which Spark refuses behind another stateful step.
    window = window_column(sink, sql.col(TIME)).alias("window")
    grouped = once.groupBy(window, path_column("campaign").alias("campaign")).agg(
        sql.count(sql.lit(1)).alias("events"), sql.sum(path_column("amount")).alias("revenue")
    )
    found = {"window_start": sql.col("window.start"), "window_end": sql.col("window.end")}
    found |= {name: sql.col(name) for name in ("campaign", "events", "revenue")}
    columns = aggregate_columns(sink, model)
    typed = (found[each.name].cast(spark_type(each.type)).alias(each.name) for each in columns)
    return grouped.select(*typed)


def compare(folder: Path) -> None:
    """Compare what all ways have written, row by row.

    Raises:
        SystemExit: They differ.
    """
    with spark_session("bench-compare") as spark:
        one = spark.read.parquet(str(folder / "seqmark-rows"))
        rows = one.count()
        for name in ("alone", "summed", "by_verdicts"):
            other = spark.read.parquet(str(folder / f"{name}-rows"))
            apart = one.exceptAll(other).count(), other.exceptAll(one).count()
            if any(apart) or not rows:
                raise SystemExit(f"of {rows} rows of Seqmark and Spark {apart[0]} differ, of {name} {apart[1]}")
    print(rows)


if __name__ == "__main__" and sys.argv[1] == "--compare":
    compare(Path(sys.argv[2]))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
