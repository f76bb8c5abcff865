"""Does to a Delta or Iceberg table what other programs do, by the library of its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Lake:
    """One format; ``name`` is that of the config."""

    name: ClassVar[str]

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = spark._jvm

    def read(self, table: Path, **options: str) -> DataFrame:
        """Read a table as its users do."""
        return self.spark.read.options(**options).format(self.name).load(str(table))

    def make(self, table: Path) -> None:
        """Make a table that is no batch's, with a row."""
        raise NotImplementedError

    def make_empty(self, table: Path, schema: str) -> None:
        """Make a table that is no batch's, without rows, of columns in SQL's words."""
        raise NotImplementedError

    def merge(self, table: Path) -> None:
        """Write the files of each date as one."""
        raise NotImplementedError

    def shorten(self, table: Path) -> None:
        """Forget what the log does not need to read the table as it is."""
        raise NotImplementedError

    def mark_deleted(self, table: Path, where: str | None = None) -> None:
        """Delete rows beside their file: those of a condition, or one."""
        raise NotImplementedError

    def at_first(self, table: Path) -> DataFrame:
        """Read a table as it was after its first commit."""
        raise NotImplementedError

    def rename_column(self, table: Path, old: str, new: str) -> None:
        """Rename a column."""
        raise NotImplementedError


class DeltaLake(Lake):
    """Delta, by its SQL."""

    name = "delta"

    def _sql(self, command: str) -> None:
        self.spark.sql(command).collect()

    def make(self, table: Path) -> None:
        """Write a row."""
        self.spark.range(1).write.format("delta").save(str(table))

    def make_empty(self, table: Path, schema: str) -> None:
        """Write no row."""
        self.spark.createDataFrame([], schema).write.format("delta").save(str(table))

    def merge(self, table: Path) -> None:
        """OPTIMIZE."""
        self._sql(f"OPTIMIZE delta.`{table}` ZORDER BY (event_id)")

    def shorten(self, table: Path) -> None:
        """Write a checkpoint, and remove all other files of the log but the last."""
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, str(table))
        log.checkpoint()
        *old, _ = sorted((table / "_delta_log").glob("*.json"))
        for each in old:
            each.unlink()

    def mark_deleted(self, table: Path, where: str | None = None) -> None:
        """DELETE, with deletion vectors."""
        self._sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
        which = where
        if which is None:
            row = self.read(table).first()
            assert row is not None
            which = f"seqmark_low = {row['seqmark_low']}"
        self._jvm.io.delta.tables.DeltaTable.forPath(self.spark._jsparkSession, str(table)).delete(which)

    def at_first(self, table: Path) -> DataFrame:
        """Read version 0."""
        return self.read(table, versionAsOf="0")

    def rename_column(self, table: Path, old: str, new: str) -> None:
        """Rename it, which needs column mapping."""
        self._sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        self._sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN {old} TO {new}")


class IcebergLake(Lake):
    """Iceberg, by its Java interface."""

    name = "iceberg"

    @property
    def _iceberg(self) -> Any:
        return self._jvm.org.apache.iceberg

    def _tables(self) -> Any:
        return self._iceberg.hadoop.HadoopTables(self.spark._jsc.hadoopConfiguration())

    def make(self, table: Path) -> None:
        """Make an empty table, and write a row."""
        self.make_empty(table, "id long")
        self.spark.range(1).write.format("iceberg").mode("append").save(str(table))

    def make_empty(self, table: Path, schema: str) -> None:
        """Make it by its library."""
        words = self.spark.createDataFrame([], schema).schema.json()
        fields = self._jvm.org.apache.spark.sql.types.DataType.fromJson(words)
        self._tables().create(self._iceberg.spark.SparkSchemaUtil.convert(fields), str(table))

    def merge(self, table: Path) -> None:
        """The action rewriteDataFiles."""
        actions = self._iceberg.spark.actions.SparkActions.get(self.spark._jsparkSession)
        actions.rewriteDataFiles(self._tables().load(str(table))).option("rewrite-all", "true").execute()

    def shorten(self, table: Path) -> None:
        """Expire all snapshots but the last."""
        found = self._tables().load(str(table))
        now = self._jvm.java.lang.System.currentTimeMillis()
        found.expireSnapshots().expireOlderThan(now).retainLast(1).cleanExpiredFiles(False).commit()

    def mark_deleted(self, table: Path, where: str | None = None) -> None:
        """Name a delete file of one row; only the log is looked at."""
        assert where is None
        found = self._tables().load(str(table))
        task = found.newScan().planFiles().iterator().next()
        builder = self._iceberg.FileMetadata.deleteFileBuilder(found.spec()).ofPositionDeletes()
        made = builder.withPath(f"{table}/deletes.parquet").withFormat(self._iceberg.FileFormat.PARQUET)
        made = made.withFileSizeInBytes(1000).withRecordCount(1).withPartition(task.file().partition()).build()
        found.newRowDelta().addDeletes(made).commit()

    def at_first(self, table: Path) -> DataFrame:
        """Read the first snapshot."""
        first = self._tables().load(str(table)).snapshots().iterator().next().snapshotId()
        return self.read(table, **{"snapshot-id": str(first)})

    def rename_column(self, table: Path, old: str, new: str) -> None:
        """Rename it in the schema."""
        self._tables().load(str(table)).updateSchema().renameColumn(old, new).commit()


LAKES = {each.name: each for each in (DeltaLake, IcebergLake)}
