"""Does from Python what the commands worker and verify do.

Nothing is printed, and logging is the caller's: the loggers are ``seqmark`` and all below it where Seqmark is
installed. Heavy imports are inside the functions.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.verify.report import VerifyReport
    from schemas.config import Pipeline, Settings


@dataclass(frozen=True, slots=True)
class Config:
    """A config that is valid as a whole.

    Attributes:
        settings: Every key, with defaults, as a pydantic model.
    """

    settings: Settings

    @classmethod
    def load(cls, path: str | Path, environ: Mapping[str, str] | None = None) -> Config:
        """Read a TOML file, with ``SEQMARK_...`` variables laid over it.

        Args:
            path: The file.
            environ: Where the variables are; not set: the process's environment.

        Raises:
            ConfigError: Everything that is wrong, each with its key and what would be right.
        """
        from processor.config.load import load, require_pipelines  # noqa: PLC0415 - see the module

        settings = load(Path(path), os.environ if environ is None else environ)
        require_pipelines(settings)
        return cls(settings)


@dataclass(frozen=True, slots=True)
class Proof:
    """What `verify` has found, a report per partition, by pipeline and partition."""

    partitions: Sequence[VerifyReport]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken anywhere."""
        return all(report.ok for report in self.partitions)


def run_worker(
    config: Config, *, drain: bool = False, take_over_sink: bool = False
) -> dict[str, dict[str, int]]:
    """Run a worker in this process; creates the topics that are missing, if the config says so.

    With ``drain`` it returns when everything assigned is committed up to where it ended when it was assigned.
    Otherwise SIGTERM, SIGINT or SIGHUP ends it, so it has to be called in the main thread. With
    ``take_over_sink`` it writes into a sink into which another application has written the same source. Uses
    an event loop of its own: from a coroutine call it with ``asyncio.to_thread`` and ``drain=True``. While it
    runs, new files of this process are its user's alone.

    Returns:
        By pipeline the records of committed transactions: ``pass``, ``duplicate``, ``late``, ``quarantine``,
        and ``collision`` where there is a fingerprint.

    Raises:
        StopError: The topics do not fit, or it could not go on; what was committed stands.
        RuntimeError: Without ``drain``, and not in the main thread.
    """
    if not drain and threading.current_thread() is not threading.main_thread():
        raise RuntimeError("run_worker(drain=False) ends by a signal, which only the main thread gets")
    from processor.paths import OTHERS  # noqa: PLC0415 - see the module

    before = os.umask(OTHERS)
    try:
        return asyncio.run(_run_worker(config.settings, drain=drain, take_over_sink=take_over_sink))
    finally:
        os.umask(before)
        gc.unfreeze()  # a worker freezes what its libraries have made


async def _run_worker(settings: Settings, *, drain: bool, take_over_sink: bool) -> dict[str, dict[str, int]]:
    from processor.kafka.topics.ensure import ensure  # noqa: PLC0415 - see the module
    from processor.ops.metrics import Metrics  # noqa: PLC0415 - see the module
    from processor.ops.status import read  # noqa: PLC0415 - see the module
    from processor.pipeline.hops import hops  # noqa: PLC0415 - see the module
    from processor.worker import app  # noqa: PLC0415 - see the module

    plan = await ensure(settings, create=settings.worker.create_topics)
    plan.require(growing=True)
    metrics = Metrics()
    await app.run_worker(settings, metrics, drain=drain, take_over_sink=take_over_sink)
    readings = read(metrics, [hop.name for hop in hops(settings)], 0).readings
    return {name: dict(reading.counts) for name, reading in readings.items()}


def verify(config: Config, pipeline: str | None = None) -> Proof:
    """Prove that source = sink + duplicates + quarantine, record by record.

    Uses an event loop of its own: from a coroutine call it with ``asyncio.to_thread``.

    Args:
        config: Whose pipelines.
        pipeline: Only this one.

    Raises:
        ConfigError: There is no such pipeline, or nothing can be proved of it (Bloom filters).
        StopError: A topic is missing or cannot be read.
    """
    from processor.config.load import require_provable  # noqa: PLC0415 - see the module

    settings = config.settings
    chosen = [each for each in settings.pipelines if pipeline in {None, each.name}]
    if not chosen:
        raise ConfigError([Problem("pipeline", f"there is no pipeline {pipeline}")])
    require_provable(settings, [each.name for each in chosen])
    return Proof(asyncio.run(_verify(settings, chosen)))


async def _verify(settings: Settings, pipelines: Sequence[Pipeline]) -> list[VerifyReport]:
    from processor.verify.certificate import Certificate  # noqa: PLC0415 - see the module

    certificate = Certificate(settings, pipelines)
    await certificate.open()
    return await certificate.run(lambda _: None, lambda _: None)
