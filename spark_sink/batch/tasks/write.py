"""Reads a split once more and writes what became of its rows: step 7.

Kept rows go to the table, with the columns that make it its own manifest; receipts and quarantined rows go
beside it. Nothing that is written here counts before the run's commit names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from processor.engine.rest import Fault, JsonRows, Verdict, new_ids
from processor.errors import StopError
from spark_sink.batch.rows.data_files import NO_DAY, DataFiles
from spark_sink.batch.rows.json_lines import id_reader
from spark_sink.batch.rows.json_shapes import table_of
from spark_sink.batch.rows.json_values import misfits, read_object
from spark_sink.batch.rows.own_columns import LINE, JudgedRow, OwnValues, receipts, with_own, with_reasons
from spark_sink.batch.rows.parquet_rows import read_rows, table_ids
from spark_sink.batch.rows.schema import fitted, schema_of, types_of
from spark_sink.batch.rows.times import NO_TIME
from spark_sink.batch.staging import (
    FAULT_CODE,
    FAULT_ROW,
    FAULT_TIME,
    FAULTS,
    JUDGED,
    JUDGED_COLLIDED,
    JUDGED_NAME,
    JUDGED_OWNER_ROW,
    JUDGED_ROW,
    KEYS,
    PRINT,
    ROW,
    TIME,
    VERDICTS,
    read_all,
    read_names,
    read_part,
    staged,
)
from spark_sink.batch.table.layout import DAY_US, DUPLICATES, KINDS, QUARANTINE, ROWS
from spark_sink.batch.topic.staged import TOPIC_SCHEMA, RecordBlock, read_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.rest import RowIds
    from spark_sink.batch.plan import RunPlan, Split
    from spark_sink.batch.staging import Name
    from spark_sink.batch.table.commits import DataFile


class WrittenSplit(NamedTuple):
    """What a split has become: files by kind."""

    files: dict[str, list[DataFile]]


def write(plan: RunPlan, split: Split) -> WrittenSplit:
    """Write the files of a split."""
    return _SplitWriter(plan, split).write()


class _Rows(NamedTuple):
    """Some rows of the input: their numbers, and how to get those of a mask as what is needed."""

    numbers: NDArray[np.int64]
    table: Any | None
    lines: list[bytes]
    beside: Any | None = None
    """Of records of a topic the columns beside their values."""


class _SplitWriter:
    """Writes one split, see the module."""

    def __init__(self, plan: RunPlan, split: Split) -> None:
        self._plan, self._split = plan, split
        self._path, self._name = plan.files[split.file], plan.names[split.file]
        self._schema = schema_of(plan.schema)
        self._types = types_of(plan.declared), types_of(plan.known)
        keys = read_all(staged(plan.staging, KEYS, split.number))
        self._keys = keys[_order(keys[:, ROW])]
        faults = read_all(staged(plan.staging, FAULTS, split.number))
        self._faults = faults[np.argsort(faults[:, FAULT_ROW])]
        self._days = self._keys[:, TIME] // DAY_US
        self._first_day = int(self._days.min()) if len(self._days) else 0
        self._day_type = np.min_scalar_type(int(self._days.max(initial=self._first_day)) - self._first_day)
        self._judge()
        stem = f"{plan.number:08d}-{plan.attempt}-{split.number:05d}"
        distinct = plan.id[0] if len(plan.id) == 1 else ""
        source = self._name if plan.format == "kafka" else self._path
        self._files = {
            kind: DataFiles(folder, plan.output, stem, source, distinct)
            for kind in KINDS
            if (folder := plan.folders[kind]) is not None
        }

    def _judge(self) -> None:
        """Bring the buckets' verdicts to the keys, and decide what is done with each row."""
        plan, count = self._plan, len(self._keys)
        verdict, collided = np.zeros(count, np.uint8), np.zeros(count, np.bool_)
        self._owner = np.full((count, 2), -1, np.int64)
        names: dict[Name, int] = {}
        for bucket in range(plan.buckets):
            file = staged(plan.staging, VERDICTS, bucket)
            rows = read_part(file, self._split.number)
            if not len(rows):
                continue
            numbers = [names.setdefault(each, len(names)) for each in read_names(file)]
            at = np.searchsorted(self._keys[:, ROW], rows[:, JUDGED_ROW])
            verdict[at], collided[at] = rows[:, JUDGED], rows[:, JUDGED_COLLIDED] != 0
            # Who passes has no owner: -1 there finds the number that is added at the end.
            self._owner[at, 0] = np.array([*numbers, -1], np.int64)[rows[:, JUDGED_NAME]]
            self._owner[at, 1] = rows[:, JUDGED_OWNER_ROW]
        self._names = list(names)
        self._verdict = verdict
        collides, action = verdict == Verdict.COLLISION, plan.on_collision
        self._keep = (verdict == Verdict.PASS) | (collides & (action not in {"quarantine", "drop"}))
        self._aside = collides & (action == "quarantine")
        first = (verdict == Verdict.PASS) & collided & plan.rename_first
        self._rename = (collides | first) & (plan.renamed is not None)
        some = np.flatnonzero(self._rename)
        hashes = np.ascontiguousarray(self._keys[some, :2]).view(np.uint64)
        prints = np.ascontiguousarray(self._keys[some, PRINT]).view(np.uint64)
        texts = new_ids(plan.key, hashes, prints)
        self._new_ids = {int(at): texts[k].tobytes().decode() for k, at in enumerate(some)}

    def write(self) -> WrittenSplit:
        """Write all of it.

        Raises:
            StopError: The input has other rows than when it was judged.
        """
        try:
            for rows in self._read():
                self._take(rows)
            for files in self._files.values():
                files.close()
        except BaseException:
            for files in self._files.values():
                files.abandon()
            raise
        made = {kind: files.written for kind, files in self._files.items()}
        self._require_all(made)
        return WrittenSplit(made)

    def _require_all(self, made: dict[str, list[DataFile]]) -> None:
        expected = {
            ROWS: int(self._keep.sum()),
            DUPLICATES: int((self._verdict != Verdict.PASS).sum()),
            QUARANTINE: len(self._faults) + int(self._aside.sum()),
        }
        for kind, files in made.items():
            if (rows := sum(each.rows for each in files)) != expected[kind]:
                raise StopError(
                    f"{self._path}: {expected[kind]:,} rows are to be written as {kind}, and {rows:,} were: it "
                    "has changed while it was read; nothing of this run counts"
                )

    def _read(self) -> Iterator[_Rows]:
        if self._plan.format == "parquet":
            for first, table in read_rows(self._plan, self._split, None):
                yield _Rows(first + np.arange(len(table)), table, [])
            return
        for block in read_values(self._plan, self._split):
            beside = block.beside if isinstance(block, RecordBlock) else None
            yield _Rows(block.rows, None, [block.line(at) for at in range(len(block.rows))], beside)

    def _take(self, rows: _Rows) -> None:
        """Write some rows of the input."""
        at = _places(self._keys[:, ROW], rows.numbers)
        some = np.flatnonzero(at >= 0)
        kept = some[self._keep[at[some]]]
        # By date, so that rows are gathered once: each file of a date then takes a part of them.
        days = self._days[at[kept]] - self._first_day
        self._write_kept(rows, kept[np.argsort(days.astype(self._day_type), kind="stable")], at)
        if DUPLICATES in self._files:
            self._write_receipts(rows, some[self._verdict[at[some]] != Verdict.PASS], at)
        if QUARANTINE in self._files:
            self._write_quarantine(rows, at)

    def _table(self, rows: _Rows, some: NDArray[np.int64]) -> Any:
        """Return some of the rows as the table has them."""
        if rows.table is not None:
            chosen = rows.table if some.size == len(rows.table) else rows.table.take(pa.array(some))
            return fitted(chosen, self._schema, self._path)
        values = [read_object(rows.lines[k]) or {} for k in some]
        table = table_of(values, self._schema, self._path, self._types[0])
        if rows.beside is not None:
            for each in TOPIC_SCHEMA:
                column = rows.beside.column(each.name).take(pa.array(some))
                table = table.set_column(table.schema.get_field_index(each.name), each, column)
        return table

    def _write_kept(self, rows: _Rows, some: NDArray[np.int64], at: NDArray[np.int64]) -> None:
        if not some.size:
            return
        plan, keys = self._plan, at[some]
        table, original, collision = self._table(rows, some), None, None
        if plan.renamed is not None:
            new = pa.array([self._new_ids.get(int(key)) for key in keys], pa.string())
            where = table.schema.get_field_index(plan.renamed)
            old = table.column(where)
            renamed = new.is_valid()
            table = table.set_column(where, table.schema.field(where), pc.if_else(renamed, new, old))
            original = pc.if_else(renamed, old, pa.scalar(None, pa.string()))
        if plan.on_collision == "tag":
            collision = pa.array([self._owner_text(int(key)) for key in keys], pa.string())
        values = OwnValues(self._keys[keys], self._days[keys], collision, original)
        self._files[ROWS].write(with_own(table, values, plan, self._name), self._days[keys])

    def _owner_text(self, key: int) -> str | None:
        if self._verdict[key] != Verdict.COLLISION:
            return None
        name, row = self._owner[key]
        return f"{self._names[name][0]}:{row}"

    def _write_receipts(self, rows: _Rows, some: NDArray[np.int64], at: NDArray[np.int64]) -> None:
        if not some.size:
            return
        plan, keys = self._plan, at[some]
        ids = self._ids(rows, some)
        made = []
        for k, key in enumerate(keys.tolist()):
            collides = self._verdict[key] == Verdict.COLLISION
            name, owner_row = self._owner[key].tolist()
            print_word = int(self._keys[key, PRINT]) & (2**64 - 1)
            made.append(
                JudgedRow(
                    row=int(self._keys[key, ROW]),
                    time_us=int(self._keys[key, TIME]),
                    verdict="collision" if collides else "duplicate",
                    id=[
                        each if isinstance(each, str) else orjson.dumps(each).decode() for each in ids.texts(k)
                    ],
                    owner=self._names[name],
                    owner_row=owner_row,
                    fingerprint=None if plan.exclude is None else f"{print_word:016x}",
                    action=plan.on_collision if collides else None,
                    new_id=self._new_ids.get(key),
                )
            )
        self._files[DUPLICATES].write(receipts(plan, self._name, made), self._days[keys])

    def _ids(self, rows: _Rows, some: NDArray[np.int64]) -> RowIds:
        if rows.table is not None:
            return table_ids(rows.table.take(pa.array(some)), self._plan, self._schema, self._path)
        lines = [rows.lines[k] for k in some]
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in lines])]).astype(np.int64)
        return id_reader(self._plan).read(JsonRows.of(np.frombuffer(b"".join(lines), np.uint8), offsets))

    def _write_quarantine(self, rows: _Rows, at: NDArray[np.int64]) -> None:
        fault = _places(self._faults[:, FAULT_ROW], rows.numbers)
        collides = np.zeros(at.size, np.bool_)
        collides[at >= 0] = self._aside[at[at >= 0]]
        some = np.flatnonzero((fault >= 0) | collides)
        if not some.size:
            return
        codes = [
            Fault.ID_COLLISION if fault[k] < 0 else Fault(int(self._faults[fault[k], FAULT_CODE])) for k in some
        ]
        days = np.array(
            [self._days[at[k]] if fault[k] < 0 else self._day_of_fault(fault[k]) for k in some], np.int64
        )
        if rows.table is not None:
            table = fitted(rows.table.take(pa.array(some)), self._schema, self._path)
        else:
            missing = [each == Fault.VALUE_MISSING for each in codes]
            lines = [None if gone else rows.lines[k] for k, gone in zip(some, missing, strict=True)]
            table = pa.table({LINE: pa.array(lines, pa.binary())})
            if (beside := rows.beside) is not None:
                for each in TOPIC_SCHEMA:
                    table = table.append_column(each, beside.column(each.name).take(pa.array(some)))
        sources = [f"{self._name}:{row}" for row in rows.numbers[some]]
        lines_of = [rows.lines[k] if rows.lines else b"" for k in some]
        details = [self._detail(each, line) for each, line in zip(codes, lines_of, strict=True)]
        self._files[QUARANTINE].write(
            with_reasons(table, [each.code for each in codes], details, sources), days
        )

    def _day_of_fault(self, at: int) -> int:
        time_us = int(self._faults[at, FAULT_TIME])
        return NO_DAY if time_us == NO_TIME else time_us // DAY_US

    def _detail(self, fault: Fault, line: bytes) -> str:
        if fault == Fault.OUT_OF_RANGE and (misfit := misfits(read_object(line) or {}, *self._types)):
            return f"column {misfit} has no room for its value"
        columns = f"{', '.join(self._plan.id)} (id) or {self._plan.event_time} (event_time)"
        return {
            Fault.FIELD_MISSING: f"one of {columns} is null or missing",
            Fault.FIELD_TYPE: f"one of {columns} has a value that cannot be read",
            Fault.OUT_OF_RANGE: f"{self._plan.event_time} is not in the years 1 to 9999, or a value has no "
            "room in its column",
            Fault.VALUE_NOT_JSON: "the line is no JSON",
            Fault.VALUE_MISSING: "the record has no value",
            Fault.ID_COLLISION: "the id came before, with other content",
        }.get(fault, "")


def _order(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of different numbers, most of which follow each other."""
    first, beyond = (int(rows.min()), int(rows.max()) + 1) if rows.size else (0, 0)
    if beyond - first > 4 * rows.size:
        return np.argsort(rows)
    at = np.full(beyond - first, -1)
    at[rows - first] = np.arange(rows.size)
    return at[at >= 0]


def _places(sorted_rows: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each row stands in a sorted array; -1: nowhere. Both have each number once."""
    at = np.full(rows.size, -1)
    if rows.size and rows[-1] - rows[0] == rows.size - 1:  # rows of Parquet follow each other
        begin, end = np.searchsorted(sorted_rows, [rows[0], rows[-1] + 1]).tolist()
        at[sorted_rows[begin:end] - rows[0]] = np.arange(begin, end)
    elif sorted_rows.size:
        found = np.minimum(np.searchsorted(sorted_rows, rows), sorted_rows.size - 1)
        at = np.where(sorted_rows[found] == rows, found, at)
    return at
