"""Measures Kafka Streams.

``programs/KafkaStreamsDedup.java``: the processor API over bytes, a state store in memory with a changelog, one
task a source partition. Ids are kept in RocksDB, with the settings that Kafka Streams gives it, and with them
their fingerprints, each the SHA-256 of Jackson's tree in sorted order. What is set here was tried against its
alternatives on a machine with two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, WINDOW_DAYS
from benchmarks.peers.java import LOGGING, JavaPeer
from processor.broker.jars import JarSet

if TYPE_CHECKING:
    from benchmarks.peers import Job

VERSION = "4.3.1"
JARS = JarSet("kafka-streams", (f"org.apache.kafka:kafka-streams:{VERSION}", LOGGING))
JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC")
TUNED = {
    # Each thread has clients and transactions of its own: two gave 197,000 records per CPU second, one 219,000
    # to 296,000 in three runs on a busy machine.
    "num.stream.threads": "1",
    "commit.interval.ms": str(COMMIT_MS),
    "buffered.records.per.partition": "20000",
    "statestore.cache.max.bytes": str(64 << 20),
    "main.consumer.max.poll.records": "10000",
    "main.consumer.max.partition.fetch.bytes": str(4 << 20),
    "main.consumer.receive.buffer.bytes": str(1 << 20),
    "producer.compression.type": "lz4",
    "producer.batch.size": str(256 << 10),
    "producer.linger.ms": "100",
    "producer.buffer.memory": str(64 << 20),
    "producer.send.buffer.bytes": str(1 << 20),
    "enable.metrics.push": "false",
}


class _KafkaStreams(JavaPeer):
    name = f"Kafka Streams {VERSION}"
    program, jars, flags = "KafkaStreamsDedup", JARS, JVM

    def supports(self, job: Job) -> bool:
        return job.ids not in {"content", "bytes"}

    def arguments(self, job: Job) -> dict[str, str]:
        return {
            "job.source": job.source,
            "job.sink": job.sink,
            "job.sequence": job.sequence,
            "job.scope": job.scope,
            "application.id": job.group,
            "bootstrap.servers": job.bootstrap_servers,
            "state.dir": str(job.folder / "state"),
        }

    def tuned(self, job: Job) -> dict[str, str]:
        ids = {"job.ids": job.ids, "job.window.ms": str(WINDOW_DAYS * 86_400_000)} if job.ids else {}
        return {
            **ids,
            "processing.guarantee": {"exactly_once": "exactly_once_v2"}.get(job.guarantee, job.guarantee),
            "main.consumer.isolation.level": "read_committed",
            "job.store": "rocksdb" if job.ids else "memory",
            # One number a partition changes thousands of times between two commits, and is logged once.
            "job.store.caching": "true" if job.scope == "partition" and not job.ids else "false",
            **TUNED,
        }


PEER = _KafkaStreams()
