"""Deduplicates by Spark: ``python -m benchmarks.peers.programs.spark JOB``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import functions as sql

from benchmarks.peers import CHECKPOINTS, ID_HEADER, WINDOW_DAYS, Job
from benchmarks.peers.spark import BATCH_RECORDS, MEMORY
from benchmarks.studies.spark_alone import SETTINGS
from spark_sink.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.1


def main(job: Job) -> None:
    """Run until SIGTERM."""
    ended = asyncio.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    local = {"spark.local.dir": str(job.folder / "local")}
    with spark_session(job.group, master="local[*]", memory=MEMORY, settings={**SETTINGS, **local}) as spark:
        query = start(spark, job)
        try:
            asyncio.run(commit(job, query, ended))
        finally:
            query.stop()


def start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the query from topic to topic."""
    given = {
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": job.source,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(BATCH_RECORDS),
    }
    source = spark.readStream.format("kafka").options(**given).load()
    ids = sql.filter("headers", lambda header: header["key"] == ID_HEADER)
    stamped = source.withColumn("id", ids[0]["value"]).withWatermark("timestamp", f"{WINDOW_DAYS} days")
    once = stamped.dropDuplicatesWithinWatermark(["partition", "id"])
    written = {
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "topic": job.sink,
        "kafka.compression.type": "lz4",
        "kafka.linger.ms": "20",
        "kafka.batch.size": "262144",
        "checkpointLocation": str(job.folder / CHECKPOINTS),
    }
    rows = once.select("key", "value", "headers", "partition")
    return rows.writeStream.format("kafka").options(**written).start()


async def commit(job: Job, query: StreamingQuery, ended: asyncio.Event) -> None:
    """Commit for the group what each batch has come to: Spark itself does not."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap_servers, group_id=job.group, enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(job.source, number) for number in range(job.partitions)])
    known = ""
    try:
        while query.isActive and not ended.is_set():
            progress = query.lastProgress
            reached = progress["sources"][0]["endOffset"] if progress else known
            text = reached if isinstance(reached, str) else json.dumps(reached)
            if text != known:
                offsets = json.loads(text)[job.source]
                await consumer.commit(
                    {TopicPartition(job.source, int(number)): offset for number, offset in offsets.items()}
                )
                known = text
            await asyncio.sleep(POLL_S)
    finally:
        await consumer.stop()
    if failure := query.exception():
        raise failure


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
