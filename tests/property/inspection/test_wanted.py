"""Do the kernels find exactly the records that a person would, by id, key and field, and their receipts?"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.ids import IdExtractor, texts
from processor.errors import ConfigError
from processor.inspection.timeline.wanted import Wanted, rows_of, wanted_fields, wanted_id, wanted_key
from processor.judges.ids import parts_of
from processor.wire.encode import plain_batch
from schemas.config import InsertIdDedup, Pipeline, WatermarkDedup
from tests.support.judges.scopes import columns_of
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns

ID = [{"from": "value", "pointer": "/id"}, {"from": "header", "name": "h"}, {"from": "key"}]
# Few of each, so that equal ones are met; and those that are easily taken for each other.
FIELDS = st.sampled_from([1, 1.0, "1", "1.0", "a", "ä\n", "", "x" * 70, "x" * 5_000, None, True, [1], {"a": 1}])
BYTES = st.sampled_from([b"", b"1", b"k", b"\xff\x00", b"y" * 70])
RECORDS = st.lists(st.tuples(BYTES, FIELDS, BYTES), min_size=1, max_size=12)


def pipeline(**keys: Any) -> Pipeline:
    dedup = InsertIdDedup.model_validate({"mode": "insert-id", "id": ID, "window": "1h", **keys})
    return Pipeline.model_construct(name="p", source="raw", sink="clean", dedup=dedup)


def columns(records: Sequence[tuple[bytes, Any, bytes]]) -> Columns:
    rows = [(key, json.dumps({"id": field}).encode(), 0, ((b"h", header),)) for key, field, header in records]
    return columns_of(plain_batch(rows))[0]


def word(field: Any) -> str:
    return f"json:{json.dumps(field)}"


def spelled(raw: bytes) -> str:
    return f"base64:{base64.b64encode(raw).decode()}"


def same(one: Any, other: Any) -> bool:
    """Whether two fields are the same part of an id: strings by their text, numbers as they are written."""
    return type(one) is type(other) and json.dumps(one) == json.dumps(other)


@examples(80)
@given(records=RECORDS, data=st.data())
def test_by_id_exactly_the_records_with_it_are_found(
    records: list[tuple[bytes, Any, bytes]], data: Any
) -> None:
    key, field, header = data.draw(st.sampled_from(records))
    asked = [word(field), spelled(header), spelled(key)]
    if not isinstance(field, (str, int, float)):
        with pytest.raises(ConfigError):
            wanted_id(pipeline(), asked)
        return
    wanted = wanted_id(pipeline(), asked)

    rows = rows_of(wanted.of_records(pipeline(), None), columns(records))

    equal = [same(each[1], field) and (each[0], each[2]) == (key, header) for each in records]
    assert rows.tolist() == [row for row, yes in enumerate(equal) if yes]


@examples(60)
@given(records=RECORDS, data=st.data(), most=st.sampled_from([64, 4_096]))
def test_the_receipts_of_an_id_are_found_as_they_are_written(
    records: list[tuple[bytes, Any, bytes]], data: Any, most: int
) -> None:
    parts, found = parts_of(pipeline().dedup), columns(records)  # type: ignore[arg-type]  # it is of that mode
    ids = IdExtractor(parts, bytes(16)).extract(found)
    judged = [row for row in range(len(records)) if not ids.fault[row]]
    if not judged:
        return
    shown = [texts(ids, row, most) for row in judged]
    receipts = columns_of(plain_batch([(None, json.dumps({"id": each}).encode(), 0, ()) for each in shown]))[0]
    key, field, header = records[data.draw(st.sampled_from(judged))]
    wanted = wanted_id(pipeline(), [word(field), spelled(header), spelled(key)])

    rows = rows_of(wanted.of_receipts(), receipts)

    def text(field: Any) -> str:
        return field if isinstance(field, str) else json.dumps(field)

    # A receipt shows numbers as text: of which it is, the source says.
    equal = [text(records[row][1]) == text(field) and records[row][::2] == (key, header) for row in judged]
    assert rows.tolist() == [row for row, yes in enumerate(equal) if yes]


@examples(60)
@given(records=RECORDS, data=st.data())
def test_by_key_and_by_field_exactly_those_are_found(
    records: list[tuple[bytes, Any, bytes]], data: Any
) -> None:
    key, field, _ = data.draw(st.sampled_from(records))
    found = columns(records)

    by_key = rows_of(wanted_key(spelled(key)).of_records(pipeline(), None), found)
    assert by_key.tolist() == [row for row, each in enumerate(records) if each[0] == key]

    if isinstance(field, (str, int, float)):
        wanted = wanted_fields([f"/id={word(field)}"])
        rows = rows_of(wanted.of_records(pipeline(), None), found)
        assert rows.tolist() == [row for row, each in enumerate(records) if same(each[1], field)]


def test_a_null_key_is_no_empty_one() -> None:
    found = columns_of(plain_batch([(None, b"{}", 0, ()), (b"", b"{}", 0, ())]))[0]

    assert rows_of(wanted_key("").of_records(pipeline(), None), found).tolist() == [1]


@pytest.mark.parametrize("fields", [["id"], ["id=1"], ["/id=json:{"], ["/a=1", "/b=2", "/c=3", "/d=4", "/e=5"]])
def test_what_asks_for_no_field_is_said(fields: list[str]) -> None:
    with pytest.raises(ConfigError, match="--json-field"):
        wanted_fields(fields)


def test_sequences_have_no_ids() -> None:
    sequence = {"from": "header", "name": "n", "format": "int64"}
    dedup = WatermarkDedup.model_validate({"mode": "watermark", "sequence": sequence})
    with pytest.raises(ConfigError, match="judges by sequences"):
        wanted_id(Pipeline.model_construct(name="p", source="raw", sink="clean", dedup=dedup), ["1"])


@pytest.mark.parametrize("wanted", [wanted_fields(["/id=text:a"]), wanted_id(pipeline(), ["a", "h", "k"])])
def test_records_are_found_in_values_that_are_read_leniently_and_behind_five_bytes(wanted: Wanted) -> None:
    values = [
        b'{"id":"a"}',
        b'\0\0\0\0\x01{"id":"a","n":NaN}',
        b'\xef\xbb\xbf{"id":"a","t":"\xe9"}\0',
        b'{"id":"b"}\0',
    ]
    found = columns_of(plain_batch([(b"k", value, 0, ((b"h", b"h"),)) for value in values]))[0]
    for json_, rows in (("strict", [0]), ("lenient", [0, 1, 2])):
        assert rows_of(wanted.of_records(pipeline(json=json_), None), found).tolist() == rows
