"""What is wrong with a record is said by names, lengths and types: never a value, and in one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.verdict import Fault
from processor.pipeline.complaints import MOST_AT_ONCE, MOST_NAMES, RECORDS_PER_S, Complaints
from schemas.config import InsertIdDedup, Pipeline, WatermarkDedup
from tests.support.wire.batches import DECODER, Record, by_hand, chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.engine.batch.columns import Columns
    from schemas.config import Dedup

VALUE = "hidden-4711"


Came = tuple[Any, dict[str, bytes | None]]
"""A record's value (JSON, or bytes) and headers."""


def columns_of(*records: Came) -> Columns:
    some = []
    for offset, (value, headers) in enumerate(records):
        text = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        some.append(
            Record(offset, 1_000, None, text, tuple((name.encode(), each) for name, each in headers.items()))
        )
    (piece,) = DECODER.pieces(chunk(by_hand(some)))
    return piece.columns


def complaints(dedup: Dedup, clock: Callable[[], float] = lambda: 0.0) -> Complaints:
    pipeline = {"name": "p", "source": "a", "sink": "b", "dedup": dedup}
    return Complaints(Pipeline.model_validate(pipeline), clock)


def found(dedup: Dedup, fault: Fault, record: Came) -> str:
    """Return what is said of a record, and what it has instead."""
    some, columns = complaints(dedup), columns_of(record)
    return "; ".join(filter(None, (some.of(columns, 0, fault), some.names(columns, 0, fault))))


def watermark(**sequence: Any) -> Dedup:
    return WatermarkDedup.model_validate({"mode": "watermark", "sequence": sequence})


def ids(*parts: dict[str, Any]) -> Dedup:
    return InsertIdDedup.model_validate({"mode": "insert-id", "id": parts, "window": "1h"})


