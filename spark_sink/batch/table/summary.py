"""Sums up a clean table for a report: its runs in order, and what counts by date. Needs no Spark.

Runs are told as their commits tell them. What is counted by date is what counts now: of a date that was made
again, what it was made to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from processor.errors import StopError
from spark_sink.batch.table.commits import RUN, read_snapshot
from spark_sink.batch.table.layout import DUPLICATES, QUARANTINE, ROWS, TableLayout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.config import FileBatch
    from spark_sink.batch.table.commits import Commit, Snapshot

KEPT, DUPLICATE, COLLISION, QUARANTINED, COLLIDED = "kept", "duplicate", "collision", "quarantined", "collided"
"""What rows are counted as: ``COLLISION`` are those that were dropped, ``COLLIDED`` those in the table or in
quarantine, where they are counted as well."""
_NO_RECEIPTS = "There is no folder for receipts: which dates the dropped rows are of nobody knows."
_UNDATED = "Rows whose time cannot be read are in quarantine without a date."


@dataclass(frozen=True, slots=True)
class TableRun:
    """One commit, as it tells of itself.

    Attributes:
        number: Of the commit.
        run: The run's name.
        is_run: Whether rows were read; otherwise files were merged.
        since: The date from which on it has made results again; None: it has not.
        counts: As in `spark_sink.batch.job.BatchOutcome`.
    """

    number: int
    run: str
    is_run: bool
    since: str | None
    counts: Mapping[str, int]


@dataclass(slots=True)
class BatchPart:
    """One batch of a config, counted.

    Attributes:
        name: Of the batch.
        input: Where its files are.
        output: The folder of its table.
        receipts: Whether it is known which rows were dropped.
        runs: In order.
        dates: Rows by date (empty: they have none), each by what they are.
        notes: What a reader has to know, sentences.
        problems: What could not be read, sentences.
    """

    name: str
    input: str
    output: str
    receipts: bool
    runs: list[TableRun] = field(default_factory=list)
    dates: dict[str, Counter[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def total(self, what: str) -> int:
        """Return how many rows of all dates are this."""
        return sum(counts[what] for counts in self.dates.values())

    @property
    def totals(self) -> dict[str, int]:
        """What rows are counted as, and how many of all dates are."""
        return {what: self.total(what) for what in (KEPT, DUPLICATE, COLLISION, QUARANTINED, COLLIDED)}

    def add(self, date: str, what: str, rows: int) -> None:
        """Count rows."""
        self.dates.setdefault(date, Counter())[what] += rows


def sum_up(batch: FileBatch) -> BatchPart:
    """Return what the commits of a batch's table say, and what its receipts do; problems are part of it."""
    layout = TableLayout(batch.output.path, batch.duplicates, batch.quarantine)
    part = BatchPart(batch.name, batch.input.place, batch.output.path, batch.duplicates is not None)
    try:
        snapshot = read_snapshot(layout)
    except (StopError, OSError) as error:
        part.problems.append(f"The commits cannot be read: {error}.")
        return part
    part.receipts = part.receipts or bool(snapshot.files[DUPLICATES])
    if snapshot.last is None:
        absent = "has no commit yet" if layout.output.is_dir() else "does not exist yet"
        part.notes.append(f"The output {batch.output.path} {absent}: no run has committed.")
        return part
    part.runs += map(_run, snapshot.commits)
    _count(part, layout, snapshot)
    if not part.receipts:
        part.notes.append(_NO_RECEIPTS)
    if "" in part.dates:
        part.notes.append(_UNDATED)
    return part


def _run(commit: Commit) -> TableRun:
    return TableRun(commit.number, commit.run, commit.kind == RUN, commit.since, commit.counts)


def _count(part: BatchPart, layout: TableLayout, snapshot: Snapshot) -> None:
    for kind, what in ((ROWS, KEPT), (QUARANTINE, QUARANTINED)):
        for each in snapshot.files[kind]:
            part.add(each.date, what, each.rows)
    for each in snapshot.files[DUPLICATES]:
        try:
            verdicts = _verdicts(layout.file(each.path))
        except (pa.ArrowException, OSError) as error:
            part.problems.append(f"The receipts {layout.file(each.path)} cannot be read: {error}")
            continue
        for what, rows in verdicts.items():
            part.add(each.date, what, rows)


def _verdicts(file: Path) -> Counter[str]:
    """Return how many rows of each kind the receipts of a file are of; two short columns are read."""
    found = Counter[str]()
    grouped = pq.ParquetFile(file).read(columns=["verdict", "action"]).group_by(["verdict", "action"])
    for row in grouped.aggregate([([], "count_all")]).to_pylist():
        dropped = COLLISION if row["action"] == "drop" else COLLIDED
        found[DUPLICATE if row["verdict"] == "duplicate" else dropped] += row["count_all"]
    return found
