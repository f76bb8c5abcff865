"""Measures Quix Streams: a filter with its RocksDB store and changelog, in its own environment.

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

from benchmarks.peers import COMMIT_MS, Peer
from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Job

LOCK = Path(__file__).with_name("requirements.lock")
PACKAGE = "quixstreams=="
MADE = "made"
"""File that says that the environment is whole."""


def _version() -> str:
    return next(line for line in LOCK.read_text().splitlines() if line.startswith(PACKAGE)).split()[0]


class _Quix(Peer):
    name = f"Quix Streams {_version().removeprefix(PACKAGE)}"
    program = "quix"
    record_limit = 1_000_000  # some 20,000 per second: four million take minutes, and nothing has to get warm

    def prepare(self, say: Callable[[str], None]) -> str | None:
        folder = Path(self.python()).parents[1]
        if (folder / MADE).is_file():
            return None
        say(f"installing {self.name} into an environment of its own, once")
        # One without its mark was cut off.
        shutil.rmtree(folder, ignore_errors=True)
        pip = [self.python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for call in (
            [sys.executable, "-m", "venv", str(folder)],
            [*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)],
        ):
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"its environment cannot be made: {done.stderr.strip()[-500:]}"
        (folder / MADE).touch()
        return None

    def python(self) -> str:
        digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
        return str(cache_dir() / "bench" / f"quix-{digest}" / "bin" / "python")

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
