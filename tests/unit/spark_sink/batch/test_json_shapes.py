"""Do rows of JSON get one type, whatever the order that they come in, and keep their values?"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from processor.errors import StopError
from spark_sink.batch.rows.json_shapes import joined_shape, schema_of_shape, shape_of, table_of, widened
from spark_sink.batch.tasks.extract import read_object

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), max_size=6)


def read(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [orjson.loads(orjson.dumps(each)) for each in rows]


@given(ROWS, st.randoms(use_true_random=False))
def test_shapes_join_in_any_order_to_one_type(rows: list[dict[str, Any]], chance: Any) -> None:
    one = schema_of_shape(joined_shape(map(shape_of, read(rows))))
    chance.shuffle(rows)
    other = schema_of_shape(joined_shape(map(shape_of, read(rows))))
    assert {each.name: _unordered(each.type) for each in one} == {
        each.name: _unordered(each.type) for each in other
    }


def _unordered(kind: Any) -> Any:
    """Return a type without the order of its members."""
    if pa.types.is_struct(kind):
        return {each.name: _unordered(each.type) for each in kind}
    return [_unordered(kind.value_type)] if pa.types.is_list(kind) else kind


@given(ROWS)
def test_every_value_comes_back_as_it_was_or_as_its_json(rows: list[dict[str, Any]]) -> None:
    values = read(rows)
    schema = schema_of_shape(joined_shape(map(shape_of, values)))
    assume(schema.names)  # the rows of a table have an id
    for value, row in zip(values, table_of(values, schema, "file").to_pylist(), strict=True):
        for name, each in value.items():
            assert same(each, row.get(name)), name


@pytest.mark.parametrize("text", ["-9223372036854775809", "-9999999999999999999", "18446744073709551616"])
def test_whole_numbers_beyond_64_bits_keep_their_digits(text: str) -> None:
    assert read_object(f'{{"a":{text}}}'.encode()) == {"a": int(text)}


def same(value: Any, found: Any) -> bool:
    """Return whether a column's value says the same; what is null says nothing."""
    if isinstance(found, str) and not isinstance(value, str):
        return bool(json.loads(found) == value)
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(same, value, found))
    if isinstance(value, dict) and isinstance(found, dict):
        return all(same(each, found.get(name)) for name, each in value.items())
    return bool(value == found)


@pytest.mark.parametrize(
    ("run", "table", "becomes"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.string(), pa.string()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.string(), pa.int64(), pa.string()),
        (pa.list_(pa.int64()), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.float64()), ("b", pa.string())]), None),
        (pa.struct([("c", pa.int64())]), pa.struct([("a", pa.float64())]), pa.struct([("c", pa.int64())])),
        (
            pa.list_(pa.struct([("a", pa.int64()), ("c", pa.int64())])),
            pa.list_(pa.struct([("a", pa.float64())])),
            pa.list_(pa.field("element", pa.struct([("a", pa.float64()), ("c", pa.int64())]))),
        ),
    ],
)
def test_a_run_takes_the_types_of_the_table_where_its_values_have_room(
    run: Any, table: Any, becomes: Any
) -> None:
    made = widened(pa.schema([("x", run), ("y", pa.int64())]), pa.schema([("x", table)]))
    assert made == pa.schema([("x", table if becomes is None else becomes), ("y", pa.int64())])


def test_a_number_with_more_digits_than_a_fraction_keeps_is_refused() -> None:
    with pytest.raises(StopError, match="file: column n: a value does not fit into double"):
        table_of([{"n": 2**60 + 1}], pa.schema([("n", pa.float64())]), "file")
