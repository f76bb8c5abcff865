"""Writes aggregates as Parquet files, each row exactly once.

By Spark's own file sink: a batch's files count only when the log in `_spark_metadata` names them, and that log
has one entry per batch. A batch that comes again after a crash finds its entry and writes nothing; its rows are
computed all the same, for the watermark is what Spark sees in them. Readers that know the log (Spark does) see
whole batches only; others may see files of a batch that was never finished.

A file is never changed, so that a window is written once, when the watermark has closed it: mode append.
Files lie in folders by the date (UTC) at which their windows begin, `window_date=2026-01-05`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.config import ParquetOutput
from spark_sink.files import Files
from spark_sink.outputs.output import each_batch
from spark_sink.query.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.outputs.output import Mode, OutputPlace

DATE = "window_date"
"""The folder's column; `spark_sink.job` adds it to the rows of this output."""
LOG = "_spark_metadata"
_NEWEST = 10
"""Entries whose files are looked for at a start: old dates may be removed, and listing all takes long."""


class ParquetFiles:
    """A folder of Parquet files."""

    mode: Mode = "append"

    def __init__(self, place: OutputPlace) -> None:
        output = place.sink.output
        if not isinstance(output, ParquetOutput):
            raise TypeError(output.kind)
        self._place = place
        self._name = place.sink.name
        self.path = output.path
        self._files = Files(place.spark, output.path)
        self._checkpoint = Checkpoint(place.spark, place.sink.checkpoint)

    def prepare(self, columns: Sequence[Column]) -> None:
        """Check that the folder holds no files of others, and that the log is this query's.

        Raises:
            StopError: Spark would not read files that its log does not name; and with a new checkpoint it
                would take the first batches for written, because the log has their numbers, and lose them.
        """
        clash = [column.name for column in columns if column.name == DATE]
        if clash:
            raise StopError(
                f"aggregate {self._name}: {DATE} names the folders of its files; give the column another name"
            )
        last = self._last()
        if self._checkpoint.query() is not None:
            self._require_all_there(last)
        elif last >= 0:
            raise StopError(
                f"aggregate {self._name}: {self.path} was written by a query whose checkpoint is gone "
                f"({self._checkpoint.path}). Put it back; or, to begin anew, remove {self.path}"
            )
        if self._files.exists() and not self._files.exists(LOG) and self._files.names():
            raise StopError(
                f"aggregate {self._name}: {self.path} holds files that no aggregate has written; name an empty "
                f"folder"
            )

    def _require_all_there(self, last: int) -> None:
        """Check that the log, which reaches to batch ``last``, fits the checkpoint, and its files are there."""
        place = self._checkpoint.path
        done, planned = self._checkpoint.committed(), max(self._checkpoint.planned(), default=-1)
        lost = self._lost()
        if last < done:
            found = f"has what batches 0 to {last} wrote" if last >= 0 else "is empty or gone"
            what = f"{self.path} {found}, but the checkpoint {place} has counted up to batch {done}"
            meaning = "Windows that are closed would never come again."
        elif last > planned:
            counted = f"is at {done}" if done >= 0 else "has counted nothing"
            what = f"{self.path} has batch {last} already, but the checkpoint {place} {counted}"
            meaning = "It was set back, or is another query's: the batches until then would not be written."
        elif lost:
            what = f"{self.path} lacks files that its log names, such as {lost}"
            meaning = "What they held would never come again."
        else:
            return
        raise StopError(
            f"aggregate {self._name}: {what}. {meaning} Put back what belongs together; or, to begin anew, "
            f"remove output, checkpoint and aside folder"
        )

    def _last(self) -> int:
        """Return the last batch that the log has; -1: it has none."""
        # Of every tenth batch on, one entry holds all before it: "9.compact".
        names = [name.removesuffix(".compact") for name in self._files.names(LOG)]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _lost(self) -> str:
        """Return a file that the log's newest entries name and that is not there; empty: none."""
        for number in self._files.numbers(LOG)[-_NEWEST:]:
            for line in (self._files.read(f"{LOG}/{number}") or "").splitlines():
                if line.startswith("{"):
                    # Folder of the date and file: the output may have been moved.
                    name = "/".join(json.loads(line)["path"].split("/")[-2:])
                    if not self._files.exists(name):
                        return name
        return ""

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with Spark's file sink.

        It is handed each batch by us, not by Spark: nothing of Spark's own file sink asks between the plan of a
        batch and its entry in the log whether the topic is still the one that was planned.
        """
        jvm = self._place.spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        streaming = jvm.org.apache.spark.sql.execution.streaming
        formats = jvm.org.apache.spark.sql.execution.datasources.parquet
        python = jvm.org.apache.spark.api.python.PythonUtils
        # Spark's own writer makes a relative path absolute before; the sink takes no other.
        path = self._files.absolute
        sink = streaming.FileStreamSink(
            self._place.spark._jsparkSession,  # noqa: SLF001 - the same
            path,
            formats.ParquetFileFormat(),
            python.toSeq([DATE]),
            python.toScalaMap({"path": path}),
        )

        written = self._last()

        def write(rows: DataFrame, number: int) -> None:
            if number > written:
                sink.addBatch(number, rows._jdf)  # noqa: SLF001 - the same
            else:
                rows.write.format("noop").mode("overwrite").save()

        return each_batch(self._place, writer, write)


def dated(rows: DataFrame) -> DataFrame:
    """Add the column that names the folders: the date at which a row's window begins, UTC."""
    return rows.withColumn(DATE, sql.to_date("window_start"))
