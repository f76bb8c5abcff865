"""Says what of a table counts, and makes commits count: the one thing in which the formats of outputs differ.

Plain Parquet has no log but the commit files: what they name counts. Our commit and that of a Delta or Iceberg
table are made one: they count together or not at all. Step 8 of a run then has two halves:

    put        the commit file is put; nothing counts by it yet
    committed  one commit of the table's own adds and removes files of rows, and says number and mark of our
               commit: by these the commit file counts, and with it receipts and quarantine

Who dies between them leaves a commit file that the table's log does not know. Nobody reads it, and the next run
sets it aside and puts its own in its place. Should the dead one's commit land in that moment, for its JVM has
outlived it, the mark in the log is the dead one's: its file is put back, and the run is refused. Should that
run be killed, too, before it has put the file back, readers find the file aside by its mark, and the next run
puts it back.

All of it is held against the table as it was when the run began: where another program has committed meanwhile,
the run is refused.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Protocol

from processor.errors import StopError
from spark_sink.batch.table.commits import (
    COMPACTION,
    Snapshot,
    commit_file,
    counting_file,
    files_aside,
    note_head,
    overtaken,
    put_commit,
    read_snapshot,
)
from spark_sink.batch.table.counted import DELTA, ICEBERG, PARQUET, Counted, mark_of
from spark_sink.batch.table.layout import ROWS, flush_folder, replace_whole
from spark_sink.lake.delta import DeltaTable
from spark_sink.lake.iceberg import IcebergTable
from spark_sink.lake.jvm import LakeError
from spark_sink.lake.table import LakeChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_sink.batch.table.commits import Commit
    from spark_sink.batch.table.layout import TableLayout

TABLES: dict[str, type[DeltaTable | IcebergTable]] = {DELTA: DeltaTable, ICEBERG: IcebergTable}
_CLOCKS_S = 10
"""By how much a file server's clock may be behind ours; a file too many does no harm."""


class TableLog(Protocol):
    """The log of one table, for one run that holds the table's lock.

    Attributes:
        keeps_removed: Whether files of rows that a commit has removed are the format's own to clear: it lets
            readers go back in time.
    """

    keeps_removed: bool

    def read(self) -> Snapshot:
        """Return what counts. The run is judged and committed against this.

        Raises:
            StopError: The log is damaged, or has what a batch cannot work with.
        """

    def commit(self, commit: Commit, before: Snapshot, put: Callable[[], None]) -> None:
        """Make a commit count, whole.

        Args:
            commit: It.
            before: What `read` has returned.
            put: Called when its file is there and does not count yet, where the format has such a moment.

        Raises:
            StopError: Somebody else has committed meanwhile, or the log cannot be written. It does not count.
        """


class CommitFiles:
    """The log of a table of plain Parquet: a commit counts when its file is there."""

    keeps_removed = False

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout

    def read(self) -> Snapshot:
        """Return what the commit files say."""
        return read_snapshot(self._layout)

    def commit(self, commit: Commit, before: Snapshot, put: Callable[[], None]) -> None:  # noqa: ARG002 - one moment
        """Put the commit's file."""
        note_head(self._layout, commit.number, put_commit(self._layout, commit, before.last))


