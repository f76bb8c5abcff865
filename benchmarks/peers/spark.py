"""How does Spark keep ids? ``dropDuplicatesWithinWatermark`` with its state in RocksDB, topic to topic.

Its Kafka sink promises at least once only, and gives records timestamps of its own; deduplicating shuffles
them, so that they come out in another order. Sinks are compared accordingly.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from processor.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job, Peer

ROOT = Path(__file__).parents[2]
BATCH_RECORDS = 250_000
"""Four commits in the million that is measured; a batch of Spark's own size would be all of the topic."""
MEMORY = "2g"


class Spark:
    """Spark, driver and tasks in one JVM."""

    name: Final = f"Spark {version('pyspark')}"
    guarantees: Final[tuple[Guarantee, ...]] = ("at_least_once",)
    record_limit: Final = None
    keeps_timestamps: Final = False

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Fetch its connector."""
        from spark_sink.session import connector_jars  # noqa: PLC0415 - takes a second to import

        try:
            connector_jars(say)
        except BrokerError as error:
            return str(error)
        return None

    def supports(self, job: Job) -> bool:
        """Ids in a header, in its one guarantee: it has nothing for sequences."""
        return job.ids in {"text", "binary"} and job.guarantee == "at_least_once"

    def command(self, job: Job) -> list[str]:
        """Call the program."""
        return [sys.executable, "-m", "benchmarks.peers.spark_program", job.to_json()]

    def environment(self, job: Job) -> dict[str, str]:
        """Let it find this checkout."""
        del job
        return {"PYTHONPATH": str(ROOT)}

    def settings(self, job: Job) -> dict[str, str]:
        """What `benchmarks.peers.spark_program` sets."""
        return {
            "guarantee": job.guarantee,
            "driver memory": MEMORY,
            "state store": "RocksDB, changelog checkpointing",
            "maxOffsetsPerTrigger": f"{BATCH_RECORDS:,}",
            "producer": "lz4, linger.ms 20, batch.size 256 KB",
        }


PEER: Peer = Spark()
