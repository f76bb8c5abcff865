"""Finds the files of Delta tables that a run reads, by their logs, with the columns that stand there alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from processor.errors import StopError
from spark_sink.batch.inputs import InputFile, in_order, stamped
from spark_sink.batch.lake.jvm import LakeError, LakeJvm, translated
from spark_sink.batch.rows.constants import Constant, constants_of_log
from spark_sink.batch.rows.schema import joined, plain_schema
from spark_sink.batch.table.counted import DELTA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


def find_delta_inputs(
    spark: SparkSession, paths: Sequence[str], what: str = "input"
) -> tuple[list[InputFile], Any]:
    """Return the files of the tables as they are now, in the order in which rows of one time are judged.

    Beside them the columns of the tables, by their logs, as an Arrow schema.

    Args:
        spark: A session with Delta's jars.
        paths: Folders of tables.
        what: Names them where one is refused.

    Raises:
        StopError: One is no Delta table, or has what is not read.
    """
    jvm = LakeJvm(spark, DELTA, "org.apache.spark.sql.delta.DeltaLog")
    found: dict[Path, InputFile] = {}
    columns = []
    for given in paths:
        root = Path(given).resolve()
        files, schema = _files(jvm, root, f"{what} {given}")
        columns.append((given, schema))
        for path, constants in files:
            parts = urlsplit(path)
            file = root / unquote(parts.path if parts.scheme else path)
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name
            try:
                found.setdefault(file.resolve(), stamped(file, name)._replace(constants=constants))
            except OSError as error:
                raise StopError(
                    f"{file}, which is part of the Delta table {given}, cannot be read ({error.strerror})"
                ) from error
    return in_order(found.values()), joined(columns)


def _files(jvm: LakeJvm, root: Path, named: str) -> tuple[list[tuple[str, list[Constant]]], Any]:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - pyspark is slow to import
    from pyspark.sql.types import StructType  # noqa: PLC0415 - as above

    try:
        with translated():
            log = jvm.root.org.apache.spark.sql.delta.DeltaLog.forTable(jvm.session, str(root))
            snapshot = log.startTransaction().snapshot()
            if snapshot.version() < 0:
                raise StopError(f"{named} is no Delta table; name its folder, or another format")
            metadata: dict[str, Any] = json.loads(snapshot.metadata().json())["metaData"]
            files = [json.loads(each) for each in snapshot.allFiles().toJSON().collectAsList()]
    except LakeError as error:
        raise StopError(f"{named} cannot be read by Delta: {error}") from error
    if metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none":
        why = "has column mapping, by which its files have other names of columns"
    elif any(each.get("deletionVector") for each in files):
        why = f"has deletion vectors (REORG TABLE delta.`{root}` APPLY (PURGE) writes files without them)"
    else:
        parted = set(metadata["partitionColumns"])
        fields = json.loads(metadata["schemaString"])["fields"]
        types = {each["name"]: each["type"] for each in fields if each["name"] in parted}
        schema = to_arrow_schema(StructType.fromJson(json.loads(metadata["schemaString"])))
        found = [
            (each["path"], constants_of_log(each["partitionValues"], types, each["path"])) for each in files
        ]
        return found, plain_schema(schema, named)
    raise StopError(f"{named} {why}: that is not read; write a copy of it without")
