"""Reads what counts of a clean table, of its receipts or of its quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from processor.errors import StopError
from spark_sink.batch.rows.own_columns import OWN_SCHEMA, RECEIPTS
from spark_sink.batch.rows.schema import schema_of
from spark_sink.batch.table.commits import read_snapshot
from spark_sink.batch.table.counted import PARQUET, counted_commits, table_format
from spark_sink.batch.table.layout import DUPLICATES, OWN_FOLDER, ROWS, TableLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_A_TIME = 16_384
"""Some 30 MB as Python has them."""


def committed_files(path: str) -> list[str]:
    """Return the files of a clean table, or of its receipts or quarantine, that count now.

    Args:
        path: The folder that the config names as output, duplicates or quarantine.

    Raises:
        StopError: No batch has written there, a commit is damaged, or these are rows of a Delta or Iceberg
            table, whose own log says which files count.
    """
    return _committed(path)[0]


def committed_rows(path: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what `read_clean` reads, without Spark: a row as a dict.

    Args:
        path: The folder that the config names as output, duplicates or quarantine.
        columns: Those that are read; all files have to have them.

    Raises:
        StopError: No batch has written there, or a commit or a file is damaged.
    """
    for file in committed_files(path):
        try:
            for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_A_TIME, columns=list(columns)):
                yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise StopError(f"{file} cannot be read ({error}); restore the folder from a backup") from error


def _whose(path: str) -> tuple[TableLayout, str]:
    """Return the table that a folder belongs to, and the kind of what it holds."""
    folder, kind = Path(path).resolve(), ROWS
    note = folder / OWN_FOLDER / "of.json"
    table = folder
    if note.exists():
        whose = json.loads(note.read_text())
        table, kind = (folder / whose["table"]).resolve(), whose["kind"]
    layout = TableLayout(str(table))
    if not (layout.own / "table.json").exists():
        raise StopError(f"{path} is no clean table, nor its receipts or quarantine: no batch has written there")
    return layout, kind


def _committed(path: str) -> tuple[list[str], pa.Schema | None]:
    """Return the files that count, and their schema; None: it differs from file to file."""
    layout, kind = _whose(path)
    if kind == ROWS and (lake := table_format(layout)) != PARQUET:
        raise StopError(f"{path} is a table of {lake}: its rows are read by its log, with Spark")
    snapshot = read_snapshot(layout)
    schema = None
    if kind == ROWS and snapshot.last is not None:
        schema = pa.schema([*schema_of(snapshot.last.schema), *OWN_SCHEMA])
    elif kind == DUPLICATES:
        schema = RECEIPTS
    return [str(layout.file(each.path)) for each in snapshot.files[kind]], schema


def read_clean(spark: SparkSession, path: str) -> DataFrame:
    """Read what is committed, and nothing else: rows of the output, receipts, or quarantined rows.

    Rows come with the columns that begin with ``seqmark_``; those of a Delta or Iceberg table are read by its
    own reader, for which the session has to have its jars. What a run that is at work has written is not among
    them, and a run that commits meanwhile does not change what this has begun to read.

    Args:
        spark: A session.
        path: The folder that the config names as output, duplicates or quarantine.

    Raises:
        StopError: No batch has written there, or a commit is damaged.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - pyspark is slow to import
    from pyspark.sql.types import StructType  # noqa: PLC0415 - as above

    layout, what = _whose(path)
    if what == ROWS and (lake := table_format(layout)) != PARQUET:
        if (counted := counted_commits(layout)) is not None and counted.number:
            return spark.read.format(lake).load(str(layout.output))
        return spark.createDataFrame([], StructType([]))
    files, schema = _committed(path)
    kind = None if schema is None else from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not files:
        return spark.createDataFrame([], kind or StructType([]))
    reader = spark.read.option("mergeSchema", "true") if kind is None else spark.read.schema(kind)
    return reader.parquet(*files)
