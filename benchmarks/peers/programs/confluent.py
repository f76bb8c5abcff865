"""Deduplicates by a plain loop: ``python -m benchmarks.peers.programs.confluent JOB``.

The last sequences are in memory. A compacted changelog topic, with the source's partitions, has them too: what
has changed is written in the transaction of the output (exactly once), or before the offsets (at least once),
and is read back when a partition is assigned.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import COMMIT_MS, FIELD, HEADER, Job
from benchmarks.peers.confluent import BATCH, CONSUMER, PRODUCER

LEAST = -(2**63)
COMMITTED = {"enable.auto.commit": False, "isolation.level": "read_committed"}
WAIT_S = 30.0
POLL_S = 0.05


class _Loop:
    """Consumes, judges, produces, commits."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._changelog = f"{job.group}-changelog"
        self._exact = job.guarantee == "exactly_once"
        self._running = True
        self._last: dict[int, dict[bytes, int]] = {}
        self._changed: dict[int, set[bytes]] = {}
        self._next: dict[int, int] = {}
        self._failure: Any = None
        self._common: dict[str, Any] = {"bootstrap.servers": job.bootstrap_servers}
        group = {"group.id": job.group, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**self._common, **COMMITTED, **group, **CONSUMER})
        own: dict[str, Any] = {"enable.idempotence": True, "delivery.report.only.error": True}
        if self._exact:
            own["transactional.id"] = job.group
        self._producer = Producer({**self._common, **PRODUCER, **own})

    def run(self) -> None:
        """Run until `stop`."""
        admin = AdminClient({"bootstrap.servers": self._job.bootstrap_servers})
        topic = NewTopic(self._changelog, self._job.partitions, 1, config={"cleanup.policy": "compact"})
        for made in admin.create_topics([topic]).values():
            made.result()
        if self._exact:
            self._producer.init_transactions(WAIT_S)
            self._producer.begin_transaction()
        self._consumer.subscribe([self._job.source], on_assign=self._assigned, on_revoke=self._revoked)
        due = time.monotonic() + COMMIT_MS / 1000
        while self._running:
            self._take(self._consumer.consume(BATCH, POLL_S))
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + COMMIT_MS / 1000
        self._commit()
        self._consumer.close()

    def stop(self) -> None:
        """End soon."""
        self._running = False

    def _take(self, messages: list[Any]) -> None:
        by_key, in_value, sink = self._job.scope == "key", self._job.sequence == "json", self._job.sink
        produce = self._producer.produce
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            partition, value, headers = message.partition(), message.value(), message.headers()
            if in_value:
                sequence = orjson.loads(value)[FIELD]
            else:
                sequence = int.from_bytes(dict(headers)[HEADER], "big", signed=True)
            self._next[partition] = message.offset() + 1
            scope = message.key() if by_key else b""
            last = self._last[partition]
            if sequence <= last.get(scope, LEAST):
                continue
            last[scope] = sequence
            self._changed[partition].add(scope)
            fields = {"timestamp": message.timestamp()[1], "headers": headers, "on_delivery": self._failed}
            try:
                produce(sink, value, message.key(), partition, **fields)
            except BufferError:
                self._producer.poll(POLL_S)
                produce(sink, value, message.key(), partition, **fields)
        self._producer.poll(0)

    def _failed(self, error: Any, _message: Any) -> None:
        """Remember that something was not written: called for errors only."""
        self._failure = error

    def _commit(self) -> None:
        if not self._next:
            return
        for partition, scopes in self._changed.items():
            last = self._last[partition]
            for scope in scopes:
                value = last[scope].to_bytes(8, "big", signed=True)
                self._producer.produce(self._changelog, value, scope, partition, on_delivery=self._failed)
            scopes.clear()
        offsets = [TopicPartition(self._job.source, *each) for each in self._next.items()]
        if self._exact:
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, group, WAIT_S)
            self._producer.commit_transaction(WAIT_S)
            self._producer.begin_transaction()
        else:
            if self._producer.flush(WAIT_S):
                raise TimeoutError("the broker does not acknowledge")
            self._raise_failure()
            self._consumer.commit(offsets=offsets, asynchronous=False)
        self._raise_failure()
        self._next.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._changed[each.partition] = set()
            self._last[each.partition] = self._restored(each.partition)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        for each in partitions:
            del self._last[each.partition], self._changed[each.partition]

    def _restored(self, partition: int) -> dict[bytes, int]:
        """Read a changelog partition from its beginning to its last stable offset."""
        own = {"group.id": f"{self._job.group}-restore", "enable.partition.eof": True}
        reader = Consumer({**self._common, **own, **COMMITTED})
        found: dict[bytes, int] = {}
        reader.assign([TopicPartition(self._changelog, partition, 0)])
        try:
            # One after the other: `consume` would wait for a whole batch, also at the end.
            while (message := reader.poll(WAIT_S)) is not None:
                error = message.error()
                if error is None:
                    found[message.key() or b""] = int.from_bytes(message.value(), "big", signed=True)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name that it has
                    return found
                else:
                    raise KafkaException(error)
            raise TimeoutError(f"{self._changelog}:{partition} does not answer")
        finally:
            reader.close()


if __name__ == "__main__":
    loop = _Loop(Job.from_json(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    loop.run()
