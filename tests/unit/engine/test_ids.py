"""Ids are hashed as SipHash's authors say, told apart by all their parts, refused in the contract's order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.bytes.siphash import siphash128, words_of_key
from processor.engine.extract.ids import IdExtractor, Ids, Text, hash_ids, texts
from processor.engine.extract.parts import (
    AnyPart,
    ColumnPart,
    ContentPart,
    HeaderPart,
    KeyPart,
    Part,
    TextPart,
    ValuePart,
)
from processor.engine.extract.value_walk import ContentOf
from processor.engine.ids.clock import NEVER, by_arrival, by_records
from processor.engine.verdict import Fault
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import Header, Record

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns

SECRET = bytes(range(16))
# The reference implementation's vectors_sip128: the hash of 00 01 02 ... of each length from 0 to 63, under the
# key 00 01 ... 0f. OpenSSL's SIPHASH with size 16 says the same.
LISTED = """
    a3817f04ba25a8e66df67214c7550293
    da87c1d86b99af44347659119b22fc45
    8177228da4a45dc7fca38bdef60affe4
    9c70b60c5267a94e5f33b6b02985ed51
    f88164c12d9c8faf7d0f6e7c7bcd5579
    1368875980776f8854527a07690e9627
    14eeca338b208613485ea0308fd7a15e
    a1f1ebbed8dbc153c0b84aa61ff08239
    3b62a9ba6258f5610f83e264f31497b4
    264499060ad9baabc47f8b02bb6d71ed
    00110dc378146956c95447d3f3d0fbba
    0151c568386b6677a2b4dc6f81e5dc18
    d626b266905ef35882634df68532c125
    9869e247e9c08b10d029934fc4b952f7
    31fcefac66d7de9c7ec7485fe4494902
    5493e99933b0a8117e08ec0f97cfc3d9
    6ee2a4ca67b054bbfd3315bf85230577
    473d06e8738db89854c066c47ae47740
    a426e5e423bf4885294da481feaef723
    78017731cf65fab074d5208952512eb1
    9e25fc833f2290733e9344a5e83839eb
    568e495abe525a218a2214cd3e071d12
    4a29b54552d16b9a469c10528eff0aae
    c9d184ddd5a9f5e0cf8ce29a9abf691c
    2db479ae78bd50d8882a8a178a6132ad
    8ece5f042d5e447b5051b9eacb8d8f6f
    9c0b53b4b3c307e87eaee08678141f66
    abf248af69a6eae4bfd3eb2f129eeb94
    0664da1668574b88b935f3027358aef4
    aa4b9dc4bf337de90cd4fd3c467c6ab7
    ea5c7f471faf6bde2b1ad7d4686d2287
    2939b0183223fafc1723de4f52c43d35
    7c3956ca5eeafc3e363e9d556546eb68
    77c6077146f01c32b6b69d5f4ea9ffcf
    37a6986cb8847edf0925f0f1309b54de
    a705f0e69da9a8f907241a2e923c8cc8
    3dc47d1f29c448461e9e76ed904f6711
    0d62bf01e6fc0e1a0d3c4751c5d3692b
    8c03468bca7c669ee4fd5e084bbee7b5
    528a5bb93baf2c9c4473cce5d0d22bd9
    df6a301e95c95dad97ae0cc8c6913bd8
    801189902c857f39e73591285e70b6db
    e617346ac9c231bb3650ae34ccca0c5b
    27d93437efb721aa401821dcec5adf89
    89237d9ded9c5e78d8b1c9b166cc7342
    4a6d8091bf5e7d651189fa94a250b14c
    0e33f96055e7ae893ffc0e3dcf492902
    e61c432b720b19d18ec8d84bdc63151b
    f7e5aef549f782cf379055a608269b16
    438d030fd0b7a54fa837f2ad201a6403
    a590d3ee4fbf04e3247e0d27f286423f
    5fe2c1a172fe93c4b15cd37caef9f538
    2c97325cbd06b36eb2133dd08b3a017c
    92c814227a6bca949ff0659f002ad39e
    dce850110bd8328cfbd50841d6911d87
    67f14984c7da791248e32bb5922583da
    1938f2cf72d54ee97e94166fa91d2a36
    74481e9646ed49fe0f6224301604698e
    57fca5de98a9d6d8006438d0583d8a1d
    9fecde1cefdc1cbed4763674d9575359
    e3040c00eb28f15366ca73cbd872e740
    7697009a6a831dfecca91c5993670f7a
    5853542321f567a005d547a4f04759bd
    5150d1772f50834a503e069a973fbd7c
