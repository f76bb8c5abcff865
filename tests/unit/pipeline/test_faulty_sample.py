"""What records have is said by names, lengths and types: never a value, and no more than a few lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.verdict import Fault
from processor.pipeline.faulty_sample import MOST_NAMES, FaultySample
from schemas.config import InsertIdDedup, Pipeline, WatermarkDedup
from tests.support.wire.batches import DECODER, Record, by_hand, chunk

if TYPE_CHECKING:
    from schemas.config import Dedup

VALUE = "hidden-4711"


def found(dedup: Dedup, fault: Fault, *records: tuple[Any, dict[str, bytes | None]]) -> str:
    """Return what is said of records, given by value (JSON, or bytes) and headers."""
    some = []
    for offset, (value, headers) in enumerate(records):
        text = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        some.append(
            Record(offset, 1_000, None, text, tuple((name.encode(), each) for name, each in headers.items()))
        )
    (piece,) = DECODER.pieces(chunk(by_hand(some)))
    pipeline = {"name": "p", "source": "a", "sink": "b", "dedup": dedup}
    sample = FaultySample(Pipeline.model_validate(pipeline))
    sample.add(piece.columns, np.full(len(some), fault, np.uint8))
    return sample.text(fault)


def watermark(**sequence: Any) -> Dedup:
    return WatermarkDedup.model_validate({"mode": "watermark", "sequence": sequence})


def ids(*parts: dict[str, Any]) -> Dedup:
    return InsertIdDedup.model_validate({"mode": "insert-id", "id": parts, "window": "1h"})


HEADER = watermark(**{"from": "header", "name": "seqno"})
TEXT = watermark(**{"from": "header", "name": "seq", "format": "text"})
FIELD = watermark(**{"from": "value", "pointer": "/meta/seq"})
HEX = VALUE.encode()
_INT64 = "header seqno: 8 bytes (int64)"
CASES: list[tuple[Dedup, Fault, tuple[Any, dict[str, bytes | None]], str, str]] = [
    (HEADER, Fault.HEADER_MISSING, (None, {"a": HEX, "b": HEX}), "header seqno", "headers seen: a, b"),
    (HEADER, Fault.HEADER_MISSING, (None, {}), "header seqno", "the records have no headers"),
    (HEADER, Fault.HEADER_MALFORMED, (None, {"seqno": b"4711"}), _INT64,
     "header seqno seen with: 4 bytes of decimal digits"),
    (HEADER, Fault.HEADER_MALFORMED, (None, {"seqno": None}), _INT64, "header seqno seen with: no value"),
    (TEXT, Fault.HEADER_MALFORMED, (None, {"seq": bytes(8)}), "header seq: decimal digits (text)",
     "header seq seen with: 8 bytes"),
    (FIELD, Fault.FIELD_MISSING, ({"meta": {"at": VALUE, "n": 1}}, {}), "field /meta/seq",
     "members of /meta seen: at, n"),
    (FIELD, Fault.FIELD_MISSING, ({"seq": VALUE}, {}), "field /meta/seq", "members seen: seq"),
    (FIELD, Fault.FIELD_MISSING, ([VALUE], {}), "field /meta/seq", "the value is: array"),
    (FIELD, Fault.FIELD_TYPE, ({"meta": {"seq": VALUE}}, {}), "field /meta/seq: an integer",
     "at /meta/seq: string"),
    (FIELD, Fault.VALUE_NOT_JSON, (HEX, {}), "a JSON value", "values seen: does not begin like JSON"),
    (FIELD, Fault.VALUE_NOT_JSON, (b"{" + HEX, {}), "a JSON value",
     "values seen: begins like JSON, and is cut or not valid"),
    (FIELD, Fault.VALUE_MISSING, (None, {}), "a value", "the records have none (tombstones)"),
    (ids({"from": "key"}), Fault.KEY_MISSING, (None, {}), "a key, which is a part of the id",
     "the records have no key"),
]  # fmt: skip


@pytest.mark.parametrize(("dedup", "fault", "record", "wanted", "there"), CASES)
def test_what_was_looked_for_and_what_is_there(
    dedup: Dedup, fault: Fault, record: tuple[Any, dict[str, bytes | None]], wanted: str, there: str
) -> None:
    assert found(dedup, fault, record) == f"looked for {wanted}; {there}"


def test_where_the_code_says_it_all_nothing_is_added() -> None:
    assert found(HEADER, Fault.TOO_LARGE, (HEX, {})) == ""


def test_of_several_headers_the_missing_one_is_named() -> None:
    both = ids({"from": "header", "name": "a"}, {"from": "header", "name": "b"})
    assert found(both, Fault.HEADER_MISSING, (None, {"a": HEX})).startswith("looked for header b;")


def test_what_is_said_is_bounded_and_fits_a_terminal() -> None:
    many = {f"header {number}": HEX for number in range(500)}
    text = found(HEADER, Fault.HEADER_MISSING, (None, {"a\x1b[2J": HEX, "x" * 5_000: HEX, **many}))
    assert "\x1b" not in text
    assert "x" * 60 not in text
    assert f"and {200 - MOST_NAMES} more" in text
    assert len(text) < 1_000
