"""Each rule for sequences in JSON values, by name: what is JSON, where pointers lead, what is a sequence."""

from __future__ import annotations

import numpy as np
import pytest

from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import MOST_POINTERS, Pointers
from processor.engine.extract.sequence import sequence_of
from processor.engine.receipts import Grounds
from processor.engine.verdict import Fault
from processor.judges.factory import mode_of
from schemas.config import Pipeline
from tests.support.judges.json_values import MISSING, Finding, columns, found_in, is_json, sequence

# ------------------------------------------------------------------ what is JSON


@pytest.mark.parametrize("value", [b"0", b"-1", b"null", b"true", b"false", b'""', b"[]", b"{}", b'{"":[{}]}'])
def test_any_json_text_is_valid_also_without_an_object(value: bytes) -> None:
    assert is_json(value)
    assert is_json(b" \t\r\n" + value + b"\n\r\t ")


BROKEN: dict[str, list[bytes]] = {
    "an empty value is not JSON": [b"", b" ", b"\n\n"],
    "a byte order mark is refused": [b'\xef\xbb\xbf{"seq":1}', '{"seq":1}'.encode("utf-16")],
    "only four kinds of space stand between tokens": [
        made
        for space in (b"\x0b", b"\x0c", b"\x00", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf")
        for made in (space + b"1", b"1" + space, b"[" + space + b"]")
    ],
    "commas, colons and brackets are where they belong": (
        b'[1,]|[,1]|[,]|[1,,2]|{"a":1,}|{,}|{,"a":1}|{"a":1,,"b":2}|'
        b'[1 2]|{"a" 1}|{"a"::1}|{"a":}|{"a"}|{1:2}|{a:1}|{\'a\':1}|{null:1}|'
        b'[|]|{|}|[}|{]|{"a":1]|[1}|[[]|[]]|{"a":[}|,|:'
    ).split(b"|"),
    "there are no comments": [b"/* */1", b"1 // x", b"[1/**/]", b"# x\n1"],
}
WORDS = (
    b"NaN Infinity -Infinity nan Null TRUE tru truE fals falsE nul nulL undefined t f n True None "
    b"txue trxe fxlse faxse falxe nxll nuxl"
).split()
NUMBERS = (
    b"01|-01|00|+1|-|--1|.5|1.|-.5|1.e5|1e|1e+|1e1.5|0x10|1_000|1f|-a|1.2.3|1e5e5|0 1|- 1|1 .5|00.5|"
    b"\xd9\xa1"  # U+0661, a digit elsewhere
).split(b"|")
TEXTS: dict[str, list[bytes]] = {
    "control characters are refused": [b"a" + bytes([byte]) + b"b" for byte in range(0x20)],
    "other escapes than those of the RFC are refused": [
        rb"\a", rb"\x41", rb"\'", rb"\0", rb"\U0041", rb"\u00g1", rb"\u+041", rb"\u 041", rb"\u004", b"\\\n",
        "\\é".encode(),
    ],
    "overlong forms, surrogates and other bad UTF-8 are refused": (
        b"\x80 \xbf \xff \xfe \xc0\x80 \xc1\xbf \xe0\x80\x80 \xe0\x9f\xbf \xf0\x80\x80\x80 \xf0\x8f\xbf\xbf "
        b"\xed\xa0\x80 \xed\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80 \xf8\x88\x80\x80\x80 \xc3( \xe2(\xa1 "
        b"\xe2\x82( \xc3\xc3 \xf0(\x8c\xbc \xf0\x90(\xbc \xf0\x90\x8c( \xed\xa0\x80\xed\xb0\x80"
    ).split(),
}  # fmt: skip
BROKEN["there are no other words than null, true and false"] = [
    made for word in WORDS for made in (word, b'{"a":' + word + b"}")
]
BROKEN["numbers of other forms are not JSON"] = [
    made for each in NUMBERS for made in (each, b"[" + each + b"]")
]
BROKEN["strings end"] = [
    made
    for text in (b'"', b'"a', rb'"a\"', b'"\\', rb'"\u', rb'"\u00', rb'"\u004', b'"\xc3')
    for made in (text, b"{" + text)
]
BROKEN |= {
    rule: [made for text in texts for made in (b'"' + text + b'"', b'{"' + text + b'":1}')]
    for rule, texts in TEXTS.items()
}


@pytest.mark.parametrize("rule", BROKEN)
def test_what_breaks_a_rule_of_the_rfc_is_refused(rule: str) -> None:
    assert [value for value in BROKEN[rule] if is_json(value)] == []


@pytest.mark.parametrize("value", [b"1 2", b"{}{}", b"{} x", b"null,", b'"a""b"', b"[]0", b"1//", b"truefalse"])
def test_nothing_follows_the_value(value: bytes) -> None:
    assert not is_json(value)


@pytest.mark.parametrize("number", ["0", "-0", "10", "0.5", "-0.50", "1e5", "1E+05", "1e-0", "0e0", "1.25E-7"])
def test_numbers_have_the_form_of_the_rfc(number: str) -> None:
    whole = number.lstrip("-").isdigit()
    kind = JsonKind.INTEGER if whole else JsonKind.DECIMAL
    assert found_in(number.encode(), "") == [Finding(kind, number.encode())]
    assert found_in(f'{{"a":{number}}}'.encode(), "/a") == [Finding(kind, number.encode())]


def test_del_may_stand_in_a_string() -> None:
    assert found_in(b'"\x7f"', "") == [Finding(JsonKind.STRING, b"\x7f")]


def test_all_escapes_are_unescaped() -> None:
    written = rb'"\"\\\/\b\f\n\r\t\u0000\u007f\u0080\u07FF\u0800\uffff\ud800\udc00\uDBFF\uDFFFz"'
    text = '"\\/\b\f\n\r\t\0\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffffz'
    assert found_in(written, "") == [Finding(JsonKind.ESCAPED, text.encode())]


@pytest.mark.parametrize(
    "text",
    (
        rb"\ud800 \udfff \ud800x \ud800\n \ud800\u0041 \ud800\ud800 \udc00\ud800 \ud83d\ud83d\ude00 "
        rb"\ud800\\udc00 \ud800\udc0 \uDBFF \uDC00 \ud800\U0000"
    ).split(),
)
def test_lone_surrogates_are_refused_in_values_and_in_keys(text: bytes) -> None:
    assert not is_json(b'"' + text + b'"')
    assert not is_json(b'{"' + text + b'":1}')


@pytest.mark.parametrize("code", [0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])
def test_the_bounds_of_utf_8_are_valid(code: int) -> None:
    text = chr(code).encode()
    assert found_in(b'"' + text + b'"', "") == [Finding(JsonKind.STRING, text)]
    assert not is_json(b'"' + text[:-1] + b'"')


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_128_nested_arrays_and_objects_are_valid_and_129_are_not(opening: bytes, closing: bytes) -> None:
    levels = opening.count(b"[") + opening.count(b"{")
    whole = 128 // levels
    assert is_json(opening * (whole - 1) + b"1" + closing * (whole - 1))
    assert is_json(opening * whole + b"1" + closing * whole)
    assert not is_json(b"[" + opening * whole + b"1" + closing * whole + b"]")
    assert not is_json(opening * 100_000)


def test_depth_is_what_is_open_at_once_not_what_there_is() -> None:
    assert is_json(b"[" + b"[{}]," * 500 + b"0]")


# ------------------------------------------------------------------ where pointers lead

RFC_6901 = b'{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\\\j":5,"k\\"l":6," ":7,"m~n":8}'


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", Finding(JsonKind.OBJECT, RFC_6901)),
        ("/foo", Finding(JsonKind.ARRAY, b'["bar","baz"]')),
        ("/foo/0", Finding(JsonKind.STRING, b"bar")),
        ("/", Finding(JsonKind.INTEGER, b"0")),
        ("/a~1b", Finding(JsonKind.INTEGER, b"1")),
        ("/c%d", Finding(JsonKind.INTEGER, b"2")),
        ("/e^f", Finding(JsonKind.INTEGER, b"3")),
        ("/g|h", Finding(JsonKind.INTEGER, b"4")),
        ("/i\\j", Finding(JsonKind.INTEGER, b"5")),
        ('/k"l', Finding(JsonKind.INTEGER, b"6")),
        ("/ ", Finding(JsonKind.INTEGER, b"7")),
        ("/m~0n", Finding(JsonKind.INTEGER, b"8")),
    ],
)
def test_the_examples_of_rfc_6901(pointer: str, expected: Finding) -> None:
    assert found_in(RFC_6901, pointer) == [expected]


