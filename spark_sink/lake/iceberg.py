"""Reads and writes Iceberg tables through Iceberg's own library: a batch's files, and an aggregate's rows.

A table lies by its path, without a catalog. A commit replaces the very metadata that was looked at: one that
another program's has overtaken is refused.

A batch's files are ours. Its commit sets the properties `seqmark.number` and `seqmark.mark`, by which our
commit counts; see `spark_sink.batch.table.counted`. Files have no field identifiers of Iceberg's: the property
`schema.name-mapping.default` says which column is which, and Iceberg keeps it in step when columns are added.

An aggregate's files are written by Spark, by the field ids of the table's schema, into a folder that nobody
else writes to:

    data/seqmark/QUERY/BATCH/ATTEMPT/window_start_day=2026-01-05/part-*.parquet

One commit then adds them and sets

    seqmark.query    the query's id     properties of the table, which stay when snapshots expire; the first
    seqmark.batch    the batch          two are words in the summary of the snapshot too, for people
    seqmark.attempt  whose files        a folder's name, as above

So a driver that was believed dead and commits late is refused. A commit whose answer is lost is refused in the
same words, though it is done: the attempt tells one from the other. What attempts before have left in the
folder of a batch is removed when the batch is in, and no file that the table may have.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from processor.errors import StopError
from schemas.config.aggregate_rules import ICEBERG_DAY
from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.counted import ICEBERG, MARK, NUMBER, Counted, iceberg_counted
from spark_sink.lake.jvm import LakeError, LakeJvm, translated
from spark_sink.lake.table import DATE, NO_BATCH, LakeState, TableFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from spark_sink.files import Files
    from spark_sink.lake.table import LakeChange, QueryBatch

_TABLES = "org.apache.iceberg.hadoop.HadoopTables"
_NAMES = "schema.name-mapping.default"
_RUN = "seqmark.run"
_FILES = ("content", "file_path", "file_format", "record_count", "partition")
QUERY, BATCH, ATTEMPT = "seqmark.query", "seqmark.batch", "seqmark.attempt"
OWN = "data/seqmark"
_FORMAT = {"format-version": "2"}
_PROPERTIES = {
    **_FORMAT,
    # Each commit writes the metadata anew: of these the last hundred are kept.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergFolder:
    """A folder with a table, or for one, through Iceberg's library.

    Attributes:
        jvm: Spark's.
        iceberg: The library's packages.
        tables: The library's tables of folders.
        path: The folder.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.jvm = LakeJvm(spark, ICEBERG, _TABLES)
        self.iceberg: Any = self.jvm.root.org.apache.iceberg
        self.tables: Any = self.iceberg.hadoop.HadoopTables(self.jvm.hadoop)
        self.path = path

    def transaction(self) -> Any:
        """Return a transaction of the table as it is now; None: there is none."""
        return self.tables.load(self.path).newTransaction() if self.tables.exists(self.path) else None

    def commit(self, transaction: Any) -> None:
        """Commit a transaction where the table is still as it has found it."""
        # Not commitTransaction(): that one would be done again upon whatever others have committed.
        operations = transaction.underlyingOps()
        operations.commit(transaction.startMetadata(), transaction.currentMetadata())

    def schema(self, schema: StructType) -> Any:
        """Return a schema of Spark's in the library's form."""
        kind = self.jvm.root.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        return self.iceberg.spark.SparkSchemaUtil.convert(kind)

    def spark_schema(self, table: Any) -> StructType:
        """Return the columns of a table in Spark's form."""
        return StructType.fromJson(
            json.loads(self.iceberg.spark.SparkSchemaUtil.convert(table.schema()).json())
        )

    def parts(self, table: Any) -> list[tuple[str, str]]:
        """Return by what a table is parted: names and transforms."""
        return [(str(each.name()), str(each.transform().toString())) for each in table.spec().fields()]

    def builder(self, table: Any, part: str) -> Any:
        """Return what makes the entry of a Parquet file; empty: the table has no parts."""
        builder = self.iceberg.DataFiles.builder(table.spec()).withFormat(self.iceberg.FileFormat.PARQUET)
        return builder.withPartitionPath(part) if part else builder

    def metrics(self, table: Any, file: Any, *mapping: Any) -> Any:
        """Return what a file's footer tells of its columns, which their ids or a mapping of names name."""
        columns = self.iceberg.MetricsConfig.forTable(table)
        return self.iceberg.parquet.ParquetUtil.fileMetrics(file, columns, *mapping)


