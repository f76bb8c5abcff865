"""``seqmark read`` prints the records of a topic of the config."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

import click

from processor.commands.console import config_option, json_option, people, say
from processor.commands.run.reset import read_place, read_time_or_utc
from processor.config.load import load
from processor.errors import EXIT_DONE, EXIT_FAILED
from processor.inspection.read.order import Begin, ReadOrder
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from processor.inspection.read.records import ReadResult
    from processor.inspection.topic_records import TopicRecord
    from schemas.config import Settings

TERMINAL_LIMIT = 20
"""Records for a person who has not said how many: what fits one screen."""


def _begin(text: str) -> Begin:
    """Return where to begin: an end, a place, or a time; one without a zone is UTC, which is said."""
    if text in {"earliest", "latest"}:
        return Begin(latest=text == "latest")
    if re.fullmatch("[0-9]+:[0-9]+", text):
        return Begin(False, *read_place(text))
    try:
        return Begin(time_ms=read_time_or_utc("--from", text))
    except ValueError:
        wrong = (
            f"{text!r} is none of: earliest, latest, PARTITION:OFFSET such as 3:8101, a time such as "
            "2026-03-01T06:00:00Z"
        )
        raise click.BadParameter(wrong) from None


@click.command()
@config_option
@json_option
@click.argument("topic")
@click.option("--follow", is_flag=True, help="Wait for more at the end, until Ctrl-C, SIGTERM or SIGHUP.")
@click.option(
    "--from",
    "begin",
    type=_begin,
    default="earliest",
    metavar="P:O|earliest|latest|TIME",
    help="Where to begin: partition and offset, an end of the topic, or an ISO 8601 time.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Records at most, 0: all. Not set: {TERMINAL_LIMIT} on a terminal, else all; with --follow all.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Only this partition.")
@click.option("--key", metavar="K", help="Only records with this key.")
@click.pass_context
def read(  # noqa: PLR0913 - one argument per option
    ctx: click.Context,
    *,
    config: Path,
    topic: str,
    follow: bool,
    begin: Begin,
    limit: int | None,
    partition: int | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, a source, sink, duplicates or quarantine topic of the config.

    Reads read_committed, joins no group and commits nothing; partition after partition. For people a line per
    record: partition:offset, time (UTC), key, value and headers; a receipt and a quarantined record as a
    sentence. With --json the whole record, one object per line. Exit code 1: something could not be read; what
    could be read was printed.
    """
    settings = load(config)
    # numpy and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.inspection.read.readable import topic_fault  # noqa: PLC0415 - see above

    if (fault := topic_fault(settings, topic)) is not None:
        raise click.BadParameter(fault, ctx, param_hint="TOPIC")
    if begin.partition is not None and partition not in {None, begin.partition}:
        wrong = f"--from names partition {begin.partition}"
        raise click.BadParameter(wrong, ctx, param_hint="--partition")
    if limit is None and not follow and not as_json and people(stderr=False).is_terminal:
        limit = TERMINAL_LIMIT
    order = ReadOrder(topic, begin, partition, None if key is None else os.fsencode(key), limit or None, follow)
    try:
        result = _read(settings, order, as_json=as_json)
    except KeyboardInterrupt:
        if not follow:
            raise
        ctx.exit(EXIT_DONE)
    _conclude(order, result)
    ctx.exit(EXIT_FAILED if result.damaged else EXIT_DONE)


def _read(settings: Settings, order: ReadOrder, *, as_json: bool) -> ReadResult:
    from processor.inspection.read.records import read_topic  # noqa: PLC0415 - as above

    line = _line(settings, order.topic, as_json=as_json)

    def take(records: list[TopicRecord]) -> None:
        click.echo(b"".join(line(record) + b"\n" for record in records), nl=False)

    return asyncio.run(read_topic(settings.kafka, order, take, lambda text: say(text, "yellow")))


def _line(settings: Settings, topic: str, *, as_json: bool) -> Callable[[TopicRecord], bytes]:
    from processor.inspection.read.lines import PeopleLines, json_line  # noqa: PLC0415 - as above
    from processor.inspection.read.readable import ReadableTopic  # noqa: PLC0415 - as above

    if as_json:
        return json_line
    console = people(stderr=False)
    return PeopleLines(ReadableTopic.of(settings, topic), console.width if console.is_terminal else None).line


def _conclude(order: ReadOrder, result: ReadResult) -> None:
    """Say what was not shown."""
    wanted = "" if order.key is None else " with this key"
    if not result.records:
        say(f"{order.topic}: no record{wanted} there", "dim")
    if result.left:
        shown = f"{count(result.records, 'record')} shown, up to {result.left:,} more"
        say(f"{order.topic}: {shown}; --limit N shows N, --limit 0 all", "dim")
    if result.open:
        what = "behind an open transaction are not shown: its end decides about them"
        say(f"{order.topic}: {count(result.open, 'offset')} {what}", "dim")