def test_tilde_01_is_tilde_1_and_no_slash() -> None:
    assert found_in(b'{"~1":1,"/":2}', "/~01", "/~1") == [
        Finding(JsonKind.INTEGER, b"1"),
        Finding(JsonKind.INTEGER, b"2"),
    ]


@pytest.mark.parametrize("pointer", ["a", "a/b", "/~", "/~2", "/a~", " /a"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="no JSON pointer"):
        Pointers.of([pointer])


@pytest.mark.parametrize(
    ("pointer", "index"), [("/0", 0), ("/1", 1), ("/10", 10), ("/11", None), ("/12", None), ("/-", None)]
)
def test_an_index_counts_elements_from_0(pointer: str, index: int | None) -> None:
    value = b"[" + b",".join(b'{"x":[1,2]}' if i % 2 else b"%d" % i for i in range(11)) + b"]"
    (found,) = found_in(value, pointer)
    expected = {0: Finding(JsonKind.INTEGER, b"0"), 1: Finding(JsonKind.OBJECT, b'{"x":[1,2]}')}
    assert found == (
        MISSING if index is None else expected.get(index, Finding(JsonKind.INTEGER, b"%d" % index))
    )


@pytest.mark.parametrize("token", ["-", "00", "01", "+0", "-0", "0x0", "", " 0", "\u0660", "0" * 30, "1" * 30])
def test_what_is_no_index_matches_no_element_but_may_be_a_key(token: str) -> None:
    assert found_in(b"[1,2]", f"/{token}") == [MISSING]
    assert found_in(f'{{"{token}":3}}'.encode(), f"/{token}") == [Finding(JsonKind.INTEGER, b"3")]


def test_only_the_whole_path_counts() -> None:
    value = b'{"seq":{"n":{"seq":1}},"x":{"seq":2},"y":[{"seq":3}],"seqs":4,"se":5,"Seq":6}'
    seq = Finding(JsonKind.OBJECT, b'{"n":{"seq":1}}')
    assert found_in(value, "/seq", "/seq/seq", "/y/seq", "/y/0/seq") == [
        seq,
        MISSING,
        MISSING,
        Finding(JsonKind.INTEGER, b"3"),
    ]


def test_keys_are_compared_by_their_unescaped_text() -> None:
    value = rb'{"\u0073\u0065q":1,"\ud83d\ude00":2,"a\/b":3,"\u00e9":4,"\u20ac":5,"x\ty":6,"seq\u0000":7}'
    pointers = ["/seq", "/😀", "/a~1b", "/é", "/€", "/x\ty", "/seq\0"]
    assert [each.content for each in found_in(value, *pointers)] == [b"%d" % n for n in range(1, 8)]
    assert found_in(value, "/se", "/seqq", "/😁", "/\\u0073eq", "/a\\/b") == [MISSING] * 5


@pytest.mark.parametrize("again", ["seq", "s\\u0065q", "\\u0073\\u0065\\u0071"])
def test_of_equal_keys_the_last_counts(again: str) -> None:
    value = f'{{"seq":1,"x":2,"{again}":"later"}}'.encode()
    assert found_in(value, "/seq") == [Finding(JsonKind.STRING, b"later")]
    assert found_in(f'{{"{again}":1,"seq":null}}'.encode(), "/seq") == [Finding(JsonKind.NULL, b"null")]


@pytest.mark.parametrize("later", [b"1", b"null", b"[]", b"{}", b'{"c":1}', b'[{"b":1}]', b'"b"'])
def test_a_later_equal_key_hides_what_an_earlier_one_held(later: bytes) -> None:
    assert found_in(b'{"a":{"b":7},"a":' + later + b"}", "/a/b") == [MISSING]
    assert found_in(b'{"x":{"a":{"b":7}},"x":{"a":' + later + b"}}", "/x/a/b") == [MISSING]


def test_as_many_pointers_as_the_bits_allow_and_no_more() -> None:
    value = b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(MOST_POINTERS)) + b"}"
    found = found_in(value, *(f"/k{i}" for i in range(MOST_POINTERS)))
    assert found == [Finding(JsonKind.INTEGER, b"%d" % i) for i in range(MOST_POINTERS)]
    with pytest.raises(ValueError, match="at most 62"):
        Pointers.of(["/a"] * (MOST_POINTERS + 1))
    assert found_in(b"[]") == []


