"""Writes several files of one date as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.errors import StopError
from spark_sink.batch.rows.data_files import DataFiles
from spark_sink.batch.rows.own_columns import OWN_SCHEMA
from spark_sink.batch.rows.parquet_rows import ROWS_AT_A_TIME, open_parquet
from spark_sink.batch.rows.schema import fitted, joined, schema_of
from spark_sink.batch.table.layout import day_number

if TYPE_CHECKING:
    from spark_sink.batch.table.commits import DataFile

_DATE = "seqmark_date"


class MergedDate(NamedTuple):
    """The files of one kind and date that become one.

    Attributes:
        kind: Of the files.
        folder: Of the kind.
        table: Folder of the table.
        stem: What the new file's name begins with.
        date: Of all rows.
        paths: Of the files, in the order of their rows.
        rows: How many these are.
        schema: Of rows of the table: the columns of the input as the last commit has them. Files that other
            programs have merged may have them in another order or unit, and lack the date.
    """

    kind: str
    folder: str
    table: str
    stem: str
    date: str
    paths: list[str]
    rows: int
    schema: str


def merge(job: MergedDate) -> list[DataFile]:
    """Write the rows of all files, in their order; return the file.

    Raises:
        StopError: A file cannot be read.
    """
    schema = _schema(job)
    day = day_number(job.date)
    with DataFiles(job.folder, job.table, job.stem) as files:
        for path in job.paths:
            with open_parquet(path) as file:
                try:
                    for batch in file.iter_batches(ROWS_AT_A_TIME):
                        rows = fitted(_dated(pa.Table.from_batches([batch]), day), schema, path)
                        files.write(rows, np.full(len(rows), day))
                except (pa.ArrowException, OSError) as error:
                    raise StopError(f"{path}, which is part of the table, cannot be read ({error})") from error
    if (rows := sum(each.rows for each in files.written)) != job.rows:
        raise StopError(
            f"{job.kind} of {job.date}: {rows:,} rows were written, and its files should have {job.rows:,}: "
            "one was changed; restore it from a backup"
        )
    return files.written


def _schema(job: MergedDate) -> Any:
    """Return the columns of the new file: of those of the table the ones that its files have.

    Raises:
        StopError: A file has a column that the table does not have.
    """
    schemas = []
    for path in job.paths:
        with open_parquet(path) as file:
            schemas.append(file.schema_arrow.remove_metadata())
    if not job.schema:
        return joined(list(zip(job.paths, schemas, strict=True)))
    known = pa.schema([*schema_of(job.schema), *OWN_SCHEMA])
    for path, found in zip(job.paths, schemas, strict=True):
        if strange := set(found.names) - set(known.names):
            raise StopError(
                f"{path}, which is part of the table, has a column {min(strange)}, which no batch has written: "
                "files are not merged where that would be lost"
            )
    there = {name for each in schemas for name in each.names} | {_DATE}
    return pa.schema([each for each in known if each.name in there])


def _dated(rows: Any, day: int) -> Any:
    """Return rows with their date, which Delta's own files lack: tables are parted by it."""
    if _DATE in rows.schema.names or "seqmark_low" not in rows.schema.names:
        return rows
    return rows.append_column(_DATE, pa.array(np.full(len(rows), day, np.int32)).cast(pa.date32()))
