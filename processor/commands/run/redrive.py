"""``seqmark redrive`` judges the quarantined records of a stopped pipeline again, each once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from processor.commands.chosen import chosen_pipelines
from processor.commands.console import bar, config_option, json_option, result, say, table_on_stdout
from processor.commands.run.reset import read_time
from processor.config.load import load, require_pipelines, require_redrivable
from processor.engine.verdict import Fault
from processor.ops import logs
from processor.ops.status_text import count
from schemas.near import listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from processor.reset.redrive.work import CodeCounts, RedriveReport
    from schemas.config import Pipeline, Settings

_CODES = [fault.code for fault in Fault if fault]


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", help="Name of the pipeline; not given: all of them.")
@click.option(
    "--code", type=click.Choice(_CODES), metavar="C", help=f"Only records with this code: {listed(_CODES)}."
)
@click.option(
    "--since",
    type=read_time,
    metavar="T",
    help="Only records with at least this timestamp. RFC 3339 with a zone, or ms since 1970.",
)
@click.option("--dry-run", is_flag=True, help="Say what would become of them, and write nothing.")
def redrive(
    *,
    config: Path,
    pipeline: str | None,
    code: str | None,
    since: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Judge the quarantined records of a stopped pipeline again, by the config of now; each once.

    What passes goes into the clean topic as it came, behind all that is there; what is dropped leaves a
    receipt. What still cannot be judged stays in quarantine. It may be interrupted, and run again.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipelines(settings, pipeline)
    require_redrivable(settings, [each.name for each in chosen])
    asyncio.run(_run(settings, chosen, code, since, dry=dry_run, as_json=as_json))


async def _run(
    settings: Settings,
    pipelines: list[Pipeline],
    code: str | None,
    since: int | None,
    *,
    dry: bool,
    as_json: bool,
) -> None:
    # The client of the broker and numba are slow to import: a config that is wrong is said at once.
    from processor.reset.redrive.run import opened  # noqa: PLC0415 - see above
    from processor.reset.redrive.work import RedriveChoice  # noqa: PLC0415 - see above

    logs.set_up(settings.worker.log_format, settings.worker.log_level)
    rows: list[tuple[str, ...]] = []
    left = gone = superseded = 0
    for pipeline in pipelines:
        async with opened(settings, pipeline, RedriveChoice(code, since), dry=dry) as redriving:
            size = await redriving.size()
            with bar(f"judging {pipeline.quarantine} again", 2 * size) as advance:
                async with aclosing(redriving.run(advance)) as reports:
                    async for report in reports:
                        _tell(pipeline, report, done=not dry, as_json=as_json)
                        rows += _rows(pipeline, report)
                        total = report.total()
                        left, gone = left + total.after, gone + total.passed + total.dropped
                        superseded += report.superseded
    if not as_json:
        titles = ("pipeline", "part.", "code", "before", "passed", "dropped", "after")
        table_on_stdout(titles, rows, right=(1, 3, 4, 5, 6))
    if superseded:
        noun = "records stand" if superseded > 1 else "record stands"
        say(f"{superseded:,} more {noun} there of before a reset: workers judge them once more", "dim")
    said = f"{count(gone, 'record')} {'would leave' if dry else 'left'} quarantine, {left:,} stay"
    say(said + ("; nothing was written: --dry-run" if dry else ""), "green")


def _rows(pipeline: Pipeline, report: RedriveReport) -> Iterator[tuple[str, ...]]:
    for code, counts in sorted(report.codes.items()):
        numbers = counts.before, counts.passed, counts.dropped, counts.after
        yield (pipeline.name, str(report.partition), code, *(f"{each:,}" for each in numbers))


def _tell(pipeline: Pipeline, report: RedriveReport, *, done: bool, as_json: bool) -> None:
    if as_json:
        result(
            pipeline=pipeline.name,
            partition=report.partition,
            **_fields(report.total()),
            codes={code: _fields(counts) for code, counts in sorted(report.codes.items())},
            superseded=report.superseded,
            commits=report.commits if done else 0,
            done=done,
        )


def _fields(counts: CodeCounts) -> dict[str, int]:
    return {**asdict(counts), "after": counts.after}
