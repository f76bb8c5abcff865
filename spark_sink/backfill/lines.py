"""Hashes the rows of a file of JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from processor.engine.rest import ANYWHERE, Fault, JsonIds, JsonKind, partitions_of, routed_partitions
from processor.errors import StopError
from spark_sink.backfill.hashed import (
    NO_OFFSET,
    HashedRows,
    HashedSplit,
    RowColumns,
    RowHashes,
    merged_fault,
    read_whole,
)
from spark_sink.batch.rows.json_lines import read_lines, require_end
from spark_sink.batch.rows.times import read_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.rest import IdColumn, JsonMatches, JsonRows
    from spark_sink.backfill.plan import HistoryPlan
    from spark_sink.batch.plan import Split
    from spark_sink.batch.rows.json_lines import LineBlock


def hash_lines(plan: HistoryPlan, split: Split) -> HashedSplit:
    """Put the hashed rows of a file aside.

    Raises:
        StopError: It is cut or corrupt, or a row is of no partition.
    """
    path = plan.files[split.file]
    return HashedRows(plan, split.number, path).write(_blocks(plan, path))


def _blocks(plan: HistoryPlan, path: str) -> Iterator[tuple[NDArray[np.int64], RowColumns]]:
    reader = _id_reader(plan)
    for block in read_lines(path):
        try:
            yield block.rows, _columns(plan, reader, block, path)
        except (ValueError, pa.ArrowException) as error:
            raise StopError(f"{path}, from row {block.rows[0]} on: a value cannot be read ({error})") from error


def _id_reader(plan: HistoryPlan) -> JsonIds:
    columns = plan.columns
    return JsonIds(
        [each.column for each in columns.id],
        plan.secret,
        # Where a record stood is no part of its content.
        exclude=None if plan.exclude is None else [*plan.exclude, *columns.beside_value],
        as_bytes=[at for at, each in enumerate(columns.id) if each.as_bytes],
        normal=[each.normal for each in columns.id],
    )


def _columns(plan: HistoryPlan, reader: JsonIds, block: LineBlock, path: str) -> RowColumns:
    columns, text, count = plan.columns, block.text, block.rows.size
    found = text.look_up(*filter(None, (columns.time, columns.partition, columns.key, columns.offset)))
    (times, late), at = _times(text, found, 0), 1
    partition, offset = np.zeros(count, np.int64), np.zeros(0, np.int64)
    if columns.partition is not None:
        partition, at = _numbers(text, found, at, ANYWHERE), at + 1
    if columns.key is not None:
        if columns.partition is None:
            partition = partitions_of(text.texts(found, at), plan.partitions)
        at += 1
    if columns.offset is not None:
        offset = _numbers(text, found, at, NO_OFFSET)
    read = reader.read(text)
    ids = read.ids
    sent_to = None if plan.route is None else routed_partitions(read, plan.route)
    require_end(block, ids.fault, path)
    hashes = RowHashes(ids.hash, ids.fingerprint, times)
    return RowColumns(hashes, merged_fault(ids.fault, late), partition, offset, sent_to)


def _times(text: JsonRows, found: JsonMatches, at: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return times in ms: of whole numbers, which are ms, and of texts."""
    kind = found.kind[at]
    texts = text.texts(found, at)
    whole, words = kind == JsonKind.INTEGER, (kind == JsonKind.STRING) | (kind == JsonKind.ESCAPED)
    times, fault = np.zeros(kind.size, np.int64), np.full(kind.size, Fault.FIELD_TYPE, np.uint8)
    fault[kind <= JsonKind.NULL] = Fault.FIELD_MISSING
    array = _text_array(texts)
    for rows, numeric in ((whole, True), (words, False)):
        if rows.any():
            some = array.filter(pa.array(rows))
            times[rows], fault[rows] = read_time_ms(some.cast(pa.int64()) if numeric else some)
    return times, fault


def _numbers(text: JsonRows, found: JsonMatches, at: int, nothing: int) -> NDArray[np.int64]:
    """Return whole numbers, also where a text says them; ``nothing`` where there are none."""
    texts = text.texts(found, at)
    numbers, absent = read_whole(_text_array(texts))
    numbers[absent] = nothing
    return numbers


def _text_array(column: IdColumn) -> Any:
    """Return texts that were gathered from JSON as an array of Arrow's."""
    offsets = pa.py_buffer(np.ascontiguousarray(column.offsets, np.int64))
    valid = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    made = pa.Array.from_buffers(
        pa.large_string(), column.valid.size, [valid, offsets, pa.py_buffer(column.data)]
    )
    return made.cast(pa.string())
