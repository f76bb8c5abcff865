"""Runs worker and verify as a user would: in processes of their own, by the command line."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from processor.errors import EXIT_DONE, EXIT_VIOLATION, StopError
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import GroupPosition
from processor.ops.status_text import COMPILING
from schemas.config.worker import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from schemas.config import Pipeline, Settings

_MOVED = re.compile(r"/metrics are at (http://[^\s;]+);")
_POLL_S = 0.1
_STOP_S = 15.0  # the worker promises 10
_QUOTED_LINES = 15
_COMMAND_S = 600.0


class WorkerPlan(Protocol):
    """What worker and verify are run by."""

    @property
    def config(self) -> Path:
        """Their config."""

    @property
    def worker_log(self) -> Path:
        """Where the worker's log goes."""

    @property
    def settings(self) -> Settings:
        """What the config says."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Their environment."""

    @property
    def pipeline(self) -> Pipeline:
        """The only pipeline."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a run took.

    Attributes:
        seconds: From the start of the process to its end.
        working_s: From the first commit that was seen (or just before) to the last; within 0.1 s.
    """

    seconds: float
    working_s: float


@dataclass(frozen=True, slots=True)
class DemoCertificate:
    """What ``seqmark verify`` printed, and whether all is proved."""

    ok: bool
    text: str


async def drain(
    plan: WorkerPlan, records: int, progress: Callable[[int], None], say: Callable[[str], None]
) -> Drained:
    """Run ``seqmark worker --drain`` until it ends, over a source of ``records``.

    ``progress`` is called with the number of records that were committed since its last call, ``say`` with how
    far the worker is with its kernels, where it has to compile them.

    Raises:
        StopError: The worker failed; quotes the end of its log.
    """
    began = time.monotonic()
    with plan.worker_log.open("wb") as log:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "seqmark", "worker", "-c", str(plan.config), "--drain"),
            env=dict(plan.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        working_s = await _watch(plan, worker, records, progress, say)
        code = await worker.wait()
    finally:
        await _end(worker)
    seconds = time.monotonic() - began
    if code:
        lines = plan.worker_log.read_text(encoding="utf-8", errors="replace").splitlines()
        quoted = "\n".join(f"  {line[:500]}" for line in lines[-_QUOTED_LINES:])
        raise StopError(f"the worker ended with exit code {code}. Last of {plan.worker_log}:\n{quoted}")
    return Drained(seconds, working_s)


async def _watch(
    plan: WorkerPlan,
    worker: asyncio.subprocess.Process,
    records: int,
    progress: Callable[[int], None],
    say: Callable[[str], None],
) -> float:
    """Follow the group's committed offsets until they or the worker are at the end."""
    kafka, group = plan.settings.kafka, plan.settings.worker.application_id
    seen, first, last, said = 0, time.monotonic(), 0.0, 0
    async with GroupPosition(client_options(kafka), group, plan.pipeline.source) as position:
        while worker.returncode is None and seen < records:
            asked = time.monotonic()
            now = sum((await position.committed()).values())
            if now > seen:
                progress(now - seen)
                seen, last = now, time.monotonic()
            elif not seen:
                first = asked
                text = plan.worker_log.read_text(encoding="utf-8", errors="replace")
                lines = [f"its page, while it works: {page(text)}"] * bool(text) + compiling(text)
                for line in lines[said:]:
                    say(f"   {line}")
                said = len(lines)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await worker.wait()
    progress(records - seen)
    return max(last - first, 0.0)


def page(log: str) -> str:
    """Return where a worker's page is, by its log: at the next free port where the usual one is taken."""
    moved = _MOVED.search(log)
    return f"{moved[1]}/" if moved else f"http://127.0.0.1:{WorkerOptions.model_fields['web_port'].default}/"


def compiling(log: str) -> list[str]:
    """Return what a worker's log says of compiling kernels; nothing where it has loaded them."""
    return [line[line.index(COMPILING) :] for line in log.splitlines() if COMPILING in line]


async def _end(worker: asyncio.subprocess.Process) -> None:
    """See that the worker is gone, whatever ended the demo."""
    if worker.returncode is not None:
        return
    worker.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()


def certify(plan: WorkerPlan) -> DemoCertificate:
    """Run ``seqmark verify``.

    Raises:
        StopError: Nothing was certified; quotes what it said.
    """
    done = ran(plan.environ, "verify", "-c", str(plan.config))
    if done.returncode not in {EXIT_DONE, EXIT_VIOLATION}:
        raise StopError(f"seqmark verify ended with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    return DemoCertificate(done.returncode == EXIT_DONE, done.stdout.strip())


def ran(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ``seqmark`` to its end, as a user would, and return what it said."""
    return subprocess.run(  # noqa: S603 - our own interpreter, no shell
        (sys.executable, "-m", "seqmark", *arguments),
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
