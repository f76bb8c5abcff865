"""Reads and writes Delta tables through Delta's own library: a batch's files, and an aggregate's rows.

A batch's files are ours. Its commit has transaction identifiers, of number and mark, by which our commit
counts; see `spark_sink.batch.table.counted`. It is held against the whole table as the run has found it: Delta
refuses it where another program has added or removed a file meanwhile.

An aggregate's files are written by Spark, with the batch's number as a transaction identifier (`txn` of Delta's
protocol): its application is `seqmark-` and the query's id, its version the batch's number. Delta's own writer
sets it in the commit that adds the files, and refuses a commit that another one of the same application has
overtaken. Of different applications it lets both in: so before its first batch a query claims the table, by the
property `seqmark.query`. That changes the table's metadata, and of two such changes at once Delta lets one
through. The table is parted by `window_date`, the date at which a window begins (UTC), as Parquet files are.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from processor.errors import StopError
from schemas.config.aggregate_rules import DELTA_DATE
from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.counted import APPLICATION, DELTA, MARK, Counted, delta_counted
from spark_sink.lake.jvm import LakeJvm, translated
from spark_sink.lake.table import DATE, NO_BATCH, LakeState, TableFound

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_sink.files import Files
    from spark_sink.lake.table import LakeChange, QueryBatch

QUERY = "seqmark.query"
_TOLD = "spark.databricks.delta.commitInfo.userMetadata"
_TIME = "seqmark_time"
_LOCAL_TIMES = {"delta.feature.timestampNtz": "supported"}
_WIDENING = {"delta.enableTypeWidening": "true"}
"""By which Delta's library notes in the schema from which type to which a column has changed."""
_INSIDE = {"array": "elementType", "map": "valueType"}
"""Of a type in Spark's JSON form: where the type of what it holds stands."""
_UNFIT = set(" ,;{}()\n\t=")
_MILLISECOND = timedelta(milliseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - _MILLISECOND


def delta_jvm(spark: SparkSession) -> LakeJvm:
    """Return Spark's JVM.

    Raises:
        StopError: It has no Delta.
    """
    return LakeJvm(spark, DELTA, "org.apache.spark.sql.delta.DeltaLog")


class DeltaTransaction:
    """A transaction of Delta's library, and the table as it has it; ``exists`` says whether there is one."""

    def __init__(self, jvm: LakeJvm, folder: str) -> None:
        self._jvm, self._delta = jvm, jvm.root.org.apache.spark.sql.delta
        self._java = self._delta.DeltaLog.forTable(jvm.session, folder).startTransaction()
        self._snapshot = self._java.snapshot()
        self.exists = self._snapshot.version() >= 0

    @property
    def holds_rows(self) -> bool:
        """Whether the table has a file."""
        return int(self._snapshot.numOfFiles()) > 0

    def read_whole_table(self) -> None:
        """Let the commit be refused where the table gets or loses any file meanwhile."""
        self._java.readWholeTable()

    def last(self, application: str) -> int:
        """Return the last version of an application's transactions, -1 for none."""
        return int(self._java.txnVersion(application))

    def metadata(self) -> dict[str, Any]:
        """Return the table's metadata, as Delta's protocol has it."""
        found: dict[str, Any] = json.loads(self._snapshot.metadata().json())["metaData"]
        return found

    def files(self) -> list[dict[str, Any]]:
        """Return the table's files, as Delta's protocol has it."""
        return [json.loads(each) for each in self._snapshot.allFiles().toJSON().collectAsList()]

    def commit(self, actions: list[dict[str, Any]], metadata: dict[str, Any] | None) -> None:
        """Commit actions, and the table's metadata where they change; None: they do not."""
        action = self._delta.actions.Action
        if metadata is not None:
            self._java.updateMetadata(action.fromJson(json.dumps({"metaData": metadata})), False)
        self._java.commit(
            self._jvm.scala_seq(action.fromJson(json.dumps(each)) for each in actions),
            getattr(getattr(self._delta.DeltaOperations, "ManualUpdate$"), "MODULE$"),
        )


def unread_feature(metadata: dict[str, Any], files: list[dict[str, Any]], folder: Path) -> str:
    """Return what a table has that we do not read in its files; empty: nothing."""
    if metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none":
        return "has column mapping, by which its files have other names of columns"
    if any(each.get("deletionVector") for each in files):
        cleared = f"REORG TABLE delta.`{folder}` APPLY (PURGE) writes files without them"
        return f"has rows that are deleted by deletion vectors ({cleared})"
    return ""


def file_of(path: str, folder: Path) -> Path:
    """Return a file of a table, by its URI from the table's folder on, or an absolute one."""
    parts = urlsplit(path)
    return folder / unquote(parts.path if parts.scheme else path)


class DeltaRows:
    """A table of an aggregate's rows, see the module."""

    title = "Delta"
    log = "_delta_log"

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self._spark, self._path = spark, files.absolute
        self._jvm = delta_jvm(spark)

    def look(self, query: str | None) -> TableFound | None:
        """Return the table as it is now, None where there is none.

        Args:
            query: The query whose batches are looked for; None: it has not begun.
        """
        # A transaction that is never committed: it has read the log up to now.
        found = DeltaTransaction(self._jvm, self._path)
        if not found.exists:
            return None
        last = NO_BATCH if query is None else found.last(application(query))
        schema = StructType.fromJson(json.loads(found.metadata()["schemaString"]))
        return TableFound(schema, "", last, found.holds_rows)

    def create(self, schema: StructType) -> None:
        """Create the table, without rows."""
        empty = self._spark.createDataFrame([], self.columns(schema))
        empty.write.format("delta").partitionBy(DELTA_DATE).save(self._path)

    def columns(self, schema: StructType) -> StructType:
        """Return the columns of a table for rows of this schema: the date is added."""
        return StructType([*schema.fields, StructField(DELTA_DATE, DateType())])

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Add the rows of a batch and its number, in one commit.

        Raises:
            LakeError: Somebody else has committed meanwhile, which is a conflict, or the library refuses.
                Nothing of it is in the table.
            StopError: The table is another query's.
        """
        writer = rows.withColumn(DELTA_DATE, sql.to_date("window_start")).write.format("delta").mode("append")
        writer = writer.option("txnAppId", application(batch.query)).option("txnVersion", batch.number)
        told = f"seqmark aggregate {batch.sink}, batch {batch.number}"
        with translated():
            self._claim(batch)
            writer.option("userMetadata", told).save(self._path)

    def _claim(self, batch: QueryBatch) -> None:
        transaction = DeltaTransaction(self._jvm, self._path)
        metadata = transaction.metadata()
        owner = metadata.setdefault("configuration", {}).setdefault(QUERY, None)
        if owner == batch.query:
            return
        if owner is not None:
            raise StopError(
                f"aggregate {batch.sink}: batch {batch.number} is not written to {self._path}: the table is "
                f"that of the query {owner}, and this is {batch.query}. Each checkpoint needs a table of its "
                f"own: name another folder, or stop the aggregate and remove this one"
            )
        metadata["configuration"][QUERY] = batch.query
        transaction.commit([], metadata)


def application(query: str) -> str:
    """Return the application by which a query's batches stand in the log."""
    return f"seqmark-{query}"


class DeltaTable:
    """A table of a batch's files, see the module.

    Attributes:
        title: The format's name.
        log: The folder of its log.
    """

    title = "Delta"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self.log = spark, folder, folder / "_delta_log"
        self._jvm = delta_jvm(spark)
        self._transaction: DeltaTransaction | None = None
        self._found: dict[str, dict[str, Any]] = {}
        self._metadata: dict[str, Any] | None = None

    def begin(self) -> LakeState:
        """Return the table as it is, and hold on to it: `commit` succeeds if it has not changed.

        Raises:
            LakeError: The library refuses.
            StopError: The table has what a batch cannot work with.
        """
        with translated():
            self._transaction = transaction = DeltaTransaction(self._jvm, str(self._folder))
            transaction.read_whole_table()
            if not transaction.exists:
                return LakeState(exists=False, counted=Counted(0, 0), columns=[], rows=[])
            number, mark = (max(transaction.last(each), 0) for each in (APPLICATION, MARK))
            counted = Counted.of(number, mark)
            if not number:
                return LakeState(exists=True, counted=counted, columns=[], rows=[])
            self._metadata = metadata = transaction.metadata()
            found = transaction.files()
        if feature := unread_feature(metadata, found, self._folder):
            raise StopError(f"{self._folder} {feature}: a batch does not read that, and does not write it")
        if metadata["partitionColumns"] != [DATE]:
            raise StopError(
                f"{self._folder} was made by a batch parted by {DATE}, and is so no more: set that back"
            )
        columns = [each["name"] for each in json.loads(metadata["schemaString"])["fields"]]
        self._found = {
            os.path.relpath(file_of(each["path"], self._folder), self._folder): each for each in found
        }
        rows = [self._file(path, each) for path, each in sorted(self._found.items())]
        return LakeState(exists=True, counted=counted, columns=columns, rows=rows)

    def _file(self, path: str, found: dict[str, Any]) -> DataFile:
        rows = json.loads(found.get("stats") or "{}").get("numRecords")
        if rows is None:
            rows = pq.read_metadata(self._folder / path).num_rows
        return DataFile(path, found["partitionValues"][DATE], rows)

    def counted(self) -> Counted:
        """Return our last commit that the table's log has now, read without the JVM."""
        return delta_counted(self._folder)

    def commit(self, change: LakeChange) -> None:
        """Commit a change to the table as `begin` has found it; Delta's history tells the run's name.

        Raises:
            LakeError: The table has changed, or the library refuses.
        """
        if self._transaction is None:
            raise RuntimeError("commit before begin")
        now = int(time.time() * 1000)
        made: list[dict[str, Any]] = [
            {"txn": {"appId": name, "version": version, "lastUpdated": now}}
            for name, version in ((APPLICATION, change.number), (MARK, change.mark))
        ]
        made += [{"remove": self._removal(path, now, change)} for path in change.removed]
        made += [{"add": self._addition(each, change)} for each in change.added]
        metadata = self._changed_metadata(change, now)
        told = self._spark.conf.get(_TOLD, None)
        self._spark.conf.set(_TOLD, f"seqmark run {change.run}")
        try:
            with translated():
                self._transaction.commit(made, metadata)
        finally:
            self._spark.conf.unset(_TOLD)
            if told is not None:
                self._spark.conf.set(_TOLD, told)

    def _changed_metadata(self, change: LakeChange, now: int) -> dict[str, Any] | None:
        """Return the table's metadata with new columns, before ours, and new members; None: there are none."""
        wanted = from_arrow_schema(change.columns, prefer_timestamp_ntz=True).jsonValue()
        if self._metadata is None:
            return {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(wanted),
                "partitionColumns": [DATE],
                "configuration": {},
                "createdTime": now,
            }
        schema = json.loads(self._metadata["schemaString"])
        known = {each["name"]: each for each in schema["fields"]}
        new = [each for each in wanted["fields"] if each["name"] not in known]
        widened = False
        for each in wanted["fields"]:
            if each["name"] in known and (kind := _grown(known[each["name"]]["type"], each["type"])):
                widened = widened or _widens(known[each["name"]]["type"], kind)
                known[each["name"]]["type"] = kind
                new.append(each)
        if not new:
            return None
        at = list(known).index("seqmark_low")
        schema["fields"][at:at] = [each for each in new if each["name"] not in known]
        # A table that is there gets by name what a new one gets by its columns.
        features = (
            dict(_LOCAL_TIMES) if any("timestamp_ntz" in json.dumps(each["type"]) for each in new) else {}
        )
        if widened:
            features |= _WIDENING
        settings = {**self._metadata.get("configuration", {}), **features}
        return {**self._metadata, "schemaString": json.dumps(schema), "configuration": settings}

    def _removal(self, path: str, now: int, change: LakeChange) -> dict[str, Any]:
        found = self._found[path]
        return {
            "path": found["path"],
            "deletionTimestamp": now,
            "dataChange": not change.same_rows,
            "extendedFileMetadata": True,
            "partitionValues": found["partitionValues"],
            "size": found["size"],
        }

    def _addition(self, file: DataFile, change: LakeChange) -> dict[str, Any]:
        status = (self._folder / file.path).stat()
        bounds = _bounds(self._folder / file.path)
        stats = {"numRecords": file.rows} | bounds
        return {
            "path": file.path,
            "partitionValues": {DATE: file.date},
            "size": status.st_size,
            "modificationTime": status.st_mtime_ns // 1_000_000,
            "dataChange": not change.same_rows,
            "stats": json.dumps(stats),
        }


def _bounds(file: Path) -> dict[str, dict[str, str]]:
    """Return the first and the last time of a file's rows, by its footer, as Delta's statistics have them."""
    metadata = pq.read_metadata(file)
    leaf = next(each for each in range(metadata.num_columns) if metadata.schema.column(each).path == _TIME)
    found = [metadata.row_group(group).column(leaf).statistics for group in range(metadata.num_row_groups)]
    least, most = min(each.min for each in found), max(each.max for each in found)
    if most > _LAST:
        return {}
    # Whole milliseconds; the last one is rounded up, so that no reader leaves the file out for it.
    return {"minValues": {_TIME: _text(least)}, "maxValues": {_TIME: _text(most + _MILLISECOND)}}


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _grown(known: Any, wanted: Any) -> Any | None:
    """Return a type of Spark's JSON form with the members that it lacks, at any depth; None: it lacks none.

    What the table says of members that it has stays: whether they may be null, and their comments.
    """
    if isinstance(known, str) and isinstance(wanted, str) and known != wanted:
        return wanted  # which our commits have found to be wider
    if not (isinstance(known, dict) and isinstance(wanted, dict) and known["type"] == wanted["type"]):
        return None
    inside = _INSIDE.get(known["type"])
    if inside is not None:
        grown = _grown(known[inside], wanted[inside])
        return None if grown is None else {**known, inside: grown}
    if known["type"] != "struct":
        return None
    members = {each["name"]: each for each in known["fields"]}
    made: dict[str, Any] = {}
    for each in wanted["fields"]:
        there = members.get(each["name"])
        if there is None and _fits(each):
            made[each["name"]] = each
        elif there is None:
            continue
        elif (grown := _grown(there["type"], each["type"])) is not None:
            made[each["name"]] = {**there, "type": grown}
    return {**known, "fields": list({**members, **made}.values())} if made else None


def _widens(known: Any, grown: Any) -> bool:
    """Return whether a type of Spark's JSON form has become another, at any depth; a new member is none."""
    if isinstance(known, str):
        return bool(known != grown)
    if (inside := _INSIDE.get(known["type"])) is not None:
        return _widens(known[inside], grown[inside])
    members = {each["name"]: each["type"] for each in grown["fields"]}
    return any(_widens(each["type"], members[each["name"]]) for each in known["fields"])


def _fits(field: Any) -> bool:
    """Return whether Delta takes a member: without its column mapping not every name will do, at any depth."""
    if _UNFIT & set(field["name"]):
        return False
    kind = field["type"]
    while isinstance(kind, dict) and kind["type"] in _INSIDE:
        kind = kind[_INSIDE[kind["type"]]]
    return not isinstance(kind, dict) or all(map(_fits, kind.get("fields", ())))