def test_a_pointer_may_lead_128_levels_down_and_a_longer_one_leads_nowhere() -> None:
    value = b"[" * 128 + b"7" + b"]" * 128
    assert found_in(value, "/0" * 128, "/0" * 129) == [Finding(JsonKind.INTEGER, b"7"), MISSING]


# ------------------------------------------------------------------ what is a sequence


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"seq":7}', 7),
        (b'{"seq":-7}', -7),
        (b'{"seq":-0}', 0),
        (b'{"seq":9223372036854775807}', 2**63 - 1),
        (b'{"seq":-9223372036854775808}', -(2**63)),
        (b'{"seq":9223372036854775808}', Fault.OUT_OF_RANGE),
        (b'{"seq":-9223372036854775809}', Fault.OUT_OF_RANGE),
        (b'{"seq":' + b"9" * 5_000 + b"}", Fault.OUT_OF_RANGE),
        (b'{"seq":7.0}', Fault.FIELD_TYPE),
        (b'{"seq":7e0}', Fault.FIELD_TYPE),
        (b'{"seq":1e400}', Fault.FIELD_TYPE),
        (b'{"seq":"7"}', Fault.FIELD_TYPE),
        (b'{"seq":"\\u0037"}', Fault.FIELD_TYPE),
        (b'{"seq":null}', Fault.FIELD_TYPE),
        (b'{"seq":true}', Fault.FIELD_TYPE),
        (b'{"seq":false}', Fault.FIELD_TYPE),
        (b'{"seq":[7]}', Fault.FIELD_TYPE),
        (b'{"seq":{}}', Fault.FIELD_TYPE),
        (b'{"seq":NaN}', Fault.VALUE_NOT_JSON),
        (b'{"seq":07}', Fault.VALUE_NOT_JSON),
        (b'{"seq":7} x', Fault.VALUE_NOT_JSON),
        (b'{"seq":7,"x":"\xff"}', Fault.VALUE_NOT_JSON),
        (b"[" * 129 + b"]" * 129, Fault.VALUE_NOT_JSON),
        (b"", Fault.VALUE_NOT_JSON),
        (None, Fault.VALUE_MISSING),
        (b"{}", Fault.FIELD_MISSING),
        (b"[7]", Fault.FIELD_MISSING),
        (b"7", Fault.FIELD_MISSING),
        (b"null", Fault.FIELD_MISSING),
    ],
)
def test_a_sequence_is_a_json_integer_of_64_bits(value: bytes | None, expected: int | Fault) -> None:
    assert sequence(value) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'"7"', 7),
        (b'"-7"', -7),
        (b'"-0"', 0),
        (b'"007"', 7),
        (b'"' + b"0" * 100 + b'9223372036854775807"', 2**63 - 1),
        (b'"-9223372036854775808"', -(2**63)),
        (b'"9223372036854775808"', Fault.OUT_OF_RANGE),
        (b'"-9223372036854775809"', Fault.OUT_OF_RANGE),
        (rb'"\u0037\u0038"', 78),
        (rb'"\u002d1"', -1),
        (rb'"1\n"', Fault.FIELD_TYPE),
        (rb'"\ud83d\ude00"', Fault.FIELD_TYPE),
        (b'"' + rb"\u0039" * 20 + b'"', Fault.OUT_OF_RANGE),
        (b'""', Fault.FIELD_TYPE),
        (b'"-"', Fault.FIELD_TYPE),
        (b'"+7"', Fault.FIELD_TYPE),
        (b'" 7"', Fault.FIELD_TYPE),
        (b'"7.0"', Fault.FIELD_TYPE),
        (b'"7e0"', Fault.FIELD_TYPE),
        ('"\u0667"'.encode(), Fault.FIELD_TYPE),
        (b"7", Fault.FIELD_TYPE),
        (b"7.5", Fault.FIELD_TYPE),
        (b"null", Fault.FIELD_TYPE),
        (b"true", Fault.FIELD_TYPE),
        (b"[]", Fault.FIELD_TYPE),
    ],
)
def test_with_format_text_it_is_a_string_of_decimal_digits(written: bytes, expected: int | Fault) -> None:
    assert sequence(b'{"seq":' + written + b"}", text=True) == expected


