"""``seqmark worker`` makes the pipelines' topics clean until it is stopped or drained."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from processor.commands import live
from processor.commands.console import config_option, say, say_problems
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, SeqmarkError
from processor.ops.memory_limit import few_arenas
from processor.state.home import keep_to_ourselves

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from schemas.config import Settings

LAST_ROUNDS = 3
LAST_ROUND_S = 0.1
"""Cancelled tasks end at once or not at all: with the 9 s of `processor.worker.app.STOP_S`, within the 10 s."""


@click.command()
@config_option
@click.option(
    "--drain",
    is_flag=True,
    help="Stop with exit 0 once everything assigned is committed up to where it ended when it was assigned.",
)
def worker(config: Path, *, drain: bool) -> None:
    """Run the stream worker.

    SIGTERM and SIGINT stop it within 10 s with exit 0: what is in flight is committed or aborted.

    On a terminal a table at the bottom shows what it is doing; elsewhere, and with log_format = "json", a line
    per pipeline in the log every 30 s.
    """
    # Until the worker itself listens to them: nothing is in flight, it can end at once with exit 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    allow_open_files()
    settings = load(config)
    require_pipelines(settings)
    keep_to_ourselves(settings.worker.state_dir)
    few_arenas()
    asyncio.run(_run(settings, drain=drain))


def allow_open_files() -> None:
    """Let this process open as many files as it is allowed to at most, as the JVM and Go do by themselves.

    RocksDB keeps its files open, about 250 for a billion bytes of ids; the usual 1,024 are for programs that
    call select(2), which nothing here does.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # where a system has a lower limit than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end(number: int, frame: FrameType | None) -> None:
    # An exception would be lost where it meets a callback of the compiler's.
    del number, frame
    live.end(EXIT_DONE)


async def _run(settings: Settings, *, drain: bool) -> None:
    # The client of the broker, numba and faust are slow to import: a config that is wrong is said at once.
    from processor.kafka.topics.ensure import ensure  # noqa: PLC0415 - see above
    from processor.ops import logs  # noqa: PLC0415 - see above
    from processor.ops.metrics import Metrics  # noqa: PLC0415 - see above
    from processor.worker.app import run_worker  # noqa: PLC0415 - see above

    logs.set_up(settings.worker.log_format, settings.worker.log_level)
    report = await ensure(settings, create=settings.worker.create_topics)
    say_problems(report.warnings, "warning")
    report.require(growing=True)
    try:
        metrics = Metrics()
        async with live.shown(settings, metrics, drain=drain):
            await run_worker(settings, metrics, drain=drain)
    except SeqmarkError as error:
        await _end_what_is_left(error)
        raise
    await _end_what_is_left()


async def _end_what_is_left(error: SeqmarkError | None = None) -> None:
    """End the tasks that giving up in time has left behind, and the process where they do not end.

    `asyncio.run` would wait for them without a bound: where a call to the broker hangs, Faust starts the
    agent again that is cancelled in it. Nothing is lost: the next owner's fence aborts what is open.
    """
    this = asyncio.current_task()
    for _ in range(LAST_ROUNDS):
        left = [task for task in asyncio.all_tasks() if task is not this]
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LAST_ROUND_S)
    if error is not None:
        say(f"seqmark: {error}", "bold red")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_DONE if error is None else error.exit_code)
