"""``seqmark worker`` makes the pipelines' topics clean until it is stopped or drained."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Never

import click

from processor.commands.console import config_option, say_error, say_problems
from processor.commands.run import live
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, SeqmarkError, ending_signals
from processor.ops import logs
from processor.ops.early_web import answering
from processor.ops.memory_limit import few_arenas
from processor.ops.push import require_push
from processor.ops.web_port import listen
from processor.state.home import keep_to_ourselves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from processor.kafka.topics.plan import ClusterPlan
    from processor.ops.metrics import Metrics
    from schemas.config import Settings

log = logging.getLogger(__name__)

UNRESOLVED_S = 2.0
"""Between two tries: the name of a container that is just starting is known a moment later."""
UNRESOLVED_SAY_S = 30.0


@click.command()
@config_option
@click.option(
    "--drain",
    is_flag=True,
    help="Stop with exit 0 once everything assigned is committed up to where it ended when it was assigned.",
)
@click.option(
    "--take-over-sink",
    is_flag=True,
    help="Write into a sink into which another application has written this source; stop its workers first.",
)
def worker(config: Path, *, drain: bool, take_over_sink: bool) -> None:
    """Run the stream worker.

    SIGTERM, SIGINT and SIGHUP stop it within 10 s with exit 0: what is in flight is committed or aborted.

    On a terminal a table at the bottom shows what it is doing; elsewhere, and with log_format = "json", a line
    per pipeline in the log every 30 s.
    """
    # Until the worker itself listens to them: nothing is in flight, it can end at once with exit 0.
    for number in ending_signals():
        signal.signal(number, _end)
    allow_open_files()
    settings = load(config)
    require_pipelines(settings)
    require_push(settings.worker)
    keep_to_ourselves(settings.worker.state_dir)
    few_arenas()
    asyncio.run(_run(settings, drain=drain, take_over_sink=take_over_sink))


def allow_open_files() -> None:
    """Let this process open as many files as it is allowed to at most, as the JVM and Go do by themselves.

    RocksDB keeps its files open, about 250 for a billion bytes of ids; the usual 1,024 are for programs that
    call select(2), which nothing here does.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # where a system has a lower limit than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end(*_: object) -> None:
    # An exception would be lost where it meets a callback of the compiler's.
    live.end(EXIT_DONE)


async def _run(settings: Settings, *, drain: bool, take_over_sink: bool) -> Never:
    """Work, and end the process here, in the loop, which listens to signals to the last.

    Behind the loop SIGTERM would end it by its default, with another exit code, for the second that Python
    takes to come down; and `asyncio.run` would wait without a bound for a call that hangs. Nothing is
    lost: the next owner's fence aborts what is open.
    """
    code = EXIT_DONE
    try:
        await _work(settings, drain=drain, take_over_sink=take_over_sink)
    except SeqmarkError as error:
        say_error(error)
        code = error.exit_code
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its terminal or its reader is gone
            if stream is not None:  # as it is where a shell closed it
                stream.flush()
    os._exit(code)


async def _work(settings: Settings, *, drain: bool, take_over_sink: bool) -> None:
    logs.set_up(settings.worker.log_format, settings.worker.log_level)
    sockets = listen(settings.worker)
    with answering(sockets):
        # The client of the broker, numba and faust are slow to import: a config that is wrong is said at once.
        from processor.commands.run.page_answers import answers_for  # noqa: PLC0415 - see above
        from processor.ops.metrics import Metrics  # noqa: PLC0415 - see above
        from processor.worker.app import run_worker  # noqa: PLC0415 - see above

    metrics = Metrics()
    logs.spare_while(lambda: metrics.contact.silent_s > logs.SILENT_S)
    around = _shown(settings, metrics, drain=drain)
    await run_worker(
        settings,
        metrics,
        drain=drain,
        take_over_sink=take_over_sink,
        sockets=sockets,
        around=around,
        answers=answers_for(settings),
    )


@asynccontextmanager
async def _shown(settings: Settings, metrics: Metrics, *, drain: bool) -> AsyncIterator[None]:
    """Make the topics right, then show what the worker does that the block runs."""
    from processor.ops.metrics import Doing  # noqa: PLC0415 - as above

    metrics.doing = Doing(f"looking at the topics at {settings.kafka.bootstrap_servers}")
    report = await _topics(settings, metrics)
    say_problems([*report.warnings, *report.unmarked], "warning")
    report.require(growing=True)
    async with live.shown(settings, metrics, drain=drain):
        yield


async def _topics(settings: Settings, metrics: Metrics) -> ClusterPlan:
    """Return the topics; waits while no host of the brokers has an address, and says so."""
    from processor.kafka.topics.ensure import UnresolvedError, ensure  # noqa: PLC0415 - as above
    from processor.ops.metrics import Doing, State  # noqa: PLC0415 - as above

    said_s = -math.inf
    while True:
        try:
            return await ensure(settings, create=settings.worker.create_topics)
        except UnresolvedError as error:
            metrics.doing = Doing(str(error), state=State.WAITING)
            if time.monotonic() - said_s >= UNRESOLVED_SAY_S:
                said_s = time.monotonic()
                text = "%s Retrying; this is said again every %.0f s"
                log.error(text, error, UNRESOLVED_SAY_S)  # noqa: TRY400 - where it was raised says nothing
            await asyncio.sleep(UNRESOLVED_S)
