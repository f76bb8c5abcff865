"""Measures a plain loop over confluent-kafka: what a careful team writes without a framework."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Job

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


class _Confluent(Peer):
    """A loop in one process, record by record, with a changelog topic written in the same transaction."""

    name = f"{MODULE} loop {_version()}".strip()
    program = "confluent"

    def prepare(self, say: Callable[[str], None]) -> str | None:  # noqa: ARG002 - it is installed or not
        return None if _version() else f"{MODULE} is not installed"

    def settings(self, job: Job) -> dict[str, str]:
        own = {**CONSUMER, **PRODUCER, "commit": f"each {COMMIT_MS} ms", "consume": f"{BATCH:,} messages"}
        return {name: str(value) for name, value in own.items()} | {"guarantee": job.guarantee}


PEER = _Confluent()
