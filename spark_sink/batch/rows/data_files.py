"""Writes rows to the files of their dates, durably, and tells of what it has written."""

from __future__ import annotations

import os
from itertools import pairwise
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
_ROW_GROUP, _MOST_ROWS = 1 << 17, 1 << 19
"""Rows of one date that are written together, and the most that one row group has."""
_WAITING_BYTES = 192 << 20
"""Of all dates, in Arrow's form. A split is 128 MiB, so most of its dates get one row group each: who reads one
value of each row group pays by their number."""
_RANDOM = ("seqmark_low", "seqmark_high", "seqmark_fingerprint")
"""Columns of random words: no codec makes them smaller, and trying took a third of the time of a write."""
_PLAIN = (*_RANDOM, "seqmark_time")
"""Columns without a codec; of times packed differences are what it would make of them, too."""
_RISING = ("seqmark_row", "seqmark_time")
"""Columns whose values are near to each other: differences take 0.9 and 4.6 B, dictionaries 1.3 and 7.0."""
NO_DAY = -(2**62)
"""Of rows without a time that can be read."""


def _writer(stream: Any, schema: Any, distinct: str) -> Any:
    # With checksums a page that is damaged later is found, and not taken for other rows.
    # Pages have a mebibyte, and not 20,000 rows if that is less: who reads a few values pays per page, too.
    options: dict[str, Any] = {
        "compression": "zstd",
        "write_page_checksum": True,
        "max_rows_per_page": _ROW_GROUP,
    }
    if set(_RANDOM) <= set(schema.names):
        leaves = {path: each.name for each in schema for path in _leaves(each.name, each.type)}
        alone = {*_RANDOM, *_RISING, distinct}
        options["compression"] = {path: "none" if name in _PLAIN else "zstd" for path, name in leaves.items()}
        options["use_dictionary"] = [path for path, name in leaves.items() if name not in alone]
        options["column_encoding"] = dict.fromkeys(_RISING, "DELTA_BINARY_PACKED")
    # Types are Parquet's own: with Arrow's beside them a reader would see dictionaries where texts are.
    return pq.ParquetWriter(stream, schema, store_schema=False, **options)


def _leaves(path: str, kind: Any) -> list[str]:
    """Return a column's leaves as Parquet names them."""
    if pa.types.is_struct(kind):
        return [leaf for each in kind for leaf in _leaves(f"{path}.{each.name}", each.type)]
    if pa.types.is_map(kind):
        parts = (("key", kind.key_type), ("value", kind.item_type))
        return [leaf for name, each in parts for leaf in _leaves(f"{path}.key_value.{name}", each)]
    return _leaves(f"{path}.list.element", kind.value_type) if pa.types.is_list(kind) else [path]


class _OpenFile:
    """One file that is being written, with the rows that wait for more."""

    def __init__(self, path: Path, schema: Any, distinct: str) -> None:
        self.path = path
        self.rows = 0
        self._stream = path.open("wb")
        self._writer = _writer(self._stream, schema, distinct)
        self._waiting: list[Any] = []
        self.waiting = 0

    def take(self, rows: Any) -> None:
        """Keep rows until there are enough for a row group."""
        self._waiting.append(rows)
        self.waiting += len(rows)
        self.rows += len(rows)

    def flush(self) -> None:
        """Write what waits, as one row group."""
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_MOST_ROWS)
        self._waiting, self.waiting = [], 0

    def end(self, *, whole: bool) -> None:
        """Close the file; whole, what is written stays, whatever happens to this machine."""
        if whole:
            self.flush()
        self._writer.close()
        self._stream.flush()
        if whole:
            os.fsync(self._stream.fileno())
        self._stream.close()


class DataFiles:
    """The files of one kind that one task writes.

    Args:
        folder: Where they go, by date.
        table: Folder of the table, from which on paths are told.
        stem: What their names begin with; no other task, and no other attempt, has it. Each try of a task adds
            a random word of its own.
        source: The input file, told of undated rows.
        distinct: A column whose values are nearly all different: a dictionary is of no use. Empty: none.
    """

    def __init__(self, folder: str, table: str, stem: str, source: str = "", distinct: str = "") -> None:
        self._folder, self._table, self._source, self._distinct = Path(folder), table, source, distinct
        self._stem = f"{stem}-{os.urandom(4).hex()}"
        self._open: dict[int, _OpenFile] = {}
        self._counter = self._taken = 0
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
        for each in self._open.values():
            each.end(whole=False)
        self._open.clear()

    def write(self, rows: Any, days: NDArray[np.int64]) -> None:
        """Write rows, each to the file of its date; `NO_DAY`: it has none."""
        if (days[1:] < days[:-1]).any():
            order = np.argsort(days, kind="stable")
            rows, days = rows.take(pa.array(order)), days[order]
        bounds = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
        for begin, end in pairwise(bounds if len(days) else []):
            file = self._file(int(days[begin]), rows.schema)
            file.take(rows.slice(begin, end - begin))
            if file.waiting >= _ROW_GROUP:
                file.flush()
        # What waits holds the whole table that it is a part of, so all that came since then counts.
        self._taken += rows.nbytes
        if self._taken >= _WAITING_BYTES:
            for each in self._open.values():
                each.flush()
            self._taken = 0

    def _file(self, day: int, schema: Any) -> _OpenFile:
        if day not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self.close()
            folder = self._folder / "data" / (UNDATED if day == NO_DAY else day_text(day))
            folder.mkdir(parents=True, exist_ok=True)
            self._open[day] = _OpenFile(
                folder / f"{self._stem}-{self._counter}.parquet", schema, self._distinct
            )
            self._counter += 1
        return self._open[day]

    def close(self) -> None:
        """End the files that are open: what is written stays, whatever happens to this machine."""
        folders = {file.path.parent for file in self._open.values()}
        for day, file in self._open.items():
            file.end(whole=True)
            date, source = ("", self._source) if day == NO_DAY else (day_text(day), "")
            path = os.path.relpath(file.path, self._table)
            self.written.append(DataFile(path, date, file.rows, source))
        for folder in sorted(folders | {each.parent for each in folders}):
            flush_folder(folder)
        self._open.clear()