"""
VECTORS = LISTED.split()


def by_kernel(data: bytes, secret: bytes = SECRET) -> bytes:
    array = np.frombuffer(data + b"\0", np.uint8)
    return np.array(siphash128(array, 0, len(data), words_of_key(secret)), "<u8").tobytes()


def test_the_hash_is_siphash_2_4_of_128_bits_by_the_reference_vectors() -> None:
    assert [by_kernel(bytes(range(size))).hex() for size in range(64)] == VECTORS


def test_a_key_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        words_of_key(bytes(15))


def columns_of(records: list[Record]) -> Columns:
    (piece,) = batches.DECODER.pieces(batches.chunk(batches.by_hand(records)))
    return piece.columns


def record(value: bytes | None = b"{}", key: bytes | None = b"k", headers: tuple[Header, ...] = ()) -> Record:
    return Record(0, 1_000, key, value, headers)


def extracted(parts: list[Part], records: list[Record], *, pass_missing: bool = False) -> tuple[Columns, Ids]:
    numbered = [each._replace(offset=k) for k, each in enumerate(records)]
    columns = columns_of(numbered)
    return columns, IdExtractor(parts, SECRET, pass_missing).extract(columns)


def message(parts: list[tuple[int, bytes]]) -> bytes:
    """Write down what is hashed, as the module draws it."""
    pieces = [
        bytes([tag]) + len(text).to_bytes(7, "little") + text + bytes(-len(text) % 8) for tag, text in parts
    ]
    return b"".join(pieces)


@examples(100)
@given(st.lists(st.tuples(st.binary(max_size=40), st.text(max_size=30), st.integers()), min_size=1, max_size=4))
def test_what_is_hashed_is_each_part_with_its_kind_and_length(rows: list[tuple[bytes, str, int]]) -> None:
    parts: list[Part] = [HeaderPart(b"h"), ValuePart("/s"), KeyPart(), ValuePart("/n")]
    records = [
        record(json.dumps({"n": number, "s": text}).encode(), header[::-1], ((b"h", header),))
        for header, text, number in rows
    ]
    _, ids = extracted(parts, records)
    expected = [
        by_kernel(message([(1, header), (2, text.encode()), (1, header[::-1]), (3, b"%d" % number)]))
        for header, text, number in rows
    ]
    assert not ids.fault.any()
    assert [each.astype("<u8").tobytes() for each in ids.hash] == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "a", "b": "bc"}, {"a": "ab", "b": "c"}),
        ({"a": "", "b": "x"}, {"a": "x", "b": ""}),
        ({"a": "1", "b": "x"}, {"a": 1, "b": "x"}),
        ({"a": 1, "b": "x"}, {"a": 1.0, "b": "x"}),
        ({"a": "x", "b": "x"}, {"a": "x\0", "b": "x"}),
        ({"a": "12345678", "b": ""}, {"a": "", "b": "12345678"}),
    ],
)
def test_ids_that_differ_in_any_part_have_different_hashes(
    one: dict[str, object], other: dict[str, object]
) -> None:
    records = [record(json.dumps(each).encode()) for each in (one, other)]
    _, ids = extracted([ValuePart("/a"), ValuePart("/b")], records)
    assert not np.array_equal(ids.hash[0], ids.hash[1])


def test_a_string_counts_by_its_text_however_it_is_escaped() -> None:
    values = [
        rb'{"a":"\u0041\n\ud83d\ude00/"}',
        b'{"a":"A\\n\xf0\x9f\x98\x80\\/"}',
        b'{"a" : "A\\u000A\xf0\x9f\x98\x80/" }',
    ]
    _, ids = extracted([ValuePart("/a")], [record(value) for value in values])
    assert len({each.tobytes() for each in ids.hash}) == 1
    assert [texts(ids, row) for row in range(3)] == [["A\n\U0001f600/"]] * 3


def test_ids_without_room_for_their_lots_are_refused_before_the_kernel_writes_there() -> None:
    columns = columns_of([record()])
    ids = IdExtractor([KeyPart()], SECRET).extract(columns)
    with pytest.raises(ValueError, match="different numbers of ids"):
        hash_ids(ids._replace(lot=ids.lot[:0]), words_of_key(SECRET))


def test_receipts_show_text_numbers_as_written_and_bytes_that_are_no_text_as_base64() -> None:
    parts: list[Part] = [KeyPart(), ValuePart("/a"), HeaderPart(b"h"), ValuePart("/b")]
    _, ids = extracted(parts, [record(b'{"a":1.50,"b":"\\u00e9"}', b"\xff\x00", ((b"h", "é".encode()),))])
    expected: list[Text] = [{"base64": "/wA="}, "1.50", "é", "é"]
    assert texts(ids, 0) == expected


WRONG = [
    (KeyPart(), record(key=None), Fault.KEY_MISSING, True),
    (HeaderPart(b"h"), record(), Fault.HEADER_MISSING, True),
    (HeaderPart(b"h"), record(headers=((b"h", b"1"), (b"h", None))), Fault.HEADER_MALFORMED, True),
    (ValuePart("/a"), record(None), Fault.VALUE_MISSING, True),
    (ValuePart("/a"), record(b"{}"), Fault.FIELD_MISSING, True),
    (ValuePart("/a/b"), record(b'{"a":1}'), Fault.FIELD_MISSING, True),
    (ValuePart("/a"), record(b'{"a":null}'), Fault.FIELD_TYPE, True),
    (ValuePart("/a", only_text=True), record(b'{"a":true}'), Fault.FIELD_TYPE, False),
    (ValuePart("/a|/b"), record(b'{"a":false}'), Fault.FIELD_TYPE, False),
    (ValuePart("/a|/b"), record(b'{"a":null}'), Fault.FIELD_TYPE, True),
    (ValuePart("/a|/b"), record(b'{"a":"{\\"b\\""}'), Fault.FIELD_TYPE, False),
    (ValuePart("/a|/b"), record(b'{"a":"{}"}'), Fault.FIELD_MISSING, True),
    (ColumnPart(3, b"\t"), record(b"a\tb"), Fault.FIELD_MISSING, True),
    (ColumnPart(1, b"\t"), record(None), Fault.VALUE_MISSING, True),
    (TextPart(), record(None), Fault.VALUE_MISSING, True),
    (AnyPart((ValuePart("/a"), HeaderPart(b"h"))), record(b"{}"), Fault.FIELD_MISSING, True),
    (AnyPart((ValuePart("/a"), KeyPart())), record(b'{"a":[]}'), Fault.FIELD_TYPE, False),
    (AnyPart((ValuePart("/a"), KeyPart())), record(b"{"), Fault.VALUE_NOT_JSON, False),
    (ValuePart("/a"), record(b'{"a":{}}'), Fault.FIELD_TYPE, False),
    (ValuePart("/a"), record(b'{"a":["x"]}'), Fault.FIELD_TYPE, False),
    (ValuePart("/a"), record(b'{"a":"x"'), Fault.VALUE_NOT_JSON, False),
    (ValuePart("/a"), record(b""), Fault.VALUE_NOT_JSON, False),
]


@pytest.mark.parametrize(("part", "item", "fault", "missing"), WRONG)
def test_what_cannot_be_judged_has_its_code_and_passes_only_where_it_is_missing(
    part: Part,
    item: Record,
    fault: Fault,
    missing: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    _, ids = extracted([part], [item])
    assert (int(ids.fault[0]), bool(ids.unjudged[0])) == (fault, False)
    _, ids = extracted([part], [item], pass_missing=True)
    assert (int(ids.fault[0]), bool(ids.unjudged[0])) == ((Fault.NONE, True) if missing else (fault, False))
    assert not ids.hash.any()


def test_empty_strings_and_empty_bytes_are_values() -> None:
    parts: list[Part] = [KeyPart(), HeaderPart(b"h"), ValuePart("/a")]
    _, ids = extracted(parts, [record(b'{"a":""}', b"", ((b"h", b""),))], pass_missing=True)
    assert not ids.fault[0]
    assert not ids.unjudged[0]
    assert ids.hash.any()


def test_with_several_faults_the_first_part_counts_and_a_fault_before_what_is_only_missing() -> None:
    parts: list[Part] = [HeaderPart(b"h"), ValuePart("/a"), KeyPart()]
    item = record(b'{"a":[]}', None)
    assert extracted(parts, [item])[1].fault[0] == Fault.HEADER_MISSING
    assert extracted(parts[::-1], [item])[1].fault[0] == Fault.KEY_MISSING
    # What is missing lets pass, a wrong type does not, whichever stands first.
    for order in (parts, parts[::-1]):
        _, ids = extracted(order, [item], pass_missing=True)
        assert (int(ids.fault[0]), bool(ids.unjudged[0])) == (Fault.FIELD_TYPE, False)


def test_content_as_bytes_is_no_json_whatever_another_part_asks_of_the_value() -> None:
    parts: list[Part] = [ContentPart(ContentOf(as_bytes=True)), HeaderPart(b"h"), ValuePart("/a")]
    _, ids = extracted(parts, [record(b"{"), record(b"{", headers=((b"h", b"x"),)), record(None)])
    assert [Fault(int(fault)) for fault in ids.fault] == [
        Fault.HEADER_MISSING,
        Fault.VALUE_NOT_JSON,
        Fault.VALUE_MISSING,
    ]


def test_an_id_without_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        IdExtractor([], SECRET)


# ---------------------------------------------------------------- the clock


def test_the_clock_is_the_highest_timestamp_and_never_further_ahead_than_is_believed() -> None:
    timestamp = np.array([50, 40, 60, 9_999, 30, 210, 55], np.int64)
    fault = np.array([0, 0, 0, 0, 0, 0, Fault.KEY_MISSING], np.uint8)
    readings = by_records(45, timestamp, fault, 100, 100)
    assert readings.reading_ms.tolist() == [50, 50, 60, 200, 200, 200, 200]
    assert (readings.clock_ms, readings.late, readings.future) == (200, 2, 2)


def test_the_clock_never_goes_back_even_if_the_workers_does() -> None:
    timestamp, fault = np.array([500, 90], np.int64), np.zeros(2, np.uint8)
    assert by_records(300, timestamp, fault, 100, 50).reading_ms.tolist() == [300, 300]
    assert by_arrival(300, fault, 100).reading_ms.tolist() == [300, 300]


def test_only_a_record_that_can_be_judged_moves_the_clock() -> None:
    timestamp, fault = np.array([7, 5, 8], np.int64), np.array([1, 0, 1], np.uint8)
    assert by_records(NEVER, timestamp, fault, 100, 50).reading_ms.tolist() == [NEVER, 5, 5]
    assert by_arrival(NEVER, fault, 100).reading_ms.tolist() == [NEVER, 100, 100]
    assert by_arrival(3, fault[:1], 100).clock_ms == 3
