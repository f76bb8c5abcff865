"""Shows what a worker is doing: a table at the bottom of a terminal, lines in the log elsewhere.

On a terminal the log goes on above the table. Invariant: whatever ends the process short of SIGKILL, the table
is gone by then and the cursor is back; `end` does that for a signal's handler, where nothing is unwound.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import click
from rich.live import Live
from rich.text import Text

from processor.commands.console import people, result
from processor.ops import logs, status_text
from processor.ops.memory_limit import resident_bytes
from processor.ops.status import Status
from processor.pipeline.hops import hops

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from rich.console import Console

    from processor.ops.escaped import EscapeReport
    from processor.ops.metrics import Metrics
    from processor.ops.status import Reading
    from schemas.config import Settings

log = logging.getLogger(__name__)

REFRESH_S = 0.5
RATE_S = 5.0
"""Commits come in steps of up to half a second at full load: over ten of them a rate is steady."""
LINES_S = float(os.environ.get("SEQMARK_TEST_STATUS_S", "30"))
"""Between two lines of a pipeline in the log."""

_screens: list[_Screen] = []
"""What is on the terminal now: one or none."""
_drawing: list[None] = []
"""Not empty while something is drawn."""
_wanted: list[int] = []
"""The exit code of an `end` that came while something was drawn."""


@contextlib.asynccontextmanager
async def shown(settings: Settings, metrics: Metrics, *, drain: bool) -> AsyncIterator[None]:
    """Show the status of the worker that the block runs; at its end what it has done, on stdout: its result."""
    console = people()
    # Not by the console alone: FORCE_COLOR makes it take a pipe for a terminal.
    live = sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
    live = live and settings.worker.log_format == "text"
    names = [hop.name for hop in hops(settings)]
    window_s = RATE_S if live else LINES_S
    said = Status(metrics, names, time.monotonic(), window_s, drain=drain)
    failed = True
    try:
        if live:
            with _Screen(console, said, settings, metrics) as screen:
                async with _repeated(REFRESH_S, screen.draw):
                    yield
        else:
            async with _repeated(LINES_S, lambda: _say(said)):
                yield
        failed = False
    finally:
        seconds, readings = said.end(time.monotonic())
        # Where it has failed before it did anything there is no result, and what went wrong is said next.
        if not failed or any(reading.records for reading in readings.values()):
            escapes = metrics.escapes.reports
            _end(seconds, readings, escapes, as_json=settings.worker.log_format == "json")


def _end(
    seconds: float,
    readings: Mapping[str, Reading],
    escapes: Mapping[str, EscapeReport],
    *,
    as_json: bool,
) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        for text, fields in status_text.totals((seconds, readings)):
            report = escapes.get(fields["pipeline"])
            if as_json:
                result(**fields, **(report.fields() if report is not None and report.escaped else {}))
                continue
            click.echo(text)
            for sentence in report.sentences() if report is not None else ():
                click.echo(f"{fields['pipeline']}: {sentence}")


def end(code: int) -> None:
    """End the process at once, without unwinding, but with the terminal as it was: for a signal's handler.

    A handler may run in the middle of drawing, when nobody can say what is on the terminal: then that is
    finished first, and this returns.
    """
    if _drawing:
        _wanted.append(code)
        return
    if _screens:
        screen = _screens[0]
        with contextlib.suppress(Exception):
            screen.close()
    os._exit(code)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off an `end` until the block is done."""
    _drawing.append(None)
    try:
        yield
    finally:
        _drawing.pop()
        if _wanted and not _drawing:
            end(_wanted[0])


@contextlib.asynccontextmanager
async def _repeated(every_s: float, act: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``act`` from time to time while the block runs. What fails in it is logged and not tried again."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            act()

    task = asyncio.create_task(repeat(), name="status")
    task.add_done_callback(_failed)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("the status is not shown any more: %r", error)


def _say(said: Status) -> None:
    for line in said.look(time.monotonic()):
        log.info("%s", status_text.text(line), extra={"fields": status_text.fields(line)})


class _Above:
    """A stream for the log whose lines come out above the table, whole: a terminal may wrap them."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        with _undisturbed():
            self._console.print(Text(text.removesuffix("\n")), soft_wrap=True)

    def flush(self) -> None:
        """Do nothing: what is printed is out."""


class _Screen:
    """The table on a terminal; a context manager."""

    def __init__(self, console: Console, said: Status, settings: Settings, metrics: Metrics) -> None:
        self._console = console
        self._said = said
        self._metrics = metrics
        self._worker = settings.worker
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._stream: Any = None

    def __enter__(self) -> Self:
        with _undisturbed():
            self._live.start()
            _screens.append(self)
            self._stream = logs.write_to(_Above(self._console))
            self._live.update(self._picture(), refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the table away and let the log write for itself."""
        if self in _screens:
            _screens.remove(self)
            with _undisturbed():
                logs.write_to(self._stream)
                with contextlib.suppress(OSError):  # the terminal is gone
                    self._live.stop()

    def draw(self) -> None:
        """Draw the table again, unless the terminal takes nothing now: Ctrl-S must not stop the worker."""
        if select.select([], [self._console.file.fileno()], [], 0)[1]:
            with _undisturbed():
                self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Text:
        now_s = time.monotonic()
        lines = self._said.look(now_s)
        partitions = sum(line.reading.assigned for line in lines)
        head = [str(self._worker.application_id), str(self._worker.guarantee)]
        head.append(f"{status_text.count(partitions, 'partition')} assigned")
        head.append(f"up {status_text.duration(self._said.uptime_s(now_s))}")
        if (resident := resident_bytes()) is not None:
            head.append(f"{status_text.size(resident)} resident")
        titles, *rows = status_text.table(lines, self._console.width)
        picture = Text(no_wrap=True, overflow="crop")
        picture.append("  ".join(head), style="bold")
        picture.append(f"\n{titles}", style="dim")
        for row in rows:
            picture.append(f"\n{row}")
        if self._metrics.doing.text:
            picture.append(f"\n{status_text.doing(self._metrics.doing)}", style="cyan")
        for pipeline, report in self._metrics.escapes.reports.items():
            for sentence in report.sentences():
                picture.append(f"\n{pipeline}: {sentence}", style="yellow")
        for pipeline, note in self._metrics.notes.items():
            picture.append(f"\n{pipeline}: {note}", style="bold yellow")
        return picture
