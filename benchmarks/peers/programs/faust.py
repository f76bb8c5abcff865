"""Deduplicates by Faust: ``python -m benchmarks.peers.programs.faust``, the job in the environment."""

from __future__ import annotations

import os
from typing import Any

import faust
import orjson

from benchmarks.peers import COMMIT_MS, FIELD, HEADER, Job
from benchmarks.peers.faust import JOB

LEAST = -(2**63)


def main(job: Job) -> None:
    """Run until SIGTERM."""
    app = faust.App(
        job.group,
        broker=f"kafka://{job.bootstrap_servers}",
        datadir=str(job.folder / "data"),
        store="rocksdb://",
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=job.partitions,
        topic_allow_declare=True,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=COMMIT_MS / 1000,
        producer_linger=0.02,
        producer_compression_type="lz4",
        producer_max_batch_size=262_144,
        stream_buffer_maxsize=16_384,
        stream_wait_empty=False,
        web_enabled=False,
    )
    raw: Any = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    source, sink = app.topic(job.source, **raw), app.topic(job.sink, **raw)
    last = app.Table(
        "last", default=lambda: LEAST, partitions=job.partitions, key_type=bytes, value_type=int,
        options={"driver": "rocksdict"},
    )  # fmt: skip
    by_key, in_value = job.scope == "key", job.sequence == "json"

    @app.agent(source)  # type: ignore[untyped-decorator]  # it ships no types
    async def deduplicate(events: Any) -> None:
        async for event in events.events():
            message = event.message
            headers = dict(message.headers)
            if in_value:
                sequence = orjson.loads(message.value)[FIELD]
            else:
                sequence = int.from_bytes(headers[HEADER], "big", signed=True)
            scope = message.key if by_key else b"%d" % message.partition
            if sequence <= last[scope]:
                continue
            last[scope] = sequence
            fields = {"partition": message.partition, "timestamp": message.timestamp, "headers": headers}
            await sink.send(key=message.key, value=message.value, **fields)

    faust.Worker(app, loglevel="warning").execute_from_commandline()


if __name__ == "__main__":
    main(Job.from_json(os.environ[JOB]))
