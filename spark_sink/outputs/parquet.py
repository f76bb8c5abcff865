"""How do aggregates become Parquet files, each row exactly once?

By Spark's own file sink: a batch's files count only when the log in `_spark_metadata` names them, and that log
has one entry a batch. A batch that comes again after a crash finds its entry and writes nothing. Readers that
know the log (Spark does) see whole batches only; others may see files of a batch that was never finished.

A file is never changed, so that a window is written once, when the watermark has closed it: mode append.
Files lie in folders by the date (UTC) at which their windows begin, `window_date=2026-01-05`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.config import ParquetOutput
from spark_sink.checkpoint import Checkpoint
from spark_sink.files import Files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.outputs import Mode, Place

DATE = "window_date"
"""The folder's column; `spark_sink.job` adds it to the rows of this output."""
LOG = "_spark_metadata"


class ParquetFiles:
    """A folder of Parquet files."""

    mode: Mode = "append"

    def __init__(self, place: Place) -> None:
        output = place.sink.output
        if not isinstance(output, ParquetOutput):
            raise TypeError(output.kind)
        self._name = place.sink.name
        self.path = output.path
        self._files = Files(place.spark, output.path)
        self._checkpoint = Checkpoint(place.spark, place.sink.checkpoint)

    def prepare(self, columns: Sequence[Column]) -> None:
        """See that nobody else's files lie there, and that the log is this query's.

        Raises:
            StopError: Spark would leave the strange files out of what it reads; and with a new checkpoint it
                would take the first batches for written, because the log has their numbers, and lose them.
        """
        clash = [column.name for column in columns if column.name == DATE]
        if clash:
            raise StopError(
                f"sink {self._name}: {DATE} names the folders of its files; call the column otherwise"
            )
        if self._files.exists() and not self._files.exists(LOG) and self._files.names():
            raise StopError(
                f"sink {self._name}: {self.path} holds files that no sink has written; name an empty folder"
            )
        if self._files.numbers(LOG) and self._checkpoint.query() is None:
            raise StopError(
                f"sink {self._name}: {self.path} was written by a query whose checkpoint is gone "
                f"({self._checkpoint.path}). Put it back; or, to begin anew, remove {self.path}"
            )

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with Spark's file sink."""
        return writer.format("parquet").partitionBy(DATE).option("path", self.path).start()


def dated(rows: DataFrame) -> DataFrame:
    """Add the column that names the folders: the date at which a row's window begins, UTC."""
    return rows.withColumn(DATE, sql.to_date("window_start"))
