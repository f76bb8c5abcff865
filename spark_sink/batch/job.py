"""Makes the files of one batch clean, as one run that counts whole or not at all.

The steps of a run, numbered once; code, tests and docs use these numbers and names. Whoever dies after any of
them leaves nothing that counts, but for step 8, after which all of it does:

    1 locked      one run at a time works on a table
    2 named       the run has a name, and no commit of that name yet: a run that has one answers at once
    3 inspected   the input's footers are read; columns and types fit the table's; records of a topic are put
                  aside first, and are what is read from here on
    4 extracted   ids, fingerprints and times are put aside by bucket of ids; rows stay where they are
    5 probed      so are the table's rows with these ids, of the dates that the window reaches
    6 judged      each bucket is judged by the worker's kernels; verdicts are put aside by split of the input
    7 written     the input is read once more: kept rows, receipts and quarantined rows are written
    8 committed   one commit file names them all; with Delta and Iceberg it counts by the commit of the table's
                  own that follows: between the two is the moment ``put``
    9 cleared     what was put aside, and what dead runs have left, is removed

Spark deals out the work: a task takes a split, a file of the table or a bucket, and reads and writes files by
Arrow. Nothing goes through the JVM, and no promise rests on how Spark would plan a join.
"""

from __future__ import annotations

import os
import shutil
import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from processor.engine.rest import Fault, Normal, rest_is_warm, warm_rest
from processor.errors import StopError
from schemas.config.batches import TopicInput
from spark_sink.batch.cluster import TaskCluster
from spark_sink.batch.delta_inputs import find_delta_inputs
from spark_sink.batch.inputs import FileInputs, find_inputs, with_folders
from spark_sink.batch.leftovers import remove_leftovers
from spark_sink.batch.plan import RunPlan, Split, name_run
from spark_sink.batch.rows import columns
from spark_sink.batch.rows.schema import schema_of
from spark_sink.batch.table.commits import RUN, Commit, Snapshot
from spark_sink.batch.table.counted import DELTA, PARQUET
from spark_sink.batch.table.definition import open_definition
from spark_sink.batch.table.layout import KINDS, QUARANTINE, ROWS, TableLayout, day_number, table_lock
from spark_sink.batch.table.log import open_log
from spark_sink.batch.tasks.extract import Extracted, extract
from spark_sink.batch.tasks.inspect import read_footer, splits_of
from spark_sink.batch.tasks.judge import JudgedBucket, judge
from spark_sink.batch.tasks.probe import ProbedFile, near_files, probe, probed_parts, put_lows, times_matter
from spark_sink.batch.tasks.tally import counts_of, fewer_rows
from spark_sink.batch.tasks.write import write
from spark_sink.batch.topic.again import RetainedOffsets, require_retained, spans_of
from spark_sink.batch.topic.inputs import TopicInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from schemas.config import FileBatch
    from spark_sink.batch.inputs import RunInputs
    from spark_sink.batch.table.commits import DataFile
    from spark_sink.batch.table.definition import TableDefinition
    from spark_sink.batch.topic.source import BatchTopicReader

_BUCKET_ROWS = 1 << 19
"""Rows per bucket: 40 B each as they are put aside, some 150 MB while they are judged."""
_MOST_BUCKETS = 4096
_MOST_WINDOW_US = 2**62
"""146,000 years, more than two times can be apart; the kernels count in 64 bits."""
_FEW_REMEMBERED, _FEW_NEW = 16_000_000, 1_000_000
"""Rows that are looked at, and rows that are judged, in 0.1 to 0.2 s of one core: what Spark's tasks for them
cost. On one machine that is done right here."""
_LINE_BYTES = 200
"""Of a line of JSON, guessed, to choose the number of buckets."""


class BatchStep(StrEnum):
    """The steps of a run, see the module."""

    LOCKED = "locked"
    NAMED = "named"
    INSPECTED = "inspected"
    EXTRACTED = "extracted"
    PROBED = "probed"
    JUDGED = "judged"
    WRITTEN = "written"
    PUT = "put"
    COMMITTED = "committed"
    CLEARED = "cleared"


class BatchAudience(Protocol):
    """Who is told how far a run is."""

    def say(self, text: str) -> None:
        """Tell of what takes long."""

    def done(self, step: BatchStep) -> None:
        """Note that a step is done."""


