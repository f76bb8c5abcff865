"""Measures Quix Streams: a filter with its RocksDB store and changelog, in its own environment.

Its dependencies are not the project's: `requirements.lock` beside this holds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, Peer
from benchmarks.peers.environment import PeerEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Job

_ENVIRONMENT = PeerEnvironment("quix", Path(__file__).with_name("requirements.lock"))


class _Quix(Peer):
    name = f"Quix Streams {_ENVIRONMENT.version('quixstreams')}"
    program = "quix"
    record_limit = 1_000_000  # some 20,000 per second: four million take minutes, and nothing has to get warm

    def prepare(self, say: Callable[[str], None]) -> str | None:
        return _ENVIRONMENT.make(self.name, say)

    def python(self) -> str:
        return str(_ENVIRONMENT.python)

    def supports(self, job: Job) -> bool:
        return job.ids in {None, "text", "binary"}

    def settings(self, job: Job) -> dict[str, str]:
        return {
            "processing_guarantee": job.guarantee.replace("_", "-"),
            "commit_interval": f"{COMMIT_MS / 1000} s",
            "producer": "linger.ms 20, lz4, batch.size 256 KB",
            "loglevel": "WARNING",
        }


PEER = _Quix()
