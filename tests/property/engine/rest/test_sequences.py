"""A row's sequence is that of a record with the same text, and where a record has none the row has none."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.extract.sequence import HeaderSequence, SequenceFormat, ValueSequence
from processor.engine.rest import (
    Fault,
    IdColumn,
    IdTextForm,
    JsonRows,
    sequences_of_json,
    sequences_of_texts,
)
from tests.property.engine.rest.test_row_ids import records

NUMBERS = st.integers(-(2**65), 2**65) | st.integers(-9, 9)
TEXTS = st.from_regex(r"[-+]?[0-9. xe]{0,21}", fullmatch=True) | NUMBERS.map(str)
VALUES = st.lists(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_texts_of_a_column_are_sequences_as_those_of_headers_are(texts: list[str]) -> None:
    words = [each.encode() for each in texts]
    expected, wrong = HeaderSequence(b"h", SequenceFormat.TEXT).extract(records([b"{}"] * len(words), words))
    ends = np.cumsum([0, *map(len, words)])
    column = IdColumn.of_text(
        IdTextForm.STRING, np.ones(len(words), np.bool_), ends, np.frombuffer(b"".join(words), np.uint8)
    )

    sequence, fault = sequences_of_texts(column)

    assert sequence.tolist() == expected.tolist()
    as_field = {Fault.HEADER_MALFORMED: Fault.FIELD_TYPE}
    assert fault.tolist() == [as_field.get(Fault(each), Fault(each)) for each in wrong.tolist()]


@settings(deadline=None)
@given(values=VALUES, escaped=st.booleans())
def test_members_of_lines_are_sequences_as_those_of_values_are(*, values: list[object], escaped: bool) -> None:
    lines = [json.dumps({"n": each}).encode() for each in values]
    if escaped:
        lines = [each.replace(b'"n": "-', b'"n": "\\u002d') for each in lines]
    rows = JsonRows.of(np.frombuffer(b"".join(lines), np.uint8), np.cumsum([0, *map(len, lines)]))
    found = rows.look_up("/n")
    null = np.array([each is None for each in values])
    read = {}
    for text in (True, False):
        expected, wrong = ValueSequence("/n", text=text).extract(records(lines))

        sequence, fault = read[text] = sequences_of_json(rows, found, 0, texts=text, numbers=not text)

        assert sequence.tolist() == expected.tolist()
        assert fault[~null].tolist() == wrong[~null].tolist()
        assert (fault[null] == Fault.FIELD_MISSING).all()

    # Where both count, a row is what it is in one of the two.
    sequence, fault = sequences_of_json(rows, found, 0, texts=True, numbers=True)
    words = np.array([isinstance(each, str) for each in values])
    for text, some in ((True, words), (False, ~words)):
        assert sequence[some].tolist() == read[text][0][some].tolist()
        assert fault[some].tolist() == read[text][1][some].tolist()