class BatchOptions(NamedTuple):
    """How a run is to be done.

    Attributes:
        inputs: Files and folders in place of the config's; empty: those of the config.
        run: Its name; None: its files name it.
        since: The date, YYYY-MM-DD in UTC, from which on results are made again; None: nothing is.
        dry: Whether only to count what would become of the rows.
    """

    inputs: Sequence[str] = ()
    run: str | None = None
    since: str | None = None
    dry: bool = False


class BatchOutcome(NamedTuple):
    """What came of a run.

    Attributes:
        run: Its name.
        commit: The number of its commit; None: a dry run has none.
        earlier: Whether it had committed before.
        counts: ``files``, ``read``, ``skipped`` (of dates that are not made), ``kept``, ``duplicates``,
            ``collisions``, ``renamed``, ``quarantined``, and ``dates`` that rows were kept of; of a topic
            ``files`` are partitions, and ``expired`` offsets that retention has taken before a run read them.
        seconds: That it took.
    """

    run: str
    commit: int | None
    earlier: bool
    counts: dict[str, int]
    seconds: float


class BatchJob:
    """One run of one batch.

    Args:
        spark: Whose tasks do the work.
        batch: What is made clean, from where to where.
        options: How.
        audience: Told of the steps.
        topic: Reads the topic that is the batch's input, if one is.
    """

    def __init__(
        self,
        spark: SparkSession,
        batch: FileBatch,
        options: BatchOptions,
        audience: BatchAudience,
        topic: BatchTopicReader | None = None,
    ) -> None:
        self._topic = topic
        self._spark, self._cluster = spark, TaskCluster(spark)
        self._batch, self._options, self._audience = batch, options, audience
        self._layout = TableLayout(batch.output.path, batch.duplicates, batch.quarantine)
        self._log = open_log(spark, batch.output.format, self._layout)
        self._began = time.monotonic()

    def run(self) -> BatchOutcome:
        """Do it, or find that it is done.

        Raises:
            StopError: Another run is at work, an input cannot be used or does not fit, or a row cannot be
                judged and there is no quarantine. Nothing of the run counts.
        """
        batch, options, layout = self._batch, self._options, self._layout
        with table_lock(layout):
            self._audience.done(BatchStep.LOCKED)
            definition = open_definition(layout, batch, keep=not options.dry)
            snapshot = self._log.read()
            inputs = self._find(snapshot)
            name, commit = name_run(inputs, options.run, options.since, snapshot, batch)
            if commit is not None:
                remove_leftovers(layout, snapshot, keep_rows=self._log.keeps_removed)
                return BatchOutcome(name, commit.number, True, commit.counts, self._seconds())
            self._audience.done(BatchStep.NAMED)
            if not options.dry:
                layout.claim()
            attempt = os.urandom(4).hex()
            try:
                return self._attempt(self._plan(name, attempt, snapshot, definition, inputs), snapshot, inputs)
            finally:
                shutil.rmtree(layout.staging(attempt), ignore_errors=True)

    def _find(self, snapshot: Snapshot) -> RunInputs:
        source, since, say = self._batch.input, self._options.since, self._audience.say
        if isinstance(source, TopicInput):
            if self._topic is None:
                raise TypeError(f"nobody reads {source.place}")
            return TopicInputs(self._topic, snapshot, since, say)
        paths = self._options.inputs or [source.path]
        if source.format == DELTA:
            return FileInputs(*find_delta_inputs(self._spark, paths))
        files, ignored = find_inputs(paths, source.format, self._batch.ignore)
        if ignored:
            say(f"{len(ignored)} files are left out by ignore, such as {ignored[0]}")
        if source.format == "json":
            return FileInputs(files)
        return FileInputs(with_folders(files, _columns(snapshot)))

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _plan(
        self,
        run: str,
        attempt: str,
        snapshot: Snapshot,
        definition: TableDefinition,
        inputs: RunInputs,
    ) -> RunPlan:
        batch, options, layout = self._batch, self._options, self._layout
        staging = layout.staging(attempt)
        folders = {kind: None if folder is None else str(folder) for kind, folder in layout.folders.items()}
        return RunPlan(
            batch=batch.name,
            run=run,
            number=len(snapshot.commits) + 1,
            attempt=attempt,
            staging=str(staging),
            output=str(layout.output),
            folders=folders,
            format=PARQUET if batch.input.format == DELTA else batch.input.format,
            files=[str(each) for each in inputs.files(staging)],
            names=list(inputs.names),
            constants=inputs.constants,
            id=list(batch.id),
            normal=[Normal.of(batch.normalise.get(each)) for each in batch.id],
            event_time=batch.event_time,
            window_us=min(batch.window * 1000, _MOST_WINDOW_US),
            key=definition.key,
            exclude=None if batch.fingerprint is None else list(batch.fingerprint.exclude),
            on_collision=batch.on_collision,
            renamed=batch.renamed_column,
            rename_first=batch.rename_first,
            since_day=None if options.since is None else day_number(options.since),
            buckets=1,
            declared=columns.declared_columns(batch),
            known="" if snapshot.last is None else snapshot.last.schema,
        )

    def _attempt(self, plan: RunPlan, snapshot: Snapshot, inputs: RunInputs) -> BatchOutcome:
        """Do the steps from 3 on."""
        layout, since = self._layout, self._options.since
        layout.staging(plan.attempt).mkdir(parents=True)
        removed = _removed(snapshot, since, inputs.undated)
        if isinstance(inputs, TopicInputs):
            require_retained(snapshot, removed, layout, inputs.span, spans_of(inputs.span))
        splits, plan = self._inspect(plan, snapshot, inputs)
        if isinstance(inputs, TopicInputs) and since is not None:
            there = {
                each.name: RetainedOffsets.staged(each) for each in inputs.files(layout.staging(plan.attempt))
            }
            require_retained(snapshot, removed, layout, inputs.span, there)
        self._audience.done(BatchStep.INSPECTED)
        extracted, plan = self._extract(plan, snapshot, splits)
        self._audience.done(BatchStep.EXTRACTED)
        probed = self._probe(plan, snapshot, removed, extracted, len(splits))
        self._audience.done(BatchStep.PROBED)
        few = self._cluster.is_local and sum(each.rows for each in extracted) <= _FEW_NEW
        judged = self._cluster.run(
            partial(_judge_bucket, plan, splits, probed), range(plan.buckets), "judging the rows", brief=few
        )
        self._audience.done(BatchStep.JUDGED)
        if self._options.dry:
            counts = counts_of(inputs, extracted, judged, [], self._batch.on_collision)
            return BatchOutcome(plan.run, None, False, counts, self._seconds())
        self._audience.say(f"writing what became of {sum(each.rows for each in extracted):,} rows")
        written = self._cluster.run(partial(write, plan), splits, "writing the rows")
        self._audience.done(BatchStep.WRITTEN)
        inputs.require_unchanged()
        if less := fewer_rows(snapshot, removed[ROWS], (file for each in written for file in each.files[ROWS])):
            self._audience.say(less)
        counts = counts_of(inputs, extracted, judged, written, self._batch.on_collision)
        commit = Commit(
            number=plan.number,
            run=plan.run,
            kind=RUN,
            inputs=list(inputs.stamps),
            topic=inputs.span,
            schema=plan.schema,
            columns={each.name: str(each.type) for each in schema_of(plan.schema)},
            added={kind: [file for each in written for file in each.files.get(kind, [])] for kind in KINDS},
            removed=removed,
            counts=counts,
            since=since,
        )
        self._log.commit(commit, snapshot, partial(self._audience.done, BatchStep.PUT))
        self._audience.done(BatchStep.COMMITTED)
        unified = columns.unified_ids((each.numbers for each in extracted), plan)
        for text in (*unified, *columns.misfit_rows(each.misfits for each in extracted)):
            self._audience.say(text)
        after = Snapshot([*snapshot.commits, commit])
        remove_leftovers(layout, after, keep_rows=self._log.keeps_removed)
        self._audience.done(BatchStep.CLEARED)
        return BatchOutcome(plan.run, plan.number, False, counts, self._seconds())

    def _inspect(self, plan: RunPlan, snapshot: Snapshot, inputs: RunInputs) -> tuple[list[Split], RunPlan]:
        """Return the splits, and the plan with its number of buckets; of Parquet with the schema, too."""
        if isinstance(inputs, TopicInputs):
            staged = inputs.stage(Path(plan.staging))
            return splits_of(staged), plan._replace(
                buckets=self._buckets(sum(sum(each.rows) for each in staged))
            )
        self._audience.say(f"looking at {len(plan.files):,} files")
        if plan.format == "json":
            splits = [Split(number, number) for number in range(len(plan.files))]
            rows = sum(each.bytes for each in inputs.stamps) // _LINE_BYTES
            return splits, plan._replace(buckets=self._buckets(rows))
        function = partial(read_footer, plan.id, plan.event_time, plan.renamed)
        beside = plan.constants or [()] * len(plan.files)
        files = list(zip(plan.files, beside, strict=True))
        footers = self._cluster.run(function, files, "looking at the input", brief=True)
        found = [(file, each.schema) for file, each in zip(plan.files, footers, strict=True)]
        needed = dict.fromkeys((*plan.id, plan.event_time), f"batch {plan.batch}")
        schema = columns.columns_of_files(found, _columns(snapshot), inputs.logged, needed)
        splits = splits_of(footers)
        rows = sum(sum(each.rows) for each in footers)
        return splits, plan._replace(schema=schema, buckets=self._buckets(rows))

    def _buckets(self, rows: int) -> int:
        wanted = max(-(-rows // _BUCKET_ROWS), min(self._cluster.cores, -(-rows // 10_000)), 1)
        return min(1 << (wanted - 1).bit_length(), _MOST_BUCKETS)

    def _extract(
        self, plan: RunPlan, snapshot: Snapshot, splits: Sequence[Split]
    ) -> tuple[list[Extracted], RunPlan]:
        if not rest_is_warm():
            self._audience.say("compiling the kernels, once per machine and version: that takes about a minute")
            warm_rest()  # workers then find them compiled
        self._audience.say(f"reading ids, in {len(splits):,} parts")
        extracted = self._cluster.run(partial(extract, plan), splits, "reading the ids")
        if plan.folders[QUARANTINE] is None:
            for split, each in zip(splits, extracted, strict=True):
                if each.first_fault is not None:
                    row, code = each.first_fault
                    raise StopError(
                        f"{plan.names[split.file]}:{row} cannot be judged ({Fault(code).code}); nothing of "
                        f"this run counts. Name a folder for such rows: batches.{plan.batch}.quarantine"
                        f"{columns.advice(next(iter(each.misfits), ''))}"
                    )
        if plan.format != PARQUET:
            shapes = (each.shape for each in extracted)
            of_topic = plan.format != "json"
            schema = columns.columns_of_values(shapes, _columns(snapshot), plan.declared, of_topic=of_topic)
            plan = plan._replace(schema=schema)
        return extracted, plan

    def _probe(
        self,
        plan: RunPlan,
        snapshot: Snapshot,
        removed: dict[str, list[str]],
        extracted: Sequence[Extracted],
        splits: int,
    ) -> int:
        """Look the new ids up in the files that the window reaches; return in how many parts."""
        gone, days = set(removed[ROWS]), {day for each in extracted for day in each.days}
        files = [each for each in snapshot.files[ROWS] if each.path not in gone]
        files = near_files(files, days, plan.window_us)
        there = [(str(self._layout.file(each.path)), day_number(each.date)) for each in files]
        looked = [ProbedFile(path, day, times_matter(day, days, plan)) for path, day in there]
        probed = probed_parts(looked, self._cluster.cores)
        remembered = sum(each.rows for each in files)
        if probed:
            self._audience.say(f"looking the ids up in {len(files):,} of {len(snapshot.files[ROWS]):,} files")
            put_lows(plan, splits)
        few = self._cluster.is_local and remembered <= _FEW_REMEMBERED
        self._cluster.run(partial(probe, plan), probed, "looking the ids up", brief=few)
        return len(probed)


def _columns(snapshot: Snapshot) -> Any | None:
    """Return the columns that the table has, as an Arrow schema; None: there is no table yet."""
    return None if snapshot.last is None else schema_of(snapshot.last.schema)


def _judge_bucket(plan: RunPlan, splits: Sequence[Split], probed: int, bucket: int) -> JudgedBucket:
    return judge(plan, bucket, splits, probed)


def _removed(snapshot: Snapshot, since: str | None, paths: set[str]) -> dict[str, list[str]]:
    """Return by kind the files that are made again: of dates from ``since`` on, undated ones by their input."""
    if since is None:
        return {kind: [] for kind in KINDS}

    def again(file: DataFile) -> bool:
        return file.date >= since if file.date else file.source in paths

    return {kind: [each.path for each in snapshot.to_remove(kind) if again(each)] for kind in KINDS}
