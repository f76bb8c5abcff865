"""Makes one file of the many that a date has, as one commit: the same rows, the same columns."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from processor.errors import StopError
from spark_sink.batch.cluster import TaskCluster
from spark_sink.batch.job import BatchOutcome, BatchStep
from spark_sink.batch.leftovers import remove_leftovers
from spark_sink.batch.table.commits import COMPACTION, Commit, Snapshot
from spark_sink.batch.table.definition import open_definition
from spark_sink.batch.table.layout import KINDS, ROWS, TableLayout, table_lock
from spark_sink.batch.table.log import open_log
from spark_sink.batch.tasks.merge import MergedDate, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from schemas.config import FileBatch
    from spark_sink.batch.job import BatchAudience
    from spark_sink.batch.table.commits import DataFile


def compact(spark: SparkSession, batch: FileBatch, audience: BatchAudience) -> BatchOutcome:
    """Merge the files of each date that has several.

    Its steps are 1, 7, 8 and 9 of a run. Undated rows stay in the files of their inputs.

    Raises:
        StopError: Another run is at work, or there is no table yet.
    """
    began = time.monotonic()
    layout = TableLayout(batch.output.path, batch.duplicates, batch.quarantine)
    log = open_log(spark, batch.output.format, layout)
    with table_lock(layout):
        audience.done(BatchStep.LOCKED)
        open_definition(layout, batch, keep=False)
        snapshot = log.read()
        last = snapshot.last
        if last is None:
            raise StopError(
                f"batch {batch.name}: {layout.output} has no commit yet; there is nothing to compact"
            )
        jobs = _jobs(layout, snapshot, last)
        number = len(snapshot.commits) + 1
        if not jobs:
            return BatchOutcome("compaction", None, True, {"files": 0, "dates": 0}, time.monotonic() - began)
        audience.say(f"merging {sum(len(each.paths) for each in jobs):,} files into {len(jobs):,}")
        merged = TaskCluster(spark).run(merge, jobs, "merging files")
        audience.done(BatchStep.WRITTEN)
        added: dict[str, list[DataFile]] = {kind: [] for kind in KINDS}
        removed: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for job, files in zip(jobs, merged, strict=True):
            added[job.kind] += files
            removed[job.kind] += [each.path for each in snapshot.to_remove(job.kind) if each.date == job.date]
        counts = {"files": sum(len(each.paths) for each in jobs), "dates": len({each.date for each in jobs})}
        commit = Commit(number, "compaction", COMPACTION, [], last.schema, last.columns, added, removed, counts)
        log.commit(commit, snapshot, partial(audience.done, BatchStep.PUT))
        audience.done(BatchStep.COMMITTED)
        remove_leftovers(layout, Snapshot([*snapshot.commits, commit]), keep_rows=log.keeps_removed)
        audience.done(BatchStep.CLEARED)
        return BatchOutcome("compaction", number, False, counts, time.monotonic() - began)


def _jobs(layout: TableLayout, snapshot: Snapshot, last: Commit) -> list[MergedDate]:
    attempt, number = os.urandom(4).hex(), len(snapshot.commits) + 1
    jobs: list[MergedDate] = []
    for kind, folder in layout.folders.items():
        dates: dict[str, list[DataFile]] = defaultdict(list)
        for each in snapshot.files[kind]:
            if each.date:
                dates[each.date].append(each)
        for date, files in sorted(dates.items()):
            if folder is not None and len(files) > 1:
                stem = f"{number:08d}-{attempt}-{len(jobs):05d}"
                paths, rows = [str(layout.file(each.path)) for each in files], sum(each.rows for each in files)
                schema = last.schema if kind == ROWS else ""
                jobs.append(MergedDate(kind, str(folder), str(layout.output), stem, date, paths, rows, schema))
    return jobs
