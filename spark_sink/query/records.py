"""Gives the records that an aggregate reads, where Spark reads them one by one: of a topic, or by verdicts.

Spark's own Kafka source reads a clean topic, Seqmark's own what verdicts let pass. Both give the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sink.query.sources import read_range, stream_topic
from spark_sink.source.clean import register
from spark_sink.source.format import NAME
from spark_sink.source.options import SPANS, kafka_options
from spark_sink.source.spans import written_spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka, Sink
    from spark_sink.query.checkpoint import PlannedBatch


def source_options(kafka: Kafka, sink: Sink, *, accept_loss: bool) -> dict[str, str]:
    """Return what an aggregate reads in the words of Seqmark's own source. Holds secrets: not for logs."""
    options = {"topic": sink.topic, "accept_loss": str(accept_loss).lower(), **kafka_options(kafka)}
    return options if sink.verdicts is None else {**options, "verdicts": sink.verdicts}


def stream_options(spark: SparkSession, kafka: Kafka, sink: Sink, *, accept_loss: bool) -> dict[str, str]:
    """Return them for a stream: no more tasks than work at a time."""
    tasks = {"tasks": str(max(spark.sparkContext.defaultParallelism, 1))}
    return source_options(kafka, sink, accept_loss=accept_loss) | tasks


def stream_records(
    spark: SparkSession, kafka: Kafka, sink: Sink, *, batch_records: int | None, accept_loss: bool
) -> DataFrame:
    """Return what an aggregate reads, as a stream; see `spark_sink.query.sources.stream_topic`."""
    if sink.verdicts is None:
        return stream_topic(spark, kafka, sink.topic, batch_records=batch_records, accept_loss=accept_loss)
    register(spark)
    options = stream_options(spark, kafka, sink, accept_loss=accept_loss)
    return spark.readStream.format(NAME).options(**options).load()


def batch_records(
    spark: SparkSession, kafka: Kafka, sink: Sink, batch: PlannedBatch, *, accept_loss: bool
) -> DataFrame:
    """Return the records that a batch had; lazy."""
    if sink.verdicts is None:
        return read_range(spark, kafka, batch.start, batch.end, accept_loss=accept_loss)
    register(spark)
    spans = {SPANS: written_spans(batch.spans(sink.topic, sink.verdicts))}
    options = source_options(kafka, sink, accept_loss=accept_loss) | spans
    return spark.read.format(NAME).options(**options).load()
