"""Deduplicates by Quix Streams: ``python -m benchmarks.peers.programs.quix JOB``, in its own environment."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from quixstreams import Application, message_context
from quixstreams.models import Row

from benchmarks.peers import COMMIT_MS, FIELD, HEADER, ID_HEADER, WINDOW_DAYS, Job

PARTITION = b"partition"
"""Prefix of the state where a whole partition has one sequence."""


def main(job: Job) -> None:
    """Run until SIGTERM."""
    app = Application(
        broker_address=job.bootstrap_servers,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        commit_interval=COMMIT_MS / 1000,
        processing_guarantee="exactly-once" if job.guarantee == "exactly_once" else "at-least-once",
        state_dir=job.folder / "state",
        loglevel="WARNING",
        auto_create_topics=True,
        producer_extra_config={"linger.ms": 20, "compression.type": "lz4", "batch.size": 262_144},
    )
    kinds = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer")
    plain: Any = dict.fromkeys(kinds, "bytes")
    source, sink = app.topic(job.source, **plain), app.topic(job.sink, **plain)
    frame = app.dataframe(source)
    frame.register_store()
    stream_id, context = frame.stream_id, frame.processing_context
    producer = frame._producer  # noqa: SLF001 - see write
    by_key, in_value = job.scope == "key", job.sequence == "json"
    window = timedelta(days=WINDOW_DAYS)

    def state_of(prefix: bytes, timestamp: int) -> Any:
        # What filter(stateful=True) does, but for the prefix, which would always be the record's key.
        partition = message_context().partition
        transaction = context.checkpoint.get_store_transaction(stream_id=stream_id, partition=partition)
        return transaction.as_state(prefix=prefix, timestamp=timestamp)

    def new(_value: bytes, _key: bytes, timestamp: int, headers: Any) -> bool:
        state = state_of(dict(headers)[ID_HEADER], timestamp)
        if state.get("i") is not None:
            return False
        state.set("i", 1, ttl=window)
        return True

    def fresh(value: bytes, key: bytes, timestamp: int, headers: Any) -> bool:
        state = state_of(key if by_key else PARTITION, timestamp)
        if in_value:
            sequence = json.loads(value)[FIELD]
        else:
            sequence = int.from_bytes(dict(headers)[HEADER], "big", signed=True)
        if sequence <= state.get("last", -(2**63)):
            return False
        state.set("last", sequence)
        return True

    def write(value: bytes, key: bytes, timestamp: int, headers: Any) -> None:
        # What to_topic does, but for the partition, which it takes from a hash of the key.
        message = message_context()
        row = Row(value=value, key=key, timestamp=timestamp, context=message, headers=headers)
        producer.produce_row(row=row, topic=sink, key=key, timestamp=timestamp, partition=message.partition)

    frame.filter(fresh if job.ids is None else new, metadata=True).update(write, metadata=True)
    app.run()


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
