"""The parts of ids and scopes against a model in plain Python: json, re, fractions, uuid and split."""

from __future__ import annotations

import base64
import json
import re
import uuid
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.id_lists import id_lists
from processor.engine.extract.ids import IdExtractor, texts
from processor.engine.extract.normalise import IdTextForm, Normal
from processor.engine.extract.parts import (
    AnyPart,
    ColumnPart,
    HeaderPart,
    KeyPart,
    Part,
    PlainPart,
    TextPart,
    ValuePart,
)
from processor.engine.extract.scopes import MOST_SCOPE_BYTES, PartsScope
from processor.engine.extract.sequence import ColumnSequence, ValueSequence
from processor.engine.verdict import Fault
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import Record

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns

SECRET = bytes(range(16))
STRING, NUMBER, BOOLEAN, BYTES = IdTextForm.STRING, IdTextForm.NUMBER, IdTextForm.BOOLEAN, IdTextForm.BYTES


class Said(NamedTuple):
    """What the model says of one part of a record."""

    form: IdTextForm = IdTextForm.NONE
    text: bytes = b""
    fault: Fault = Fault.NONE
    absent: bool = False


def missing(fault: Fault) -> Said:
    return Said(fault=fault, absent=True)


class Number(str):
    """A number of JSON as it was written."""

    __slots__ = ()


def parsed(text: bytes | str) -> Any:
    """Read JSON with numbers as they were written; raises `ValueError`."""
    orjson.loads(text)  # which is as strict as we are
    return json.loads(text, parse_int=Number, parse_float=Number)


def walked(value: Any, pointer: str) -> Any:
    """Follow a pointer without escapes; raises `KeyError`."""
    for step in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise KeyError(step)
    return value


def of_value(part: ValuePart, record: Record) -> Said:  # noqa: C901, PLR0911 - the contract's sentences in a row
    if record.value is None:
        return missing(Fault.VALUE_MISSING)
    try:
        value = parsed(record.value)
    except ValueError:
        return Said(fault=Fault.VALUE_NOT_JSON)
    for number, pointer in enumerate(re.split(r"\|(?=\|*/)", part.pointer)):
        if number:
            if value is None:
                break
            try:
                value = parsed(value if type(value) is str else "")
            except ValueError:
                return Said(fault=Fault.FIELD_TYPE)
        try:
            value = walked(value, pointer)
        except KeyError:
            return missing(Fault.FIELD_MISSING)
    if value is None:
        return missing(Fault.FIELD_TYPE)
    if isinstance(value, bool):
        return Said(BOOLEAN, b"true" if value else b"false")
    if isinstance(value, dict | list):
        return Said(fault=Fault.FIELD_TYPE)
    return Said(NUMBER if isinstance(value, Number) else STRING, value.encode())


def plain(part: PlainPart, record: Record) -> Said:  # noqa: PLR0911 - a case for each kind
    match part:
        case HeaderPart(name):
            found = [value for header, value in record.headers if header == name]
            if not found:
                return missing(Fault.HEADER_MISSING)
            return missing(Fault.HEADER_MALFORMED) if found[-1] is None else Said(BYTES, found[-1])
        case KeyPart():
            return missing(Fault.KEY_MISSING) if record.key is None else Said(BYTES, record.key)
        case ValuePart():
            return of_value(part, record)
        case _ if record.value is None:
            return missing(Fault.VALUE_MISSING)
        case ColumnPart(number, separator):
            columns = record.value.split(separator)
            return Said(BYTES, columns[number - 1]) if len(columns) >= number else missing(Fault.FIELD_MISSING)
        case TextPart():
            return Said(BYTES, record.value)
        case _:
            raise AssertionError(part)


def normal(said: Said, how: Normal) -> Said:
    text = said.text
    if how is Normal.LOWER and said.form in {STRING, BYTES}:
        return said._replace(text=text.lower())  # of bytes: A to Z
    if how is Normal.UUID and said.form in {STRING, BYTES}:
        bare = text[1:-1] if text[:1] == b"{" and text[-1:] == b"}" else text
        digits = bare.replace(b"-", b"")
        if re.fullmatch(rb"[0-9a-fA-F]{32}", digits):
            return said._replace(text=str(uuid.UUID(digits.decode())).encode())
    whole = integer(text) if how is Normal.INTEGER and said.form in {STRING, BYTES, NUMBER} else None
    return said if whole is None else said._replace(form=NUMBER, text=b"%d" % whole)


def integer(text: bytes) -> int | None:
    found = re.fullmatch(rb"-?([0-9]+(?:\.[0-9]+)?)([eE]([+-]?[0-9]+))?", text)
    if not found:
        return None
    exponent = int(found[3] or 0)
    if abs(exponent) > 10_000:
        return 0 if abs(exponent) <= 10**12 and not found[1].strip(b"0.") else None
    value = Fraction(text.decode())
    if value.denominator != 1 or (found[2] and len(str(abs(int(value)))) > 40):
        return None
    return int(value)


