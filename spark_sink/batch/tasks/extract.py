"""Reads the ids of a split, and puts them aside for those who judge: step 4.

Only the columns of id and time are read, and with fingerprints those that count. Per row five numbers go on:
the hash, the fingerprint, the time and the row's number. A row that cannot be judged is noted with its fault.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import Fault
from processor.errors import StopError
from schemas.config.batches import TOPIC_TIME
from spark_sink.batch.rows.json_lines import LineBlock, id_reader, require_end
from spark_sink.batch.rows.json_shapes import NULL, Shape, joined_shape, shape_of
from spark_sink.batch.rows.json_values import MODEL_TIMES, UnfitValueError, made, misfits, read_object
from spark_sink.batch.rows.parquet_rows import read_rows, table_fingerprints, table_ids
from spark_sink.batch.rows.schema import fitted, schema_of, types_of
from spark_sink.batch.rows.times import LEAST_US, MOST_US, NO_TIME, read_times, text_time
from spark_sink.batch.staging import FAULTS, KEYS, LOW, staged, write_parted
from spark_sink.batch.table.layout import DAY_US
from spark_sink.batch.topic.staged import RecordBlock, read_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from processor.engine.rest import JsonIds, RowIds
    from spark_sink.batch.plan import RunPlan, Split


_NO_OBJECT = (Fault.VALUE_NOT_JSON, Fault.VALUE_MISSING)


class Extracted(NamedTuple):
    """What a split has.

    Attributes:
        rows: Rows that were read.
        skipped: Of them those of dates that are not made.
        faults: Of them those that cannot be judged.
        first_fault: The row and code of the first; None: there is none.
        days: The dates of those that are judged, as day numbers.
        shape: Of JSON's rows that are judged.
        misfits: How many of the faults have a value without room in a column, by its name.
        numbers: How many of JSON's rows have a number in a column of the id, by its name.
    """

    rows: int
    skipped: int
    faults: int
    first_fault: tuple[int, int] | None
    days: list[int]
    shape: Shape
    misfits: Mapping[str, int] = MappingProxyType({})
    numbers: Mapping[str, int] = MappingProxyType({})


class _Keys(NamedTuple):
    """The rows of one block: int64[n, 5] of `KEYS`, uint8[n] faults, and JSON's values where there are any.

    Of rows with a value without room in a column its name.
    """

    keys: NDArray[np.int64]
    fault: NDArray[np.uint8]
    values: list[dict[str, object] | None]
    misfits: Mapping[int, str] = MappingProxyType({})


def extract(plan: RunPlan, split: Split) -> Extracted:
    """Put the keys and faults of a split aside.

    Raises:
        StopError: Its file is cut, corrupt, or has a value that fits no column.
    """
    keys: list[NDArray[np.int64]] = [np.zeros((0, 5), np.int64)]
    faults: list[NDArray[np.int64]] = [np.zeros((0, 3), np.int64)]
    rows, skipped = 0, 0
    numbers, beyond = Counter[str](), Counter[str]()
    shape: Shape = NULL
    for block in _parquet_keys(plan, split) if plan.format == "parquet" else _value_keys(plan, split):
        rows += len(block.keys)
        wanted = np.ones(len(block.keys), np.bool_)
        if plan.since_day is not None:
            times = block.keys[:, 3]
            # Undated records stay in quarantine: not all of them may still be in their topic.
            undated = (times == NO_TIME) & (plan.format != "kafka")
            wanted = undated | (times >= plan.since_day * DAY_US)
            skipped += int((~wanted).sum())
        beyond.update(name for at, name in block.misfits.items() if wanted[at])
        good, bad = wanted & (block.fault == 0), wanted & (block.fault != 0)
        keys.append(block.keys[good])
        noted = block.keys[bad][:, 4], block.fault[bad].astype(np.int64), block.keys[bad][:, 3]
        faults.append(np.stack(noted, axis=1))
        if block.values:
            values = [block.values[at] or {} for at in np.flatnonzero(good)]
            shape = joined_shape([shape, *map(shape_of, values)])
            numbers.update(name for each in values for name in plan.id if not isinstance(each.get(name), str))
    found, wrong = np.concatenate(keys), np.concatenate(faults)
    part = found[:, LOW] & (plan.buckets - 1)
    write_parted(staged(plan.staging, KEYS, split.number), found, part, plan.buckets)
    write_parted(staged(plan.staging, FAULTS, split.number), wrong, np.zeros(len(wrong), np.int64), 1)
    first = (int(wrong[0, 0]), int(wrong[0, 1])) if len(wrong) else None
    days = np.unique(found[:, 3] // DAY_US).tolist()
    return Extracted(rows, skipped, len(wrong), first, days, shape, dict(beyond), dict(numbers))


def _joined(
    ids: RowIds, prints: NDArray[np.uint64], times: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    prints = prints if prints.size else np.zeros(rows.size, np.uint64)
    hashes = ids.ids.hash.view(np.int64)
    return np.stack([hashes[:, 0], hashes[:, 1], prints.view(np.int64), times, rows], axis=1)


def _parquet_keys(plan: RunPlan, split: Split) -> Iterator[_Keys]:
    schema, path = schema_of(plan.schema), plan.files[split.file]
    columns = None if plan.exclude is not None else [*plan.id, plan.event_time]
    for first, table in read_rows(plan, split, columns):
        try:
            ids = table_ids(table, plan, schema, path)
            prints = np.zeros(0, np.uint64)
            if plan.exclude is not None:
                prints = table_fingerprints(table, plan, schema, path)
            time = fitted(table, pa.schema([schema.field(plan.event_time)]), path)
            times, wrong = read_times(time.column(0).combine_chunks())
        except ValueError as error:  # texts that are no UTF-8, dates beyond the calendar
            raise StopError(f"{path}, from row {first} on: a value cannot be read ({error})") from error
        fault = np.where(ids.ids.fault != 0, ids.ids.fault, wrong)
        yield _Keys(_joined(ids, prints, times, first + np.arange(len(table))), fault, [])


def _value_keys(plan: RunPlan, split: Split) -> Iterator[_Keys]:
    path, reader = plan.files[split.file], id_reader(plan)
    types = types_of(plan.declared), types_of(plan.known)
    for block in read_values(plan, split):
        yield _keys_of(plan, block, reader, path, types)


def _keys_of(
    plan: RunPlan,
    block: LineBlock | RecordBlock,
    reader: JsonIds,
    path: str,
    types: tuple[dict[str, Any], dict[str, Any]],
) -> _Keys:
    ids = reader.read(block.text)
    fault = ids.ids.fault.copy()
    times, stamped = np.full(fault.size, NO_TIME, np.int64), False
    if isinstance(block, LineBlock):
        require_end(block, fault, path)
    else:
        fault[block.missing] = Fault.VALUE_MISSING
        stamped = plan.event_time == TOPIC_TIME
    if stamped and isinstance(block, RecordBlock):
        times, wrong = block.times()
        fault = np.where(fault == 0, wrong, fault)
    values: list[dict[str, object] | None] = []
    found: dict[int, str] = {}
    for at in range(fault.size):
        value = None if fault[at] in _NO_OBJECT else read_object(block.line(at))
        values.append(value)
        if value is None:
            fault[at] = fault[at] or Fault.OUT_OF_RANGE
        elif not stamped:
            times[at], why = _time(value.get(plan.event_time), types[0].get(plan.event_time))
            fault[at] = fault[at] or why
        if value is not None and not fault[at] and (column := misfits(value, *types)):
            fault[at], found[at] = Fault.OUT_OF_RANGE, column
    return _Keys(_joined(ids, ids.ids.fingerprint, times, block.rows), fault, values, found)


def _time(value: object, kind: Any | None) -> tuple[int, int]:
    """Return a time in microseconds, and a fault; a model's as the model reads it."""
    if value is None or kind not in MODEL_TIMES.values():
        return _plain_time(value)
    try:
        return made(value, kind), 0
    except UnfitValueError:
        return NO_TIME, Fault.FIELD_TYPE


def _plain_time(value: object) -> tuple[int, int]:
    match value:
        case None:
            return NO_TIME, Fault.FIELD_MISSING
        case bool():
            return NO_TIME, Fault.FIELD_TYPE
        case int():
            time_us = value * 1000
            return (time_us, 0) if LEAST_US <= time_us <= MOST_US else (NO_TIME, Fault.OUT_OF_RANGE)
        case str():
            found = text_time(value)
            return (NO_TIME, Fault.FIELD_TYPE) if found is None else (found, 0)
        case _:
            return NO_TIME, Fault.FIELD_TYPE
