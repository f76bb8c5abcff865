"""Says what batches and aggregates tell a Delta or Iceberg table, and what they find in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from spark_sink.batch.rows.own_columns import OWN_SCHEMA
from spark_sink.batch.rows.schema import schema_of

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql.types import StructType

    from spark_sink.batch.table.commits import DataFile
    from spark_sink.batch.table.counted import Counted

DATE = "seqmark_date"
"""What tables are parted by, so that other programs merge files of one date only."""
NO_BATCH = -1


class LakeState(NamedTuple):
    """A table as a run finds it.

    Attributes:
        exists: Whether there is a table.
        counted: Our last commit that counts.
        columns: Their names.
        rows: Its files; their paths lead from the table's folder on.
    """

    exists: bool
    counted: Counted
    columns: list[str]
    rows: list[DataFile]


class LakeChange(NamedTuple):
    """One commit of a table.

    Attributes:
        number: Of our commit.
        mark: Of its file.
        run: The run's name.
        schema: The columns of the input, in Arrow's form; those that the table lacks are added.
        added: Files.
        removed: Paths of files that are in the table.
        same_rows: Whether what is added has the rows of what is removed.
    """

    number: int
    mark: int
    run: str
    schema: str
    added: list[DataFile]
    removed: list[str]
    same_rows: bool

    @property
    def columns(self) -> Any:
        """All columns of the rows, ours at the end, as an Arrow schema."""
        return pa.schema([*schema_of(self.schema), *OWN_SCHEMA])


class QueryBatch(NamedTuple):
    """A batch of an aggregate's query, as the table's log names it."""

    query: str
    """Spark's id of the query: made with the checkpoint, and lost with it."""
    number: int
    sink: str


class TableFound(NamedTuple):
    """A table as an aggregate finds it."""

    schema: StructType
    parted: str
    """What is wrong with how it is parted; empty: nothing."""
    last: int
    """The last batch of our query that is in, `NO_BATCH` for none."""
    holds_rows: bool
