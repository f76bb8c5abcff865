"""How does Quix Streams do the job? A filter with its RocksDB store and changelog, in its own environment.

Its dependencies are not the project's: `requirements.lock` beside this is installed by hash into a virtual
environment under the user's cache folder, named by the lock's content.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS
from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job, Peer

LOCK = Path(__file__).with_name("requirements.lock")
ROOT = Path(__file__).parents[2]
MADE = "made"
"""File that says that the environment is whole."""


def version() -> str:
    """Return the version that the lock holds."""
    return next(line for line in LOCK.read_text().splitlines() if line.startswith("quixstreams==")).split()[0][
        13:
    ]


def environment_folder() -> Path:
    """Return where the environment is, or will be."""
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return cache_dir() / "bench" / f"quix-{digest}"


class Quix:
    """Quix Streams, one process."""

    name = f"Quix Streams {version()}"
    guarantees: tuple[Guarantee, ...] = ("exactly_once", "at_least_once")
    keeps_timestamps = True
    record_limit = 1_000_000
    """Some 20,000 records a second: four million would take minutes, and nothing in it has to get warm."""

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Make the environment; one without its mark was cut off and is made anew."""
        folder = environment_folder()
        if (folder / MADE).is_file():
            return None
        say(f"installing {self.name} into an environment of its own, once")
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for call in (
            [sys.executable, "-m", "venv", str(folder)],
            [*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)],
        ):
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"its environment cannot be made: {done.stderr.strip()[-500:]}"
        (folder / MADE).touch()
        return None

    def supports(self, job: Job) -> bool:
        """All but ids in the value."""
        return job.ids != "json"

    def command(self, job: Job) -> list[str]:
        """Call the program."""
        return [
            str(environment_folder() / "bin" / "python"),
            "-m",
            "benchmarks.peers.quix_program",
            job.to_json(),
        ]

    def environment(self, job: Job) -> dict[str, str]:
        """Let it find this checkout, of which it needs `benchmarks.peers` only."""
        del job
        return {"PYTHONPATH": str(ROOT)}

    def settings(self, job: Job) -> dict[str, str]:
        """What `benchmarks.peers.quix_program` sets."""
        return {
            "processing_guarantee": job.guarantee.replace("_", "-"),
            "commit_interval": f"{COMMIT_MS / 1000} s",
            "producer": "linger.ms 20, lz4, batch.size 256 KB",
            "loglevel": "WARNING",
        }


PEER: Peer = Quix()
