"""``seqmark topics`` creates the topics that are missing and says how all of them are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from rich.table import Table

from processor.commands.console import config_option, json_option, people, result, say, say_problems
from processor.config.load import load
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.ops.status_text import count

if TYPE_CHECKING:
    from pathlib import Path

    from processor.kafka.topics.ensure import TopicsReport

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
    # The client of the broker is slow to import: a config that is wrong is said at once.
    from processor.kafka.topics.ensure import ensure  # noqa: PLC0415 - see above

    report = asyncio.run(ensure(settings, create=True))
    if as_json:
        _for_programs(report)
    else:
        _for_people(report)
    ctx.exit(EXIT_FAILED if report.problems else EXIT_DONE)


def _for_programs(report: TopicsReport) -> None:
    for row in report.rows:
        result(
            topic=row.topic,
            purpose=row.purpose.value,
            pipeline=row.pipeline,
            partitions=row.partitions,
            state=row.state.value,
        )
    for level, problems in (("problem", report.problems), ("warning", report.warnings)):
        for problem in problems:
            result(key=problem.key, level=level, message=problem.message)


def _for_people(report: TopicsReport) -> None:
    table = Table("topic", "purpose", "pipeline", "partitions", "state")
    table.columns[3].justify = "right"
    for row in report.rows:
        style = _STATE_STYLES[row.state]
        table.add_row(row.topic, row.purpose, row.pipeline, str(row.partitions), row.state, style=style)
    if report.rows:
        people().print(table)
    if report.problems:
        say(f"{count(len(report.problems), 'problem')}:", "bold red")
        say_problems(report.problems)
    if report.warnings:
        say(f"{count(len(report.warnings), 'warning')}:", "yellow")
        say_problems(report.warnings, "warning")
