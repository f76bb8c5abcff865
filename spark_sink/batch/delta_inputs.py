"""Finds the files of Delta tables that a run reads, by their logs, with the columns that stand there alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from processor.errors import StopError
from spark_sink.batch.inputs import InputFile, in_order, stamped
from spark_sink.batch.rows.constants import Constant, constants_of_log
from spark_sink.batch.rows.schema import joined, plain_schema
from spark_sink.lake.delta import DeltaTransaction, delta_jvm, file_of, unread_feature
from spark_sink.lake.jvm import LakeError, LakeJvm, translated

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
    jvm = delta_jvm(spark)
    found: dict[Path, InputFile] = {}
    columns = []
    for given in paths:
        root = Path(given).resolve()
        files, schema = _files(jvm, root, f"{what} {given}")
        columns.append((given, schema))
        for path, constants in files:
            file = file_of(path, root)
            name = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name
            try:
                found.setdefault(file.resolve(), stamped(file, name)._replace(constants=constants))
            except OSError as error:
                raise StopError(
                    f"{file}, which is part of the Delta table {given}, cannot be read ({error.strerror})"
                ) from error
    return in_order(found.values()), joined(columns)


def _files(jvm: LakeJvm, root: Path, named: str) -> tuple[list[tuple[str, list[Constant]]], Any]:
    try:
        with translated():
            table = DeltaTransaction(jvm, str(root))
            if not table.exists:
                raise StopError(f"{named} is no Delta table; name its folder, or another format")
            metadata, files = table.metadata(), table.files()
    except LakeError as error:
        raise StopError(f"{named} cannot be read by Delta: {error}") from error
    if feature := unread_feature(metadata, files, root):
        raise StopError(f"{named} {feature}: that is not read; write a copy of it without")
    parted, schema = set(metadata["partitionColumns"]), json.loads(metadata["schemaString"])
    types = {each["name"]: each["type"] for each in schema["fields"] if each["name"] in parted}
    found = [(each["path"], constants_of_log(each["partitionValues"], types, each["path"])) for each in files]
    return found, plain_schema(to_arrow_schema(StructType.fromJson(schema)), named)