class LakeLog:
    """The log of a Delta or Iceberg table, see the module."""

    keeps_removed = True

    def __init__(self, table: DeltaTable | IcebergTable, layout: TableLayout) -> None:
        self._table, self._layout = table, layout
        self._dead: bytes | None = None

    def read(self) -> Snapshot:
        """Return what counts, and hold on to the table as it is now.

        Raises:
            StopError: No batch has made the table, or it has what a batch cannot work with.
        """
        table, layout = self._table, self._layout
        try:
            state = table.begin()
        except LakeError as error:
            raise StopError(f"{layout.output} cannot be read by {table.title}: {error}") from error
        if state.exists and not state.counted.number:
            raise StopError(
                f"{layout.output} is a table of {table.title} that no batch has made: name another folder as "
                "output, and give this one as an input"
            )
        snapshot = read_snapshot(layout, state.counted)
        if (last := snapshot.last) is not None and (gone := set(last.columns) - set(state.columns)):
            raise StopError(
                f"{layout.output} has no column {min(gone)} any more: somebody has renamed or dropped it; "
                f"set that back in {table.title}"
            )
        self._settle(state.counted)
        self._dead = self._file(state.counted.number + 1)
        return Snapshot(snapshot.commits, state.rows)

    def _settle(self, counted: Counted) -> None:
        """Put the file back that counts, where it is another one, and remove those that never will."""
        wanted = commit_file(self._layout, counted.number)
        if (file := counting_file(self._layout, counted)) is not None and file != wanted:
            replace_whole(wanted, file.read_text())
        for each in files_aside(self._layout, counted.number):
            each.unlink(missing_ok=True)

    def _file(self, number: int) -> bytes | None:
        file = commit_file(self._layout, number)
        return file.read_bytes() if file.exists() else None

    def _set_aside(self, number: int) -> None:
        file = commit_file(self._layout, number)
        file.rename(file.with_name(f"{file.stem}.{os.urandom(4).hex()}.aside"))
        flush_folder(file.parent)

    def commit(self, commit: Commit, before: Snapshot, put: Callable[[], None]) -> None:
        """Put the commit's file, and let the table's own commit make it count.

        Raises:
            StopError: Somebody else has committed meanwhile, or the table refuses it. It does not count.
        """
        layout, table = self._layout, self._table
        if self._dead is not None and self._dead == self._file(commit.number):
            if table.counted().number >= commit.number:
                raise overtaken(layout)
            self._set_aside(commit.number)
        text = put_commit(layout, commit, before.last)
        mark = mark_of(commit.number, hashlib.sha256(text.encode()).hexdigest())
        put()
        began = time.time()
        counting = {each.path for each in before.files[ROWS]}
        try:
            table.commit(
                LakeChange(
                    number=commit.number,
                    mark=mark,
                    run=commit.run,
                    schema=commit.schema,
                    added=commit.added[ROWS],
                    removed=[each for each in commit.removed[ROWS] if each in counting],
                    same_rows=commit.kind == COMPACTION,
                )
            )
        except LakeError as error:
            counted = table.counted()
            if counted.number < commit.number:
                raise StopError(self._refusal(error)) from error
            if counted != Counted(commit.number, mark):
                # It has that of a run whose process was killed and whose JVM has gone on for a moment.
                if counted.mark:
                    self._settle(counted)
                elif self._dead is not None:
                    replace_whole(commit_file(layout, commit.number), self._dead.decode())
                raise overtaken(layout) from error
            # It has ours: only the answer was lost.
        self._flush(began)
        note_head(layout, commit.number, text)
        self._settle(Counted(commit.number, mark))

    def _flush(self, began: float) -> None:
        """Make durable what the library has written: it leaves that to the system."""
        for each in self._table.log.iterdir():
            if each.is_file() and each.stat().st_mtime >= began - _CLOCKS_S:
                with each.open("rb") as stream:
                    os.fsync(stream.fileno())
        flush_folder(self._table.log)

    def _refusal(self, error: LakeError) -> str:
        if error.conflict:
            return (
                f"another program has changed {self._layout.output} meanwhile ({error}): nothing of this run "
                "counts; start it again"
            )
        return f"{self._table.title} refuses the commit ({error}): nothing of this run counts"


def open_log(spark: SparkSession, kind: str, layout: TableLayout) -> TableLog:
    """Return the log of a table, which need not be there yet.

    Raises:
        StopError: Spark has no jars for this format.
    """
    return CommitFiles(layout) if kind == PARQUET else LakeLog(TABLES[kind](spark, layout.output), layout)
