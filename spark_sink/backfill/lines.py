"""Hashes the rows of a file of JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from processor.engine.rest import ANYWHERE, Fault, JsonIds, JsonKind, partitions_of
from processor.errors import StopError
from spark_sink.backfill.hashed import (
    NO_OFFSET,
    HashedRows,
    HashedSplit,
    RowColumns,
    merged_fault,
)
from spark_sink.backfill.values import read_time_ms, read_whole, text_array
from spark_sink.batch.rows.json_lines import read_lines, require_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.rest import JsonMatches, JsonRows
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
    columns = plan.columns
    beside = columns.beside_value
    reader = JsonIds(
        [each.column for each in columns.id],
        plan.secret,
        # Where a record stood is no part of its content.
        exclude=None if plan.exclude is None else [*plan.exclude, *beside],
        as_bytes=[at for at, each in enumerate(columns.id) if each.as_bytes],
    )
    for block in read_lines(path):
        try:
            yield block.rows, _columns(plan, reader, block, path)
        except (ValueError, pa.ArrowException) as error:
            raise StopError(f"{path}, from row {block.rows[0]} on: a value cannot be read ({error})") from error


def _columns(plan: HistoryPlan, reader: JsonIds, block: LineBlock, path: str) -> RowColumns:
    columns, text = plan.columns, block.text
    ids = reader.read(text).ids
    require_end(block, ids.fault, path)
    pointers = [columns.time, *filter(None, (columns.partition, columns.key, columns.offset))]
    found = text.look_up(*pointers)
    times, late = _times(text, found)
    count, at = block.rows.size, 1
    partition, offset = np.zeros(count, np.int64), np.zeros(0, np.int64)
    if columns.partition is not None:
        partition, at = _numbers(text, found, at, ANYWHERE), at + 1
    if columns.key is not None:
        if columns.partition is None:
            partition = partitions_of(text.texts(found, at), plan.partitions)
        at += 1
    if columns.offset is not None:
        offset = _numbers(text, found, at, NO_OFFSET)
    return RowColumns(ids.hash, ids.fingerprint, times, merged_fault(ids.fault, late), partition, offset)


def _times(text: JsonRows, found: JsonMatches) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return times in ms: of whole numbers, which are ms, and of texts."""
    kind = found.kind[0]
    texts = text.texts(found, 0)
    whole, words = kind == JsonKind.INTEGER, (kind == JsonKind.STRING) | (kind == JsonKind.ESCAPED)
    times, fault = np.zeros(kind.size, np.int64), np.full(kind.size, Fault.FIELD_TYPE, np.uint8)
    fault[kind <= JsonKind.NULL] = Fault.FIELD_MISSING
    array = text_array(texts)
    for rows, numeric in ((whole, True), (words, False)):
        if rows.any():
            some = array.filter(pa.array(rows))
            times[rows], fault[rows] = read_time_ms(some.cast(pa.int64()) if numeric else some)
    return times, fault


def _numbers(text: JsonRows, found: JsonMatches, at: int, nothing: int) -> NDArray[np.int64]:
    """Return whole numbers, also where a text says them; ``nothing`` where there are none."""
    texts = text.texts(found, at)
    numbers, absent = read_whole(text_array(texts))
    numbers[absent] = nothing
    return numbers