class IcebergRows:
    """A table of an aggregate's rows, see the module."""

    title = "Iceberg"
    log = "metadata"

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self._files = files
        self._folder = IcebergFolder(spark, files.absolute)
        self._transaction: Any = None

    def look(self, query: str | None) -> TableFound | None:
        """Return the table as it is now, None where there is none; `append` commits to what was found.

        Args:
            query: The query whose batches are looked for; None: it has not begun.
        """
        transaction = self._folder.transaction()
        if transaction is None:
            return None
        self._transaction, table = transaction, transaction.table()
        properties = table.properties()
        last = NO_BATCH
        if query is not None and properties.get(QUERY) == query:
            last = int(properties.get(BATCH))
        snapshot = table.currentSnapshot()
        holds = snapshot is not None and snapshot.summary().get("total-records") != "0"
        return TableFound(self._folder.spark_schema(table), self._parted_wrong(table), last, holds)

    def _parted_wrong(self, table: Any) -> str:
        found = self._folder.parts(table)
        if found in ([], [(ICEBERG_DAY, "day")]):
            return ""
        told = ", ".join(f"{transform}({name})" for name, transform in found)
        return f"it is parted by {told}, should be by day(window_start) as {ICEBERG_DAY}, or not at all"

    def create(self, schema: StructType) -> None:
        """Create the table, without rows."""
        folder, made = self._folder, self._folder.schema(schema)
        parts = folder.iceberg.PartitionSpec.builderFor(made).day("window_start", ICEBERG_DAY).build()
        folder.tables.create(made, parts, folder.jvm.java_map(_PROPERTIES), folder.path)

    def columns(self, schema: StructType) -> StructType:
        """Return the columns of a table for rows of this schema."""
        return schema

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Add the rows of a batch and its number, in one commit.

        Raises:
            LakeError: Somebody else has committed meanwhile, which is a conflict, or the library refuses.
                Nothing of it is in the table.
            StopError: The table is parted by something else.
        """
        transaction = self._transaction
        table = transaction.table()
        if told := self._parted_wrong(table):
            raise StopError(
                f"aggregate {batch.sink}: batch {batch.number} is not written to {self._folder.path}: {told}"
            )
        folder, attempt = f"{OWN}/{batch.query}/{batch.number}", uuid.uuid4().hex
        self._write(rows, table, f"{folder}/{attempt}")
        try:
            with translated():
                self._change(transaction, batch, folder, attempt)
                self._folder.commit(transaction)
        except LakeError as error:
            if not error.conflict:
                raise
            self._require_in(batch, attempt, str(error))
        else:
            self._require_in(batch, attempt, "another batch has come behind it")
        for each in self._files.names(folder):
            if each != attempt:
                self._files.remove(f"{folder}/{each}")

    def _require_in(self, batch: QueryBatch, attempt: str, told: str) -> None:
        """Refuse where the last batch of the table is not this attempt's; its files go if none is in."""
        properties = self._folder.tables.load(self._folder.path).properties()
        if properties.get(QUERY) == batch.query and properties.get(ATTEMPT) == attempt:
            return
        # A later batch hides whose the one before it was.
        if properties.get(QUERY) != batch.query or int(properties.get(BATCH)) <= batch.number:
            self._files.remove(f"{OWN}/{batch.query}/{batch.number}/{attempt}")
        raise LakeError(told, conflict=True)

    def _write(self, rows: DataFrame, table: Any, folder: str) -> None:
        schema = table.schema()
        columns = [
            sql.col(f"`{name}`").alias(name, metadata={"parquet.field.id": schema.findField(name).fieldId()})
            for name in rows.columns
        ]
        session, place = rows.sparkSession, f"{self._folder.path}/{folder}"
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
        added = transaction.newAppend()
        for part, name in self._written(folder):
            file = table.io().newInputFile(f"{self._folder.path}/{folder}/{part}{name}")
            builder = self._folder.builder(table, part.rstrip("/")).withInputFile(file)
            added.appendFile(builder.withMetrics(self._folder.metrics(table, file)).build())
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


