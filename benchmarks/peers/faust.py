"""Measures Faust: an agent, event after event, with a table over RocksDB and its changelog."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, Peer

if TYPE_CHECKING:
    from benchmarks.peers import Guarantee, Job

JOB = "SEQMARK_BENCH_JOB"
"""Faust reads the command line when it is imported: the job comes by the environment."""


class _Faust(Peer):
    """Faust, one worker.

    Its exactly_once does not put output, changelog and offsets into one transaction (decision 6).
    """

    name = f"Faust {version('faust-streaming')}"
    guarantees: tuple[Guarantee, ...] = ("at_least_once",)
    record_limit = 40_000  # it does some 1,000 records per second

    def command(self, job: Job) -> list[str]:  # noqa: ARG002 - see JOB
        return [sys.executable, "-m", "benchmarks.peers.programs.faust"]

    def environment(self, job: Job) -> dict[str, str]:
        return {**super().environment(job), JOB: job.to_json()}

    def settings(self, job: Job) -> dict[str, str]:
        return {
            "broker_commit_interval": f"{COMMIT_MS / 1000} s",
            "store": "rocksdb, driver rocksdict",
            "producer": "linger 20 ms, lz4, batches of 256 KB",
            "stream_buffer_maxsize": "16,384",
            "guarantee": job.guarantee,
        }


PEER = _Faust()
