"""Reads and commits an Iceberg table: its files are ours, its metadata is written by Iceberg's own library.

The table lies by its path, without a catalog. A commit sets the properties `seqmark.number` and `seqmark.mark`,
by which our commit counts; see `spark_sink.batch.table.counted`. It replaces the very metadata that the run has
found: where another program has committed meanwhile, that has been replaced already.

Files have no field identifiers of Iceberg's: the property `schema.name-mapping.default` says which column is
which, and Iceberg keeps it in step when columns are added.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from processor.errors import StopError
from spark_sink.batch.lake.jvm import LakeJvm, translated
from spark_sink.batch.lake.table import DATE, LakeState
from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.counted import ICEBERG, MARK, NUMBER, Counted, iceberg_counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from spark_sink.batch.lake.table import LakeChange

_TABLES = "org.apache.iceberg.hadoop.HadoopTables"
_NAMES = "schema.name-mapping.default"
_RUN = "seqmark.run"
_FILES = ("content", "file_path", "file_format", "record_count", "partition")


class IcebergTable:
    """A table whose metadata Iceberg keeps, see the module."""

    title = "Iceberg"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self.log = spark, folder, folder / "metadata"
        self._jvm = LakeJvm(spark, ICEBERG, _TABLES)
        self._iceberg: Any = self._jvm.root.org.apache.iceberg
        self._transaction: Any = None
        self._found: dict[str, Row] = {}

    def begin(self) -> LakeState:
        """Begin a transaction, and return the table as it has it."""
        with translated():
            tables, place = self._iceberg.hadoop.HadoopTables(self._jvm.hadoop), str(self._folder)
            if not tables.exists(place):
                return LakeState(exists=False, counted=Counted(0, 0), columns=[], rows=[])
            self._transaction = tables.load(place).newTransaction()
            table = self._transaction.table()
            properties = table.properties()
            counted = Counted.of(*(int(properties.getOrDefault(each, "0")) for each in (NUMBER, MARK)))
            if not counted.number:
                return LakeState(exists=True, counted=counted, columns=[], rows=[])
            fields = table.schema().columns()
            columns = [str(fields.get(at).name()) for at in range(fields.size())]
            parts = table.spec().fields()
            parted = [
                (parts.get(at).name(), parts.get(at).transform().toString()) for at in range(parts.size())
            ]
            snapshot = table.currentSnapshot()
            found = [] if snapshot is None else self._files(snapshot.snapshotId())
        if parted != [(DATE, "identity")]:
            raise StopError(
                f"{self._folder} was made by a batch parted by {DATE}, and is so no more: set that back"
            )
        self._found = {self._relative(each["file_path"]): each for each in found}
        rows = [self._file(path, each) for path, each in sorted(self._found.items())]
        return LakeState(exists=True, counted=counted, columns=columns, rows=rows)

    def _files(self, snapshot: int) -> list[Row]:
        reader = self._spark.read.format("iceberg").option("snapshot-id", snapshot)
        return list(reader.load(f"{self._folder}#files").select(*_FILES).collect())

    def _relative(self, path: str) -> str:
        parts = urlsplit(path)
        return os.path.relpath(unquote(parts.path) if parts.scheme else path, self._folder)

    def _file(self, path: str, found: Row) -> DataFile:
        if found["content"]:
            raise StopError(
                f"{self._folder} has rows that are deleted by delete files, which a batch does not read: write "
                "the files without them, by the action rewriteDataFiles with delete-file-threshold 1"
            )
        if found["file_format"] != "PARQUET":
            raise StopError(
                f"{path}, which is part of {self._folder}, is no Parquet file: a batch reads no other"
            )
        return DataFile(path, found["partition"][DATE].isoformat(), found["record_count"])

    def counted(self) -> Counted:
        """Return what the metadata have now."""
        return iceberg_counted(self._folder)

    def commit(self, change: LakeChange) -> None:
        """Commit by Iceberg's library; the snapshot's summary tells run and number."""
        with translated():
            transaction = self._transaction or self._new(change)
            self._add_columns(transaction, change)
            properties = transaction.updateProperties().set(NUMBER, str(change.number))
            properties.set(MARK, str(change.mark))
            if self._transaction is None:
                mapping = self._iceberg.mapping
                names = mapping.MappingUtil.create(transaction.table().schema())
                properties.set(_NAMES, mapping.NameMappingParser.toJson(names))
            properties.commit()
            self._changedfiles(transaction, change)
            # Not commitTransaction(): that one would be done again upon whatever others have committed.
            operations = transaction.underlyingOps()
            operations.commit(transaction.startMetadata(), transaction.currentMetadata())

    def _schema(self, change: LakeChange) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - pyspark is slow to import

        wanted = from_arrow_schema(change.columns, prefer_timestamp_ntz=True).json()
        kind = self._jvm.root.org.apache.spark.sql.types.DataType.fromJson(wanted)
        return self._iceberg.spark.SparkSchemaUtil.convert(kind)

    def _new(self, change: LakeChange) -> Any:
        schema = self._schema(change)
        parts = self._iceberg.PartitionSpec.builderFor(schema).identity(DATE).build()
        properties = self._jvm.java_map({"format-version": "2"})
        tables = self._iceberg.hadoop.HadoopTables(self._jvm.hadoop)
        return tables.newCreateTableTransaction(str(self._folder), schema, parts, properties)

    def _add_columns(self, transaction: Any, change: LakeChange) -> None:
        known, schema = transaction.table().schema(), self._schema(change)
        new = [name for name in change.columns.names if known.findField(name) is None]
        members = [
            member
            for name in change.columns.names
            if name not in new
            for member in _members(name, known.findField(name).type(), schema.findField(name).type())
        ]
        wider = [
            changed
            for name in change.columns.names
            if name not in new
            for changed in _wider(name, known.findField(name).type(), schema.findField(name).type())
        ]
        if not (new or members or wider):
            return
        update = transaction.updateSchema()
        for path, kind in wider:
            update.updateColumn(path, kind)
        for name in new:
            update.addColumn(None, name, schema.findField(name).type())
            update.moveBefore(name, "seqmark_low")
        for parent, name, kind in members:
            update.addColumn(parent, name, kind)
        update.commit()

    def _changedfiles(self, transaction: Any, change: LakeChange) -> None:
        rewrites = change.same_rows and change.removed
        files = transaction.newRewrite() if rewrites else transaction.newOverwrite()
        table = transaction.table()
        mapping = self._iceberg.mapping.NameMappingParser.fromJson(table.properties().get(_NAMES))
        metrics = self._iceberg.MetricsConfig.forTable(table)
        for path in change.removed:
            found = self._found[path]
            size = (self._folder / path).stat().st_size
            made = self._builder(table, found["file_path"], found["partition"][DATE].isoformat(), size)
            files.deleteFile(made.withRecordCount(found["record_count"]).build())
        for each in change.added:
            place = self._folder / each.path
            footer = table.io().newInputFile(str(place))
            told = self._iceberg.parquet.ParquetUtil.fileMetrics(footer, metrics, mapping)
            made = self._builder(table, str(place), each.date, place.stat().st_size).withMetrics(told)
            files.addFile(made.build())
        files.set(_RUN, change.run).set(NUMBER, str(change.number))
        files.commit()

    def _builder(self, table: Any, path: str, date: str, size: int) -> Any:
        builder = self._iceberg.DataFiles.builder(table.spec()).withPath(path).withFileSizeInBytes(size)
        return builder.withFormat(self._iceberg.FileFormat.PARQUET).withPartitionPath(f"{DATE}={date}")


def _members(path: str, known: Any, wanted: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the members that a type lacks, at any depth: whose they are, their names, and their types."""
    if not (known.isNestedType() and wanted.isNestedType()):
        return
    found = {each.name(): each for each in known.asNestedType().fields()}
    for each in wanted.asNestedType().fields():
        there = found.get(each.name())
        if there is not None:
            yield from _members(f"{path}.{each.name()}", there.type(), each.type())
        elif known.isStructType():
            yield path, each.name(), each.type()


def _wider(path: str, known: Any, wanted: Any) -> Iterator[tuple[str, Any]]:
    """Yield what has another type than before, at any depth, and that; Iceberg refuses all but wider ones."""
    if not (known.isNestedType() and wanted.isNestedType()):
        if not known.isNestedType() and not known.equals(wanted):
            yield path, wanted.asPrimitiveType()
        return
    found = {each.name(): each for each in known.asNestedType().fields()}
    for each in wanted.asNestedType().fields():
        if (there := found.get(each.name())) is not None:
            yield from _wider(f"{path}.{each.name()}", there.type(), each.type())
