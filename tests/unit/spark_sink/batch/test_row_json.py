"""The JSON that fingerprints of rows are made of has the bytes that Python makes of the rows, of every type."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.batch.rows.row_json import json_rows

TEXT = st.text(max_size=12) | st.sampled_from(['"\\/\b\t\n\f\r\x00\x1f\x7f', "\u2028é💡", ""])
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308])
MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


OBJECT = pa.struct([("a", pa.string()), ("b", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): TEXT,
    pa.bool_(): st.booleans(),
    pa.int8(): whole(8),
    pa.int16(): whole(16),
    pa.int32(): whole(32),
    pa.int64(): whole(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): NUMBERS,
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS,
    pa.date32(): st.dates(),
    pa.decimal128(12, 2): decimals(12, 2),
    pa.decimal128(38, 6): decimals(38, 6),
    pa.decimal128(20, 0): decimals(20, 0),
    pa.decimal128(30, 9): decimals(30, 9),
    pa.binary(): st.binary(max_size=9),
    pa.list_(pa.field("element", pa.string())): st.lists(st.none() | TEXT, max_size=3),
    pa.map_(pa.string(), pa.int64()): st.lists(st.tuples(TEXT, whole(64)), max_size=2),
    OBJECT: st.fixed_dictionaries({"a": TEXT, "b": st.none() | NUMBERS, "t": st.none() | MOMENTS}),
}
NAMES = st.lists(TEXT, min_size=1, max_size=4, unique=True)


def by_python(table: pa.Table) -> list[bytes]:
    columns = [(name, values(table.column(at))) for at, name in enumerate(table.column_names)]
    return [
        orjson.dumps({name: column[row] for name, column in columns if column[row] is not None})
        for row in range(len(table))
    ]


def values(column: Any) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date(kind):
        return list(column.cast(pa.int32()).to_pylist())
    return [as_json(each) for each in column.to_pylist()]


def as_json(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | datetime() | date() | time():
            return str(value)
        case dict():
            return {name: as_json(each) for name, each in value.items() if each is not None}
        case list() | tuple():
            return [as_json(each) for each in value]
        case _:
            return value


def texts(table: pa.Table) -> list[bytes]:
    made = json_rows(table)
    return [made.data[begin:end].tobytes() for begin, end in pairwise(made.offsets.tolist())]


@given(st.data(), NAMES, st.integers(0, 5))
def test_rows_have_the_bytes_that_python_makes_of_them(
    data: st.DataObject, names: list[str], count: int
) -> None:
    columns = []
    for _ in names:
        kind = data.draw(st.sampled_from(list(KINDS)))
        rows = st.lists(st.none() | KINDS[kind], min_size=count, max_size=count)
        columns.append(pa.array(data.draw(rows), kind))
    table = pa.table(columns, names=names)
    assert texts(table) == by_python(table)
    begin = data.draw(st.integers(0, count))
    assert texts(table.slice(begin)) == by_python(table)[begin:]
    twice = pa.concat_tables([table, table])
    assert texts(twice) == by_python(twice)


@pytest.mark.parametrize("kind", list(KINDS), ids=str)
@given(data=st.data())
def test_values_of_each_type_have_the_bytes_that_python_makes_of_them(kind: Any, data: st.DataObject) -> None:
    table = pa.table({"a": pa.array(data.draw(st.lists(st.none() | KINDS[kind], max_size=6)), kind)})
    assert texts(table) == by_python(table)


@given(decimals(30, 6))
def test_a_decimal_is_the_same_in_a_fingerprint_whatever_scale_its_column_has_come_to(value: Decimal) -> None:
    found, inside = set(), set()
    for kind in (pa.decimal128(30, 6), pa.decimal128(33, 9), pa.decimal128(38, 12)):
        column = pa.array([value], kind)
        found.add(json_rows(pa.table({"a": column}), scaled=False).data.tobytes())
        inside.add(
            json_rows(
                pa.table({"a": [{"b": value}]}, pa.schema([("a", pa.struct([("b", kind)]))])), scaled=False
            ).data.tobytes()
        )
    assert len(found) == len(inside) == 1
    (text,) = orjson.loads(found.pop()).values()
    assert Decimal(text) == value
    assert orjson.loads(inside.pop()) == {"a": {"b": text}}
    assert "." not in text or text[-1] not in "0."


def test_control_characters_and_quotes_are_escaped_as_python_escapes_them() -> None:
    table = pa.table({"a": pa.array([chr(code) for code in range(128)])})
    assert texts(table) == by_python(table)


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    column = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(ValueError, match="UTF"):
        json_rows(pa.table({"a": column}))
