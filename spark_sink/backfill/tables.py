"""Hashes the rows of some row groups of a Parquet file, or takes the hashes that a clean table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from processor.engine.rest import (
    ANYWHERE,
    IdTextForm,
    fingerprints_of,
    ids_of_columns,
    partitions_of,
    routed_partitions,
)
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
from spark_sink.batch.rows.constants import schema_with
from spark_sink.batch.rows.parquet_rows import id_column, input_schema, open_parquet, read_rows
from spark_sink.batch.rows.row_json import json_rows
from spark_sink.batch.rows.schema import UnfitError, fitted, plain_type
from spark_sink.batch.rows.times import can_be_time, read_time_ms
from spark_sink.batch.tasks.inspect import Footer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from spark_sink.backfill.plan import HistoryPlan, IdSource
    from spark_sink.batch.plan import Split

LOW, HIGH, PRINT, TIME = "seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time"
OLD_ID = "seqmark_original_id"
"""Columns of a clean table."""


def wanted_columns(plan: HistoryPlan) -> list[str]:
    """Return the columns that every file has to have."""
    columns = plan.columns
    ids = [] if plan.format == "batch" and plan.route is None else [each.column for each in columns.id]
    ids += [LOW, HIGH, PRINT] if plan.format == "batch" else []
    if _may_be_renamed(plan):
        ids.append(OLD_ID)
    more = [columns.time, columns.partition, columns.key, columns.offset]
    return list(dict.fromkeys([*ids, *(each for each in more if each is not None)]))


def read_history_footer(plan: HistoryPlan, number: int) -> Footer:
    """Return the sizes of the row groups of a file of ``plan.files``.

    Raises:
        StopError: It is cut, lacks a column, or has one from which nothing can be read.
    """
    path, constants = plan.files[number], plan.constants[number] if plan.constants else ()
    with open_parquet(path) as file:
        schema, metadata = schema_with(input_schema(file), constants), file.metadata
        for name in wanted_columns(plan):
            if name not in schema.names:
                there = ", ".join(schema.names[:20])
                raise StopError(f"{path} has no column {name}; name another with --columns. It has {there}")
        _require_types(plan, schema, path)
        chosen = None if plan.exclude is not None else set(wanted_columns(plan))
        sizes = []
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        for group in groups:
            parts = [group.column(at) for at in range(group.num_columns)]
            mine = [each for each in parts if chosen is None or each.path_in_schema in chosen]
            sizes.append(sum(each.total_uncompressed_size for each in mine))
        return Footer("", [each.num_rows for each in groups], sizes)


def _require_types(plan: HistoryPlan, schema: Any, path: str) -> None:
    columns, types = plan.columns, pa.types
    if plan.format != "batch" or plan.route is not None:
        for each in columns.id:
            kind = _plain(schema, each.column, path)
            if not (_is_part(kind) or types.is_boolean(kind)):
                raise StopError(
                    f"{path}: column {each.column} has the type {kind}: an id is made of texts, whole "
                    "numbers, booleans or bytes"
                )
    if columns.key is not None and not _is_part(kind := _plain(schema, columns.key, path)):
        raise StopError(
            f"{path}: column {columns.key} has the type {kind}: a key is made of texts, whole numbers or bytes"
        )
    if not can_be_time(_plain(schema, columns.time, path)):
        kind = schema.field(columns.time).type
        raise StopError(
            f"{path}: column {columns.time} has the type {kind}: a time is a timestamp, a date, an ISO 8601 "
            "text or whole milliseconds"
        )
    for number in (columns.partition, columns.offset):
        if number is not None and not types.is_integer(_plain(schema, number, path)):
            raise StopError(
                f"{path}: column {number} has the type {schema.field(number).type}, not whole numbers"
            )


def _is_part(kind: Any) -> bool:
    return _is_whole(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)


def _is_whole(kind: Any) -> bool:
    # What was uint64 is decimal here.
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def _plain(schema: Any, name: str, path: str) -> Any:
    try:
        return plain_type(schema.field(name).type)
    except UnfitError as error:
        raise StopError(
            f"{path}: column {name} has the type {error}, which nothing can be read from"
        ) from error


def hash_rows(plan: HistoryPlan, split: Split) -> HashedSplit:
    """Put the hashed rows of a split aside.

    Raises:
        StopError: Its file is corrupt, or a row is of no partition.
    """
    plan, path = _of_file(plan, split.file), plan.files[split.file]
    return HashedRows(plan, split.number, path).write(_blocks(plan, split, path))


def _of_file(plan: HistoryPlan, number: int) -> HistoryPlan:
    """Return the plan of one file: what its folders alone say is not in the values that the stream has.

    A part of the id that is read from values is.
    """
    constants = plan.constants[number] if plan.constants and plan.exclude is not None else ()
    inside = {each.column for each in plan.columns.id if not each.as_bytes}
    told = [each.name for each in constants if not each.over and each.name not in inside]
    if not told:
        return plan
    with open_parquet(plan.files[number]) as file:
        own = set(file.schema_arrow.names)
    beside = [*plan.columns.ignore, *(each for each in told if each not in own)]
    return plan._replace(columns=plan.columns._replace(ignore=beside))


def _blocks(plan: HistoryPlan, split: Split, path: str) -> Iterator[tuple[NDArray[np.int64], RowColumns]]:
    wanted = None if plan.exclude is not None and plan.format != "batch" else wanted_columns(plan)
    for first, table in read_rows(plan, split, wanted):
        try:
            block = _columns(plan, table, path)
        except (ValueError, pa.ArrowException) as error:
            raise StopError(f"{path}, from row {first} on: a value cannot be read ({error})") from error
        yield first + np.arange(len(table)), block


def _may_be_renamed(plan: HistoryPlan) -> bool:
    """Return whether columns that a batch may have written new ids into say the partition."""
    columns = plan.columns
    by_id = plan.route is not None or columns.key in {each.column for each in columns.id}
    return plan.format == "batch" and by_id


def _before_renaming(plan: HistoryPlan, name: str, table: Any, path: str) -> Any:
    """Return a column as producers had it, when a partition was chosen by it.

    Raises:
        StopError: A row has a new id, and nothing says in which of its columns.
    """
    key = _column(table, name, path)
    if not _may_be_renamed(plan) or name not in {each.column for each in plan.columns.id}:
        return key
    old = _column(table, OLD_ID, path)
    if old.null_count == len(old):
        return key
    if len(plan.columns.id) > 1:
        if plan.route is not None:
            raise StopError(
                f"{path} has rows that the batch has renamed ({OLD_ID}), and their id has several columns: "
                "which of them has the new id is not known, and so not where a copy is sent to. Give the "
                "batch's input as the history: --format parquet or json"
            )
        raise StopError(
            f"{path} has rows that the batch has renamed ({OLD_ID}), and their id has several columns: whether "
            f"{name} is still what producers chose the partition by is not known. Give the column that has "
            "the partition: --columns partition=COL"
        )
    return pc.coalesce(old, key)


def _columns(plan: HistoryPlan, table: Any, path: str) -> RowColumns:
    times, late = read_time_ms(_column(table, plan.columns.time, path))
    partition, offset = _places(plan, table, path)
    hashed, prints, wrong, sent_to = (_of_clean_table if plan.format == "batch" else _ids)(plan, table, path)
    ids = RowHashes(hashed, prints, times)
    return RowColumns(ids, merged_fault(wrong, late), partition, offset, sent_to)


def _places(plan: HistoryPlan, table: Any, path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the partitions and the offsets of rows."""
    columns = plan.columns
    partition = np.zeros(len(table), np.int64)
    if columns.partition is not None:
        partition, absent = read_whole(table.column(columns.partition))
        partition[absent] = ANYWHERE
    elif columns.key is not None:
        key = id_column(_before_renaming(plan, columns.key, table, path))
        partition = partitions_of(key, plan.partitions)
    offset = np.zeros(0, np.int64)
    if columns.offset is not None:
        offset, absent = read_whole(table.column(columns.offset))
        offset[absent] = NO_OFFSET
    return partition, offset


