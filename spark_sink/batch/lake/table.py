"""Says what a batch asks of a Delta or Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from spark_sink.batch.rows.own_columns import OWN_SCHEMA
from spark_sink.batch.rows.schema import schema_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pyspark.sql import SparkSession

    from spark_sink.batch.table.commits import DataFile
    from spark_sink.batch.table.counted import Counted

DATE = "seqmark_date"
"""What tables are parted by, so that other programs merge files of one date only."""


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


class LakeTable(Protocol):
    """One table of a format.

    Attributes:
        title: The format's name.
        log: The folder of its log.
    """

    title: str
    log: Path

    def __init__(self, spark: SparkSession, folder: Path) -> None: ...

    def begin(self) -> LakeState:
        """Return the table as it is, and hold on to it: `commit` succeeds if it has not changed.

        Raises:
            LakeError: The library refuses.
            StopError: The table has what a batch cannot work with.
        """

    def commit(self, change: LakeChange) -> None:
        """Commit a change to the table as `begin` has found it.

        Raises:
            LakeError: The table has changed, or the library refuses.
        """

    def counted(self) -> Counted:
        """Return our last commit that the table's log has now, read without the JVM."""