class IcebergTable:
    """A table of a batch's files, see the module.

    Attributes:
        title: The format's name.
        log: The folder of its log.
    """

    title = "Iceberg"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._path, self.log = spark, folder, folder / "metadata"
        self._folder = IcebergFolder(spark, str(folder))
        self._transaction: Any = None
        self._found: dict[str, Row] = {}

    def begin(self) -> LakeState:
        """Return the table as it is, and hold on to it: `commit` succeeds if it has not changed.

        Raises:
            LakeError: The library refuses.
            StopError: The table has what a batch cannot work with.
        """
        with translated():
            self._transaction = self._folder.transaction()
            if self._transaction is None:
                return LakeState(exists=False, counted=Counted(0, 0), columns=[], rows=[])
            table = self._transaction.table()
            properties = table.properties()
            counted = Counted.of(*(int(properties.getOrDefault(each, "0")) for each in (NUMBER, MARK)))
            if not counted.number:
                return LakeState(exists=True, counted=counted, columns=[], rows=[])
            columns = [str(each.name()) for each in table.schema().columns()]
            parted, snapshot = self._folder.parts(table), table.currentSnapshot()
            found = [] if snapshot is None else self._files(snapshot.snapshotId())
        if parted != [(DATE, "identity")]:
            raise StopError(
                f"{self._path} was made by a batch parted by {DATE}, and is so no more: set that back"
            )
        self._found = {self._relative(each["file_path"]): each for each in found}
        rows = [self._file(path, each) for path, each in sorted(self._found.items())]
        return LakeState(exists=True, counted=counted, columns=columns, rows=rows)

    def _files(self, snapshot: int) -> list[Row]:
        reader = self._spark.read.format("iceberg").option("snapshot-id", snapshot)
        return list(reader.load(f"{self._path}#files").select(*_FILES).collect())

    def _relative(self, path: str) -> str:
        parts = urlsplit(path)
        return os.path.relpath(unquote(parts.path) if parts.scheme else path, self._path)

    def _file(self, path: str, found: Row) -> DataFile:
        if found["content"]:
            raise StopError(
                f"{self._path} has rows that are deleted by delete files, which a batch does not read: write "
                "the files without them, by the action rewriteDataFiles with delete-file-threshold 1"
            )
        if found["file_format"] != "PARQUET":
            raise StopError(
                f"{path}, which is part of {self._path}, is no Parquet file: a batch reads no other"
            )
        return DataFile(path, found["partition"][DATE].isoformat(), found["record_count"])

    def counted(self) -> Counted:
        """Return our last commit that the table's metadata have now, read without the JVM."""
        return iceberg_counted(self._path)

    def commit(self, change: LakeChange) -> None:
        """Commit a change to the table as `begin` has found it; the snapshot's summary tells run and number.

        Raises:
            LakeError: The table has changed, or the library refuses.
        """
        with translated():
            transaction = self._transaction or self._new(change)
            self._add_columns(transaction, change)
            properties = transaction.updateProperties().set(NUMBER, str(change.number))
            properties.set(MARK, str(change.mark))
            if self._transaction is None:
                mapping = self._folder.iceberg.mapping
                names = mapping.MappingUtil.create(transaction.table().schema())
                properties.set(_NAMES, mapping.NameMappingParser.toJson(names))
            properties.commit()
            self._change_files(transaction, change)
            self._folder.commit(transaction)

    def _schema(self, change: LakeChange) -> Any:
        return self._folder.schema(from_arrow_schema(change.columns, prefer_timestamp_ntz=True))

    def _new(self, change: LakeChange) -> Any:
        folder, schema = self._folder, self._schema(change)
        parts = folder.iceberg.PartitionSpec.builderFor(schema).identity(DATE).build()
        return folder.tables.newCreateTableTransaction(folder.path, schema, parts, folder.jvm.java_map(_FORMAT))

    def _add_columns(self, transaction: Any, change: LakeChange) -> None:
        known, schema = transaction.table().schema(), self._schema(change)
        new = [name for name in change.columns.names if known.findField(name) is None]
        grown = [
            each
            for name in change.columns.names
            if name not in new
            for each in _grown(name, known.findField(name).type(), schema.findField(name).type())
        ]
        if not (new or grown):
            return
        update = transaction.updateSchema()
        for name in new:
            update.addColumn(None, name, schema.findField(name).type())
            update.moveBefore(name, "seqmark_low")
        for path, member, kind in grown:
            if member:
                update.addColumn(path, member, kind)
            else:
                update.updateColumn(path, kind)
        update.commit()

    def _change_files(self, transaction: Any, change: LakeChange) -> None:
        rewrites = change.same_rows and change.removed
        files = transaction.newRewrite() if rewrites else transaction.newOverwrite()
        table = transaction.table()
        mapping = self._folder.iceberg.mapping.NameMappingParser.fromJson(table.properties().get(_NAMES))
        for path in change.removed:
            found = self._found[path]
            made = self._builder(
                table, found["file_path"], found["partition"][DATE].isoformat(), self._path / path
            )
            files.deleteFile(made.withRecordCount(found["record_count"]).build())
        for each in change.added:
            place = self._path / each.path
            told = self._folder.metrics(table, table.io().newInputFile(str(place)), mapping)
            files.addFile(self._builder(table, str(place), each.date, place).withMetrics(told).build())
        files.set(_RUN, change.run).set(NUMBER, str(change.number))
        files.commit()

    def _builder(self, table: Any, path: str, date: str, file: Path) -> Any:
        builder = self._folder.builder(table, f"{DATE}={date}")
        return builder.withPath(path).withFileSizeInBytes(file.stat().st_size)


def _grown(path: str, known: Any, wanted: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield what a type lacks, at any depth: a path, the name of a member that is new there, and its type.

    Without a name the path itself gets another type; Iceberg refuses all but wider ones.
    """
    if not (known.isNestedType() and wanted.isNestedType()):
        if not known.isNestedType() and not known.equals(wanted):
            yield path, "", wanted.asPrimitiveType()
        return
    found = {each.name(): each for each in known.asNestedType().fields()}
    for each in wanted.asNestedType().fields():
        if (there := found.get(each.name())) is not None:
            yield from _grown(f"{path}.{each.name()}", there.type(), each.type())
        elif known.isStructType():
            yield path, each.name(), each.type()
