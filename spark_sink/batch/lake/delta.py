"""Reads and commits a Delta table: its files are ours, its log is written by Delta's own library.

A commit has transaction identifiers, of number and mark, by which our commit counts; see
`spark_sink.batch.table.counted`. It is held against the whole table as the run has found it: Delta refuses it
where another program has added or removed a file meanwhile.
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

from processor.errors import StopError
from spark_sink.batch.lake.jvm import LakeJvm, translated
from spark_sink.batch.lake.table import DATE, LakeState
from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.counted import APPLICATION, DELTA, MARK, Counted, delta_counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_sink.batch.lake.table import LakeChange

_LOG = "org.apache.spark.sql.delta.DeltaLog"
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


class DeltaTable:
    """A table whose log Delta keeps, see the module."""

    title = "Delta"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self.log = spark, folder, folder / "_delta_log"
        self._jvm = LakeJvm(spark, DELTA, _LOG)
        self._transaction: Any = None
        self._found: dict[str, dict[str, Any]] = {}
        self._metadata: dict[str, Any] | None = None

    def begin(self) -> LakeState:
        """Begin a transaction, and return the table as it has it."""
        delta = self._jvm.root.org.apache.spark.sql.delta
        with translated():
            log = delta.DeltaLog.forTable(self._jvm.session, str(self._folder))
            self._transaction = log.startTransaction()
            self._transaction.readWholeTable()
            snapshot = self._transaction.snapshot()
            if snapshot.version() < 0:
                return LakeState(exists=False, counted=Counted(0, 0), columns=[], rows=[])
            number, mark = (max(self._transaction.txnVersion(each), 0) for each in (APPLICATION, MARK))
            counted = Counted.of(number, mark)
            if not number:
                return LakeState(exists=True, counted=counted, columns=[], rows=[])
            self._metadata = json.loads(snapshot.metadata().json())["metaData"]
            found = [json.loads(each) for each in snapshot.allFiles().toJSON().collectAsList()]
        columns = self._columns(self._metadata)
        self._found = {self._relative(each["path"]): each for each in found}
        rows = [self._file(path, each) for path, each in sorted(self._found.items())]
        return LakeState(exists=True, counted=counted, columns=columns, rows=rows)

    def _columns(self, metadata: dict[str, Any]) -> list[str]:
        if metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none":
            raise StopError(
                f"{self._folder} has column mapping, by which its files have other names of columns: a batch "
                "cannot write them; make the output again without"
            )
        if metadata["partitionColumns"] != [DATE]:
            raise StopError(
                f"{self._folder} was made by a batch parted by {DATE}, and is so no more: set that back"
            )
        return [each["name"] for each in json.loads(metadata["schemaString"])["fields"]]

    def _relative(self, path: str) -> str:
        # As Delta's protocol has it: a URI, from the table's folder on unless it is absolute.
        parts = urlsplit(path)
        return os.path.relpath(self._folder / unquote(parts.path if parts.scheme else path), self._folder)

    def _file(self, path: str, found: dict[str, Any]) -> DataFile:
        if found.get("deletionVector"):
            raise StopError(
                f"{self._folder} has rows that are deleted by deletion vectors, which a batch does not read: "
                f"write the files without them, by REORG TABLE delta.`{self._folder}` APPLY (PURGE)"
            )
        rows = json.loads(found.get("stats") or "{}").get("numRecords")
        if rows is None:
            rows = pq.read_metadata(self._folder / path).num_rows
        return DataFile(path, found["partitionValues"][DATE], rows)

    def counted(self) -> Counted:
        """Return what the log has now."""
        return delta_counted(self._folder)

    def commit(self, change: LakeChange) -> None:
        """Commit by Delta's library; its history tells the run's name."""
        actions = self._jvm.root.org.apache.spark.sql.delta.actions.Action
        operations = self._jvm.root.org.apache.spark.sql.delta.DeltaOperations
        now = int(time.time() * 1000)
        made: list[dict[str, Any]] = [
            {"txn": {"appId": application, "version": version, "lastUpdated": now}}
            for application, version in ((APPLICATION, change.number), (MARK, change.mark))
        ]
        made += [{"remove": self._removal(path, now, change)} for path in change.removed]
        made += [{"add": self._addition(each, change)} for each in change.added]
        with translated():
            if (metadata := self._changed_metadata(change, now)) is not None:
                action = actions.fromJson(json.dumps({"metaData": metadata}))
                self._transaction.updateMetadata(action, False)
            told = self._spark.conf.get(_TOLD, None)
            self._spark.conf.set(_TOLD, f"seqmark run {change.run}")
            try:
                self._transaction.commit(
                    self._jvm.scala_seq(actions.fromJson(json.dumps(each)) for each in made),
                    getattr(getattr(operations, "ManualUpdate$"), "MODULE$"),
                )
            finally:
                self._spark.conf.unset(_TOLD)
                if told is not None:
                    self._spark.conf.set(_TOLD, told)

    def _changed_metadata(self, change: LakeChange, now: int) -> dict[str, Any] | None:
        """Return the table's metadata with new columns, before ours, and new members; None: there are none."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - pyspark is slow to import

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
