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
@click.option(
    "--skip-unjudged",
    is_flag=True,
    help="Go on behind offsets that no verdict speaks of, as after a reset forward; not given: it stops.",
)
def materialize(config: Path, *, pipeline: str, skip_expired: bool, skip_unjudged: bool, as_json: bool) -> None:
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
                unjudged=each.unjudged,
                **{"from": each.start, "to": each.stop},
            )
            return
        gone = f", {count(each.expired, 'record')} had expired" if each.expired else ""
        unjudged = f", {count(each.unjudged, 'offset')} without a verdict" if each.unjudged else ""
        what = f"{count(each.records, 'record')} written, {each.skipped:,} skipped{gone}{unjudged}"
        say(f"{chosen.name}:{each.partition}: {what}")

    # The client of the broker and numba are slow to import: a config that is wrong is said at once.
    from processor.worker.materialize import Skipping  # noqa: PLC0415 - see above
    from processor.worker.materialize import materialize as run  # noqa: PLC0415 - see above

    skipping = Skipping(expired=skip_expired, unjudged=skip_unjudged)
    with bar("writing", 0) as advance:
        asyncio.run(run(settings, chosen, tell, advance, skipping))
    note_exit_code(EXIT_DONE)


def _require_verdicts(settings: Settings, pipeline: Pipeline) -> None:
    key = f"pipelines.{settings.pipelines.index(pipeline)}"
    if pipeline.writes_records:
        raise ConfigError([Problem(f"{key}.output", 'is not "verdicts": its worker writes the sink itself')])
    if pipeline.sink is None:
        raise ConfigError([Problem(f"{key}.sink", "is missing: it names the topic that is written")])
