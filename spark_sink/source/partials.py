"""Sums events up in the source: a row per pane of time and group, so that Spark merges tens of rows per task.

A pane is the longest span of time that lies in the same windows as a whole: the greatest common divisor of a
window's width and slide. A row's ``time`` is that of its newest event, so that Spark finds the windows, the
event-time watermark and what is late as it would by the events themselves:

    time | g0 g1 ... | v0 c0 v1 c1 ... | events | bad | part
    null | null      | null            | 0      | n   | what some records hold, n of which are no events

``v`` is a sum, a least or a most, null where no event of the row has a value; ``c`` counts those that have one.

Where distinct values are counted, ``v`` is a value, and a pane and group has further rows, one for each other
value that its registers need (`processor.engine.events.registers`). These have the time and the groups of the
first, no events, and null in every other ``v`` and ``c``: they are late where it is, and count nothing twice.
"""

from __future__ import annotations

import json
import math
import secrets
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark.sql import types as spark

from processor.engine.events import (
    Accumulator,
    EventReader,
    FieldKind,
    FieldRule,
    GroupTable,
    KeyParts,
    Registers,
    number_part,
    text_part,
    wide_parts,
)
from processor.errors import StopError
from spark_sink.source.rules import column_type, read_rules, written
from spark_sink.source.spans import SpanPart, SpanParts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from processor.engine.events import Columns, EventColumns, FieldColumn

MOST_DIGITS = 38
_MORE_DIGITS = 10
"""What Spark's sums of decimals have more than their column."""
_SUMS = {FieldKind.INT, FieldKind.FLOAT, FieldKind.DECIMAL}
_NO_EXTREMES = {FieldKind.TEXT}
DISTINCT = "approx_count_distinct"
_MOST_ROWS = 1 << 16
"""Of an Arrow batch."""
_WORD = 2**64
_EXACT = Context(prec=MOST_DIGITS + 1)
_MOST_US = 2**62
"""Some 146,000 years, which leaves room for a difference in 64 bits."""


