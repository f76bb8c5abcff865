"""``seqmark apply`` deletes from a Delta or Iceberg table, by partition and offset, what the verdicts say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from processor.commands.console import config_option, json_option, note_exit_code, result, say, table_on_stdout
from processor.commands.run.reset import chosen_pipeline
from processor.commands.spark.interrupts import ending_at_once
from processor.config.load import load, require_pipelines
from processor.errors import EXIT_DONE, EXIT_FAILED, ConfigError, Problem
from processor.ops import fault_points
from processor.ops.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum
    from pathlib import Path

    from schemas.config import Pipeline, Settings
    from spark_sink.batch.lake.apply.job import AppliedPartition, ApplyOptions

INTERRUPTED = "run the same command again, it goes on where it was"
_COLUMNS = ("partition", "offset", "topic")
_LAKES = ("delta", "iceberg")


@click.command()
@config_option
@click.option("--pipeline", metavar="N", required=True, help="Name of the pipeline, which writes verdicts.")
@click.option("--table", metavar="T", required=True, help="The table's path, or its name in a catalog.")
@click.option(
    "--format",
    "lake",
    type=click.Choice(_LAKES),
    help="Not set: the table says it; needed for a path that is not on this machine.",
)
@click.option(
    "--columns",
    metavar="C",
    help="Where they have other names: partition=NAME,offset=NAME,topic=NAME. Without topic all rows count.",
)
@click.option(
    "--again", is_flag=True, help="Apply all verdicts that are retained, whatever was applied before."
)
@click.option(
    "--skip-expired", is_flag=True, help="Go on behind verdicts that have expired; not given: it stops before."
)
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and write nothing.")
@click.option(
    "--spark-conf",
    "spark_conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark, such as those of a catalog; may be given again.",
)
@click.option("--master", default="local[*]", metavar="M", help="Where Spark runs.")
@click.option("--memory", default="1g", metavar="SIZE", help="The driver's heap.")
@json_option
def apply(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    pipeline: str,
    table: str,
    lake: str | None,
    columns: str | None,
    again: bool,
    skip_expired: bool,
    dry_run: bool,
    spark_conf: Sequence[str],
    master: str,
    memory: str,
    as_json: bool,
) -> None:
    """Delete from a Delta or Iceberg table the rows that the verdicts skip, by partition and offset.

    Goes on where the last run ended, up to where the verdicts end now; workers and the table's loader may run.
    Exit code 0: done; 1: a topic or the table cannot be read, or they do not fit each other.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipeline(settings, pipeline)
    names = _required(settings, chosen, columns, spark_conf)
    require("seqmark apply", "spark", module="pyarrow")
    note_exit_code(EXIT_FAILED)
    # Spark, Arrow and the broker's client are slow to import: a config that is wrong is said at once.
    from processor.commands.spark.apply_verdicts import AppliedVerdicts  # noqa: PLC0415 - see above
    from spark_sink.batch.lake.apply.job import ApplyJob, ApplyOptions  # noqa: PLC0415 - see above
    from spark_sink.batch.lake.apply.rows import PositionRows  # noqa: PLC0415 - see above
    from spark_sink.batch.lake.apply.tables import format_at, open_table  # noqa: PLC0415 - see above
    from spark_sink.session import spark_session  # noqa: PLC0415 - see above

    lake = lake or format_at(table)
    options = ApplyOptions(again, skip_expired, dry_run)
    session = spark_session(
        f"seqmark-apply-{chosen.name}",
        master=master,
        memory=memory,
        settings=dict(each.split("=", 1) for each in spark_conf),
        kafka=False,
        lakes=_LAKES if lake is None else [lake],
        say=say,
    )
    with session as spark, ending_at_once("apply", INTERRUPTED):
        opened = open_table(spark, table, lake)
        rows = PositionRows(spark, opened, chosen.source, names)
        topic = AppliedVerdicts(settings.kafka, chosen, skip_expired=skip_expired, say=say)
        done = ApplyJob(chosen.name, topic, opened, rows, options, _ApplyTerminal()).run()
    _tell(chosen, table, done, options, as_json=as_json)
    note_exit_code(EXIT_DONE)


class _ApplyTerminal:
    """Tells people how far a run is."""

    def say(self, text: str) -> None:
        """Tell of what a user should know."""
        say(text)

    def done(self, step: StrEnum) -> None:
        """Note that a step is done; a test may have asked to end here."""
        fault_points.reached(step)


def _required(
    settings: Settings, pipeline: Pipeline, columns: str | None, spark_conf: Sequence[str]
) -> dict[str, str]:
    """Return the table's columns by what they have; those that are not named have the usual names."""
    problems, names = [], {}
    if pipeline.verdicts is None:
        key = f"pipelines.{settings.pipelines.index(pipeline)}.output"
        problems.append(Problem(key, 'is "records": there are no verdicts. Write "verdicts" or "both"'))
    for each in columns.split(",") if columns else []:
        key, _, name = (part.strip() for part in each.partition("="))
        if key not in _COLUMNS or not name or key in names:
            problems.append(
                Problem("--columns", f"{each!r}: write it like partition=kafka_partition,offset=pos")
            )
        names[key] = name
    problems += [
        Problem("--spark-conf", f"{each!r}: write it like spark.sql.catalog.lake.type=hadoop")
        for each in spark_conf
        if not each.partition("=")[1]
    ]
    if problems:
        raise ConfigError(problems)
    return names


def _tell(
    pipeline: Pipeline, table: str, done: Sequence[AppliedPartition], options: ApplyOptions, *, as_json: bool
) -> None:
    for each in done if as_json else []:
        result(
            pipeline=pipeline.name,
            table=table,
            partition=each.partition,
            deleted=each.deleted,
            skipped=each.skipped,
            applied_to=each.applied_to,
            waits=each.waits,
            dry_run=options.dry,
            **{"from": each.start, "to": each.stop},
        )
    if as_json:
        return
    if options.dry:
        say("a dry run, nothing was deleted")
    if any(each.waits for each in done):
        say("the table has not come as far as the verdicts: run it again when more is loaded")
    title = "rows that would be deleted" if options.dry else "rows deleted"
    rows = [
        (
            f"{pipeline.name}:{each.partition}",
            f"{each.deleted:,}",
            f"{each.skipped:,}",
            "" if each.applied_to is None else f"{each.applied_to:,}",
            "yes" if each.waits else "",
        )
        for each in done
    ]
    names = ["partition", title, "offsets the verdicts skip", "done up to offset", "waits for the table"]
    table_on_stdout(names, rows, right=[1, 2, 3])