HEADER = watermark(**{"from": "header", "name": "seqno"})
TEXT = watermark(**{"from": "header", "name": "seq", "format": "text"})
FIELD = watermark(**{"from": "value", "pointer": "/meta/seq"})
DIGITS = watermark(**{"from": "value", "pointer": "/seq", "format": "text"})
WRAPPING = watermark(**{"from": "header", "name": "seq", "wraps": 16_384})
CHANGING = WatermarkDedup.model_validate(
    {
        "mode": "watermark",
        "sequence": {"from": "value", "pointer": "/n", "wraps": 5},
        "epoch": {"from": "header", "name": "boot", "order": "change"},
    }
)
ORDER = ids({"from": "value", "pointer": "/orderId"}, {"from": "value", "pointer": "/line"})
LENIENT = ids({"from": "value", "pointer": "/id"}).model_copy(update={"json_": "lenient"})
BOTH = ids({"from": "header", "name": "a"}, {"from": "header", "name": "b"})
INSIDE = ids({"from": "value", "pointer": "/data|/id"})
EITHER = ids({"any": [{"from": "value", "pointer": "/a"}, {"from": "key"}]}, {"from": "value", "pointer": "/c"})
COLUMN = ids({"from": "column", "number": 2})
COLUMN_SEQ = watermark(**{"from": "column", "number": 2, "separator": ";"})
SCOPED = WatermarkDedup.model_validate(
    {"mode": "watermark", "scope": "value:/gateway", "sequence": {"from": "value", "pointer": "/n"}}
)
HEX = VALUE.encode()
CASES: list[tuple[Dedup, Fault, Came, str]] = [
    (HEADER, Fault.HEADER_MISSING, (None, {"a": HEX, "b": HEX}),
     "header seqno is missing; 8 bytes (int64) are wanted; its headers: a, b"),
    (HEADER, Fault.HEADER_MISSING, (None, {}),
     "header seqno is missing; 8 bytes (int64) are wanted; it has no headers"),
    (BOTH, Fault.HEADER_MISSING, (None, {"a": HEX}), "header b is missing; a value is wanted; its headers: a"),
    (BOTH, Fault.HEADER_MALFORMED, (None, {"a": HEX, "b": None}), "header b has no value; a value is wanted"),
    (HEADER, Fault.HEADER_MALFORMED, (None, {"seqno": b"4711"}),
     "header seqno has 4 bytes of decimal digits; 8 bytes (int64) are wanted"),
    (TEXT, Fault.HEADER_MALFORMED, (None, {"seq": bytes(8)}),
     "header seq has 8 bytes; decimal digits are wanted"),
    (FIELD, Fault.FIELD_MISSING, ({"meta": {"at": VALUE, "n": 1}}, {}),
     "/meta/seq is missing; an integer is wanted; members of /meta: at, n"),
    (FIELD, Fault.FIELD_MISSING, ({"seq": VALUE}, {}),
     "/meta/seq is missing; an integer is wanted; members: seq"),
    (FIELD, Fault.FIELD_MISSING, ({"meta": VALUE}, {}),
     "/meta is a string, so /meta/seq is missing; an integer is wanted"),
    (FIELD, Fault.FIELD_TYPE, ({"meta": {"seq": VALUE}}, {}), "/meta/seq is a string; an integer is wanted"),
    (FIELD, Fault.FIELD_TYPE, ({"meta": {"seq": 1.5}}, {}),
     "/meta/seq is a number that is no 64-bit integer; an integer is wanted"),
    (DIGITS, Fault.FIELD_TYPE, ({"seq": 4711}, {}), "/seq is an integer; a string of digits is wanted"),
    (ORDER, Fault.FIELD_TYPE, ({"orderId": None, "line": 1}, {}),
     "/orderId is null; a string, number or boolean is wanted"),
    (ORDER, Fault.FIELD_TYPE, ({"orderId": VALUE, "line": [1]}, {}),
     "/line is an array; a string, number or boolean is wanted"),
    (INSIDE, Fault.FIELD_TYPE, ({"data": {"id": 1}}, {}), "/data is an object; JSON in a string is wanted"),
    (INSIDE, Fault.FIELD_TYPE, ({"data": VALUE}, {}),
     "/data is a string that holds no JSON; JSON in a string is wanted"),
    (INSIDE, Fault.FIELD_TYPE, ({"data": '{"id": [1]}'}, {}),
     "/data|/id is an array; a string, number or boolean is wanted"),
    (INSIDE, Fault.FIELD_MISSING, ({"data": '{"at": 1}'}, {}),
     "/data|/id is missing; a string, number or boolean is wanted; members of /data|: at"),
    (EITHER, Fault.FIELD_MISSING, ({"a": 1}, {}),
     "/c is missing; a string, number or boolean is wanted; members: a"),
    (COLUMN, Fault.FIELD_MISSING, (HEX, {}), "column 2 is missing; a column is wanted"),
    (COLUMN_SEQ, Fault.FIELD_TYPE, (b"x;" + HEX, {}), "column 2 is a string; decimal digits are wanted"),
    (SCOPED, Fault.FIELD_MISSING, ({"n": 1}, {}),
     "/gateway is missing; a string, number or boolean is wanted; members: n"),
    (FIELD, Fault.VALUE_NOT_JSON, (HEX, {}), "the value does not begin like JSON; JSON is wanted"),
    (FIELD, Fault.VALUE_NOT_JSON, (b"{" + HEX, {}),
     "the value begins like JSON, and is cut or not valid; JSON is wanted"),
    (FIELD, Fault.VALUE_NOT_JSON, (b"\0\0\0\0\x01{" + HEX, {}),
     ("the value begins with a zero byte, as the serializers of a schema registry write (Avro, Protobuf); "
      "JSON is wanted")),
    *((FIELD, Fault.VALUE_NOT_JSON, (value, {}),
       f'the value has {what}, which json = "lenient" takes outside of what is judged; JSON is wanted')
      for value, what in [
          (b'{"a":NaN}', "NaN or Infinity"),
          (b"\0\0\0\0\x01\xef\xbb\xbf{}", "a byte order mark"),
          (b"{}\0\n", "NUL behind its end"),
          (b'{"":-Infinity,"\xff":1}\0', "NUL behind its end and NaN or Infinity and bytes that are not UTF-8"),
      ]),
    (LENIENT, Fault.VALUE_NOT_JSON, (b'{"id":"\xff' + HEX + b'"}', {}),
     "the value has bytes that are not UTF-8 in what it is judged by; JSON is wanted"),
    (LENIENT, Fault.VALUE_NOT_JSON, (b'{"id":' + HEX, {}),
     "the value begins like JSON, and is cut or not valid; JSON is wanted"),
    (LENIENT, Fault.FIELD_TYPE, (b'{"id":NaN}\0', {}),
     "/id is NaN or Infinity; a string, number or boolean is wanted"),
    (LENIENT, Fault.FIELD_MISSING, (b'\0\0\0\0\x01{"\xff":Infinity}', {}),
     "/id is missing; a string, number or boolean is wanted; members: \\udcff"),
    (FIELD, Fault.VALUE_MALFORMED, (b"{}", {}),
     'the value does not begin with byte 0 and the four bytes of a schema id; framing = "registry"'),
    (FIELD, Fault.VALUE_MISSING, (None, {}), "the record has no value (a tombstone); one is wanted"),
    (ids({"from": "key"}), Fault.KEY_MISSING, (None, {}),
     "the record has no key; one is wanted, as a part of the id"),
    (HEADER, Fault.TOO_LARGE, (HEX, {}), ""),
    (HEADER, Fault.OUT_OF_RANGE, (HEX, {}), ""),
    (WRAPPING, Fault.OUT_OF_RANGE, (HEX, {}),
     "header seq is negative or too large; a number from 0 to 16,383 is wanted (wraps)"),
    (CHANGING, Fault.OUT_OF_RANGE, (HEX, {}),
     "/n is negative or too large; a number from 0 to 4 is wanted (wraps)"),
    (CHANGING, Fault.HEADER_MALFORMED, (HEX, {"boot": None}), "header boot has no value; a value is wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("dedup", "fault", "record", "said"), CASES)
def test_what_is_wrong_names_the_place_what_is_there_and_what_is_wanted(
    dedup: Dedup, fault: Fault, record: Came, said: str
) -> None:
    assert found(dedup, fault, record) == said
    assert VALUE not in said


def test_what_is_said_is_bounded_and_fits_a_terminal() -> None:
    many: dict[str, bytes | None] = {f"header {number}": HEX for number in range(500)}
    text = found(HEADER, Fault.HEADER_MISSING, (None, {"a\x1b[2J": HEX, "x" * 5_000: HEX, **many}))
    assert "\x1b" not in text
    assert "x" * 60 not in text
    assert f"and {502 - MOST_NAMES} more" in text
    assert len(text) < 1_000


def test_however_many_are_faulty_a_bounded_number_is_looked_into() -> None:
    seconds = 0.0
    some = complaints(ORDER, lambda: seconds)
    columns = columns_of(*[({"orderId": None}, {})] * 5_000)
    rows, fault = np.arange(5_000), np.full(5_000, Fault.FIELD_TYPE, np.uint8)
    assert list(some.of_some(columns, rows, fault)) == list(range(MOST_AT_ONCE))
    while some.of_some(columns, rows, fault):
        pass
    seconds += 10
    looked = [len(some.of_some(columns, rows, fault)) for _ in range(20)]
    assert sum(looked) == RECORDS_PER_S
    # The others say what it may be.
    assert some.of_any(Fault.FIELD_TYPE) == (
        "/orderId (a string, number or boolean is wanted), /line (a string, number or boolean is wanted)"
    )


def test_a_long_value_takes_as_much_of_the_time_as_many_short_ones() -> None:
    some = complaints(ORDER)
    columns = columns_of(*[({"orderId": None, "more": "x" * 50_000}, {})] * 40)
    rows, fault = np.arange(40), np.full(40, Fault.FIELD_TYPE, np.uint8)
    assert len(some.of_some(columns, rows, fault)) == RECORDS_PER_S // 49
    assert not some.of_some(columns, rows, fault)
