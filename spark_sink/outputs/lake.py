"""Writes each closed window into a table of Delta or Iceberg once, whoever tries how often.

A batch goes these steps:

    1  compute   its rows are computed once and kept; a batch without rows ends here
    2  look      the table's log says which batch of this query was the last: it has this one, and it is done
    3  write     files of rows, of which nobody knows yet
    4  commit    one commit of the table's log adds the files and says the batch's number
    5  note      the number is written beside the checkpoint

Exactly once: rows and number are one commit, and Spark repeats a batch until it stands in the commit log. Two
drivers that write the same batch at once meet in step 4, where the table's library lets one of them through.
For Iceberg that needs a file system whose rename refuses a name that is taken (`hdfs://`). On a disk, and on a
folder that machines share, a rename replaces: the later commit would wipe the earlier one. There nobody else
may commit while the aggregate runs.

The number belongs to the query's id, which is made with the checkpoint. So a new checkpoint does not take its
batches for written because an older one's had these numbers; and it is refused over rows that are there, as it
would count them again.

The note shows a table that was set back or made again: it has fewer batches than are noted. A checkpoint that
was set back has planned fewer than the table has.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql.types import StructField, StructType

from processor.errors import StopError
from schemas.config import DeltaOutput, IcebergOutput
from spark_sink.files import Files
from spark_sink.lake.delta import DeltaRows
from spark_sink.lake.iceberg import IcebergRows
from spark_sink.lake.jvm import LakeError
from spark_sink.lake.table import NO_BATCH, QueryBatch
from spark_sink.outputs.output import each_batch, query_of
from spark_sink.query.checkpoint import Checkpoint
from spark_sink.values.schema import output_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.lake.table import TableFound
    from spark_sink.outputs.output import Mode, OutputPlace

NOTE = "seqmark-output.json"
"""Beside the checkpoint: the last batch that the table has."""
_TOGETHER = (
    "Put back what belongs together; or, to begin anew, remove output, checkpoint and aside folder, or name "
    "new ones"
)
_FILE_ROWS = 1_000_000
"""At some 50 bytes per row compressed, files of some 50 MB; a usual batch has one file per date."""
_VERSION = re.compile(r"v?\d+\.|version-hint|_last_checkpoint")
"""What a table's log is told by; a kill while a table is created leaves the folder, or files of other names."""
_TRIES = 5
"""A conflict is another program's commit between our look and ours, about 100 ms: five in a row are no
accident."""


