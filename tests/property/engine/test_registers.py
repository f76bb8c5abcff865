"""Do the values that are kept fill Spark's registers as all of them do?"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.bytes.xxhash64 import xxhash64
from processor.engine.events import EventColumns, FieldColumn, FieldKind, FieldRule, Registers
from processor.engine.events.registers import MOST_VALUES, REGISTER_BITS, hash_as_spark
from tests.support.spark_sink.distinct import bytes_of, registers_of, xxh64

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TEXT = FieldRule("f", FieldKind.TEXT)
RULES = {
    "text": TEXT,
    "bool": FieldRule("f", FieldKind.BOOL),
    "int": FieldRule("f", FieldKind.INT),
    "float": FieldRule("f", FieldKind.FLOAT),
    "decimal": FieldRule("f", FieldKind.DECIMAL, precision=18, scale=2),
    "wide": FieldRule("f", FieldKind.DECIMAL, precision=38, scale=2),
    "date": FieldRule("f", FieldKind.DATE),
    "timestamp": FieldRule("f", FieldKind.TIMESTAMP),
}
LONGS = st.integers(-(2**63), 2**63 - 1)
EDGES = st.integers(0, 126).flatmap(
    lambda bits: st.sampled_from([2**bits - 1, 2**bits, -(2**bits), 1 - 2**bits])
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=80) | st.text("ab", max_size=3),
    "bool": st.booleans(),
    "int": LONGS | st.integers(-9, 9),
    "float": st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5]),
    "decimal": st.integers(-(10**18) + 1, 10**18 - 1),
    "wide": st.integers(-(10**38) + 1, 10**38 - 1) | EDGES,
    "date": st.integers(-719_162, 2_932_896),
    "timestamp": LONGS,
}
KINDS = sorted(RULES)


def test_the_plain_hash_has_the_vectors_of_the_reference_implementation() -> None:
    found = {raw: xxh64(raw, 0) for raw in (b"", b"a", b"abc")}
    assert found == {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}


@given(st.binary(max_size=200), st.integers(0, 40))
def test_the_kernel_hashes_as_plain_python_and_reads_no_byte_beyond_the_span(raw: bytes, before: int) -> None:
    for around in (0, 255):
        padded = bytes([around]) * before + raw + bytes([around]) * 40
        data = np.frombuffer(padded, np.uint8).copy()
        assert int(xxhash64(data, before, len(raw))) == xxh64(raw, 42)


def column_of(kind: FieldKind, values: Sequence[Any], *, apart: bool) -> EventColumns:
    """Return a column of these values; ``apart``: every second text lies where those with escapes do."""
    valid = np.array([value is not None for value in values], np.bool_)
    length = np.full(len(values), -1, np.int64)
    joined: tuple[list[bytes], list[bytes]] = ([], [])
    numbers: Any = np.zeros((len(values), 2) if kind == FieldKind.DECIMAL else len(values), np.int64)
    if kind == FieldKind.FLOAT:
        numbers = np.array([math.nan if value is None else value for value in values], np.float64)
    for row, value in enumerate(values):
        if value is None or kind == FieldKind.FLOAT:
            continue
        if kind == FieldKind.TEXT:
            other = apart and row % 2 == 1
            at = sum(map(len, joined[other]))
            joined[other].append(value.encode())
            numbers[row], length[row] = -at - 1 if other else at, len(joined[other][-1])
        elif kind == FieldKind.DECIMAL:
            numbers[row] = np.frombuffer(value.to_bytes(16, "little", signed=True), np.int64)
        else:
            numbers[row] = value
    data, extra = (np.frombuffer(b"".join(each), np.uint8).copy() for each in joined)
    return EventColumns(data, extra, [FieldColumn(valid, numbers, length)], np.zeros(len(values), np.int32))


@given(st.data(), st.sampled_from(KINDS))
def test_values_of_every_kind_are_hashed_as_plain_python_hashes_their_bytes(
    data: st.DataObject, name: str
) -> None:
    rule, values = RULES[name], data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=30))
    events, found = column_of(rule.kind, values, apart=True), np.zeros(len(values), np.uint64)

    group = np.zeros(len(values), np.int32)
    hash_as_spark(rule, events, events.fields[0], group, (0, len(values)), found)

    wanted = [0 if value is None else xxh64(bytes_of(rule, value), 42) for value in values]
    assert found.tolist() == wanted


def take(registers: Registers, kind: FieldKind, values: Sequence[Any], groups: Sequence[int], cut: int) -> None:
    """Give values to registers as one piece, in two parts; group -1 is none."""
    group, events = np.array(groups, np.int32), column_of(kind, values, apart=True)
    assert registers.has_room(events.fields[0], group >= 0)
    registers.reserve(events.fields[0], group >= 0)
    for begin, end in ((0, min(cut, len(values))), (min(cut, len(values)), len(values))):
        registers.add(group, events, events.fields[0], begin, end)
    # What was read is reused for the next piece.
    events.data[:], events.extra[:] = 0, 0
    events.fields[0].numbers[:] = 0


def kept_values(registers: Registers, kind: FieldKind) -> list[tuple[int, Any]]:
    """Return what is kept, with its group."""
    kept = registers.kept()
    assert (np.diff(kept.group) >= 0).all()
    found: list[Any] = []
    for row in range(kept.group.size):
        if kind == FieldKind.TEXT:
            found.append(kept.texts[kept.offsets[row] : kept.offsets[row + 1]].tobytes().decode())
        elif kind == FieldKind.FLOAT:
            found.append(float(kept.numbers[row].view(np.float64)[0]))
        else:
            found.append(int.from_bytes(kept.numbers[row].tobytes(), "little", signed=True))
    return list(zip(kept.group.tolist(), found, strict=True))


def by_group(pairs: Iterable[tuple[int, Any]]) -> dict[int, list[Any]]:
    """Return the values of each group, without those that are null."""
    found: dict[int, list[Any]] = defaultdict(list)
    for group, value in pairs:
        if group >= 0 and value is not None:
            found[group].append(value)
    return found


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 60))
def test_what_is_kept_fills_the_registers_of_each_group_as_all_values_do(
    data: st.DataObject, name: str, cut: int
) -> None:
    rule = RULES[name]
    registers = Registers(rule, data.draw(st.integers(0, 2**64 - 1)))
    everything: list[tuple[int, Any]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        pairs = data.draw(st.lists(st.tuples(st.integers(-1, 3), st.none() | VALUES[name]), max_size=60))
        take(registers, rule.kind, [value for _, value in pairs], [group for group, _ in pairs], cut)
        everything += pairs

    kept, wanted = by_group(kept_values(registers, rule.kind)), by_group(everything)
    assert set(kept) == set(wanted)
    for group, values in kept.items():
        assert registers_of(rule, values) == registers_of(rule, wanted[group])
        # One value each, which is among those that came.
        assert len(values) == len(registers_of(rule, values))
        there = {bytes_of(rule, value) for value in wanted[group]}
        assert all(bytes_of(rule, value) in there for value in values)


def test_many_values_of_many_groups_are_kept_as_plain_python_keeps_them() -> None:
    rule, registers = TEXT, Registers(TEXT, 7)
    pairs = [(number % 7, f"user-{number * number}") for number in range(9_000)]
    for begin in range(0, 9_000, 3_000):
        some = pairs[begin : begin + 3_000]
        take(registers, rule.kind, [value for _, value in some], [group for group, _ in some], 1_234)

    kept, wanted = by_group(kept_values(registers, rule.kind)), by_group(pairs)
    assert 7 * 400 < registers.size <= 7 << REGISTER_BITS
    assert {group: registers_of(rule, values) for group, values in kept.items()} == {
        group: registers_of(rule, values) for group, values in wanted.items()
    }
    registers.clear()
    assert registers.kept().group.size == 0


def test_above_the_limit_there_is_no_room_and_what_is_larger_than_all_room_goes_alone() -> None:
    registers = Registers(FieldRule("f", FieldKind.INT), 7)
    rows = MOST_VALUES + 1
    column = FieldColumn(np.ones(rows, np.bool_), np.arange(rows), np.full(rows, -1))
    events = EventColumns(np.empty(0, np.uint8), np.empty(0, np.uint8), [column], np.zeros(rows, np.int32))
    wanted = np.ones(rows, np.bool_)

    assert registers.has_room(column, wanted)
    registers.reserve(column, wanted)
    registers.add(np.zeros(rows, np.int32), events, column, 0, rows)

    assert registers.size == 1 << REGISTER_BITS
    assert not registers.has_room(column, wanted)
    assert registers.has_room(column, np.arange(rows) < MOST_VALUES - registers.size)
