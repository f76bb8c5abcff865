"""Puts the records of a topic aside as Parquet files, one per partition, and reads them back.

    offset int64 | timestamp int64, ms; null: none | key binary | value binary

Invariant: a row's number is its record's offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from processor.engine.rest import Fault, JsonRows, unframed
from processor.errors import StopError
from schemas.config.batches import TOPIC_COLUMNS
from spark_sink.batch.rows.json_lines import read_lines
from spark_sink.batch.rows.parquet_rows import read_groups
from spark_sink.batch.rows.row_json import offsets_and_bytes
from spark_sink.batch.rows.times import MOST_US, NO_TIME
from spark_sink.batch.tasks.inspect import Footer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan, Split
    from spark_sink.batch.rows.json_lines import LineBlock
    from spark_sink.batch.topic.source import TopicBlock

_STAGED = pa.schema(
    [("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]
)
_TYPES = (pa.binary(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))
TOPIC_SCHEMA = pa.schema(list(zip(TOPIC_COLUMNS, _TYPES, strict=True)))
"""The columns that rows of a topic have beside the fields of their values."""
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 32 << 20
"""Of a row group, which is held whole: by the driver as it is written, by a task as it is read."""


def with_topic_columns(schema: Any) -> Any:
    """Return the columns of values with those that stand beside them.

    Raises:
        StopError: A value has a field of such a name.
    """
    for each in schema.names:
        if each.lower() in TOPIC_COLUMNS:
            raise StopError(
                f"the values have a field {each}: {', '.join(TOPIC_COLUMNS)} are columns that a batch adds to "
                "the rows of a topic; write such a topic to files with other names first"
            )
    return pa.schema([*schema, *TOPIC_SCHEMA])


class TopicFile:
    """The file of one partition, while it is written."""

    def __init__(self, file: Path) -> None:
        self._writer = pq.ParquetWriter(file, _STAGED, compression="zstd", use_dictionary=False)
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0
        self.footer = Footer("", [], [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()

    def take(self, block: TopicBlock) -> None:
        """Write some records, or keep them until there are more; of values only the JSON is kept."""
        times = pa.array(block.timestamp, pa.int64(), mask=block.timestamp < 0)
        texts = block.keys, [each and unframed(each) for each in block.values]
        columns = [pa.array(block.offset), times, *(pa.array(each, pa.binary()) for each in texts)]
        table = pa.table(columns, schema=_STAGED)
        self._waiting.append(table)
        self._rows, self._bytes = self._rows + len(table), self._bytes + table.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._rows)
        self.footer.rows.append(self._rows)
        self.footer.bytes.append(self._bytes)
        self._waiting, self._rows, self._bytes = [], 0, 0


class RecordBlock(NamedTuple):
    """Some records of a partition, as `spark_sink.batch.rows.json_lines.LineBlock` has lines.

    Attributes:
        text: Their values; of a null one nothing.
        rows: int64[n], their offsets.
        beside: The columns of `TOPIC_SCHEMA`.
        missing: bool[n], whose value is null.
        beyond: bool[n], whose timestamp is of no year up to 9999; it is null in ``beside``.
    """

    text: JsonRows
    rows: NDArray[np.int64]
    beside: Any
    missing: NDArray[np.bool_]
    beyond: NDArray[np.bool_]
    cut: bool = False

    def line(self, at: int) -> bytes:
        """Return one value."""
        begin, end = self.text.offsets[at : at + 2]
        return self.text.data[begin:end].tobytes()

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the records' timestamps in microseconds, and `Fault` codes of those that have none."""
        column = self.beside.column(3).combine_chunks()
        absent = np.array(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        times = np.array(column.cast(pa.int64()).fill_null(NO_TIME).to_numpy(zero_copy_only=False), np.int64)
        fault = np.where(absent, Fault.FIELD_MISSING, Fault.NONE).astype(np.uint8)
        fault[self.beyond] = Fault.OUT_OF_RANGE
        return times, fault


def read_values(plan: RunPlan, split: Split) -> Iterator[LineBlock | RecordBlock]:
    """Yield the values of a split: lines of a file, or records of a topic.

    Raises:
        StopError: The file is cut or corrupt.
    """
    path = plan.files[split.file]
    return read_lines(path) if plan.format == "json" else _read_records(path, split)


def _read_records(path: str, split: Split) -> Iterator[RecordBlock]:
    """Yield the records of a split.

    Raises:
        StopError: The file is not what was written.
    """
    partition = int(path.rpartition("-")[2])
    for _, table in read_groups(path, split, None):
        offset, timestamp, key, value = (each.combine_chunks() for each in table.columns)
        value = value.chunk(0) if isinstance(value, pa.ChunkedArray) else value
        offsets, raw = offsets_and_bytes(value)
        # Producers write what they like: microseconds, which are of the year 56,000, fit no date.
        beyond = pc.fill_null(pc.greater(timestamp, MOST_US // 1000), False)
        fitting = pc.if_else(beyond, pa.scalar(None, pa.int64()), timestamp)
        times = fitting.cast(pa.timestamp("ms", "UTC")).cast(TOPIC_SCHEMA.field(3).type)
        numbers = pa.array(np.full(len(table), partition, np.int32))
        beside = pa.table([key, numbers, offset, times], schema=TOPIC_SCHEMA)
        missing = np.array(value.is_null().to_numpy(zero_copy_only=False), np.bool_)
        rows = np.array(offset.to_numpy(zero_copy_only=False), np.int64)
        far = np.array(beyond.to_numpy(zero_copy_only=False), np.bool_)
        yield RecordBlock(JsonRows.of(raw, offsets), rows, beside, missing, far)
