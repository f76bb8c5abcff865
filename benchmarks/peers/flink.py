"""Measures Flink.

``programs/FlinkDedup.java`` on a MiniCluster in one JVM: source, keyed state and sink in one chain. Ids are in
RocksDB, with incremental checkpoints. What is set here was tried against its alternatives on two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers import CHECKPOINTS, WINDOW_DAYS
from benchmarks.peers.java import LOGGING, JavaPeer
from processor.broker.jars import JarSet

if TYPE_CHECKING:
    from benchmarks.peers import Job

VERSION = "2.2.1"
CONNECTOR = "5.0.0-2.2"
"""Flink 2.3 is out, but no Kafka connector that was made for it."""
JARS = JarSet(
    "flink",
    (
        f"org.apache.flink:flink-clients:{VERSION}",
        f"org.apache.flink:flink-streaming-java:{VERSION}",
        f"org.apache.flink:flink-statebackend-rocksdb:{VERSION}",
        f"org.apache.flink:flink-connector-base:{VERSION}",
        f"org.apache.flink:flink-connector-kafka:{CONNECTOR}",
        LOGGING,
    ),
)
JVM = (
    "-Xms1536m",
    "-Xmx1536m",
    "-XX:+UseParallelGC",
    # Of those that Flink's own configuration opens, what this program needs.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
TUNED = {
    "job.parallelism": "1",
    "job.transaction.naming": "POOLING",
    "execution.checkpointing.interval": "1 s",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",  # a failure is to be seen
    "source.max.poll.records": "10000",
    "source.max.partition.fetch.bytes": str(4 << 20),
    "source.receive.buffer.bytes": str(1 << 20),
    "sink.compression.type": "lz4",
    "sink.batch.size": str(256 << 10),
    "sink.linger.ms": "100",
    "sink.buffer.memory": str(64 << 20),
    "sink.send.buffer.bytes": str(1 << 20),
    # Below the broker's transaction.max.timeout.ms of 15 minutes; the connector's default is an hour.
    "sink.transaction.timeout.ms": "600000",
}
IDS = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    # For RocksDB's memtables and blocks; as much as the four stores of Kafka Streams have by default.
    "taskmanager.memory.managed.size": "400mb",
}


class _Flink(JavaPeer):
    name = f"Flink {VERSION}"
    program, jars, flags = "FlinkDedup", JARS, JVM

    def supports(self, job: Job) -> bool:
        return job.ids in {None, "text", "binary"}

    def arguments(self, job: Job) -> dict[str, str]:
        return {
            "job.bootstrap.servers": job.bootstrap_servers,
            "job.source": job.source,
            "job.sink": job.sink,
            "job.group": job.group,
            "job.guarantee": job.guarantee,
            "job.sequence": job.sequence,
            "job.scope": job.scope,
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": (job.folder / CHECKPOINTS).as_uri(),
            "io.tmp.dirs": str(job.folder),
        }

    def tuned(self, job: Job) -> dict[str, str]:
        ids = {"job.ids": job.ids or "", "job.window.ms": str(WINDOW_DAYS * 86_400_000)}
        return {
            "execution.checkpointing.mode": job.guarantee.upper(),
            "source.isolation.level": "read_committed",
            "source.commit.offsets.on.checkpoint": "true",
            **TUNED,
            **({**ids, **IDS} if job.ids else {"state.backend.type": "hashmap"}),
        }


PEER = _Flink()
