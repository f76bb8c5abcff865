"""How would Spark do it alone? The rival of `benchmarks.spark`: one query from the raw topic to the aggregate.

``python -m benchmarks.spark_alone CONFIG SINK PORT`` runs the sink of a config on its pipeline's **raw** topic,
duplicates dropped by `dropDuplicatesWithinWatermark` on the event's id. All else is the sink's own: parsing,
aggregate, RocksDB, partitions, memory, metrics on PORT. It stops when all that was there is done.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import functions as sql

from processor.settings import load
from schemas.event import EventModel
from spark_sink.aggregate import TIME, path_column, window_column
from spark_sink.events import judged, right
from spark_sink.outputs.parquet import dated
from spark_sink.progress import Reports, SinkMetrics
from spark_sink.session import spark_session
from spark_sink.sources import stream_topic

ID = "event_id"
"""What tells a resent event: the generator gives each its own."""
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def main(config: Path, name: str, port: int) -> None:
    """Run it."""
    settings = load(config)
    (sink,) = (each for each in settings.sinks if each.name == name)
    model = EventModel.load(sink.event)
    metrics, ended = SinkMetrics(), threading.Event()
    metrics.open(name)
    stop_serving = metrics.serve("127.0.0.1", port)
    partitions = str(os.cpu_count() or 1)
    with spark_session(
        "spark-alone", master="local[*]", settings={**SETTINGS, "spark.sql.shuffle.partitions": partitions}
    ) as spark:
        reports = Reports(metrics.take, lambda _: ended.set())
        spark.streams.addListener(reports)
        records = stream_topic(
            spark,
            settings.kafka,
            settings.pipelines[0].source,
            batch_records=sink.max_offsets_per_trigger,
            accept_loss=False,
        )
        events = right(judged(records, sink, model)).withColumn(ID, sql.col(f"event.{ID}"))
        once = events.withWatermark(TIME, sink.watermark).dropDuplicatesWithinWatermark([ID])
        # The sink's own aggregate sets the watermark again, which Spark refuses behind another stateful step.
        window = window_column(sink, sql.col(TIME)).alias("window")
        grouped = once.groupBy(window, path_column("campaign").alias("campaign")).agg(
            sql.count(sql.lit(1)).alias("events"), sql.sum(path_column("amount")).alias("revenue")
        )
        columns = ("window.start AS window_start", "window.end AS window_end", "campaign", "events", "revenue")
        rows = dated(grouped.selectExpr(*columns))
        writer = rows.writeStream.queryName(name).outputMode("append").format("parquet")
        writer = writer.partitionBy("window_date").option("path", sink.output.path)  # type: ignore[union-attr]  # the benchmark's own config
        query = writer.option("checkpointLocation", sink.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        ended.wait(30)  # its last report comes from another thread
        spark.streams.removeListener(reports)
    stop_serving()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
