"""Opens a Delta or Iceberg table by its path or by its name in a catalog, to delete rows by position.

Rows are found and deleted by Spark's SQL, which is the same for both; progress is noted by the format's own
library (`spark_sink.batch.lake.apply.progress`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.batch.lake.apply.progress import (
    PREFIX,
    ApplyProgress,
    delta_progress,
    delta_transactions,
    iceberg_progress,
    iceberg_property,
)
from spark_sink.batch.lake.jvm import LakeError, LakeJvm, translated
from spark_sink.batch.table.counted import DELTA, ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = "org.apache.spark.sql.delta.DeltaLog"
_TABLES = "org.apache.iceberg.hadoop.HadoopTables"


class PositionedTable(Protocol):
    """A table that rows are deleted from.

    Attributes:
        given: What the user calls it.
        sql: Its name in SQL.
    """

    given: str
    sql: str

    def progress(self, pipeline: str) -> ApplyProgress | None:
        """Return how far the verdicts of a pipeline were applied; None: never."""

    def note(self, pipeline: str, progress: ApplyProgress) -> None:
        """Note how far they are applied now.

        Raises:
            LakeError: The library refuses.
        """


def is_path(table: str) -> bool:
    """Whether a table is called by its path, and not by its name in a catalog."""
    return "/" in table or Path(table).is_dir()


def format_at(path: str) -> str | None:
    """Return the format of a table on this machine, by the folder of its log; None: neither is there."""
    for lake, folder in ((DELTA, "_delta_log"), (ICEBERG, "metadata")):
        if (Path(path) / folder).is_dir():
            return lake
    return None


def open_table(spark: SparkSession, table: str, lake: str | None) -> PositionedTable:
    """Open a table.

    Args:
        spark: A session with the jars of its format.
        table: Its path, or its name in a catalog.
        lake: ``delta`` or ``iceberg``; None: the table says it.

    Raises:
        StopError: It is not there, or is of another format.
    """
    try:
        with translated():
            if is_path(table):
                return _at_path(spark, table, lake or format_at(table))
            return _named(spark, table, lake)
    except (LakeError, PySparkException) as error:
        raise StopError(f"table {table} cannot be opened: {error}") from error


def _at_path(spark: SparkSession, table: str, lake: str | None) -> PositionedTable:
    # Not resolved where it has a scheme: it is another file system's.
    place = table.rstrip("/") if "://" in table else str(Path(table).resolve())
    if lake == DELTA:
        return DeltaPositions(spark, table, f"delta.{quoted(place)}", place)
    if lake == ICEBERG:
        parent, _, name = place.rpartition("/")
        catalog = _catalog_of(spark, parent)
        jvm = LakeJvm(spark, ICEBERG, _TABLES)
        tables = jvm.root.org.apache.iceberg.hadoop.HadoopTables(jvm.hadoop)
        if tables.exists(place):
            return IcebergPositions(table, f"{catalog}.{quoted(name)}", tables.load(place))
    raise StopError(
        f"{table} is no Delta or Iceberg table; name its folder, or its name in a catalog, and --format where "
        "it lies elsewhere"
    )


def _catalog_of(spark: SparkSession, folder: str) -> str:
    """Return a catalog of the Iceberg tables in a folder: SQL knows tables by catalogs only."""
    name = f"seqmark_{hashlib.sha256(folder.encode()).hexdigest()[:16]}"
    key = f"spark.sql.catalog.{name}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": folder,
        ".cache-enabled": "false",  # others commit, too
    }
    for each, value in settings.items():
        spark.conf.set(key + each, value)
    return name


def _named(spark: SparkSession, table: str, lake: str | None) -> PositionedTable:
    parts = table.split(".")
    sql = ".".join(map(quoted, parts))
    spark.catalog.refreshTable(sql)
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {sql}").collect()
    provider = next((each["data_type"] for each in described if each["col_name"] == "Provider"), None)
    if lake is None:
        lake = (provider or "").lower()
    if lake == DELTA:
        (detail,) = spark.sql(f"DESCRIBE DETAIL {sql}").select("location").collect()
        return DeltaPositions(spark, table, sql, detail["location"])
    if lake == ICEBERG:
        jvm = LakeJvm(spark, ICEBERG, _TABLES)
        loaded = jvm.root.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(jvm.session, sql)
        return IcebergPositions(table, sql, loaded)
    raise StopError(
        f"table {table} is neither of Delta nor of Iceberg, but of {provider or 'an unknown format'}"
    )


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


class DeltaPositions:
    """A Delta table."""

    def __init__(self, spark: SparkSession, given: str, sql: str, place: str) -> None:
        self.given, self.sql, self._place = given, sql, place
        self._jvm = LakeJvm(spark, DELTA, _LOG)
        if self._begun().snapshot().version() < 0:
            raise StopError(f"{given} is no Delta table; name its folder, or another format")

    def _begun(self) -> Any:
        log = self._jvm.root.org.apache.spark.sql.delta.DeltaLog.forTable(self._jvm.session, self._place)
        return log.startTransaction()

    def progress(self, pipeline: str) -> ApplyProgress | None:
        """Read the log's transaction identifiers."""
        with translated():
            found = self._begun().snapshot().setTransactions()
            texts = [str(found.apply(at).json()) for at in range(found.size())]
        return delta_progress(pipeline, [json.loads(text)["txn"] for text in texts])

    def note(self, pipeline: str, progress: ApplyProgress) -> None:
        """Commit transaction identifiers, and no file."""
        delta = self._jvm.root.org.apache.spark.sql.delta
        with translated():
            made = [
                delta.actions.Action.fromJson(json.dumps(each))
                for each in delta_transactions(pipeline, progress)
            ]
            operation = getattr(getattr(delta.DeltaOperations, "ManualUpdate$"), "MODULE$")
            self._begun().commit(self._jvm.scala_seq(made), operation)


class IcebergPositions:
    """An Iceberg table."""

    def __init__(self, given: str, sql: str, loaded: Any) -> None:
        self.given, self.sql, self._loaded = given, sql, loaded

    def progress(self, pipeline: str) -> ApplyProgress | None:
        """Read a property of the table."""
        with translated():
            self._loaded.refresh()
            text = self._loaded.properties().get(f"{PREFIX}.{pipeline}")
        return iceberg_progress(text, self.given)

    def note(self, pipeline: str, progress: ApplyProgress) -> None:
        """Set a property of the table."""
        with translated():
            update = self._loaded.updateProperties()
            update.set(f"{PREFIX}.{pipeline}", iceberg_property(progress)).commit()
