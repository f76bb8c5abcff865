"""``seqmark aggregate`` runs the Spark job, one query per aggregate, until it is stopped or all is done."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import click
from rich.live import Live
from rich.table import Table

from processor.commands.chosen import no_such
from processor.commands.console import config_option, people, say, shown
from processor.config.load import load, require_aggregates
from processor.errors import EXIT_DONE, ConfigError, Problem, ending_signals
from processor.ops.extras import require
from schemas.config import PostgresOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from schemas.config import Settings, Sink
    from spark_sink.query.progress import Totals

_LINE_S = 10.0
"""Between two lines of progress where nobody looks at a terminal."""
_LOUD = "bold yellow"
_ANSI = "spark.sql.ansi.enabled"


@click.command()
@config_option
@click.option(
    "--name", "names", multiple=True, metavar="N", help="Only this aggregate; may be given again. Not set: all."
)
@click.option("--available-now", is_flag=True, help="Stop when all that is in the topics now is done.")
@click.option("--master", default="local[*]", metavar="M", help="Where Spark runs.")
@click.option("--memory", default="1g", metavar="SIZE", help="The driver's heap.")
@click.option(
    "--conf",
    "conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Spark setting, beside ours or in place of one; may be given again.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), default=0, help="Serve Prometheus metrics here; 0: do not."
)
@click.option("--metrics-host", default="127.0.0.1", metavar="HOST", help="Address to serve them on.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Go on where retention has removed records that were not read yet, or where the topic was deleted and "
    "created again; otherwise that is an error.",
)
def aggregate(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    names: Sequence[str],
    available_now: bool,
    master: str,
    memory: str,
    conf: Sequence[str],
    metrics_port: int,
    metrics_host: str,
    accept_loss: bool,
) -> None:
    """Aggregate the clean topics, as [[aggregates]] says.

    SIGTERM, SIGINT and SIGHUP stop it with exit 0; the batch that it is in comes again at the next start, and
    is not counted twice. Where one query fails all are stopped, and the exit code is 1.
    """
    # Until the job listens to them: what is killed comes again, so that ending at once is safe.
    for number in ending_signals():
        signal.signal(number, _end)
    settings = load(config)
    chosen = _choose(settings, names)
    require_aggregates(settings)
    postgres = any(isinstance(each.output, PostgresOutput) for each in chosen)
    require("seqmark aggregate", "spark", *(["postgres"] if postgres else []))
    # Spark is slow to import: a config that is wrong is said at once.
    from spark_sink.job import SinkJob, SinkOptions  # noqa: PLC0415 - see above

    options = SinkOptions(
        master=master,
        memory=memory,
        available_now=available_now,
        accept_loss=accept_loss,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        conf=dict(_pair(each) for each in conf),
    )
    with _SinkTerminal() as terminal:
        job = SinkJob(settings, chosen, options, terminal)

        def listen() -> None:
            # After Spark's start: it sets a handler of its own for SIGINT.
            for number in ending_signals():
                signal.signal(number, lambda *_: job.stop())

        job.run(started=listen)
    for name, totals in job.totals.items():
        click.echo(f"{name}: {_line(totals)}")
    for each in chosen:
        if told := _uncounted(each, job.totals[each.name]):
            say(f"WARNING {each.name}: {told}", _LOUD)


def _end(*_: object) -> None:
    # An exception would be lost where it meets a callback of Spark's. The JVM ends when this process has.
    os._exit(EXIT_DONE)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        problem = Problem("--conf", f"must be KEY=VALUE, such as spark.executor.memory=2g, not {key}")
        raise ConfigError([problem])
    if key == _ANSI and value.strip().lower() != "true":
        raise ConfigError([Problem("--conf", f"{_ANSI} must stay true: a sum that leaves its type would wrap")])
    return key, value


def _choose(settings: Settings, names: Sequence[str]) -> list[Sink]:
    known = [each.name for each in settings.aggregates]
    if not known:
        raise ConfigError([Problem("aggregates", "there is none: add an [[aggregates]] table")])
    if unknown := [name for name in names if name not in known]:
        raise no_such("--name", "aggregate", unknown[0], known)
    return [each for each in settings.aggregates if not names or each.name in names]


class _SinkTerminal:
    """Tells people: a table that stays in its place on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._live = Live(console=people(), auto_refresh=False)
        self._next_line = time.monotonic() + _LINE_S
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Tell of a step."""
        if self._live.is_started:
            self._live.console.print(shown(text))
        else:
            say(text)

    def warn(self, text: str) -> None:
        """Tell of what is most likely wrong."""
        if self._live.is_started:
            self._live.console.print(shown(f"WARNING {text}", _LOUD), soft_wrap=True)
        else:
            say(f"WARNING {text}", _LOUD)

    def progress(self, totals: Mapping[str, Totals]) -> None:
        """Show how far the aggregates are."""
        if self._live.console.is_terminal:
            self._live.start()  # once
            self._live.update(_table(totals), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_S
            before, self._lines = self._lines, [f"{name}: {_line(each)}" for name, each in totals.items()]
            for line in self._lines:
                if line not in before:
                    say(line)


def _line(totals: Totals) -> str:
    batches = "1 batch" if totals.batches == 1 else f"{totals.batches:,} batches"
    rows = f"{batches}, {totals.rows:,} records read"
    aside = f"{totals.late:,} late and {totals.bad:,} bad written aside"
    if totals.left:
        batches = "1 batch" if totals.left == 1 else f"{totals.left:,} batches"
        aside += f", those of {batches} at the next start"
    if (last := totals.last) is None:
        return f"{rows}, {aside}" if totals.late or totals.bad or totals.left else rows
    state = f"{last.state_rows:,} rows of state"
    return f"{rows}, {aside}; batch {last.batch}: {last.processed_rate:,.0f} records/s, {state}"


def _uncounted(sink: Sink, totals: Totals) -> str:
    """Say that hardly anything was counted; nothing where that is not so. The exit code does not."""
    from spark_sink.query.uncounted import hardly_any  # noqa: PLC0415 - as above

    aside = totals.late + totals.bad
    if not totals.rows or not hardly_any(totals.rows, aside):
        return ""
    counted = "nothing was counted" if aside >= totals.rows else "hardly anything was counted"
    kinds = f"{totals.bad:,} that cannot be read, {totals.late:,} late"
    return f"{counted}: of {totals.rows:,} records {aside:,} were written aside to {sink.aside_path} ({kinds})"


def _table(totals: Mapping[str, Totals]) -> Table:
    table = Table(
        *("aggregate", "batch", "records", "in/s", "done/s", "batch s", "state rows"),
        *("event-time watermark", "late", "bad"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, each in totals.items():
        if (last := each.last) is None:
            table.add_row(name)
            continue
        watermark = (
            datetime.fromtimestamp(last.watermark_s, UTC).isoformat(" ", "seconds") if last.watermark_s else ""
        )
        table.add_row(
            name,
            str(last.batch),
            f"{each.rows:,}",
            f"{last.input_rate:,.0f}",
            f"{last.processed_rate:,.0f}",
            f"{last.seconds:.1f}",
            f"{last.state_rows:,}",
            watermark,
            f"{each.late:,}",
            f"{each.bad:,}",
        )
    return table
