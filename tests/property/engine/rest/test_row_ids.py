"""A row's id and fingerprint are those of a record with the same values, whatever their types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.extract.fingerprint import FingerprintOf
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import HeaderPart, KeyPart, Part, ValuePart
from processor.engine.extract.value_walk import ContentOf
from processor.engine.rest import (
    Fault,
    IdColumn,
    IdTextForm,
    JsonIds,
    JsonRows,
    Normal,
    fingerprints_of,
    ids_of_columns,
    pointer_of,
)
from tests.property.engine.test_content import POINTERS, VALUES, written
from tests.support.wire import batches
from tests.support.wire.batches import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns

SECRET = bytes(range(16))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WIDTHS = st.sampled_from([np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])


def records(values: Sequence[bytes], keys: Sequence[bytes] | None = None) -> Columns:
    """Return records out of a batch, as a worker has them."""
    keys = keys or [b""] * len(values)
    some = zip(values, keys, strict=True)
    made = [Record(number, 1_000, key, value, ((b"h", key),)) for number, (value, key) in enumerate(some)]
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand(made)))
    return piece.columns


def text_column(form: IdTextForm, values: Sequence[bytes | None], before: bytes = b"") -> IdColumn:
    """Return a column as Arrow has it: read-only, and maybe of a slice."""
    sizes = [len(each or b"") for each in values]
    offsets = (len(before) + np.cumsum([0, *sizes])).astype(np.int32)
    data = np.frombuffer(before + b"".join(each or b"" for each in values) + b"rest", np.uint8)
    return IdColumn.of_text(form, np.array([each is not None for each in values]), offsets, data)


def integer_column(values: Sequence[int | None], width: type[np.integer[Any]] = np.int64) -> IdColumn:
    """Return a column of integers."""
    valid = np.array([each is not None for each in values], np.bool_)
    return IdColumn.of_integers(valid, np.array([each or 0 for each in values], width))


@given(
    st.lists(st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20)), min_size=1, max_size=5)
)
def test_columns_have_the_ids_of_records_with_these_values(rows: list[tuple[str, int, bytes]]) -> None:
    strings, numbers, keys = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    values = [json.dumps({"s": text, "n": number}).encode() for text, number, _ in rows]
    columns = records(values, keys)
    parts: dict[Part, IdColumn] = {
        ValuePart("/s"): text_column(IdTextForm.STRING, [each.encode() for each in strings], b"before"),
        ValuePart("/n"): integer_column(numbers),
        KeyPart(): text_column(IdTextForm.BYTES, keys),
        HeaderPart(b"h"): text_column(IdTextForm.BYTES, keys, b"x"),
    }
    for some in ([*parts], [*parts][::-1], *([each] for each in parts)):
        expected = IdExtractor(some, SECRET).extract(columns)
        found = ids_of_columns([parts[each] for each in some], SECRET)
        assert not found.ids.fault.any()
        assert found.ids.hash.tolist() == expected.hash.tolist()
    every = ids_of_columns([*parts.values()], SECRET)
    assert every.texts(0)[:2] == [strings[0], str(numbers[0])]


@given(WIDTHS, st.data())
def test_integers_of_every_width_are_their_decimal_text(
    width: type[np.integer[Any]], data: st.DataObject
) -> None:
    limits = np.iinfo(width)
    some = data.draw(st.lists(st.integers(int(limits.min), int(limits.max)), max_size=4))
    values = [int(limits.min), int(limits.max), 0, *some]
    expected = IdExtractor([ValuePart("/n")], SECRET).extract(records([b'{"n":%d}' % each for each in values]))
    found = ids_of_columns([integer_column(values, width)], SECRET)
    assert found.ids.hash.tolist() == expected.hash.tolist()


@given(st.lists(st.tuples(st.none() | st.just(b"a"), st.none() | st.just(7)), min_size=1, max_size=6))
def test_a_null_is_a_missing_field_and_has_no_hash(rows: list[tuple[bytes | None, int | None]]) -> None:
    columns = [
        text_column(IdTextForm.STRING, [row[0] for row in rows]),
        integer_column([row[1] for row in rows]),
    ]
    found = ids_of_columns(columns, SECRET).ids
    for row, values in enumerate(rows):
        missing = None in values
        assert found.fault[row] == (Fault.FIELD_MISSING if missing else 0)
        assert found.hash[row].any() != missing


LINES = st.one_of(
    VALUES.flatmap(written).map(str.encode),
    st.sampled_from([b"", b"{", b'{"a":1} {}', b"\xff", b'{"a":"\\ud800"}', b' {"a":"x","b":2}\r\n']),
    st.builds(
        lambda a, b: json.dumps({"a": a, "b": b}).encode(),
        st.sampled_from([None, True, 1, 1.5, "x", "\n", [], {}]),
        st.sampled_from([None, False, 2, "y"]),
    ),
)
FAULTS = {Fault.NONE, Fault.VALUE_NOT_JSON, Fault.FIELD_MISSING, Fault.FIELD_TYPE}


def json_rows(values: Sequence[bytes]) -> JsonRows:
    """Return rows of text, out of a buffer that can only be read."""
    offsets = np.cumsum([0, *map(len, values)])
    return JsonRows.of(np.frombuffer(b"".join(values), np.uint8), offsets)


def first_of(value: bytes, names: str) -> Any:
    """Return the first part that is no string, number or boolean, by Python's parser; "x" where all are."""
    parsed = json.loads(value)
    for name in names:
        part = parsed.get(name, ...) if isinstance(parsed, dict) else ...
        if not isinstance(part, str | int | float):
            return part
    return "x"


