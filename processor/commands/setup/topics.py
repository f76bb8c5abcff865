"""``seqmark topics`` creates the topics that are missing and says how all of them are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from rich.table import Table

from processor.commands.console import (
    config_option,
    json_option,
    list_problems,
    note_exit_code,
    people,
    repeat_on_stderr,
    result,
    say,
    shown,
)
from processor.config.load import load
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.status_text import count

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("topic", "purpose", "pipeline", "partitions", "state")
_STATE_STYLES = {"created": "green", "exists": "", "missing": "yellow", "wrong": "bold red"}


@click.command()
@config_option
@json_option
@click.pass_context
def topics(ctx: click.Context, config: Path, *, as_json: bool) -> None:
    """Create what is missing, with the source's partition count and the right settings.

    What exists is never altered; what is wrong with it is named, and the exit code is 1.
    """
    settings = load(config)
    if not settings.pipelines and not settings.aggregates:
        say(f"{config} names batches only: files at rest need no topics, and no broker was asked")
        return
    # The client of the broker is slow to import: a config that is wrong is said at once.
    from processor.kafka.topics.ensure import ensure  # noqa: PLC0415 - see above

    report = asyncio.run(ensure(settings, create=True))
    rows = [
        (topic.topic, topic.purpose, topic.pipeline, topic.partitions, report.state(topic))
        for topic in report.topics
    ]
    code = EXIT_FAILED if report.problems else EXIT_DONE
    note_exit_code(code)
    if as_json:
        for row in rows:
            result(**dict(zip(_COLUMNS, row, strict=True)))
    elif rows:
        table = Table(*_COLUMNS)
        table.columns[3].justify = "right"
        for row in rows:
            table.add_row(*(shown(str(cell)) for cell in row), style=_STATE_STYLES[row[-1]])
        people(stderr=False).print(table)
    list_problems(report.problems, "problem", as_json=as_json)
    list_problems(report.warnings, "warning", as_json=as_json)
    if not as_json:
        repeat_on_stderr(report.problems, f"{count(len(report.problems), 'problem')}:")
    ctx.exit(code)