def model(part: Part, record: Record) -> Said:
    if not isinstance(part, AnyPart):
        return normal(plain(part, record), getattr(part, "normal", Normal.NONE))
    every = [model(each, record) for each in part.parts]
    found = next((said for said in every if not said.absent), every[0])
    return found._replace(form=STRING) if found.form is BYTES else found


IDS = [
    "6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff8b86d011b42d00cf4fc964ff",
    "{6f9619ff-8B86-d011-b42d-00cf4fc964ff}", "{6f9619ff8b86d011b42d00cf4fc964ff",
    "6f9619ff8b86d011b42d00cf4fc964f", "---", "{}", "", "é", 'q"\n', "A\x00z",
]  # fmt: skip
NUMBERS = [
    "7", "7.0", "70e-1", "0.7E1", "7e0", "-7", "-0", "0.0", "7.5", "1e39", "1e40", "1.0E7", "10000000",
    "123456789012345678901234567890", "1e-3", "1000e-3", "100000000000000000000000000000000000000000000",
]  # fmt: skip
WORDS = [*IDS, *NUMBERS, "007", "-007.00", "+7", "7.", ".7", "7e", "true", "null", "0e99999999999999999999"]

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10), st.text(max_size=4), st.sampled_from(WORDS),
    st.sampled_from(NUMBERS).map(lambda text: f"\x01{text}"),
)  # fmt: skip


def dumped(value: Any) -> str:
    """Write JSON; a text behind U+0001 is a number as it is written."""
    return re.sub(r'"\\u0001([^"\\]*)"', r"\1", json.dumps(value, ensure_ascii=len(str(value)) % 2 == 0))


names = st.sampled_from(["a", "b", "0", "a|b"])
shallow = st.recursive(
    leaves, lambda below: st.dictionaries(names, below, max_size=3) | st.lists(below, max_size=2), max_leaves=4
)
inside = shallow.map(dumped) | st.sampled_from(["", "{", "nul"])
deep = st.recursive(inside | shallow, lambda below: st.dictionaries(names, below, max_size=3), max_leaves=5)
documents = deep.map(dumped).map(str.encode)
lines = st.lists(st.sampled_from([*WORDS, "x\ty", ";;"]), max_size=5).map(
    lambda all_of: "\t".join(all_of).encode()
)
values = (
    st.none()
    | documents
    | documents.map(lambda text: json.dumps(text.decode()).encode())
    | lines
    | st.binary(max_size=6)
)
words = st.sampled_from(WORDS).map(str.encode)
headers = st.lists(
    st.tuples(st.sampled_from([b"h", b"i"]), st.none() | words | st.just(b"\xff")), max_size=3
).map(tuple)
records = st.builds(Record, st.just(0), st.just(1), st.none() | words, values, headers)
normals = st.sampled_from(Normal)
pointers = st.sampled_from(
    ["", "/a", "/b", "/a/b", "/a/0", "/a|b", "/a|/b", "/a|/a", "/b|/a|/b", "|/a", "||/b"]
)


plain_parts = st.one_of(
    st.builds(HeaderPart, st.sampled_from([b"h", b"i"]), normals),
    st.builds(KeyPart, normals),
    st.builds(lambda pointer, how: ValuePart(pointer, normal=how), pointers, normals),
    st.builds(ColumnPart, st.integers(1, 4), st.sampled_from([b"\t", b";", b"\t\t", b";;", b"ab"]), normals),
    st.builds(TextPart, normals),
)
any_parts = st.lists(plain_parts, min_size=1, max_size=3).map(lambda some: AnyPart(tuple(some)))
part_lists = st.lists(plain_parts | any_parts, min_size=1, max_size=3)
record_lists = st.lists(records, min_size=1, max_size=6)


def columns_of(some: list[Record]) -> Columns:
    numbered = [each._replace(offset=at) for at, each in enumerate(some)]
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand(numbered)))
    return piece.columns


def bytes_of(found: list[Said]) -> list[tuple[IdTextForm, bytes]]:
    return [(said.form, said.text) for said in found]


@examples(400)
@given(part_lists, record_lists, st.booleans())
def test_ids_have_the_parts_that_the_model_says_and_are_equal_where_these_are(
    parts: list[Part],
    some: list[Record],
    pass_missing: bool,  # noqa: FBT001 - drawn
) -> None:
    ids = IdExtractor(parts, SECRET, pass_missing).extract(columns_of(some))
    hashes = set()
    judged = []
    for row, record in enumerate(some):
        found = [model(part, record) for part in parts]
        faults = [said.fault for said in found if said.fault and not (pass_missing and said.absent)]
        assert ids.fault[row] == (faults[0] if faults else Fault.NONE)
        assert ids.unjudged[row] == (not faults and any(said.absent for said in found))
        if ids.fault[row] or ids.unjudged[row]:
            continue
        forms = [IdTextForm(STRING if form == IdTextForm.ESCAPED else form) for form in ids.form[:, row]]
        assert forms == [said.form for said in found]
        shown = texts(ids, row)
        assert [each for each in shown if isinstance(each, str)] == [
            said.text.decode() for said in found if said.text == said.text.decode(errors="ignore").encode()
        ]
        judged.append((row, json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()))
        hashes.add((ids.hash[row].tobytes(), str(bytes_of(found))))
    assert len({each for each, _ in hashes}) == len({each for _, each in hashes}) == len(hashes)
    lists = id_lists(ids, np.array([row for row, _ in judged], np.int64))
    written = [lists.data[at : at + size].tobytes() for at, size in zip(lists.at, lists.size, strict=True)]
    assert written == [each for _, each in judged]