@settings(deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from(["a", "ab", "ba"]), POINTERS)
def test_lines_have_the_ids_and_fingerprints_of_records_but_null_is_missing(
    values: list[bytes], names: str, exclude: list[str]
) -> None:
    pointers = [pointer_of(name) for name in names]
    of = FingerprintOf(ContentOf(tuple(exclude)))
    expected = IdExtractor([ValuePart(each) for each in pointers], SECRET, fingerprint_of=of).extract(
        records(values)
    )
    found = JsonIds(pointers, SECRET, exclude=exclude).read(json_rows(values)).ids
    assert found.hash.tolist() == expected.hash.tolist()
    assert found.fingerprint.tolist() == expected.fingerprint.tolist()
    for row, fault in enumerate(found.fault.tolist()):
        null = expected.fault[row] == Fault.FIELD_TYPE and first_of(values[row], names) is None
        assert fault == (Fault.FIELD_MISSING if null else expected.fault[row])
        assert fault in FAULTS
    prints, faults = fingerprints_of(json_rows(values), exclude, SECRET)
    assert prints.tolist() == expected.fingerprint.tolist()
    assert (faults != 0).tolist() == (expected.fault == Fault.VALUE_NOT_JSON).tolist()


@given(
    st.lists(st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5),
    st.sampled_from(["plain", "escaped"]),
)
def test_texts_of_lines_stand_for_the_bytes_of_headers_and_keys(rows: list[tuple[str, int]], form: str) -> None:
    values = [
        json.dumps({"s": text, "n": number}, ensure_ascii=form == "escaped").encode() for text, number in rows
    ]
    read = JsonIds(["/s", "/n"], SECRET, as_bytes=[0]).read(json_rows(values))
    expected = IdExtractor([KeyPart(), ValuePart("/n")], SECRET)
    keys = [text.encode() for text, _ in rows]
    assert read.ids.hash.tolist() == expected.extract(records(values, keys)).hash.tolist()
    assert [read.texts(row) for row in range(len(rows))] == [[text, str(number)] for text, number in rows]
    numbers = [str(number).encode() for _, number in rows]
    both = JsonIds(["/n", "/s"], SECRET, as_bytes=[0, 1]).read(json_rows(values)).ids.hash
    assert (
        both.tolist()
        == ids_of_columns(
            [text_column(IdTextForm.BYTES, numbers), text_column(IdTextForm.BYTES, keys)], SECRET
        ).ids.hash.tolist()
    )


@given(
    st.lists(st.none() | st.booleans() | TEXT | st.integers() | st.just([1]), max_size=6),
    st.sampled_from(["plain", "escaped"]),
)
def test_what_a_pointer_leads_to_can_be_taken_as_a_column_of_texts(values: list[Any], form: str) -> None:
    lines = [json.dumps({"a": each, "b": 1}, ensure_ascii=form == "escaped").encode() for each in values]
    rows = json_rows([*lines, b"{", b"{}"])
    column = rows.texts(rows.look_up("/b", "/a"), 1)
    texts = [None if each is None or isinstance(each, bool | list) else str(each).encode() for each in values]
    wanted = text_column(IdTextForm.BYTES, [*texts, None, None])
    assert column.form == wanted.form
    assert column.valid.tolist() == wanted.valid.tolist()
    assert column.offsets.tolist() == wanted.offsets.tolist()
    assert column.data.tobytes() == b"".join(each for each in texts if each is not None)


