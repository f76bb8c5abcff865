"""Do rows of JSON get one type, whatever the order that they come in, and keep their values?"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, NaiveDatetime

from spark_sink.batch.rows.columns import columns_of_values, declared_columns, misfit_rows
from spark_sink.batch.rows.constants import column_type
from spark_sink.batch.rows.json_shapes import joined_shape, schema_of_shape, shape_of, table_of, widened
from spark_sink.batch.rows.json_values import FRACTION, json_text, misfits, read_object
from spark_sink.batch.rows.schema import schema_of, schema_text, types_of

DECIMALS = st.decimals(-(10**19), 10**19, places=18, allow_nan=False).map(lambda each: f"{each:f}")
"""As JSON may write them, with all digits."""
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | DECIMALS.map(Decimal)
VALUES = st.recursive(
    SCALARS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), max_size=6)


def read(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as they are read of lines."""
    lines = [orjson.dumps(each, default=lambda decimal: orjson.Fragment(f"{decimal:f}")) for each in rows]
    return [read_object(each) or {} for each in lines]


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
    for value, row in zip(values, table_of(values, schema, "file", {}).to_pylist(), strict=True):
        for name, each in value.items():
            assert same(each, row.get(name)), name


@pytest.mark.parametrize("text", ["-9223372036854775809", "-9999999999999999999", "18446744073709551616"])
def test_whole_numbers_beyond_64_bits_keep_their_digits(text: str) -> None:
    assert read_object(f'{{"a":{text}}}'.encode()) == {"a": int(text)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("0.1234567890123456789", Decimal("0.1234567890123456789")),
        ("1.10", Decimal("1.10")),
        ("1e2", Decimal("1E+2")),
    ],
)
def test_fractions_keep_their_digits(text: str, value: Decimal) -> None:
    found = read_object(f'{{"a":{text},"at":"09:00:00.5","b":1}}'.encode())
    assert found == {"a": value, "at": "09:00:00.5", "b": 1}
    assert json_text(found["a"]) == str(value)


FIT = [
    ("decimal(18,2)", "1.10", True),
    ("decimal(18,2)", "1.101", False),
    ("decimal(18,2)", '"12.5"', True),
    ("decimal(18,2)", "1." + "0" * 40, True),
    ("decimal(18,2)", "1e3", True),
    ("float", "0.1", True),
    ("float", "1e300", False),
    ("float", "16777217", False),
    ("float", "16777216", True),
    ("decimal(3,2)", "10", False),
    ("decimal(3,2)", "1e999999999", False),
    ("decimal(3,2)", "0e999999999", True),
    ("double", "0.1234567890123456789", True),
    ("double", "9007199254740993", False),
    ("double", "1e999", False),
    ("int", "2147483648", False),
    ("bigint", "9223372036854775807", True),
    ("bigint", "1.5", False),
    ("bigint", "true", False),
    ("boolean", "true", True),
    ("string", "1.10", True),
    ("date", '"2026-02-29"', False),
    ("date", '"2026-02-28"', True),
    ("timestamp", '"2026-03-02T09:00:00+05:30"', True),
    ("timestamp", '"2026-03-02T09:00:00"', False),
    ("timestamp", '"2026-03-02"', False),
    ("timestamp_ntz", '"2026-03-02"', True),
    ("timestamp_ntz", '"2026-03-02T09:00:00"', True),
    ("timestamp_ntz", '"2026-03-02T09:00:00Z"', False),
]


@pytest.mark.parametrize(("kind", "text", "fits"), FIT)
def test_a_value_goes_into_the_column_that_the_config_says_or_its_row_does_not_count(
    kind: str, text: str, *, fits: bool
) -> None:
    value = read_object(f'{{"x": {text}, "y": 1}}'.encode())
    declared = {"x": column_type(kind)}
    assert value is not None
    assert misfits(value, declared, {}) == ("" if fits else "x")
    if fits:
        table_of([value], pa.schema(list(declared.items())), "file", declared)


@pytest.mark.parametrize(
    ("text", "known", "fits"),
    [
        ("1.5", None, True),
        ("0.1234567890123456789", None, False),
        ('[{"a": 1e30}]', None, False),
        ("9223372036854775807", None, True),
        ("9007199254740993", pa.float64(), False),
        ("0.1234567890123456789", pa.float64(), True),
        ("0.1234567890123456789", pa.string(), True),
        ("1.125", pa.decimal128(10, 2), False),
        ("[1.125]", pa.list_(pa.decimal128(10, 2)), False),
        ('{"a": 9007199254740993}', pa.struct([("a", pa.float64())]), False),
        ('"text"', pa.float64(), True),
        ("9223372036854775808", None, True),
        ("9223372036854775808", pa.string(), True),
        ("9223372036854775808", pa.int64(), False),
        ("9223372036854775808", pa.decimal128(38, 18), False),
        ("18446744073709551616", pa.float64(), False),
        ('{"a": [18446744073709551616]}', pa.struct([("a", pa.list_(pa.float64()))]), False),
        ('{"a": 18446744073709551616}', pa.map_(pa.string(), pa.float64()), False),
        ('{"a": 1e-30}', pa.string(), True),
    ],
)
def test_a_number_without_room_in_the_table_does_not_count_and_what_has_another_type_is_left_to_the_run(
    text: str, known: Any, *, fits: bool
) -> None:
    value = read_object(f'{{"x": {text}}}'.encode())
    assert value is not None
    assert (misfits(value, {}, {} if known is None else {"x": known}) == "") is fits


class Moments(BaseModel):
    """Fields of all kinds of times."""

    plain: datetime | None = None
    aware: AwareDatetime | None = None
    naive: NaiveDatetime | None = None
    inside: list[dict[str, datetime]] | None = None