def in_json(said: Said) -> str:
    """Write a part of a scope."""
    if said.form in {NUMBER, BOOLEAN}:
        return said.text.decode()
    try:
        return json.dumps(said.text.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(said.text).decode()}, separators=(",", ":"))


@examples(300)
@given(part_lists, record_lists)
def test_a_scope_is_the_json_of_its_parts(parts: list[Part], some: list[Record]) -> None:
    data, at, size, fault = PartsScope(parts).extract(columns_of(some))
    for row, record in enumerate(some):
        found = [model(part, record) for part in parts]
        faults = [said.fault for said in found if said.fault]
        assert fault[row] == (faults[0] if faults else Fault.NONE)
        if not faults:
            inside = [in_json(said) for said in found]
            expected = inside[0] if len(parts) == 1 else f"[{','.join(inside)}]"
            assert data[at[row] : at[row] + size[row]].tobytes().decode() == expected


def test_a_scope_above_64_kib_of_json_is_a_fault_and_one_below_is_none() -> None:
    some = [Record(0, 1, b"\x01" * count, None) for count in (10_922, 10_923)]
    _, _, size, fault = PartsScope([KeyPart(Normal.LOWER)]).extract(columns_of(some))
    assert (size[0], fault.tolist()) == (MOST_SCOPE_BYTES - 2, [Fault.NONE, Fault.SCOPE_TOO_LARGE])


def number(said: Said, *forms: IdTextForm) -> tuple[int, Fault]:
    if said.fault:
        return 0, Fault.FIELD_TYPE if said == missing(Fault.FIELD_TYPE) else said.fault
    if said.form not in forms or not re.fullmatch(rb"-?[0-9]+", said.text):
        return 0, Fault.FIELD_TYPE
    return (int(said.text), Fault.NONE) if -(2**63) <= int(said.text) < 2**63 else (0, Fault.OUT_OF_RANGE)


@examples(300)
@given(record_lists, pointers, st.booleans(), st.integers(1, 3), st.sampled_from([b"\t", b";;"]))
def test_sequences_stand_in_json_in_strings_and_in_columns(
    some: list[Record],
    pointer: str,
    text: bool,  # noqa: FBT001 - drawn
    column: int,
    separator: bytes,
) -> None:
    columns = columns_of(some)
    for extractor, part, form in (
        (ValueSequence(pointer, text), ValuePart(pointer), STRING if text else NUMBER),
        (ColumnSequence(column, separator), ColumnPart(column, separator), BYTES),
    ):
        sequence, fault = extractor.extract(columns)
        found = list(zip(sequence.tolist(), map(Fault, fault.tolist()), strict=True))
        assert found == [number(model(part, record), form) for record in some]


ONE_ID: dict[Normal, list[list[bytes]]] = {
    Normal.UUID: [
        [each.encode() for each in IDS[:3]],
        [IDS[3].encode()],
        [b"{6f9619ff-8b86-d011}"],
        [IDS[1].encode() + b"0"],
    ],
    Normal.INTEGER: [
        [b"7", b"007", b"7.0", b"70e-1", b"0.7E1"],
        [b"-7"],
        [b"+7"],
        [b"7."],
        [b"7.5"],
        [b"0", b"-0.0"],
    ],
    Normal.LOWER: [[b"Mail@Example.COM", b"mail@example.com"], ["É".encode()], ["é".encode()]],
}


@pytest.mark.parametrize("how", ONE_ID)
def test_what_does_not_count_makes_one_id_and_what_is_of_another_form_stays_its_own(how: Normal) -> None:
    classes = ONE_ID[how]
    some = [Record(0, 1, text, b"") for each in classes for text in each]
    hashes = [each.tobytes() for each in IdExtractor([KeyPart(how)], SECRET).extract(columns_of(some)).hash]
    assert len(set(hashes)) == len(classes)
    assert [len(set(hashes[at : at + len(each)])) for at, each in starts(classes)] == [1] * len(classes)


def starts(classes: list[list[bytes]]) -> list[tuple[int, list[bytes]]]:
    return [(sum(map(len, classes[:at])), each) for at, each in enumerate(classes)]


def test_a_header_and_a_string_of_one_text_are_one_id_where_either_counts_and_a_number_is_another() -> None:
    either = AnyPart((HeaderPart(b"h"), ValuePart("/a")))
    some = [
        Record(0, 1, None, b"{}", ((b"h", b"17"),)),
        Record(0, 1, None, b'{"a":"17"}', ((b"h", None),)),
        Record(0, 1, None, b'{"a":17}'),
    ]
    first, second, third = IdExtractor([either], SECRET).extract(columns_of(some)).hash.tolist()
    assert first == second != third
