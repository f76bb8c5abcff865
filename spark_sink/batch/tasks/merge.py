"""Writes several files of one date as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from processor.errors import StopError
from spark_sink.batch.rows.data_files import DataFiles
from spark_sink.batch.rows.parquet_rows import ROWS_AT_A_TIME, open_parquet
from spark_sink.batch.rows.schema import fitted, joined
from spark_sink.batch.table.layout import day_number

if TYPE_CHECKING:
    from spark_sink.batch.table.commits import DataFile


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
    """

    kind: str
    folder: str
    table: str
    stem: str
    date: str
    paths: list[str]
    rows: int


def merge(job: MergedDate) -> list[DataFile]:
    """Write the rows of all files, in their order; return the file.

    Raises:
        StopError: A file cannot be read.
    """
    schemas = []
    for path in job.paths:
        with open_parquet(path) as file:
            schemas.append((path, file.schema_arrow.remove_metadata()))
    schema = joined(schemas)  # the members that objects have got since are null in what is older
    with DataFiles(job.folder, job.table, job.stem) as files:
        for path in job.paths:
            with open_parquet(path) as file:
                try:
                    for batch in file.iter_batches(ROWS_AT_A_TIME):
                        rows = fitted(pa.Table.from_batches([batch]), schema, path)
                        files.write(rows, np.full(len(rows), day_number(job.date)))
                except (pa.ArrowException, OSError) as error:
                    raise StopError(f"{path}, which is part of the table, cannot be read ({error})") from error
    if (rows := sum(each.rows for each in files.written)) != job.rows:
        raise StopError(
            f"{job.kind} of {job.date}: {rows:,} rows were written, and its files should have {job.rows:,}: "
            "one was changed; restore it from a backup"
        )
    return files.written
