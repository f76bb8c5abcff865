"""Do the kernels of events read what `exact` reads, or leave it, whatever stands around the value?"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import Columns
from processor.engine.events import EventReader, FieldKind, FieldRule
from processor.engine.events.exact import ReadValue, read_exactly
from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers
from tests.support.spark_sink.tokens import TOKENS

RULES = [
    FieldRule("f", FieldKind.TEXT),
    FieldRule("f", FieldKind.TEXT, values=("a", "red", "")),
    FieldRule("f", FieldKind.TEXT, pattern="(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    FieldRule("f", FieldKind.BOOL),
    FieldRule("f", FieldKind.INT),
    FieldRule("f", FieldKind.INT, least=-5, most=9),
    FieldRule("f", FieldKind.INT, values=(1, 2)),
    FieldRule("f", FieldKind.FLOAT),
    FieldRule("f", FieldKind.DECIMAL, precision=28, scale=10),
    FieldRule("f", FieldKind.DECIMAL, precision=5, scale=0),
    FieldRule("f", FieldKind.DECIMAL, precision=38, scale=38),
    FieldRule("f", FieldKind.DATE),
    *(FieldRule("f", FieldKind.TIMESTAMP, zone=zone) for zone in ("required", "optional", "none")),
]
READERS = [EventReader([rule]) for rule in RULES]
_WORD = 2**64


def records(tokens: list[str], around: bytes) -> Columns:
    """Return values with one field each, with some bytes between them."""
    values = [f'{{"f":{token}}}'.encode(errors="replace") for token in tokens]
    data = b"".join(around * 24 + value for value in values) + around * 24
    found = Columns.empty(len(values), np.frombuffer(data, np.uint8).copy())
    found.value_length[:] = [len(value) for value in values]
    found.value[:] = np.cumsum(found.value_length + 24) - found.value_length
    return found


def by_kernels(reader: EventReader, rule: FieldRule, columns: Columns) -> list[tuple[object, str]]:
    """Return each value and its reason."""
    events = reader.read(columns)
    field = events.fields[0]
    found: list[tuple[object, str]] = []
    for row, reason in enumerate(events.reason.tolist()):
        number = field.numbers[row]
        if rule.kind == FieldKind.TEXT:
            at, size = int(number), int(field.length[row])
            from_ = events.data if at >= 0 else events.extra
            at = at if at >= 0 else -at - 1
            value: object = from_[at : at + size].tobytes().decode(errors="replace")
        elif rule.kind == FieldKind.DECIMAL:
            low, high = number.tolist()
            value = high * _WORD + low % _WORD
        else:
            value = number.item()
        found.append((None if reason else value, reader.reasons[reason]))
    return found


def one_by_one(rule: FieldRule, columns: Columns) -> list[tuple[object, str]]:
    """Return the same by `read_exactly` alone."""
    matches = look_up(columns.data, columns.value, columns.value_length, Pointers.of(["/f"]))
    found: list[tuple[object, str]] = []
    for row in range(len(columns)):
        kind, at = int(matches.kind[0, row]), int(matches.start[0, row])
        if matches.fault[row]:
            found.append((None, "not_json"))
        elif kind == JsonKind.NULL:
            found.append((None, "null:f"))
        else:
            raw = columns.data[at : at + int(matches.length[0, row])].tobytes()
            read = read_exactly(rule, kind, raw)
            found.append((None, f"{read.fault}:f") if read.fault else (read.value, ""))
    return found


@given(st.lists(TOKENS, min_size=1, max_size=12), st.sampled_from([b"0", b"9", b'"', b".", b"\xff", b"-"]))
def test_kernels_read_what_is_read_exactly_whatever_stands_around_it(tokens: list[str], around: bytes) -> None:
    columns = records(tokens, around)
    for reader, rule in zip(READERS, RULES, strict=True):
        # By text: NaN equals nothing.
        assert list(map(repr, by_kernels(reader, rule, columns))) == list(
            map(repr, one_by_one(rule, columns))
        ), rule


def test_forms_that_are_less_usual_are_read_all_the_same() -> None:
    assert read_exactly(RULES[8], JsonKind.STRING, b"12345E-3") == ReadValue(123_450_000_000)
    assert read_exactly(RULES[8], JsonKind.STRING, b"1.00000000000") == ReadValue(10_000_000_000)
    assert read_exactly(RULES[13], JsonKind.STRING, b"2026-01-05 07:08z").fault == ""
    assert read_exactly(RULES[7], JsonKind.STRING, b"-Infinity") == ReadValue(float("-inf"))
