"""``seqmark batch`` makes the files of one batch clean, as one run that counts whole or not at all."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import click

from processor.commands.chosen import no_such
from processor.commands.console import config_option, json_option, result, say, table_on_stdout
from processor.commands.spark.interrupts import ending_at_once
from processor.config.load import load
from processor.errors import ConfigError, Problem
from processor.ops import fault_points
from processor.ops.extras import require
from schemas.config import TopicInput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum
    from pathlib import Path

    from schemas.config import FileBatch, Settings
    from spark_sink.batch.job import BatchOptions, BatchOutcome
    from spark_sink.batch.topic.source import BatchTopicReader

INTERRUPTED = "what was written does not count unless it said committed: run the same batch again"
_TITLES = {
    "files": "input files",
    "expired": "offsets lost to retention",
    "read": "rows read",
    "skipped": "of earlier dates, left as they are",
    "kept": "kept",
    "duplicates": "duplicates, dropped",
    "collisions": "collisions",
    "renamed": "renamed",
    "quarantined": "quarantined",
    "dates": "dates with new rows",
}
_COMPACTED = {"files": "files merged", "dates": "dates they are of"}


@click.command()
@config_option
@click.option("--name", metavar="N", help="The batch; not needed where the config has one only.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="PATH",
    help="A file or folder in place of the config's; may be given again.",
)
@click.option("--run", "run_name", metavar="ID", help="Name of the run. Not set: its input files name it.")
@click.option(
    "--from",
    "since",
    metavar="DATE",
    help="Remove results, receipts and quarantine from this date (YYYY-MM-DD, UTC) on, and make them again.",
)
@click.option("--dry-run", is_flag=True, help="Count what would become of the rows, and write nothing.")
@click.option("--compact", is_flag=True, help="Read no input; merge the files of each date into one.")
@click.option(
    "--master",
    default="local[*,4]",
    metavar="M",
    help="Where Spark runs; 4: a task that dies is tried so often.",
)
@click.option("--memory", default="1g", metavar="SIZE", help="The driver's heap.")
@json_option
def batch(  # noqa: PLR0913 - one argument per option
    *,
    config: Path,
    name: str | None,
    inputs: Sequence[str],
    run_name: str | None,
    since: str | None,
    dry_run: bool,
    compact: bool,
    master: str,
    memory: str,
    as_json: bool,
) -> None:
    """Make files at rest clean, as [[batches]] says: each id once within its window, in all runs.

    A run counts whole or not at all. One that has committed answers at once; one that failed is simply started
    again. Exit code 1: an input cannot be used, a row cannot be judged and there is no quarantine, or another
    run is at work on the same output.
    """
    settings = load(config)
    chosen = _choose(settings, name)
    _require_right(since, inputs, run_name, dry=dry_run, compact=compact)
    if inputs and isinstance(chosen.input, TopicInput):
        raise ConfigError(
            [Problem("--input", f"does not go with {chosen.input.place}, the input of the batch")]
        )
    require("seqmark batch", "spark", module="pyarrow")
    # Spark and Arrow are slow to import: a config that is wrong is said at once.
    from spark_sink.batch.cluster import files_session  # noqa: PLC0415 - see above
    from spark_sink.batch.compaction import compact as merge_files  # noqa: PLC0415 - see above
    from spark_sink.batch.job import BatchJob, BatchOptions  # noqa: PLC0415 - see above

    options = BatchOptions(inputs, run_name, since, dry_run)
    audience = _BatchTerminal()
    name = f"seqmark-batch-{chosen.name}"
    # Listening after Spark's start, which sets a handler of its own for SIGINT.
    lakes = {chosen.input.format, chosen.output.format} & {"delta", "iceberg"}
    session = files_session(name, master=master, memory=memory, lakes=lakes, say=say)
    with session as spark, ending_at_once("batch", INTERRUPTED):
        if compact:
            outcome = merge_files(spark, chosen, audience)
        else:
            outcome = BatchJob(spark, chosen, options, audience, _topic_of(chosen, settings)).run()
    _tell(chosen, outcome, options, compact=compact, as_json=as_json)


def _choose(settings: Settings, name: str | None) -> FileBatch:
    known = [each.name for each in settings.batches]
    if not known:
        raise ConfigError([Problem("batches", "there is none: add a [[batches]] table")])
    chosen = [each for each in settings.batches if name in {None, each.name}]
    if len(chosen) != 1:
        raise no_such("--name", "batch", name, known)
    return chosen[0]


def _topic_of(chosen: FileBatch, settings: Settings) -> BatchTopicReader | None:
    if not isinstance(chosen.input, TopicInput):
        return None
    from processor.commands.spark.batch_topic import BatchTopic  # noqa: PLC0415 - aiokafka is slow to import, too

    return BatchTopic(settings.kafka, chosen.input.topic)


def _require_right(
    since: str | None, inputs: Sequence[str], run_name: str | None, *, dry: bool, compact: bool
) -> None:
    problems = []
    if since is not None and not _is_date(since):
        problems.append(Problem("--from", f"must be a date such as 2026-01-31, not {since}"))
    if run_name is not None and not run_name.strip():
        problems.append(Problem("--run", "must not be empty"))
    if compact and (since or inputs or run_name or dry):
        problems.append(Problem("--compact", "reads no input: it goes with no other option of a run"))
    if problems:
        raise ConfigError(problems)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


class _BatchTerminal:
    """Tells people how far a run is."""

    def say(self, text: str) -> None:
        """Tell of what takes long."""
        say(text)

    def done(self, step: StrEnum) -> None:
        """Note that a step is done; a test may have asked to end here."""
        fault_points.reached(step)


def _tell(
    chosen: FileBatch, outcome: BatchOutcome, options: BatchOptions, *, compact: bool, as_json: bool
) -> None:
    counts = outcome.counts
    if as_json:
        result(
            batch=chosen.name,
            run=outcome.run,
            commit=outcome.commit,
            committed_before=outcome.earlier,
            dry_run=options.dry,
            seconds=round(outcome.seconds, 3),
            **counts,
        )
        return
    if outcome.earlier and compact:
        say("every date is one file already: nothing was written")
    elif outcome.earlier:
        say(f"run {outcome.run} has committed before (commit {outcome.commit}): nothing was done")
    elif options.dry:
        say(f"run {outcome.run}: a dry run, nothing was written")
    else:
        say(f"run {outcome.run}: committed (commit {outcome.commit}) after {outcome.seconds:.1f} s", "green")
    titles = _COMPACTED if compact else _TITLES
    if isinstance(chosen.input, TopicInput) and not compact:
        titles = {**titles, "files": "input partitions"}
    rows = [(title, f"{counts[key]:,}") for key, title in titles.items() if key in counts]
    table_on_stdout([f"batch {chosen.name}, run {outcome.run}", "number"], rows, right=[1])