def _column(table: Any, name: str, path: str) -> Any:
    """Return a column with the type that a clean table would have."""
    kind = plain_type(table.schema.field(name).type)
    return fitted(table, pa.schema([pa.field(name, kind)]), path).column(0)


class _HashedTable(NamedTuple):
    """The ids of a table's rows: see `RowHashes` and `RowColumns`."""

    hash: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    fault: NDArray[np.uint8]
    sent_to: NDArray[np.int64] | None


def _ids(plan: HistoryPlan, table: Any, path: str) -> _HashedTable:
    parts = [_part(_column(table, each.column, path), each) for each in plan.columns.id]
    rows = ids_of_columns(parts, plan.secret, [each.normal for each in plan.columns.id])
    ids = rows.ids
    sent_to = None if plan.route is None else routed_partitions(rows, plan.route)
    if plan.exclude is None:
        return _HashedTable(ids.hash, np.zeros(0, np.uint64), ids.fault, sent_to)
    beside = set(plan.columns.beside_value)
    content = [each.name for each in table.schema if each.name not in beside]
    plain = pa.table({name: _column(table, name, path) for name in content})
    prints, fault = fingerprints_of(json_rows(plain), plan.exclude, plan.secret)
    return _HashedTable(ids.hash, prints, merged_fault(ids.fault, fault), sent_to)


def _part(column: Any, source: IdSource) -> Any:
    part = id_column(column)
    if source.as_bytes:
        return part._replace(form=IdTextForm.BYTES)
    # Some write texts without saying that they are texts.
    return part._replace(form=IdTextForm.STRING) if part.form == IdTextForm.BYTES else part


def _of_clean_table(plan: HistoryPlan, table: Any, path: str) -> _HashedTable:
    words = [read_whole(table.column(name))[0].view(np.uint64) for name in (LOW, HIGH)]
    prints = np.zeros(0, np.uint64)
    if plan.exclude is not None:
        prints = read_whole(table.column(PRINT))[0].view(np.uint64)
    hashed = np.stack(words, axis=1)
    sent_to = None if plan.route is None else _sent_to(plan, plan.route, hashed, table, path)
    return _HashedTable(hashed, prints, np.zeros(len(table), np.uint8), sent_to)


def _sent_to(
    plan: HistoryPlan, partitions: int, hashed: NDArray[np.uint64], table: Any, path: str
) -> NDArray[np.int64]:
    """Return the partitions that the ids of a clean table are sent to, which its hashes do not say.

    Raises:
        StopError: Its columns do not give the ids that were hashed.
    """
    parts = [_part(_before_renaming(plan, each.column, table, path), each) for each in plan.columns.id]
    rows = ids_of_columns(parts, plan.secret, [each.normal for each in plan.columns.id])
    if not np.array_equal(rows.ids.hash, hashed):
        names = ", ".join(each.column for each in plan.columns.id)
        raise StopError(
            f"{path}: of some rows {names} is not the id that the batch has hashed: where copies are sent to "
            "is not known. Give the batch's input as the history: --format parquet or json"
        )
    return routed_partitions(rows, partitions)
