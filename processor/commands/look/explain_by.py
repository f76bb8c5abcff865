"""``seqmark explain --id``, ``--key`` and ``--json-field``: what became of all records that have it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import click

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import bar, note_exit_code, result, say
from processor.commands.run.reset import read_time_or_utc
from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.inspection.timeline.line import Timeline
    from processor.inspection.timeline.run import TimelineQuestion
    from schemas.config import Pipeline, Settings

SHOWN = 20
"""Of the first records, and of the last: an id that a bad generator repeats for ever fits two screens."""


class AskedOptions(TypedDict):
    """The options of `by_options`, as a command gets them."""

    ids: tuple[str, ...]
    key: str | None
    fields: tuple[str, ...]
    begin_ms: int | None
    end_ms: int | None
    limit: int


class AskedFor(NamedTuple):
    """What the options of one call ask for.

    Attributes:
        ids: A word per part of an id.
        key: A key.
        fields: ``/POINTER=VALUE`` each.
        begin_ms: Only records with timestamps from here on.
        end_ms: Only records before.
        limit: So many of the first ones, and of the last.
    """

    ids: tuple[str, ...] = ()
    key: str | None = None
    fields: tuple[str, ...] = ()
    begin_ms: int | None = None
    end_ms: int | None = None
    limit: int = SHOWN

    @classmethod
    def of(cls, options: AskedOptions) -> AskedFor:
        """Return what a command was given."""
        return cls(**options)

    @property
    def anything(self) -> bool:
        """Whether any record is asked for."""
        return bool(self.ids or self.fields) or self.key is not None


def time_ms(ctx: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Return a time of an option in ms; one without a zone is UTC, which is said."""
    del ctx
    if text is None:
        return None
    try:
        return read_time_or_utc(option.opts[0], text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time such as 2026-03-01T06:00:00Z") from None


def by_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that ask for records by what they hold."""
    options = (
        click.option(
            "--id",
            "ids",
            multiple=True,
            metavar="VALUE",
            help="All records with this id; once per part, in the config's order. A word is a string, and the "
            'number it reads as; json:17 and json:"17" are one of them, base64:... bytes.',
        ),
        click.option("--key", metavar="K", help="All records with this key; base64:... where it is no text."),
        click.option(
            "--json-field",
            "fields",
            multiple=True,
            metavar="/POINTER=VALUE",
            help="All records whose JSON value has this there; several: all of them. VALUE as for --id.",
        ),
        click.option(
            "--from", "begin_ms", callback=time_ms, metavar="TIME", help="Only from this time on (ISO 8601)."
        ),
        click.option("--to", "end_ms", callback=time_ms, metavar="TIME", help="Only up to before this time."),
        click.option(
            "--limit",
            type=click.IntRange(min=1, max=10_000),
            default=SHOWN,
            show_default=True,
            metavar="N",
            help="So many of the first records are shown, and of the last.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def explain_all(
    settings: Settings, pipeline: str | None, asked: AskedFor, place: str | None, *, as_json: bool
) -> int:
    """Print a time line per pipeline; returns the exit code.

    Raises:
        ConfigError: The options ask for nothing that there can be.
        StopError: Something cannot be read.
    """
    kinds = [bool(asked.ids), bool(asked.fields), asked.key is not None, place is not None]
    if sum(kinds) != 1:
        raise ConfigError([Problem("--id", "name one of: TOPIC:PARTITION:OFFSET, --id, --key, --json-field")])
    chosen = chosen_pipelines(settings, pipeline)
    questions = _questions(chosen, asked, named=pipeline is not None)
    lines = []
    for question in questions:
        line = asyncio.run(_timeline(settings, question))
        _show(line, heading=len(questions) > 1, as_json=as_json)
        lines.append(line)
    codes = {line.exit_code for line in lines}
    code = EXIT_VIOLATION if EXIT_VIOLATION in codes else EXIT_DONE if EXIT_DONE in codes else EXIT_FAILED
    note_exit_code(code)
    return code


async def _timeline(settings: Settings, question: TimelineQuestion) -> Timeline:
    from processor.inspection.timeline.run import timeline  # noqa: PLC0415 - slow to import

    return await timeline(settings, question, bar)


def _questions(chosen: Sequence[Pipeline], asked: AskedFor, *, named: bool) -> list[TimelineQuestion]:
    """Return what to ask, of each pipeline that can be asked for it."""
    # numpy and numba are slow to import: a config that is wrong is said at once.
    from processor.inspection.timeline.run import TimelineQuestion  # noqa: PLC0415 - see above
    from processor.inspection.timeline.wanted import wanted_fields, wanted_id, wanted_key  # noqa: PLC0415 - see above

    found, wrong = [], []
    for each in chosen:
        try:
            if asked.ids:
                wanted = wanted_id(each, asked.ids)
            elif asked.key is not None:
                wanted = wanted_key(asked.key)
            else:
                wanted = wanted_fields(asked.fields)
        except ConfigError as error:
            wrong.append(error)
            continue
        found.append(
            TimelineQuestion(each, wanted, asked.ids, asked.key, asked.begin_ms, asked.end_ms, asked.limit)
        )
    if wrong and (named or not found):
        said = dict.fromkeys(problem for error in wrong for problem in error.problems)
        raise ConfigError(list(said))
    return found


def _show(line: Timeline, *, heading: bool, as_json: bool) -> None:
    from processor.inspection.timeline.say import lines, objects  # noqa: PLC0415 - slow to import

    for note in line.notes:
        say(note, "yellow")
    if as_json:
        for each in objects(line):
            result(**each)
        return
    if heading:
        click.echo(f"pipeline {line.pipeline}:")
    for text in lines(line):
        click.echo(text)
