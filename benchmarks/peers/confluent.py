"""How does a plain loop over confluent-kafka do the job? What a careful team writes without a framework."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job, Peer

MODULE = "confluent-kafka"
CONSUMER = {"queued.min.messages": 200_000, "fetch.message.max.bytes": 4 * 1024 * 1024}
PRODUCER = {
    "linger.ms": 20,
    "compression.type": "lz4",
    "batch.size": 262_144,
    "queue.buffering.max.messages": 1_000_000,
}
BATCH = 10_000
"""Messages that one call of `consume` returns at most."""


def _version() -> str:
    try:
        return version(MODULE)
    except PackageNotFoundError:
        return ""


class Confluent:
    """A loop in one process, record by record, with a changelog topic written in the same transaction."""

    name = f"{MODULE} loop {_version()}".strip()
    guarantees: tuple[Guarantee, ...] = ("exactly_once", "at_least_once")
    keeps_timestamps = True
    record_limit = None

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """See whether the package is there: it is a tool of development."""
        del say
        return None if _version() else f"{MODULE} is not installed"

    def supports(self, job: Job) -> bool:
        """All but those with ids."""
        return job.ids is None

    def command(self, job: Job) -> list[str]:
        """Call the program."""
        return [sys.executable, "-m", "benchmarks.peers.confluent_program", job.to_json()]

    def environment(self, job: Job) -> dict[str, str]:
        """Nothing."""
        del job
        return {}

    def settings(self, job: Job) -> dict[str, str]:
        """What the program sets."""
        own = {**CONSUMER, **PRODUCER, "commit": f"each {COMMIT_MS} ms", "consume": f"{BATCH:,} messages"}
        return {name: str(value) for name, value in own.items()} | {"guarantee": job.guarantee}


PEER: Peer = Confluent()
