"""Measures Seqmark as users start it: all keys at their defaults but those that the job names."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.peers import (
    BLOOM,
    BOTH,
    COMMIT_MS,
    RECEIPTS,
    SEQMARK,
    SHIPPED,
    VERDICTS,
    WINDOW_DAYS,
    FailedError,
    Peer,
)
from processor.engine.shipped import processor
from processor.paths import cache_dir, make_private
from processor.pipeline.warm import warm

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Job

CONFIG, PIPELINE = "seqmark.toml", "bench"
WHEEL_CACHE = "bench-wheel"
"""Folder below the user's cache."""
_CONFIG = """\
[kafka]
bootstrap_servers = "{job.bootstrap_servers}"

[worker]
application_id = "{job.group}"
state_dir = "{job.folder}/state"
guarantee = "{job.guarantee}"
web_port = 0

[[pipelines]]
name = "{name}"
source = "{job.source}"
sink = "{job.sink}"
{more}

[pipelines.dedup]
{dedup}
"""
_SEQUENCES = {
    "header": f'{{ from = "header", name = "{peers.HEADER}", format = "int64" }}',
    "json": f'{{ from = "value", pointer = "/{peers.FIELD}" }}',
}
_HEADER_ID = f'{{ from = "header", name = "{peers.ID_HEADER}" }}'
_FIELD_ID = ", ".join(f'{{ from = "value", pointer = "/{name}" }}' for name in peers.ID_FIELDS)
_IDS = {"json": _FIELD_ID, "content": '{ from = "content" }', "bytes": '{ from = "content", of = "bytes" }'}


class Seqmark(Peer):
    """The worker of this checkout.

    Args:
        receipts: Whether it writes them; then exactly once only.
        verdicts: Whether it writes verdicts in place of the sink; `settle` makes the sink of them.
        bloom: Whether ids are judged by Bloom filters.
    """

    def __init__(self, *, receipts: bool = False, verdicts: bool = False, bloom: bool = False) -> None:
        self._receipts, self._verdicts = receipts, verdicts
        self._bloom = bloom
        self.name = f"Seqmark {version('seqmark')}{', with receipts' if receipts else ''}"
        self.name += ", verdicts" if verdicts else ""
        self.name += ", bloom" if bloom else ""
        self.guarantees = BOTH[:1] if receipts or verdicts or bloom else BOTH

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Compile the kernels: once per machine and version, as in anybody's installation."""
        say("compiling kernels, once")
        warm()
        return None

    def supports(self, job: Job) -> bool:
        """All; Bloom filters are for ids only."""
        return not self._bloom or job.ids is not None

    def command(self, job: Job) -> list[str]:
        """Write the config and return the worker's command line."""
        config = job.folder / CONFIG
        more = f'duplicates = "{job.group}-duplicates"' if self._receipts else ""
        if self._verdicts:
            more = f'output = "verdicts"\nverdicts = "{job.group}-verdicts"'
        config.write_text(_CONFIG.format(job=job, name=PIPELINE, dedup=self._dedup(job), more=more))
        return [sys.executable, "-m", "processor", "worker", "-c", str(config)]

    def settle(self, job: Job) -> None:
        """Write the sink from verdicts.

        Raises:
            FailedError: `seqmark materialize` refuses them.
        """
        if self._verdicts:
            words = ("materialize", "-c", str(job.folder / CONFIG), "--pipeline", PIPELINE)
            call = [sys.executable, "-m", "processor", *words]
            ended = subprocess.run(call, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise FailedError(f"materialize ended with {ended.returncode}: {ended.stderr}")

    def _dedup(self, job: Job) -> str:
        if job.ids is None:
            lines = ['mode = "watermark"', f'scope = "{job.scope}"', f"sequence = {_SEQUENCES[job.sequence]}"]
            return "\n".join(lines)
        parts = _IDS.get(job.ids, _HEADER_ID)
        lines = ['mode = "insert-id"', f"id = [{parts}]", f'window = "{WINDOW_DAYS}d"']
        if job.ids == "fingerprint":
            lines.append('fingerprint = { of = "value" }\non_collision = "pass"')
        lines.append(f'backend = "{self._backend}"')
        if self._bloom:
            lines.append(f"bloom = {{ expected_per_bucket = {max(1, job.expected)} }}")
        return "\n".join(lines)

    @property
    def _backend(self) -> str:
        return "bloom" if self._bloom else "exact"

    def settings(self, job: Job) -> dict[str, str]:
        """Nothing but the job itself."""
        own = {"commit_interval_ms": f"{COMMIT_MS} (default)", "guarantee": job.guarantee}
        if job.ids is not None:
            own |= {"backend": self._backend, "window": f"{WINDOW_DAYS}d"}
        if self._bloom:
            own["bloom"] = "1e-9 (default), bucket 1d (default)"
        return own


class WheelKernels(Seqmark):
    """The same worker with kernels compiled as a wheel's are, for `processor.engine.shipped.processor`."""

    def __init__(self) -> None:
        super().__init__()
        self.name += ", a wheel's kernels"
        self.guarantees = BOTH[:1]

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Compile them, once per machine and version."""
        known = processor()
        if known is None or not known.runs_here():
            return "this machine cannot run a wheel's kernels"
        say("compiling a wheel's kernels, once")
        call = [sys.executable, "-m", "processor.pipeline.warm", "watermark", "insert-id"]
        named = {**os.environ, "PYTHONPATH": str(peers.ROOT), **_named()}
        make_private(cache_dir(), WHEEL_CACHE)
        ended = subprocess.run(call, env=named, capture_output=True, text=True, check=False)
        return ended.stderr[-1000:] if ended.returncode else None

    def environment(self, job: Job) -> dict[str, str]:
        """Name the processor to numba, as `packing.kernels` does."""
        return {**super().environment(job), **_named()}


def _named() -> dict[str, str]:
    """Return the processor's name, and a cache apart: two processes that keep variants at once may lose one."""
    known = processor()
    if known is None:
        return {}
    cache = cache_dir() / WHEEL_CACHE
    return {"NUMBA_CPU_NAME": known.name, "NUMBA_CPU_FEATURES": known.more, "XDG_CACHE_HOME": str(cache)}


PEERS = {
    SEQMARK: Seqmark(),
    RECEIPTS: Seqmark(receipts=True),
    VERDICTS: Seqmark(verdicts=True),
    BLOOM: Seqmark(bloom=True),
    SHIPPED: WheelKernels(),
}
