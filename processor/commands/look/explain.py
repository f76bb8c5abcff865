"""``seqmark explain`` says what became of one record, and why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import click

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import (
    bar,
    config_option,
    json_option,
    note_exit_code,
    people,
    result,
    say,
    shown,
    table_of,
)
from processor.commands.run.reset import read_time_or_utc
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console
    from typing_extensions import Unpack

    from processor.inspection.explain.story import Story
    from processor.inspection.timeline.line import Timeline
    from processor.inspection.timeline.run import TimelineQuestion
    from processor.wire.receipt_values import RecordRef
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


_PLACE = "TOPIC:PARTITION:OFFSET"


@click.command()
@config_option
@json_option
@click.argument("place", metavar=f"[{_PLACE}]", required=False)
@by_options
@click.option("--pipeline", metavar="N", help="Name of the pipeline, where a topic belongs to several.")
@click.pass_context
def explain(
    ctx: click.Context,
    config: Path,
    place: str | None,
    *,
    pipeline: str | None,
    as_json: bool,
    **options: Unpack[AskedOptions],
) -> None:
    """Say what became of the record at TOPIC:PARTITION:OFFSET, and why.

    The topic is a source, or what a pipeline writes: a position in a clean, duplicates or quarantine topic is
    traced back to its source record. Reads read_committed, joins no group and commits nothing; workers may
    run. Exit code 0: answered; 1: the record is not retained any more, or does not exist yet; 2: the position
    is none; 3: the topics contradict the rules.
    """
    settings = load(config)
    require_pipelines(settings)
    asked = AskedFor.of(options)
    if place is None or asked.anything:
        ctx.exit(explain_all(settings, pipeline, asked, place, as_json=as_json))
    # numpy and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.inspection.explain.ask import question_of, read_ref  # noqa: PLC0415 - see above

    note_exit_code(EXIT_FAILED)
    try:
        ref = read_ref(place)
        question_of(settings, ref, pipeline)
        story = asyncio.run(_ask(settings, ref, pipeline))
    except ConfigError as error:
        if any(problem.key != _PLACE for problem in error.problems):
            raise
        raise click.BadParameter(error.problems[0].message, ctx, param_hint=_PLACE) from None
    note_exit_code(story.exit_code)
    if as_json:
        result(**story.as_json())
    else:
        tell_story(story, people(stderr=False))
    ctx.exit(story.exit_code)


async def _ask(settings: Settings, ref: RecordRef, pipeline: str | None) -> Story:
    from processor.inspection.explain.explainer import explain_position  # noqa: PLC0415 - as above

    return await explain_position(settings, ref, pipeline)


def tell_story(story: Story, out: Console) -> None:
    """Print an answer for people: the sentence, then a table."""
    from processor.inspection.explain.show import rows  # noqa: PLC0415 - as above

    out.print(shown(story.sentence), soft_wrap=True)
    out.print(table_of(("what", "is"), rows(story)))
