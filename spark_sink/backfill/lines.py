"""Hashes the rows of a file of JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
)
from spark_sink.backfill.sequences import pointers_of, sequences_of_lines
from spark_sink.backfill.values import read_time_ms, read_whole, text_array
from spark_sink.batch.rows.json_lines import read_lines, require_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.rest import JsonMatches, JsonRows
    from spark_sink.backfill.plan import HistoryPlan
    from spark_sink.backfill.sequences import ReadSequences
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
    reader = None if plan.columns.sequences is not None else _id_reader(plan)
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
    )


def _columns(plan: HistoryPlan, reader: JsonIds | None, block: LineBlock, path: str) -> RowColumns:
    columns, text, count = plan.columns, block.text, block.rows.size
    first = [] if columns.sequences is None else pointers_of(columns.sequences)
    found = text.look_up(*first, *filter(None, (columns.time, columns.partition, columns.key, columns.offset)))
    at = len(first)
    times, late = np.zeros(count, np.int64), np.zeros(count, np.uint8)
    if columns.time is not None:
        times, late = _times(text, found, at)
        at += 1
    partition, offset = np.zeros(count, np.int64), np.zeros(0, np.int64)
    if columns.partition is not None:
        partition, at = _numbers(text, found, at, ANYWHERE), at + 1
    if columns.key is not None:
        if columns.partition is None:
            partition = partitions_of(text.texts(found, at), plan.partitions)
        at += 1
    if columns.offset is not None:
        offset = _numbers(text, found, at, NO_OFFSET)
    what: RowHashes | ReadSequences
    sent_to = None
    if columns.sequences is not None:
        what = sequences_of_lines(columns.sequences, text, found)
        wrong = what.fault
    else:
        assert reader is not None  # noqa: S101 - where there are no sequences there are ids
        read = reader.read(text)
        ids = read.ids
        what, wrong = RowHashes(ids.hash, ids.fingerprint, times), ids.fault
        sent_to = None if plan.route is None else routed_partitions(read, plan.route)
    require_end(block, wrong, path)
    return RowColumns(what, times, merged_fault(wrong, late), partition, offset, sent_to)


def _times(text: JsonRows, found: JsonMatches, at: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return times in ms: of whole numbers, which are ms, and of texts."""
    kind = found.kind[at]
    texts = text.texts(found, at)
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
