"""Adds rows of an aggregate to an Iceberg table, with query and batch as properties of the same commit.

The table lies by its path, without a catalog. Spark writes the files of a batch, by the field ids of the
table's schema, into a folder that nobody else writes to:

    data/seqmark/QUERY/BATCH/ATTEMPT/window_start_day=2026-01-05/part-*.parquet

One commit then adds them and sets

    seqmark.query    the query's id     properties of the table, which stay when snapshots expire; the first
    seqmark.batch    the batch          two are words in the summary of the snapshot too, for people
    seqmark.attempt  whose files        a folder's name, as above

It replaces the very metadata that was looked at. So a driver that was believed dead and commits late is
refused, as is a commit that another program's has overtaken: the batch looks again, and tries again. A commit
whose answer is lost is refused in the same words, though it is done: the attempt tells one from the other.

What attempts before have left in the folder of a batch is removed when the batch is in, and no file that the
table may have.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from processor.errors import StopError
from schemas.config.aggregate_rules import ICEBERG_DAY
from spark_sink.batch.lake.jvm import LakeError, LakeJvm, translated
from spark_sink.outputs.lake.table import NO_BATCH, LakeConflictError, TableFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_sink.files import Files
    from spark_sink.outputs.lake.table import QueryBatch

_TABLES = "org.apache.iceberg.hadoop.HadoopTables"
QUERY, BATCH, ATTEMPT = "seqmark.query", "seqmark.batch", "seqmark.attempt"
OWN = "data/seqmark"
_PROPERTIES = {
    "format-version": "2",
    # Each commit writes the metadata anew: of these the last hundred are kept.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergRows:
    """A table whose metadata Iceberg keeps, see the module."""

    title = "Iceberg"
    log = "metadata"

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self._spark, self._files, self._path = spark, files, files.absolute
        self._jvm = LakeJvm(spark, "iceberg", _TABLES)
        self._iceberg: Any = self._jvm.root.org.apache.iceberg
        self._tables: Any = self._iceberg.hadoop.HadoopTables(self._jvm.hadoop)
        self._transaction: Any = None

    def look(self, query: str | None) -> TableFound | None:
        """Return the table as it is now, None where there is none; `append` commits to what was found."""
        if not self._tables.exists(self._path):
            return None
        self._transaction = self._tables.load(self._path).newTransaction()
        table = self._transaction.table()
        properties = table.properties()
        last = NO_BATCH
        if query is not None and properties.get(QUERY) == query:
            last = int(properties.get(BATCH))
        schema = json.loads(self._iceberg.spark.SparkSchemaUtil.convert(table.schema()).json())
        snapshot = table.currentSnapshot()
        holds = snapshot is not None and snapshot.summary().get("total-records") != "0"
        return TableFound(StructType.fromJson(schema), self._parted_wrong(table), last, holds)

    def _parted_wrong(self, table: Any) -> str:
        fields = table.spec().fields()
        found = [(str(each.name()), str(each.transform().toString())) for each in fields]
        if found in ([], [(ICEBERG_DAY, "day")]):
            return ""
        told = ", ".join(f"{transform}({name})" for name, transform in found)
        return f"it is parted by {told}, should be by day(window_start) as {ICEBERG_DAY}, or not at all"

    def create(self, schema: StructType) -> None:
        """Create the table, without rows."""
        kind = self._jvm.root.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        made = self._iceberg.spark.SparkSchemaUtil.convert(kind)
        parts = self._iceberg.PartitionSpec.builderFor(made).day("window_start", ICEBERG_DAY).build()
        self._tables.create(made, parts, self._jvm.java_map(_PROPERTIES), self._path)

    def columns(self, schema: StructType) -> StructType:
        """Return the columns of a table for rows of this schema."""
        return schema

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Add the rows of a batch and its number, in one commit."""
        transaction = self._transaction
        table = transaction.table()
        if told := self._parted_wrong(table):
            raise StopError(
                f"aggregate {batch.sink}: batch {batch.number} is not written to {self._path}: {told}"
            )
        folder, attempt = f"{OWN}/{batch.query}/{batch.number}", uuid.uuid4().hex
        self._write(rows, table, f"{folder}/{attempt}")
        try:
            with translated():
                self._change(transaction, batch, folder, attempt)
                # Not commitTransaction(): that one would be done again upon whatever others have committed.
                operations = transaction.underlyingOps()
                operations.commit(transaction.startMetadata(), transaction.currentMetadata())
        except LakeError as error:
            if not error.conflict:
                raise error.__cause__ or error from None
            self._require_in(batch, attempt, str(error))
        else:
            self._require_in(batch, attempt, "another batch has come behind it")
        for each in self._files.names(folder):
            if each != attempt:
                self._files.remove(f"{folder}/{each}")

    def _require_in(self, batch: QueryBatch, attempt: str, told: str) -> None:
        """Refuse where the last batch of the table is not this attempt's; its files go if none is in."""
        properties = self._tables.load(self._path).properties()
        if properties.get(QUERY) == batch.query and properties.get(ATTEMPT) == attempt:
            return
        # A later batch hides whose the one before it was.
        if properties.get(QUERY) != batch.query or int(properties.get(BATCH)) <= batch.number:
            self._files.remove(f"{OWN}/{batch.query}/{batch.number}/{attempt}")
        raise LakeConflictError(told)

    def _write(self, rows: DataFrame, table: Any, folder: str) -> None:
        schema = table.schema()
        columns = [
            sql.col(f"`{name}`").alias(name, metadata={"parquet.field.id": schema.findField(name).fieldId()})
            for name in rows.columns
        ]
        session, place = rows.sparkSession, f"{self._path}/{folder}"
        # The batch's session is its query's own. The usual INT96 has no statistics.
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        chosen = rows.select(*columns)
        if table.spec().isUnpartitioned():
            chosen.write.parquet(place)
        else:
            dated = chosen.withColumn(ICEBERG_DAY, sql.to_date("window_start"))
            dated.write.partitionBy(ICEBERG_DAY).parquet(place)

    def _change(self, transaction: Any, batch: QueryBatch, folder: str, attempt: str) -> None:
        table, folder = transaction.table(), f"{folder}/{attempt}"
        update = transaction.updateProperties().set(QUERY, batch.query).set(BATCH, str(batch.number))
        update.set(ATTEMPT, attempt).commit()
        metrics = self._iceberg.MetricsConfig.forTable(table)
        added = transaction.newAppend()
        for part, name in self._written(folder):
            file = table.io().newInputFile(f"{self._path}/{folder}/{part}{name}")
            builder = self._iceberg.DataFiles.builder(table.spec()).withInputFile(file)
            if part:
                builder.withPartitionPath(part.rstrip("/"))
            told = self._iceberg.parquet.ParquetUtil.fileMetrics(file, metrics)
            added.appendFile(builder.withFormat(self._iceberg.FileFormat.PARQUET).withMetrics(told).build())
        added.set(QUERY, batch.query).set(BATCH, str(batch.number)).commit()

    def _written(self, folder: str) -> list[tuple[str, str]]:
        """Return the files of an attempt, each with its part's folder, empty where there are no parts."""
        found = []
        for name in self._files.names(folder):
            if name.startswith(ICEBERG_DAY):
                found += [(f"{name}/", each) for each in self._files.names(f"{folder}/{name}")]
            elif name.endswith(".parquet"):
                found.append(("", name))
        return found
