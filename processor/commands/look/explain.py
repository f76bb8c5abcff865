"""``seqmark explain`` says what became of one record, and why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from processor.commands.console import (
    config_option,
    json_option,
    note_exit_code,
    people,
    result,
    shown,
    table_of,
)
from processor.commands.look.explain_by import AskedFor, AskedOptions, by_options, explain_all
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_FAILED, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from typing_extensions import Unpack

    from processor.inspection.explain.story import Story
    from processor.wire.receipt_values import RecordRef
    from schemas.config import Settings

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
