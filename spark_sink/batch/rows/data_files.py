"""Writes rows to the files of their dates, durably, and tells of what it has written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.layout import UNDATED, day_text, flush_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_OPEN = 200
"""Files at a time of a task: a process has 1,024 of them by default, and the cores share it with Spark."""
NO_DAY = -(2**62)
"""Of rows without a time that can be read."""


def _writer(stream: Any, schema: Any) -> Any:
    # With checksums a page that is damaged later is found, and not taken for other rows.
    return pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True)


class DataFiles:
    """The files of one kind that one task writes.

    Args:
        folder: Where they go, by date.
        table: Folder of the table, from which on paths are told.
        stem: What their names begin with; no other task, and no other attempt, has it. Each try of a task adds
            a random word of its own.
        source: The input file, told of undated rows.
    """

    def __init__(self, folder: str, table: str, stem: str, source: str = "") -> None:
        self._folder, self._table, self._source = Path(folder), table, source
        self._stem = f"{stem}-{os.urandom(4).hex()}"
        self._open: dict[int, tuple[Path, Any, Any]] = {}
        self._rows: dict[Path, int] = {}
        self._counter = 0
        self.written: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            self.close()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files that are open: nobody will name them."""
        for _file, writer, stream in self._open.values():
            writer.close()
            stream.close()
        self._open.clear()

    def write(self, rows: Any, days: NDArray[np.int64]) -> None:
        """Write rows, each to the file of its date; `NO_DAY`: it has none."""
        for day in np.unique(days).tolist():
            mine = rows if (days == day).all() else rows.filter(pa.array(days == day))
            self._to(day, mine)

    def _to(self, day: int, rows: Any) -> None:
        if day not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self.close()
            folder = self._folder / "data" / (UNDATED if day == NO_DAY else day_text(day))
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{self._stem}-{self._counter}.parquet"
            self._counter += 1
            stream = file.open("wb")
            self._open[day] = file, _writer(stream, rows.schema), stream
            self._rows[file] = 0
        file, writer, _ = self._open[day]
        writer.write_table(rows)
        self._rows[file] += len(rows)

    def close(self) -> None:
        """End the files that are open: what is written stays, whatever happens to this machine."""
        folders = {file.parent for file, _, _ in self._open.values()}
        for day, (file, writer, stream) in self._open.items():
            writer.close()
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            dated = day != NO_DAY
            path = os.path.relpath(file, self._table)
            told = DataFile(
                path, day_text(day) if dated else "", self._rows[file], "" if dated else self._source
            )
            self.written.append(told)
        for folder in sorted(folders | {each.parent for each in folders}):
            flush_folder(folder)
        self._open.clear()
