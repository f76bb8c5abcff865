"""How does Seqmark do the job? As users start it, all keys at their defaults but those that the job names."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.peers import COMMIT_MS, FIELD, HEADER, ID_FIELDS, ID_HEADER, WINDOW_DAYS, Job
from processor.config.load import load, require_pipelines
from processor.errors import ConfigError
from processor.pipeline.warm import warm
from processor.pipeline.warm_ids import warm_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Guarantee, Peer

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
{dedup}
"""
_WATERMARK = """\
mode = "watermark"
scope = "{job.scope}"
sequence = {sequence}\
"""
_IDS = """\
mode = "insert-id"
id = {id}
window = "{days}d"
backend = "{backend}"
{bloom}\
"""
_HEADER_ID = f'[{{ from = "header", name = "{ID_HEADER}" }}]'
_FIELD_ID = ", ".join(f'{{ from = "value", pointer = "/{name}" }}' for name in ID_FIELDS)
_SEQUENCES = {
    "header": f'{{ from = "header", name = "{HEADER}", format = "int64" }}',
    "json": f'{{ from = "value", pointer = "/{FIELD}" }}',
}


class Seqmark:
    """The worker of this checkout.

    Args:
        receipts: Whether it writes them; then exactly once only.
        confirm: Not None: ids are judged by Bloom filters, with or without a look at the ids themselves.
    """

    record_limit = None
    keeps_timestamps = True

    def __init__(self, *, receipts: bool = False, confirm: bool | None = None) -> None:
        self._receipts = receipts
        self._confirm = confirm
        self.name = f"Seqmark {version('seqmark')}{', with receipts' if receipts else ''}"
        if confirm is not None:
            self.name += f", bloom{' confirmed' if confirm else ''}"
        exact: tuple[Guarantee, ...] = ("exactly_once",)
        self.guarantees = exact if receipts or confirm is not None else (*exact, "at_least_once")

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Compile the kernels: once a machine and version, like anybody else's installation."""
        say("compiling kernels, once")
        warm()
        warm_ids()
        if self._confirm is None:
            return None
        with TemporaryDirectory() as folder:
            nobody = "localhost:9"
            job = Job(
                nobody, "raw", "clean", "b", 1, "exactly_once", "header", "partition", Path(folder), "text"
            )
            try:
                require_pipelines(load(self._config(job)))
            except ConfigError as error:
                return f"the config is refused: {error}"
        return None

    def supports(self, job: Job) -> bool:
        """All; Bloom filters are for ids only."""
        return self._confirm is None or job.ids is not None

    def command(self, job: Job) -> list[str]:
        """Write the config and return the worker's command line."""
        return [sys.executable, "-m", "processor", "worker", "-c", str(self._config(job))]

    def _config(self, job: Job) -> Path:
        config = job.folder / "seqmark.toml"
        more = f'duplicates = "{job.group}-duplicates"' if self._receipts else ""
        dedup = _WATERMARK.format(job=job, sequence=_SEQUENCES[job.sequence])
        if job.ids is not None:
            dedup = _IDS.format(
                id=f"[{_FIELD_ID}]" if job.ids == "json" else _HEADER_ID,
                days=WINDOW_DAYS,
                backend="exact" if self._confirm is None else "bloom",
                bloom=self._bloom(job),
            )
        config.write_text(_CONFIG.format(job=job, dedup=dedup, more=more))
        return config

    def _bloom(self, job: Job) -> str:
        if self._confirm is None:
            return ""
        confirm = str(self._confirm).lower()
        return f"bloom = {{ expected_per_bucket = {max(1, job.expected)}, confirm = {confirm} }}"

    def environment(self, job: Job) -> dict[str, str]:
        """Nothing."""
        del job
        return {}

    def settings(self, job: Job) -> dict[str, str]:
        """Nothing but the job itself."""
        own = {"commit_interval_ms": f"{COMMIT_MS} (default)", "guarantee": job.guarantee}
        if job.ids is not None:
            own |= {"backend": "exact" if self._confirm is None else "bloom", "window": f"{WINDOW_DAYS}d"}
        if self._confirm is not None:
            own["bloom"] = f"1e-9 (default), bucket 1d (default), confirm {str(self._confirm).lower()}"
        return own


PEER: Peer = Seqmark()
