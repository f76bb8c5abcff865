"""Adds rows of an aggregate to a Delta table, with the batch's number as a transaction identifier.

The identifier's application is `seqmark-` and the query's id, its version the batch's number (`txn` of
Delta's protocol). Delta's own writer sets it in the commit that adds the files, and refuses a commit that
another one of the same application has overtaken. Of different applications it lets both in: so before its
first batch a query claims the table, by the property `seqmark.query`. That changes the table's metadata, and of
two such changes at once Delta lets one through.

The table is parted by `window_date`, the date at which a window begins (UTC), as Parquet files are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql
from pyspark.sql.types import DateType, StructField, StructType

from processor.errors import StopError
from schemas.config.aggregate_rules import DELTA_DATE
from spark_sink.batch.lake.jvm import LakeError, LakeJvm, translated
from spark_sink.outputs.lake.table import NO_BATCH, LakeConflictError, TableFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_sink.files import Files
    from spark_sink.outputs.lake.table import QueryBatch

QUERY = "seqmark.query"
_LOG = "org.apache.spark.sql.delta.DeltaLog"


def application(query: str) -> str:
    """Return the application by which a query's batches stand in the log."""
    return f"seqmark-{query}"


class DeltaRows:
    """A table whose log Delta keeps, see the module."""

    title = "Delta"
    log = "_delta_log"

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self._spark, self._path = spark, files.absolute
        self._jvm = LakeJvm(spark, "delta", _LOG)

    def look(self, query: str | None) -> TableFound | None:
        """Return the table as it is now, None where there is none."""
        delta = self._jvm.root.org.apache.spark.sql.delta
        # A transaction that is never committed: it has read the log up to now.
        transaction = delta.DeltaLog.forTable(self._jvm.session, self._path).startTransaction()
        snapshot = transaction.snapshot()
        if snapshot.version() < 0:
            return None
        last = NO_BATCH if query is None else int(transaction.txnVersion(application(query)))
        schema = StructType.fromJson(json.loads(snapshot.metadata().schema().json()))
        return TableFound(schema, "", last, int(snapshot.numOfFiles()) > 0)

    def create(self, schema: StructType) -> None:
        """Create the table, without rows."""
        empty = self._spark.createDataFrame([], self.columns(schema))
        empty.write.format("delta").partitionBy(DELTA_DATE).save(self._path)

    def columns(self, schema: StructType) -> StructType:
        """Return the columns of a table for rows of this schema: the date is added."""
        return StructType([*schema.fields, StructField(DELTA_DATE, DateType())])

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Add the rows of a batch and its number, in one commit."""
        writer = rows.withColumn(DELTA_DATE, sql.to_date("window_start")).write.format("delta").mode("append")
        writer = writer.option("txnAppId", application(batch.query)).option("txnVersion", batch.number)
        told = f"seqmark aggregate {batch.sink}, batch {batch.number}"
        try:
            with translated():
                self._claim(batch)
                writer.option("userMetadata", told).save(self._path)
        except LakeError as error:
            if error.conflict:
                raise LakeConflictError(str(error)) from error
            # Spark's own words and causes say what it is: a full disk, a missing right.
            raise error.__cause__ or error from None

    def _claim(self, batch: QueryBatch) -> None:
        delta = self._jvm.root.org.apache.spark.sql.delta
        transaction = delta.DeltaLog.forTable(self._jvm.session, self._path).startTransaction()
        metadata = json.loads(transaction.metadata().json())
        owner = metadata["metaData"].setdefault("configuration", {}).setdefault(QUERY, None)
        if owner == batch.query:
            return
        if owner is not None:
            raise StopError(
                f"aggregate {batch.sink}: batch {batch.number} is not written to {self._path}: the table is "
                f"that of the query {owner}, and this is {batch.query}. Each checkpoint needs a table of its "
                f"own: name another folder, or stop the aggregate and remove this one"
            )
        metadata["metaData"]["configuration"][QUERY] = batch.query
        transaction.updateMetadata(delta.actions.Action.fromJson(json.dumps(metadata)), False)
        operation = getattr(getattr(delta.DeltaOperations, "ManualUpdate$"), "MODULE$")
        transaction.commit(self._jvm.scala_seq([]), operation)
