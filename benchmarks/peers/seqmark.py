"""How does Seqmark do the job? As users start it, all keys at their defaults but those that the job names."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, FIELD, HEADER
from processor.engine.warm import warm

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Job, Peer

_CONFIG = """\
[kafka]
bootstrap_servers = "{job.bootstrap_servers}"

[worker]
application_id = "{job.group}"
state_dir = "{job.folder}/state"
guarantee = "{job.guarantee}"
web_port = 0

[[pipelines]]
name = "bench"
source = "{job.source}"
sink = "{job.sink}"
{more}

[pipelines.dedup]
mode = "watermark"
scope = "{job.scope}"
sequence = {sequence}
"""
_SEQUENCES = {
    "header": f'{{ from = "header", name = "{HEADER}", format = "int64" }}',
    "json": f'{{ from = "value", pointer = "/{FIELD}" }}',
}


class Seqmark:
    """The worker of this checkout.

    Args:
        receipts: Whether it writes them; then exactly once only.
    """

    record_limit = None

    def __init__(self, *, receipts: bool = False) -> None:
        self._receipts = receipts
        self.name = f"Seqmark {version('seqmark')}{', with receipts' if receipts else ''}"
        exact: tuple[Guarantee, ...] = ("exactly_once",)
        self.guarantees = exact if receipts else (*exact, "at_least_once")

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Compile the kernels: once a machine and version, like anybody else's installation."""
        say("compiling kernels, once")
        warm()
        return None

    def supports(self, job: Job) -> bool:
        """All."""
        del job
        return True

    def command(self, job: Job) -> list[str]:
        """Write the config and return the worker's command line."""
        config = job.folder / "seqmark.toml"
        more = f'duplicates = "{job.group}-duplicates"' if self._receipts else ""
        config.write_text(_CONFIG.format(job=job, sequence=_SEQUENCES[job.sequence], more=more))
        return [sys.executable, "-m", "processor", "worker", "-c", str(config)]

    def environment(self, job: Job) -> dict[str, str]:
        """Nothing."""
        del job
        return {}

    def settings(self, job: Job) -> dict[str, str]:
        """Nothing but the job itself."""
        return {"commit_interval_ms": f"{COMMIT_MS} (default)", "guarantee": job.guarantee}


PEER: Peer = Seqmark()
