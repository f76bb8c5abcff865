"""Reading sequences from headers against a model made of `int` and a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.engine.verdict import Fault
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import Header, Record

NAMES = (b"seq", "folge-é".encode(), b"")
LIMITS = [b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809"]
ODD = [b"", b"-", b"--1", b"+5", b"-0", b"00012", b" 1", b"1 ", b"1\n", b"1.0", b"1e3", b"0x1", "٣".encode()]

names = st.sampled_from([*NAMES, b"se", b"seqq", b"Seq", b"sEq", b"other", b"\xff\xfe"])
digits = st.integers(0, 10**100).map(lambda n: b"%d" % n)
values = st.one_of(
    st.none(),
    st.binary(max_size=9),
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=8, max_size=8),
    st.sampled_from(LIMITS + ODD),
    st.integers(-(2**66), 2**66).map(lambda n: b"%d" % n),
    digits,
    digits.map(lambda text: b"-" + text),
    digits.map(lambda text: b"0" * 60 + text[:19]),
)
header_lists = st.lists(st.tuples(names, values), max_size=5)


def model(headers: list[Header], name: bytes, form: SequenceFormat) -> tuple[int, Fault]:
    """Read the contract's sentences as they stand."""
    given_values = [value for found, value in headers if found == name]
    if not given_values:
        return 0, Fault.HEADER_MISSING
    last = given_values[-1]
    if last is None:
        return 0, Fault.HEADER_MALFORMED
    if form is SequenceFormat.TEXT:
        if not re.fullmatch(rb"-?[0-9]+", last):
            return 0, Fault.HEADER_MALFORMED
        number = int(last)
        return (number, Fault.NONE) if -(2**63) <= number < 2**63 else (0, Fault.OUT_OF_RANGE)
    if len(last) != {SequenceFormat.INT64: 8, SequenceFormat.INT32: 4}[form]:
        return 0, Fault.HEADER_MALFORMED
    return int.from_bytes(last, "big", signed=True), Fault.NONE


def extracted(lists: list[list[Header]], name: bytes, form: SequenceFormat) -> list[tuple[int, Fault]]:
    records = [Record(i, 1_000, b"key", b"value", tuple(headers)) for i, headers in enumerate(lists)]
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand(records)))
    sequence, fault = HeaderSequence(name, form).extract(piece.columns)
    return [(int(s), Fault(int(f))) for s, f in zip(sequence, fault, strict=True)]


@examples(300)
@given(st.lists(header_lists, min_size=1, max_size=6), st.sampled_from(NAMES), st.sampled_from(SequenceFormat))
def test_any_headers_give_what_the_model_says(
    lists: list[list[Header]], name: bytes, form: SequenceFormat
) -> None:
    assert extracted(lists, name, form) == [model(headers, name, form) for headers in lists]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0", (0, Fault.NONE)),
        (b"-0", (0, Fault.NONE)),
        (b"00012", (12, Fault.NONE)),
        (b"9223372036854775807", (2**63 - 1, Fault.NONE)),
        (b"-9223372036854775808", (-(2**63), Fault.NONE)),
        (b"9223372036854775808", (0, Fault.OUT_OF_RANGE)),
        (b"-9223372036854775809", (0, Fault.OUT_OF_RANGE)),
        (b"18446744073709551616", (0, Fault.OUT_OF_RANGE)),
        (b"1" * 100, (0, Fault.OUT_OF_RANGE)),
        (b"0" * 100 + b"7", (7, Fault.NONE)),
        (b"1" * 100 + b"x", (0, Fault.HEADER_MALFORMED)),
        (b"", (0, Fault.HEADER_MALFORMED)),
        (b"-", (0, Fault.HEADER_MALFORMED)),
        (b"+5", (0, Fault.HEADER_MALFORMED)),
        ("٣".encode(), (0, Fault.HEADER_MALFORMED)),
    ],
)
def test_text_is_decimal_digits_within_64_bits(text: bytes, expected: tuple[int, Fault]) -> None:
    assert extracted([[(b"seq", text)]], b"seq", SequenceFormat.TEXT) == [expected]


def test_of_several_headers_of_one_name_the_last_counts_also_when_it_is_worse() -> None:
    headers: list[list[Header]] = [
        [(b"seq", b"1"), (b"other", b"9"), (b"seq", b"2")],
        [(b"seq", b"1"), (b"seq", None)],
        [(b"seq", None), (b"seq", b"3")],
    ]
    expected = [(2, Fault.NONE), (0, Fault.HEADER_MALFORMED), (3, Fault.NONE)]
    assert extracted(headers, b"seq", SequenceFormat.TEXT) == expected


@pytest.mark.parametrize("form", [SequenceFormat.INT64, SequenceFormat.INT32])
@pytest.mark.parametrize("width", [0, 3, 5, 7, 9])
def test_a_number_of_the_wrong_width_cannot_be_judged(form: SequenceFormat, width: int) -> None:
    assert extracted([[(b"seq", b"\x01" * width)]], b"seq", form) == [(0, Fault.HEADER_MALFORMED)]
