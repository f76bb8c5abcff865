"""``seqmark report`` writes one HTML page: what became of the records, the aggregates, and the batches."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from processor.commands.console import bar, config_option, json_option, result, say
from processor.commands.files import replace_text, writing
from processor.config.load import load, require_aggregates
from processor.errors import EXIT_DONE, EXIT_FAILED, ConfigError, Problem
from processor.ops.extras import require
from processor.ops.status_text import count
from schemas.config import PostgresOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.inspection.report.hours import Flow
    from processor.inspection.report.page import ReportPage
    from schemas.config import Settings
    from spark_sink.batch.table.summary import BatchPart
    from spark_sink.reading.summary import SinkPart


@click.command()
@config_option
@json_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    help="The page; an older one is replaced.",
)
@click.pass_context
def report(ctx: click.Context, config: Path, *, output: Path, as_json: bool) -> None:
    """Write one HTML page with plots: raw, clean and dropped by the hour, the aggregates, and the batches.

    Reads the topics of all pipelines, what the aggregates have written, and the commits of the batches; Spark
    starts only where the output of an aggregate needs it. Exit code 1: something could not be read; the page
    says what, and has the rest.
    """
    settings = load(config)
    if not (settings.pipelines or settings.aggregates or settings.batches):
        told = "there is no pipeline, no aggregate and no batch to report on"
        raise ConfigError([Problem("pipelines", told)])
    require_aggregates(settings)
    postgres = any(isinstance(each.output, PostgresOutput) for each in settings.aggregates)
    spark = ["spark"] if settings.aggregates or settings.batches else []
    require("seqmark report", "report", *spark, *(["postgres"] if postgres else []))
    made = write_report(settings, config.name, output)
    if as_json:
        for flow in made.flows:
            fates = {fate.name.lower(): hours.total for fate, hours in flow.fates.items()}
            if flow.has_collisions:
                fates |= {f"collision_{fate.name.lower()}": each.total for fate, each in flow.collided.items()}
            else:
                del fates["collision"]
            result(pipeline=flow.name, raw=flow.raw.total, **fates, unexplained=flow.unexplained)
        for batch in made.batches:
            result(batch=batch.name, runs=[each.run for each in batch.runs if each.is_run], **batch.totals)
        result(output=str(output), ok=not made.problems, problems=made.problems)
    else:
        click.echo(f"the report: {output}")
    for problem in made.problems:
        say(problem, "bold red")
    ctx.exit(EXIT_FAILED if made.problems else EXIT_DONE)


def write_report(settings: Settings, config: str, output: Path) -> ReportPage:
    """Read everything and write the page.

    Raises:
        StopError: The broker cannot be reached or stops answering, or the file cannot be written.
    """
    from processor.inspection.report.page import ReportPage, render  # noqa: PLC0415 - slow to import, `-h` is not

    kafka = bool(settings.pipelines or settings.aggregates)
    made = ReportPage(
        application=settings.worker.application_id
        if kafka
        else ", ".join(each.name for each in settings.batches),
        servers=settings.kafka.bootstrap_servers if kafka else "",
        config=config,
        made_ms=int(time.time() * 1000),
        version=_version(),
        flows=_read(settings),
        sinks=_sinks(settings),
        batches=_batches(settings),
    )
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    replace_text(output, render(made))
    return made


def _read(settings: Settings) -> list[Flow]:
    if not settings.pipelines:
        return []
    from processor.inspection.report.read import read_flows  # noqa: PLC0415 - as above

    with ExitStack() as shown:

        def total(offsets: int) -> Callable[[int], None]:
            what = f"reading {count(len(settings.pipelines), 'pipeline')}"
            return shown.enter_context(bar(what, offsets))

        return asyncio.run(read_flows(settings, total))


def _sinks(settings: Settings) -> Sequence[SinkPart]:
    if not settings.aggregates:
        return ()
    from spark_sink.reading.read_back import read_sinks  # noqa: PLC0415 - as above

    return read_sinks(settings, say=say)


def _batches(settings: Settings) -> Sequence[BatchPart]:
    if not settings.batches:
        return ()
    from spark_sink.batch.table.summary import sum_up  # noqa: PLC0415 - as above

    return [sum_up(each) for each in settings.batches]


def _version() -> str:
    try:
        return version("seqmark")
    except PackageNotFoundError:
        return "from a source tree"
