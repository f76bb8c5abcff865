"""``seqmark materialize`` writes the clean topic of a pipeline from its source and its verdicts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from processor.commands.console import bar, config_option, json_option, note_exit_code, result, say
from processor.commands.run.reset import chosen_pipeline
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, EXIT_FAILED, ConfigError, Problem
from processor.ops import logs
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from processor.worker.materialize import Materialized
    from schemas.config import Pipeline, Settings


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", required=True, help="Name of the pipeline, which writes verdicts.")
@click.option(
    "--skip-expired",
    is_flag=True,
    help="Go on behind records that the source does not hold any more; not given: it stops before them.",
)
def materialize(config: Path, *, pipeline: str, skip_expired: bool, as_json: bool) -> None:
    """Write the sink from source and verdicts: what output = "records" would have written.

    Goes on where the last run ended, exactly once, up to where the verdicts end now; a worker may run. Exit
    code 0: all of it is written; 1: something cannot be read, or source and verdicts do not fit each other.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipeline(settings, pipeline)
    _require_verdicts(settings, chosen)
    note_exit_code(EXIT_FAILED)
    logs.set_up(settings.worker.log_format, settings.worker.log_level)

    def tell(each: Materialized) -> None:
        if as_json:
            result(
                pipeline=chosen.name,
                partition=each.partition,
                records=each.records,
                skipped=each.skipped,
                expired=each.expired,
                **{"from": each.start, "to": each.stop},
            )
            return
        gone = f", {count(each.expired, 'record')} had expired" if each.expired else ""
        what = f"{count(each.records, 'record')} written, {each.skipped:,} skipped{gone}"
        say(f"{chosen.name}:{each.partition}: {what}")

    asyncio.run(_run(settings, chosen, tell, skip_expired=skip_expired))
    note_exit_code(EXIT_DONE)


async def _run(
    settings: Settings, pipeline: Pipeline, done: Callable[[Materialized], None], *, skip_expired: bool
) -> None:
    # The client of the broker and numba are slow to import: a config that is wrong is said at once.
    from processor.worker.materialize import materialize as run  # noqa: PLC0415 - see above

    with bar("writing", 0) as advance:
        await run(settings, pipeline, done, advance, skip_expired=skip_expired)


def _require_verdicts(settings: Settings, pipeline: Pipeline) -> None:
    key = f"pipelines.{settings.pipelines.index(pipeline)}"
    if pipeline.writes_records:
        raise ConfigError([Problem(f"{key}.output", 'is not "verdicts": its worker writes the sink itself')])
    if pipeline.sink is None:
        raise ConfigError([Problem(f"{key}.sink", "is missing: it names the topic that is written")])