class ClosedWindows:
    """A table of Delta or Iceberg with a row per closed window and group."""

    mode: Mode = "append"

    def __init__(self, place: OutputPlace) -> None:
        output = place.sink.output
        if not isinstance(output, DeltaOutput | IcebergOutput):
            raise TypeError(output.kind)
        self._place = place
        self._begin = f"aggregate {place.sink.name}"
        self.path = output.path
        self._files = Files(place.spark, output.path)
        self._beside = Files(place.spark, place.sink.checkpoint)
        self._checkpoint = Checkpoint(place.spark, place.sink.checkpoint)
        opened = DeltaRows if isinstance(output, DeltaOutput) else IcebergRows
        self.table: DeltaRows | IcebergRows = opened(place.spark, self._files)

    # ------------------------------------------------------------------ start

    def prepare(self, columns: Sequence[Column]) -> None:
        """Create the table where it is missing; otherwise check it, and that it belongs to this checkpoint.

        Raises:
            StopError: It does not fit; the message has every difference.
        """
        # Any may be null: the table may become older than the model.
        fields = [StructField(each.name, each.dataType) for each in output_schema(columns).fields]
        found = self.table.look(self._checkpoint.query())
        if found is None:
            self._create(StructType(fields))
            return
        wrong = [*_differences(found.schema, self.table.columns(StructType(fields))), *_told(found.parted)]
        if wrong:
            raise StopError(
                f"{self._begin}: {self.path} is a table that does not fit: {'; '.join(wrong)}. Name another "
                f"folder, or mend the table: Seqmark alters none"
            )
        self._require_same(found)

    def _create(self, schema: StructType) -> None:
        done = max(self._checkpoint.committed(), self._noted())
        if done > NO_BATCH:
            raise StopError(
                f"{self._begin}: the {self.table.title} table {self.path} is gone, but its checkpoint "
                f"{self._checkpoint.path} has counted up to batch {done}: windows that are closed would never "
                f"come again. {_TOGETHER}"
            )
        if set(self._files.names()) - {self.table.log} or any(
            map(_VERSION.match, self._files.names(self.table.log))
        ):
            raise StopError(
                f"{self._begin}: {self.path} holds files that are no {self.table.title} table; name an empty "
                f"folder"
            )
        self.table.create(schema)
        self._place.say(f"{self._place.sink.name}: created the {self.table.title} table {self.path}")

    def _require_same(self, found: TableFound) -> None:
        """Refuse a table that does not belong to the checkpoint."""
        self._require_ours(found)
        planned = max(self._checkpoint.planned(), default=NO_BATCH)
        if found.last > planned:
            raise StopError(
                f"{self._begin}: {self.path} has batch {found.last} already, but the checkpoint "
                f"{self._checkpoint.path} is at {planned}. The checkpoint was set back: the batches until then "
                f"would not be written. {_TOGETHER}"
            )

    def _require_ours(self, found: TableFound) -> None:
        """Refuse a table with rows of others, and one that lacks batches that were written."""
        noted = self._noted()
        if found.last < noted:
            has = f"the batches up to {found.last}" if found.last > NO_BATCH else "no batch of this aggregate"
            raise StopError(
                f"{self._begin}: {self.path} has {has}, but batch {noted} was written: the table was set back "
                f"or made again. Windows that are closed would never come again. {_TOGETHER}"
            )
        if found.last == NO_BATCH and found.holds_rows:
            raise StopError(
                f"{self._begin}: {self.path} holds rows that the query of the checkpoint "
                f"{self._checkpoint.path} has not written. A new checkpoint would count again what they "
                f"count. {_TOGETHER}"
            )

    def _noted(self) -> int:
        text = self._beside.read(NOTE)
        return NO_BATCH if text is None else int(json.loads(text)["batch"])

    # ------------------------------------------------------------------ batches

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query."""
        return each_batch(self._place, writer, self._write)

    def _write(self, rows: DataFrame, number: int) -> None:
        self.write(rows, QueryBatch(query_of(rows), number, self._place.sink.name))

    def write(self, rows: DataFrame, batch: QueryBatch) -> bool:
        """Make a batch part of the table, unless it is already; says whether it was written.

        Raises:
            StopError: Checkpoint and table do not belong together, or others commit all the time.
        """
        # Dates of parts are those of UTC. The session of a batch is its query's own.
        rows.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")
        # Once: computing again would count late rows twice in Spark's progress.
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count = kept.count()
            if not count:
                return False
            written = self._commit(kept.coalesce(-(-count // _FILE_ROWS)), batch)
        finally:
            kept.unpersist()
        self._beside.write(NOTE, json.dumps({"batch": batch.number}) + "\n")
        return written

    def _commit(self, rows: DataFrame, batch: QueryBatch) -> bool:
        told = ""
        for _ in range(_TRIES):
            if not self._is_next(batch):
                return False
            try:
                self.table.append(rows, batch)
            except LakeError as error:
                if not error.conflict:
                    # Spark's own words and causes say what it is: a full disk, a missing right.
                    raise error.__cause__ or error from None
                told = str(error)
                continue
            return True
        raise StopError(
            f"{self._begin}: batch {batch.number} is not written to {self.path}: {_TRIES} times in a row "
            f"another program has committed in between ({told}). Nothing is counted twice: start again when it "
            f"is done"
        )

    def _is_next(self, batch: QueryBatch) -> bool:
        """Say whether the batch is to be written, or is in the table already."""
        found = self.table.look(batch.query)
        if found is None:
            raise StopError(
                f"{self._begin}: batch {batch.number} is not written: the table {self.path} is gone. "
                f"{_TOGETHER}"
            )
        self._require_ours(found)
        if batch.number < found.last:
            raise StopError(
                f"{self._begin}: batch {batch.number} is not written to {self.path}: it has batch {found.last} "
                f"already. Either another process runs this aggregate, and nothing is to be done, or the "
                f"checkpoint was set back. {_TOGETHER}"
            )
        return batch.number > found.last


def _told(text: str) -> list[str]:
    return [text] if text else []


def _differences(found: StructType, wanted: StructType) -> Iterator[str]:
    """Yield every difference of a table's columns; their order does not count."""
    there, ours = ({each.name: each for each in schema.fields} for schema in (found, wanted))
    for name in {**ours, **there}:
        if name not in there:
            yield f"{name} is missing ({ours[name].dataType.simpleString()})"
        elif name not in ours:
            yield f"{name} is no column of the aggregate"
        elif there[name].dataType != ours[name].dataType:
            is_, should = (each[name].dataType.simpleString() for each in (there, ours))
            yield f"{name} is {is_}, should be {should}"
        elif not there[name].nullable:
            yield f"{name} may not be null, should be"