def test_a_part_that_may_be_renamed_has_to_be_text() -> None:
    rows = json_rows([b'{"a":1}', b'{"a":"1"}', b'{"a":null}'])
    found = JsonIds(["/a"], SECRET, only_text="/a").read(rows).ids
    assert found.fault.tolist() == [Fault.FIELD_TYPE, 0, Fault.FIELD_MISSING]


def test_a_column_is_named_by_its_name_whatever_is_in_it() -> None:
    names = ["a", "a/b", "~1", ""]
    rows = json_rows([json.dumps({name: name + "!" for name in names}).encode()])
    assert JsonIds([pointer_of(name) for name in names], SECRET).read(rows).texts(0) == [
        name + "!" for name in names
    ]


def test_what_a_pointer_leads_to_is_where_its_text_stands() -> None:
    rows = json_rows([b'{"t":"2024"}', b'{"t":5}'])
    found = rows.look_up("/t")
    assert rows.data[found.start[0, 0] :][: found.length[0, 0]].tobytes() == b"2024"
    assert rows.data[found.start[0, 1] :][: found.length[0, 1]].tobytes() == b"5"


@pytest.mark.parametrize("offsets", [[0, 9], [2, 1], [-1, 1]])
def test_offsets_that_lead_out_of_the_data_are_refused(offsets: list[int]) -> None:
    data, at = np.zeros(8, np.uint8), np.array(offsets)
    with pytest.raises(ValueError, match="lead out of the data"):
        IdColumn.of_text(IdTextForm.STRING, np.ones(1, np.bool_), at, data)
    with pytest.raises(ValueError, match="lead out of the data"):
        JsonRows.of(data, at)


def test_columns_that_make_no_id_are_refused() -> None:
    one, two = integer_column([1]), integer_column([1, 2])
    for columns in ([], [one, two]):
        with pytest.raises(ValueError, match="one column at least"):
            ids_of_columns(columns, SECRET)
    with pytest.raises(ValueError, match="offsets of"):
        IdColumn.of_text(IdTextForm.STRING, np.ones(2, np.bool_), np.zeros(2, np.int64), np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="values"):
        IdColumn.of_integers(np.ones(2, np.bool_), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="no CONTENT"):
        text_column(IdTextForm.CONTENT, [b"a"])


WAYS = st.sampled_from(["7", "007", "7.0", "{6F9619FF8B86D011B42D00CF4FC964FF}", "Ab\u00c9", "true", ""])


@given(
    st.lists(st.tuples(WAYS, st.integers(-9, 9), st.booleans()), min_size=1, max_size=5),
    st.sampled_from(Normal),
)
def test_normalised_columns_and_lines_and_booleans_have_the_ids_of_records(
    rows: list[tuple[str, int, bool]], how: Normal
) -> None:
    keys = [text.encode() for text, _, _ in rows]
    values = [json.dumps({"s": text, "n": number, "b": flag}).encode() for text, number, flag in rows]
    fields = [ValuePart("/s", normal=how), ValuePart("/n", normal=how), ValuePart("/b")]
    parts: list[Part] = [*fields, KeyPart(how)]
    expected = IdExtractor(parts, SECRET).extract(records(values, keys)).hash.tolist()
    columns = [
        text_column(IdTextForm.STRING, keys),
        integer_column([number for _, number, _ in rows]),
        IdColumn.of_booleans(np.ones(len(rows), np.bool_), np.array([flag for *_, flag in rows])),
        text_column(IdTextForm.BYTES, keys),
    ]
    normal = [how, how, Normal.NONE, how]
    assert ids_of_columns(columns, SECRET, normal).ids.hash.tolist() == expected
    lines = JsonIds(["/s", "/n", "/b", "/s"], SECRET, as_bytes=[3], normal=normal).read(json_rows(values))
    assert lines.ids.hash.tolist() == expected


def test_a_null_boolean_is_missing_and_a_line_is_read_through_its_strings() -> None:
    column = IdColumn.of_booleans(np.array([True, False]), np.array([False, True]))
    assert ids_of_columns([column], SECRET).ids.fault.tolist() == [Fault.NONE, Fault.FIELD_MISSING]
    values = [json.dumps({"d": json.dumps(inner)}).encode() for inner in ({"id": "x"}, {"id": None})]
    found = JsonIds(["/d|/id"], SECRET).read(json_rows(values)).ids
    assert found.fault.tolist() == [Fault.NONE, Fault.FIELD_MISSING]
    expected = IdExtractor([ValuePart("/d|/id")], SECRET).extract(records(values))
    assert found.hash[0].tolist() == expected.hash[0].tolist()
