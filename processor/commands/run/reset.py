"""``seqmark reset`` sets a stopped pipeline and its state to another place in the source."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from processor.commands.chosen import no_such
from processor.commands.console import bar, config_option, json_option, result, say
from processor.config.load import load, require_pipelines, require_unrouted
from processor.ops import logs
from processor.ops.status_text import count
from processor.reset.decide import ResetState, ToEarliest, ToOffsets, ToTime

if TYPE_CHECKING:
    from pathlib import Path

    from processor.reset.decide import PartitionStep, Target
    from processor.reset.state import Replayed
    from schemas.config import Pipeline, Settings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(text: str) -> int:
    """Return ms since 1970 of an RFC 3339 time with a zone, or of that number itself.

    Rounded up: the first record with at least this timestamp is looked for.

    Raises:
        click.BadParameter: It is neither, or before 1970.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        wrong = f"{text!r} is not a time such as 2026-03-01T06:00:00Z, nor ms since 1970"
        raise click.BadParameter(wrong) from None
    if time.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no zone: add Z for UTC, or an offset such as +01:00")
    after = -((_EPOCH - time) // timedelta(milliseconds=1))
    if after < 0:
        raise click.BadParameter(f"{text!r} is before 1970")
    return after


def read_time_or_utc(option: str, text: str) -> int:
    """Return ms since 1970 of an ISO 8601 time; one without a zone is UTC, which is said.

    Raises:
        ValueError: It is no such time.
        click.BadParameter: It is before 1970.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
        say(f"{option} {text} has no zone and is taken as UTC: {time.isoformat()}", "dim")
    return read_time(time.isoformat())


def read_place(text: str) -> tuple[int, int]:
    """Return partition and offset of ``PARTITION:OFFSET``.

    Raises:
        click.BadParameter: It is not such a place.
    """
    if not re.fullmatch("[0-9]+:[0-9]+", text):
        raise click.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:1200")
    partition, offset = text.split(":")
    return int(partition), int(offset)


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", required=True, help="Name of the pipeline.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is retained, in all partitions.")
@click.option(
    "--to-time",
    type=read_time,
    metavar="T",
    help="To the first record with at least this timestamp, in all partitions; to the end where there is "
    "none. RFC 3339 with a zone, or ms since 1970.",
)
@click.option(
    "--to-offset",
    "to_offsets",
    type=read_place,
    metavar="P:O",
    multiple=True,
    help="Partition P to offset O; may be given once per partition, the others stay where they are.",
)
@click.option(
    "--forget",
    is_flag=True,
    help="Begin with an empty state: also where the records that it rests on are no longer retained. Records "
    "of before that are sent once more then pass.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def reset(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    pipeline: str,
    to_earliest: bool,
    to_time: int | None,
    to_offsets: tuple[tuple[int, int], ...],
    forget: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewind a stopped pipeline, its state with it, to have records processed once more; or step over some.

    The state is recomputed from the source: it knows the records before the new place, and none behind it. The
    sink keeps its old output, so what is processed once more stands in it twice. Records that are stepped over
    are in no output, and count as seen.
    """
    target = _target(to_earliest=to_earliest, to_time=to_time, to_offsets=to_offsets)
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipeline(settings, pipeline)
    require_unrouted(settings, "reset", [chosen.name])
    asyncio.run(_run(settings, chosen, target, forget=forget, dry=dry_run, as_json=as_json))


def _target(*, to_earliest: bool, to_time: int | None, to_offsets: tuple[tuple[int, int], ...]) -> Target:
    if to_earliest + (to_time is not None) + bool(to_offsets) != 1:
        raise click.UsageError("give one of --to-earliest, --to-time and --to-offset: where to?")
    if to_offsets:
        offsets = dict(to_offsets)
        if len(offsets) < len(to_offsets):
            raise click.UsageError("--to-offset: give each partition once")
        return ToOffsets(offsets)
    return ToEarliest() if to_time is None else ToTime(to_time)


def chosen_pipeline(settings: Settings, name: str) -> Pipeline:
    """Return the pipeline of this name.

    Raises:
        ConfigError: There is none.
    """
    known = {pipeline.name: pipeline for pipeline in settings.pipelines}
    if name not in known:
        raise no_such("--pipeline", "pipeline", name, list(known))
    return known[name]


async def _run(
    settings: Settings, pipeline: Pipeline, target: Target, *, forget: bool, dry: bool, as_json: bool
) -> None:
    # The client of the broker and numba are slow to import: a config that is wrong is said at once.
    from processor.reset.run import opened  # noqa: PLC0415 - see above

    logs.set_up(settings.worker.log_format, settings.worker.log_level)
    create = settings.worker.create_topics and not dry
    async with opened(settings, pipeline, create=create) as resetting:
        steps = await resetting.plan(target, forget=forget, fence=not dry)
        for step in steps:
            say(_planned(pipeline, step))
        if dry:
            say("nothing was changed: --dry-run")
            for step in steps:
                _report(pipeline.name, step, None, as_json=as_json)
            return
        if any(step.to_offset < (step.from_offset or 0) for step in steps):
            say("the sink keeps what it has; what is processed once more will stand in it twice")
        recomputed = any(step.state is ResetState.RECOMPUTED for step in steps)
        if recomputed and pipeline.id_dedup is not None and pipeline.id_dedup.time == "arrival":
            say('time = "arrival": records that the state is recomputed from count as arriving now')
        with bar(f"judging {pipeline.source}", sum(step.offsets for step in steps)) as advance:
            async with aclosing(resetting.apply(steps, advance)) as done:
                finished = [each async for each in done]
        for step, replayed in finished:
            _report(pipeline.name, step, replayed, as_json=as_json)
        moved = count(sum(not step.stays for step in steps), "partition")
        say(f"{moved} of pipeline {pipeline.name} reset; its workers can be started", "green")


def _planned(pipeline: Pipeline, step: PartitionStep) -> str:
    before = "no position yet" if step.from_offset is None else f"offset {step.from_offset}"
    offsets = f"offsets {step.judge_from} to {step.to_offset - 1}"
    if step.stays:
        return f"{pipeline.source}:{step.partition}: stays at offset {step.to_offset}"
    if step.state is ResetState.EMPTY:
        state = "its state begins empty"
    elif step.state is ResetState.RECOMPUTED:
        state = f"its state is recomputed from {offsets}"
    else:
        state = "its state is kept" + (f", {offsets} count as seen" if step.offsets else "")
    return f"{pipeline.source}:{step.partition}: from {before} to offset {step.to_offset}; {state}"


def _report(pipeline: str, step: PartitionStep, done: Replayed | None, *, as_json: bool) -> None:
    if not as_json:
        if done is not None:
            judged = count(done.records, "record")
            click.echo(
                f"partition {step.partition} is at offset {step.to_offset}: {judged} judged for its state"
            )
        return
    result(
        pipeline=pipeline,
        partition=step.partition,
        **{"from": step.from_offset},
        to=step.to_offset,
        state=step.state.value,
        records=None if done is None else done.records,
        unjudged=None if done is None else done.unjudged,
        done=done is not None,
    )
