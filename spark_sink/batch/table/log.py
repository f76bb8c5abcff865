"""Says what of a table counts, and makes commits count: the one thing in which the formats of outputs differ.

Plain Parquet has no log but the commit files: what they name counts. `spark_sink.batch.lake` has the logs of
Delta and Iceberg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spark_sink.batch.table.commits import note_head, put_commit, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_sink.batch.table.commits import Commit, Snapshot
    from spark_sink.batch.table.layout import TableLayout


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
