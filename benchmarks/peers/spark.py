"""Measures Spark with ids: ``dropDuplicatesWithinWatermark`` with its state in RocksDB, topic to topic.

Its Kafka sink promises at least once only, and gives records timestamps of its own; deduplicating shuffles
them, so that they come out in another order. Sinks are compared accordingly.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.peers import Peer
from processor.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job

BATCH_RECORDS = 250_000
"""Four commits in the million that is measured; a batch of Spark's own size would be all of the topic."""
MEMORY = "2g"


class _Spark(Peer):
    name = f"Spark {version('pyspark')}"
    program = "spark"
    guarantees: tuple[Guarantee, ...] = ("at_least_once",)
    keeps_timestamps = False

    def prepare(self, say: Callable[[str], None]) -> str | None:
        from spark_sink.session import connector_jars  # noqa: PLC0415 - takes a second to import

        try:
            connector_jars(say)
        except BrokerError as error:
            return str(error)
        return None

    def supports(self, job: Job) -> bool:
        return job.ids in {"text", "binary"} and job.guarantee == "at_least_once"

    def settings(self, job: Job) -> dict[str, str]:
        return {
            "guarantee": job.guarantee,
            "driver memory": MEMORY,
            "state store": "RocksDB, changelog checkpointing",
            "maxOffsetsPerTrigger": f"{BATCH_RECORDS:,}",
            "producer": "lz4, linger.ms 20, batch.size 256 KB",
        }


PEER = _Spark()
