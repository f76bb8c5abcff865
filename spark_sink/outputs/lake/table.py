"""Says what an aggregate asks of a table of Delta or Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NO_BATCH = -1


class QueryBatch(NamedTuple):
    """A batch of a query, as the table's log names it."""

    query: str
    """Spark's id of the query: made with the checkpoint, and lost with it."""
    number: int
    sink: str


class TableFound(NamedTuple):
    """A table as it is."""

    schema: StructType
    parted: str
    """What is wrong with how it is parted; empty: nothing."""
    last: int
    """The last batch of our query that is in, `NO_BATCH` for none."""
    holds_rows: bool


class AggregateTable(Protocol):
    """A table of one format."""

    title: str
    """The format's name."""
    log: str
    """The folder of the format's own log."""

    def look(self, query: str | None) -> TableFound | None:
        """Return the table as it is now, None where there is none.

        Args:
            query: The query whose batches are looked for; None: it has not begun.
        """
        ...

    def create(self, schema: StructType) -> None:
        """Create the table, without rows."""
        ...

    def columns(self, schema: StructType) -> StructType:
        """Return the columns of a table for rows of this schema."""
        ...

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Add the rows of a batch and its number, in one commit.

        Raises:
            LakeConflictError: Somebody else has committed meanwhile. Nothing of it is in the table.
        """
        ...


class LakeConflictError(Exception):
    """Another commit came first; it may have been this batch's, of a driver that was believed dead."""
