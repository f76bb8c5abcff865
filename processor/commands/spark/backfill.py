"""``seqmark backfill`` loads what was delivered before into the state of a pipeline that has not begun."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from processor.commands.console import bar, config_option, json_option, say
from processor.commands.run.reset import chosen_pipeline, read_place, read_time
from processor.commands.spark.backfill_columns import AskedBackfill, columns_said, history_columns, read_columns
from processor.commands.spark.backfill_told import tell, tell_loaded, warn
from processor.config.load import load, require_pipelines
from processor.errors import ConfigError, Problem, StopError
from processor.ops import logs
from processor.ops.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.reset.backfill.intake.cuts import CutChoice
    from processor.reset.backfill.intake.folder import HistoryFolder, Prepared
    from processor.reset.backfill.intake.looks import Goal
    from schemas.config import Pipeline, Settings

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""It is the name of a folder, and stands in each receipt."""
_ONLY_A_TOPIC = (
    "a pipeline of mode watermark begins with a topic, --format topic: write what was delivered to a topic "
    "with the source's partitions, as the source has it, and give that"
)


@click.command()
@config_option
@json_option
@click.option("--pipeline", metavar="N", required=True, help="Name of the pipeline.")
@click.option(
    "--history",
    metavar="PATH",
    required=True,
    help="What was delivered before: a file, a folder with all files below it, or a topic.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "json", "topic", "batch", "delta"]),
    default="parquet",
    help="json: a JSON object per line, also as .gz; topic: of the same cluster; batch: the clean table of "
    "seqmark batch; delta: a Delta table.",
)
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME=COL,...",
    help="What the columns are: id=COL[,COL] (its parts in their order) and time=COL; and if there are any "
    "partition=COL, offset=COL, key=COL, ignore=COL[,COL]. Of JSON lines names or JSON pointers.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="PATTERN",
    help='Leave out files of such names, such as "*.csv"; a file of another format ends the command otherwise.',
)
@click.option(
    "--cut",
    "cuts",
    type=read_place,
    metavar="P:O",
    multiple=True,
    help="Offset O of partition P of the source is the first that the history may lack: there the stream goes "
    "on.",
)
@click.option(
    "--cut-time",
    type=read_time,
    metavar="T",
    help="The stream goes on at the first record with at least this timestamp, in all partitions; at the end "
    "where there is none. ISO 8601 with a zone, or ms since 1970.",
)
@click.option(
    "--up-to-cut",
    is_flag=True,
    help="Leave out what the history has from the cut on: for an archive of the source, of which nothing "
    "from there on was delivered.",
)
@click.option(
    "--run", "run_name", metavar="NAME", help="Name of the backfill, in receipts. Not set: its files name it."
)
@click.option(
    "--staging",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for what is staged. Not set: one below the config's state_dir.",
)
@click.option("--dry-run", is_flag=True, help="Stage the history and look at the cut, but load nothing.")
@click.option("--master", default="local[*,4]", metavar="M", help="Where Spark runs.")
@click.option("--memory", default="1g", metavar="SIZE", help="The driver's heap.")
def backfill(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    pipeline: str,
    history: str,
    kind: str,
    columns: Sequence[str],
    ignore: Sequence[str],
    cuts: tuple[tuple[int, int], ...],
    cut_time: int | None,
    up_to_cut: bool,
    run_name: str | None,
    staging: Path | None,
    dry_run: bool,
    master: str,
    memory: str,
    as_json: bool,
) -> None:
    """Begin a pipeline warm: what a history has delivered is a duplicate in the stream, for the window of ids.

    The pipeline has no state yet, and nobody works on it. First the history is staged in a folder, files by
    Spark, a topic without it; then it is loaded, in transactions. Started again, the same command goes on
    where it was. A pipeline of mode watermark begins with a topic.
    """
    settings = load(config)
    require_pipelines(settings)
    chosen = chosen_pipeline(settings, pipeline)
    if len(dict(cuts)) < len(cuts):
        raise click.UsageError("--cut: give each partition once")
    if cuts and cut_time is not None:
        raise click.UsageError("give either --cut or --cut-time")
    logs.set_up(settings.worker.log_format, settings.worker.log_level)
    # The client of the broker and numba are slow to import: a command line that is wrong is said at once.
    from processor.reset.backfill.intake.cuts import CutChoice  # noqa: PLC0415 - see above

    choice = CutChoice(dict(cuts), cut_time, up_to_cut)
    asked = _asked(settings, chosen, history, kind, columns, run_name, choice)
    asked = _with_files(asked._replace(staging=staging, master=master, memory=memory), ignore)
    _backfill(asked, dry=dry_run, as_json=as_json)