def test_a_pipeline_judges_by_a_field_of_the_value() -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": "s",
            "sink": "t",
            "dedup": {"mode": "watermark", "sequence": {"from": "value", "pointer": "/meta/seq"}},
        }
    )
    judge = mode_of(pipeline).judge()
    values: list[bytes | None] = [b'{"meta":{"seq":%d}}' % n for n in (5, 5, 4, 6)]
    evidence = judge.extract(columns([*values, b"{}"]))
    judged = judge.judge(evidence)
    assert isinstance(judged, Grounds)
    assert judged.verdict.tolist() == [0, 1, 2, 0, 3]
    assert list(judged.watermark[:4]) == [0, 5, 5, 5]


def test_pointer_and_form_are_part_of_the_definition() -> None:
    def made(**sequence: str) -> bytes:
        given = {"mode": "watermark", "sequence": {"from": "value", **sequence}}
        pipeline = Pipeline.model_validate({"name": "p", "source": "s", "sink": "t", "dedup": given})
        return mode_of(pipeline).definition()

    made_of = {made(pointer="/a"), made(pointer="/b"), made(pointer="/a", format="text"), made(pointer="")}
    assert len(made_of) == 4
    assert made(pointer="/a") == made(pointer="/a")


def test_read_only_bytes_are_read_too() -> None:
    cols = columns([b'{"seq":3}'])
    cols.data.flags.writeable = False
    found = look_up(cols.data, cols.value, cols.value_length, Pointers.of(["/seq"]))
    numbers, _ = sequence_of(cols.data, found, 0, text=False)
    assert np.array_equal(numbers, [3])
