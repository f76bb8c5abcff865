"""How does Faust do the job? An agent, event after event, with a table over RocksDB and its changelog."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job, Peer

JOB = "SEQMARK_BENCH_JOB"
"""Faust reads the command line when it is imported: the job comes by the environment."""


class Faust:
    """Faust, one worker."""

    name = f"Faust {version('faust-streaming')}"
    guarantees: tuple[Guarantee, ...] = ("at_least_once",)
    """Its exactly_once does not put output, changelog and offsets into one transaction (decision 6)."""
    keeps_timestamps = True
    record_limit = 40_000
    """Some 1,000 records a second."""

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Nothing: the project has it."""
        del say
        return None

    def supports(self, job: Job) -> bool:
        """All in its one guarantee but those with ids."""
        return job.guarantee == "at_least_once" and job.ids is None

    def command(self, job: Job) -> list[str]:
        """Call the program."""
        del job
        return [sys.executable, "-m", "benchmarks.peers.faust_program"]

    def environment(self, job: Job) -> dict[str, str]:
        """Hand over the job."""
        return {JOB: job.to_json()}

    def settings(self, job: Job) -> dict[str, str]:
        """What the program sets."""
        return {
            "broker_commit_interval": f"{COMMIT_MS / 1000} s",
            "store": "rocksdb, driver rocksdict",
            "producer": "linger 20 ms, lz4, batches of 256 KB",
            "stream_buffer_maxsize": "16,384",
            "guarantee": job.guarantee,
        }


PEER: Peer = Faust()