def _asked(
    settings: Settings,
    pipeline: Pipeline,
    history: str,
    kind: str,
    given: Sequence[str],
    run: str | None,
    choice: CutChoice,
) -> AskedBackfill:
    """Check what can be checked without a broker and the history.

    Raises:
        ConfigError: An option is wrong.
        StopError: The pipeline's rules cannot be followed over a history.
    """
    if run is not None and not _RUN.fullmatch(run):
        raise ConfigError(
            [Problem("--run", "must be of letters, digits, '.', '_' and '-', and begin with none of these")]
        )
    dedup = pipeline.id_dedup
    if dedup is not None and dedup.refresh and dedup.on_collision in {"quarantine", "drop"}:
        raise StopError(
            f"pipeline {pipeline.name} renews ids, and does not remember what collides: in which order "
            "records came decides, and a history does not say it"
        )
    if dedup is not None and dedup.on_collision == "tag":
        raise StopError(
            f"pipeline {pipeline.name} tags collisions with the first record's topic, partition and offset, "
            'which a history has not: choose on_collision "pass" or "rename", whose notes name the backfill'
        )
    sequences = pipeline.sequence_dedup
    if sequences is not None and (sequences.wraps or sequences.changes):
        what = "sequences wrap" if sequences.wraps else "epochs have no order"
        raise StopError(
            f"pipeline {pipeline.name} cannot begin with a history, as its {what}: in which order records came "
            "decides, and a history does not say it"
        )
    columns = None
    if kind == "topic":
        if given or choice.leave_out:
            raise ConfigError(
                [Problem("--columns" if given else "--up-to-cut", "goes with files, not with a topic")]
            )
    else:
        if dedup is None:
            raise ConfigError([Problem("--format", _ONLY_A_TOPIC)])
        read_columns(given)
        require("seqmark backfill", "spark", module="pyarrow")
        columns = history_columns(given, kind, dedup)
        if choice.leave_out and columns.offset is None and choice.time_ms is None:
            needs = "needs the offsets, --columns offset=COL, or --cut-time"
            raise ConfigError([Problem("--up-to-cut", needs)])
    return AskedBackfill(settings, pipeline, history, kind, columns, None, run or "", choice, None, "", "")


def _with_files(asked: AskedBackfill, ignore: Sequence[str]) -> AskedBackfill:
    """Find the files of a history of files, and name the backfill by the history unless it has a name.

    Raises:
        ConfigError: The history is no name.
        StopError: The history is not there.
    """
    files, name = None, asked.history
    if asked.kind != "topic":
        from spark_sink.backfill.job import find_history, history_session  # noqa: PLC0415 - slow to import

        session = partial(history_session, asked.pipeline.name, asked.master, asked.memory, say)
        files = find_history(asked.history, asked.kind, session, ignore)
        name = files.name
        if files.ignored:
            say(f"{len(files.ignored)} files are left out by --ignore, such as {files.ignored[0]}")
    if not asked.run and not _RUN.fullmatch(name):
        raise ConfigError([Problem("--run", f"give the backfill a name: {name} cannot be one")])
    return asked._replace(files=files, run=asked.run or name)


def _backfill(asked: AskedBackfill, *, dry: bool, as_json: bool) -> None:
    from processor.commands.spark.backfill_prepare import prepare  # noqa: PLC0415 - slow to import
    from processor.reset.backfill.intake.looks import look_ahead, require_one_history  # noqa: PLC0415 - likewise

    source = asked.pipeline.source
    has_offsets = (asked.columns is not None and asked.columns.offset is not None) or asked.history == source
    goal = asyncio.run(
        look_ahead(asked.settings, asked.pipeline, asked.run, asked.cut, has_offsets=has_offsets)
    )
    folder = _folder(asked, goal)
    with folder.locked():
        prepared = folder.prepared()
        if goal.whole and (prepared is None or prepared.staging is None):
            require_one_history(goal, asked.run, folder.difference())
            tell_loaded(asked.pipeline, asked.run, prepared, as_json=as_json)
            return
        if prepared is None:
            require_one_history(goal, asked.run, folder.difference())
            prepared = prepare(asked, goal, folder)
        else:
            say(f"backfill {asked.run} is staged in {folder.path}: its history is not read again")
        asyncio.run(_load(asked, prepared, folder, dry=dry, as_json=as_json))


def _folder(asked: AskedBackfill, goal: Goal) -> HistoryFolder:
    from processor.reset.backfill.intake.folder import HistoryFolder  # noqa: PLC0415 - slow to import

    worker = asked.settings.worker
    root = asked.staging or worker.state_dir / worker.application_id / "backfill" / asked.pipeline.name
    path = asked.history if asked.kind == "topic" else str(Path(asked.history).resolve())
    request = {
        "history": path,
        "format": asked.kind,
        "files": None if asked.files is None else asked.files.name,
        "columns": None if asked.columns is None else dict(columns_said(asked.columns)),
        "cut": sorted(asked.cut.offsets.items()),
        "cut time": asked.cut.time_ms,
        "up to cut": asked.cut.leave_out,
        "definition": goal.definition.hex(),
        "source": [asked.pipeline.source, goal.topic_id.hex(), goal.partitions],
        **({} if goal.route is None else {"sink partitions": goal.route}),
    }
    # Tasks of Spark have another working folder.
    return HistoryFolder(root.resolve(), asked.run, request)


async def _load(
    asked: AskedBackfill, prepared: Prepared, folder: HistoryFolder, *, dry: bool, as_json: bool
) -> None:
    """Do the second phase."""
    from processor.reset.backfill.load import loading  # noqa: PLC0415 - slow to import

    staging = prepared.staging
    assert staging is not None  # noqa: S101 - what was loaded has been answered before
    async with loading(asked.settings, asked.pipeline, staging) as work:
        plan = await work.plan()
        samples = await work.sample(plan)
        warn(
            asked.pipeline,
            prepared.counts,
            plan.cuts,
            samples,
            advise=asked.files is not None and not asked.cut.leave_out,
        )
        if dry:
            say(f"nothing was loaded: --dry-run. What is staged stays in {folder.path}")
        else:
            total = sum(step.staged.blocks - step.done for step in plan.steps)
            with bar(f"loading {asked.run}", total) as advance:
                await work.apply(plan, advance)
            folder.note(prepared.counts, staging, loaded=True)
    tell(asked.pipeline, asked.run, prepared.counts, plan, samples, loaded=not dry, as_json=as_json)
    if not dry:
        say(f"backfill {asked.run} is loaded; the workers of {asked.pipeline.name} can be started", "green")