NINE = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("plain", "1772442000", NINE),
        ("plain", "1772442000.5", NINE + timedelta(milliseconds=500)),
        ("plain", '"1772442000"', NINE),
        ("plain", "1772442000000", NINE),
        ("plain", '"2026-03-02T09:00:00"', NINE),
        ("plain", '"2026-03-02T10:00:00+01:00"', NINE),
        ("plain", "1e999999999", None),
        ("plain", "true", None),
        ("aware", "1772442000", NINE),
        ("aware", '"2026-03-02T09:00:00Z"', NINE),
        ("aware", '"2026-03-02T09:00:00"', None),
        ("aware", '"2026-03-02"', None),
        ("naive", '"2026-03-02T09:00:00"', NINE.replace(tzinfo=None)),
        ("naive", '"2026-03-02T09:00:00Z"', None),
        ("naive", "1772442000", None),
        ("inside", '[{"a": 1772442000}]', [[("a", NINE)]]),
    ],
)
def test_times_of_a_model_are_read_as_the_model_reads_them(name: str, text: str, becomes: Any) -> None:
    batch: Any = SimpleNamespace(name="b", model=f"{__name__}:Moments", columns={})
    declared = schema_of(declared_columns(batch))
    value = read_object(f'{{"{name}": {text}}}'.encode())
    assert value is not None
    assert misfits(value, {each.name: each.type for each in declared}, {}) == ("" if becomes else name)
    if becomes:
        columns = columns_of_values([shape_of(value)], None, schema_text(declared), of_topic=False)
        (row,) = table_of([value], schema_of(columns), "file", types_of(schema_text(declared))).to_pylist()
        assert row[name] == becomes


MODEL = pa.struct([("id", pa.int64()), ("price", pa.decimal128(10, 2))])


@pytest.mark.parametrize(
    ("text", "said", "becomes"),
    [
        (
            '{"id": 1, "email": "x", "price": 2}',
            MODEL,
            pa.struct([*MODEL, ("email", pa.string())]),
        ),
        (
            '[{"id": 1}, {"tags": ["x"]}]',
            pa.list_(MODEL),
            pa.list_(
                pa.field("element", pa.struct([*MODEL, ("tags", pa.list_(pa.field("element", pa.string())))]))
            ),
        ),
        (
            '{"a": {"id": 1, "n": 5}}',
            pa.map_(pa.string(), MODEL),
            pa.map_(pa.string(), pa.struct([*MODEL, ("n", pa.int64())])),
        ),
        ('{"id": 1}', MODEL, MODEL),
        ('{"id": 1}', pa.string(), pa.string()),
    ],
)
def test_objects_keep_the_members_that_a_model_does_not_name(text: str, said: Any, becomes: Any) -> None:
    value = read_object(f'{{"x": {text}}}'.encode())
    assert value is not None
    declared = pa.schema([("x", said)])
    assert misfits(value, {"x": said}, {}) == ""
    schema = schema_of(columns_of_values([shape_of(value)], None, schema_text(declared), of_topic=False))
    assert schema == pa.schema([("x", becomes)])
    (row,) = table_of([value], schema, "file", {}).to_pylist()
    assert all(str(each) in str(row) for each in ("email", "x", "tags", "n") if each in text)


@pytest.mark.parametrize("text", ['{"id": 1, "ID": 2}', '{"id": 1, "n": 1e-30}', '{"n": {"m": [1e30]}}'])
def test_a_member_beside_a_model_that_no_column_can_have_does_not_count(text: str) -> None:
    value = read_object(f'{{"x": {text}}}'.encode())
    assert value is not None
    assert misfits(value, {"x": MODEL}, {}) == "x"


def same(value: Any, found: Any) -> bool:
    """Return whether a column's value says the same; what is null says nothing."""
    if isinstance(found, str) and not isinstance(value, str):
        return bool(json.loads(found, parse_float=Decimal) == value)
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(same, value, found))
    if isinstance(value, dict) and isinstance(found, dict):
        return all(same(each, found.get(name)) for name, each in value.items())
    return bool(value == found)


@pytest.mark.parametrize(
    ("run", "table", "becomes"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (FRACTION, pa.float64(), pa.float64()),
        (FRACTION, pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.int64(), pa.string(), pa.string()),
        (FRACTION, pa.int64(), FRACTION),
        (pa.string(), pa.int64(), pa.string()),
        (pa.list_(pa.int64()), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", FRACTION), ("b", pa.string())]), None),
        (pa.struct([("c", pa.int64())]), pa.struct([("a", FRACTION)]), pa.struct([("c", pa.int64())])),
        (
            pa.list_(pa.struct([("a", pa.int64()), ("c", pa.int64())])),
            pa.list_(pa.struct([("a", FRACTION)])),
            pa.list_(pa.field("element", pa.struct([("a", FRACTION), ("c", pa.int64())]))),
        ),
    ],
)
def test_a_run_takes_the_types_of_the_table_where_its_values_have_room(
    run: Any, table: Any, becomes: Any
) -> None:
    made = widened(pa.schema([("x", run), ("y", pa.int64())]), pa.schema([("x", table)]))
    assert made == pa.schema([("x", table if becomes is None else becomes), ("y", pa.int64())])


def test_a_run_says_in_which_columns_values_had_no_room() -> None:
    many, few = misfit_rows([{"a": 2}, {}, {"b": 1, "a": 999}])
    assert many.startswith(
        "1,001 rows are in quarantine; or say what column a is, in which a value has no room: "
    )
    assert few.startswith("1 rows are in quarantine; or say what column b is")