def micros(timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return Kafka's timestamps (ms) in µs. Producers may write any 64 bits: what is beyond is at the limit."""
    return np.clip(timestamps, -_MOST_US // 1000, _MOST_US // 1000) * 1000


class PartialCall(NamedTuple):
    """One aggregate of a field: ``count`` (of records), ``sum``, ``min``, ``max``, ``avg`` or `DISTINCT`."""

    function: str
    field: int
    """Number of the field; of ``count`` without use."""


class PartialPlan(NamedTuple):
    """What is summed up."""

    rules: list[FieldRule]
    time: int
    """Number of the field with the event's time."""
    pane_ms: int
    groups: list[int]
    """Numbers of fields."""
    calls: list[PartialCall]
    max_ahead_ms: int | None

    def written(self) -> str:
        """Return the plan as text."""
        return json.dumps([written(self.rules), *self[1:]])

    @classmethod
    def read(cls, text: str) -> PartialPlan:
        """Read what `written` gave."""
        rules, time, pane_ms, groups, calls, ahead = json.loads(text)
        return cls(read_rules(rules), time, pane_ms, groups, [PartialCall(*each) for each in calls], ahead)

    def counts(self, events: EventColumns, columns: Columns) -> NDArray[np.bool_]:
        """Return which records are events that are summed up."""
        good: NDArray[np.bool_] = events.reason == 0
        if self.max_ahead_ms is not None:
            ahead_us = events.fields[self.time].numbers - micros(columns.timestamp)
            good &= ahead_us <= self.max_ahead_ms * 1000
        return good

    def schema(self) -> spark.StructType:
        """Return the columns of the rows."""
        fields = [spark.StructField("time", spark.TimestampType())]
        fields += [
            spark.StructField(f"g{number}", column_type(self.rules[at]))
            for number, at in enumerate(self.groups)
        ]
        for number, call in enumerate(self.calls):
            fields += [
                spark.StructField(f"v{number}", value_type(call, self.rules)),
                spark.StructField(f"c{number}", spark.LongType()),
            ]
        fields += [spark.StructField(name, spark.LongType()) for name in ("events", "bad")]
        fields.append(spark.StructField("part", SpanPart.schema()))
        return spark.StructType(fields)


def why_by_rows(function: str, rule: FieldRule | None) -> str | None:
    """Return why an aggregate cannot be made of partial ones; None: it can.

    Args:
        function: Of the config.
        rule: The field's; None for ``count``.
    """
    if function == "count" or (function == "sum" and rule is not None and rule.kind in _SUMS):
        return None
    if function in {"min", "max"} and rule is not None and rule.kind not in _NO_EXTREMES:
        return None
    if function == DISTINCT:
        return None
    if function == "avg" and rule is not None and rule.kind in _SUMS:
        return None if rule.kind != FieldKind.DECIMAL or _divides(rule) else "avg of decimals of so many digits"
    return f"{function} of {rule.kind.name.lower()}s" if rule is not None else function


def sum_digits(rule: FieldRule) -> int:
    """Return the digits that Spark's sum of a decimal has."""
    return min(rule.precision + _MORE_DIGITS, MOST_DIGITS)


def _divides(rule: FieldRule) -> bool:
    """Return whether Spark's division of sum by count rounds as its average does, to four places more.

    It has ``more`` digits beyond these, by its rule for the types of decimals: with none it rounds once. With
    ten it rounds twice, and comes to another number from 10^10 events per group on.
    """
    digits = sum_digits(rule)
    scale = rule.scale + 21
    if digits + 21 > MOST_DIGITS:
        scale = max(MOST_DIGITS - (digits - rule.scale), min(scale, 6))
    more = scale - min(rule.scale + 4, MOST_DIGITS)
    return more == 0 or more >= _MORE_DIGITS


def value_type(call: PartialCall, rules: list[FieldRule]) -> spark.DataType:
    """Return the type of an aggregate's partial value."""
    if call.function == "count":
        return spark.LongType()
    rule = rules[call.field]
    if call.function in {"min", "max", DISTINCT}:
        return column_type(rule)
    if rule.kind == FieldKind.DECIMAL:
        return spark.DecimalType(sum_digits(rule), rule.scale)
    # Averages of ints are of doubles, as Spark's.
    whole = rule.kind == FieldKind.INT and call.function == "sum"
    return spark.LongType() if whole else spark.DoubleType()


class PartialSums:
    """What one task has summed up."""

    def __init__(self, plan: PartialPlan) -> None:
        self._plan = plan
        self._reader = EventReader(plan.rules)
        self._table = GroupTable(secrets.randbits(64))
        self._newest = Accumulator("max")
        self._events = Accumulator("count")
        self._calls = [self._accumulator(call) for call in plan.calls]
        self._registers = {
            number: Registers(plan.rules[call.field], secrets.randbits(64))
            for number, call in enumerate(plan.calls)
            if call.function == DISTINCT
        }
        self._parts = SpanParts()

    def _accumulator(self, call: PartialCall) -> Accumulator:
        if call.function in {"count", DISTINCT}:
            return Accumulator("count")
        kind = self._plan.rules[call.field].kind
        floats = kind == FieldKind.FLOAT or (kind == FieldKind.INT and call.function == "avg")
        function = "sum" if call.function == "avg" else call.function
        return Accumulator(function, floats=floats, wide=kind == FieldKind.DECIMAL)

    def take(self, columns: Columns, partition: int) -> Iterator[pa.RecordBatch]:
        """Sum up records of a partition.

        Yields what there was so far where there are too many groups, or values to be kept.

        Raises:
            StopError: A sum leaves its 64 or 128 bits.
        """
        plan, events = self._plan, self._reader.read(columns)
        time = events.fields[plan.time]
        good = plan.counts(events, columns)
        pane = time.numbers // (plan.pane_ms * 1000)
        parts = [number_part(good, pane)]
        for at in plan.groups:
            parts += _parts(plan.rules[at], events.fields[at])
        keys, group = KeyParts.of(events, parts), np.empty(good.size, np.int32)
        if not all(
            each.has_room(events.fields[plan.calls[number].field], good)
            for number, each in self._registers.items()
        ):
            yield from self.left()
        self._parts.add(partition, columns.offset, good, time.numbers)
        begin = 0
        while begin < good.size:
            end = self._table.assign(keys, good, begin, group)
            self._add(events.fields, time, group, good, (begin, end))
            for number, registers in self._registers.items():
                column = events.fields[plan.calls[number].field]
                registers.reserve(column, good)
                registers.add(group, events, column, begin, end)
            if end < good.size:
                yield from self.left()
            begin = end

    def _add(
        self,
        fields: list[FieldColumn],
        time: FieldColumn,
        group: NDArray[np.int32],
        good: NDArray[np.bool_],
        rows: tuple[int, int],
    ) -> None:
        self._newest.add(group, good, time.numbers, *rows)
        self._events.add(group, good, time.numbers, *rows)
        for call, sums in zip(self._plan.calls, self._calls, strict=True):
            if call.function != "count":
                field = fields[call.field]
                if sums.add(group, field.valid, field.numbers, *rows):
                    self._overflow(call)

    def _overflow(self, call: PartialCall) -> None:
        raise StopError(f"a sum of {self._plan.rules[call.field].name} leaves the digits that it has")

    def left(self) -> Iterator[pa.RecordBatch]:
        """Yield what there is, and begin again."""
        if not self._table.size and not self._parts.found:
            return
        batch = self._batch()
        for begin in range(0, batch.num_rows, _MOST_ROWS):
            yield batch.slice(begin, _MOST_ROWS)
        self._table.clear()
        for each in (self._newest, self._events, *self._calls):
            each.clear()
        for registers in self._registers.values():
            registers.clear()
        self._parts.clear()

    def _batch(self) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and of tasks only
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - the same

        plan, count = self._plan, self._table.size
        keys = self._table.keys()
        columns: list[list[Any]] = [[int(each) for each in self._newest.numbers[:count, 0]]]
        at = 1  # the first part is the pane
        for field in plan.groups:
            width = 2 if plan.rules[field].kind == FieldKind.DECIMAL else 1
            columns.append([_key_value(plan.rules[field], key[at : at + width]) for key in keys])
            at += width
        for call, sums in zip(plan.calls, self._calls, strict=True):
            counts = (self._events if call.function == "count" else sums).counts[:count].tolist()
            columns += [self._values(call, sums, counts), counts]
        columns += [self._events.counts[:count].tolist(), [0] * count]
        parts = self._parts.found
        for column in columns:
            column.extend([None] * len(parts))
        columns[-2][count:], columns[-1][count:] = [0] * len(parts), [each.bad for each in parts]
        columns.append([None] * count + [each._asdict() for each in parts])
        schema = to_arrow_schema(plan.schema())
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        if self._registers:
            arrays = self._spread(arrays)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _spread(self, arrays: list[pa.Array]) -> list[pa.Array]:
        """Give each group the rows that its distinct values need; its first one has all that it had alone."""
        from spark_sink.source.arrow import GroupRows  # noqa: PLC0415 - as `_batch` does

        kept = {number: each.kept() for number, each in self._registers.items()}
        rows = GroupRows.of(len(arrays[0]), list(kept.values()))
        groups = 1 + len(self._plan.groups)
        spread = [rows.of_each(each) for each in arrays[:groups]]
        spread += [rows.of_first(each) for each in arrays[groups:-3]]
        spread += [rows.of_first(each).fill_null(0) for each in arrays[-3:-1]]
        spread.append(rows.of_first(arrays[-1]))
        for number, values in kept.items():
            rule = self._plan.rules[self._plan.calls[number].field]
            spread[groups + 2 * number] = rows.of_kept(rule, values)
        return spread

    def _values(self, call: PartialCall, sums: Accumulator, counts: list[int]) -> list[Any]:
        if call.function == "count":
            return list(counts)
        if call.function == DISTINCT:
            return [None] * len(counts)  # `_spread` has them
        rule = self._plan.rules[call.field]
        found: list[Any] = []
        for number, events in enumerate(counts):
            if not events:
                found.append(None)
            elif sums.sums.size:
                found.append(float(sums.sums[number]))
            elif rule.kind == FieldKind.DECIMAL:
                low, high = sums.numbers[number].tolist()
                found.append(self._decimal(call, rule, high * _WORD + low % _WORD))
            else:
                value = int(sums.numbers[number, 0])
                found.append(bool(value) if rule.kind == FieldKind.BOOL else value)
        return found

    def _decimal(self, call: PartialCall, rule: FieldRule, value: int) -> Decimal:
        if abs(value) >= 10 ** sum_digits(rule):
            self._overflow(call)
        return Decimal(value).scaleb(-rule.scale, _EXACT)


def _parts(rule: FieldRule, column: FieldColumn) -> list[Any]:
    if rule.kind == FieldKind.TEXT:
        return [text_part(column.valid, column.numbers, column.length)]  # type: ignore[arg-type]  # a text's are ints
    if rule.kind == FieldKind.DECIMAL:
        return wide_parts(column.valid, column.numbers)  # type: ignore[arg-type]  # a decimal's are ints
    return [number_part(column.valid, column.numbers)]


def _key_value(rule: FieldRule, parts: list[bytes | int | None]) -> Any:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, bytes):
        return first.decode()
    match rule.kind:
        case FieldKind.BOOL:
            return bool(first)
        case FieldKind.FLOAT:
            return float(np.array([first]).view(np.float64)[0])
        case FieldKind.DECIMAL:
            high = parts[1] if isinstance(parts[1], int) else 0
            return Decimal(high * _WORD + first % _WORD).scaleb(-rule.scale, _EXACT)
        case _:
            return first


def pane_ms(window_ms: int, slide_ms: int | None) -> int:
    """Return the width of a pane."""
    return window_ms if slide_ms is None else math.gcd(window_ms, slide_ms)


def numbers_of(rules: list[FieldRule]) -> Mapping[str, int]:
    """Return the number of each field, by name."""
    return {rule.name: number for number, rule in enumerate(rules)}
