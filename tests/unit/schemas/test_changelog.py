"""What stands in the changelog is read back as it was written, or refused with words."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.changelog.check import check_entry
from schemas.changelog.marks import MARK_KEY, IndexMark, MarkTags
from schemas.changelog.position import NO_BATCH, NO_TOPIC, LocalMark, Origin, OutputEnds, Position
from schemas.changelog.topic_ids import NO_TOPIC_IDS, TopicId, TopicIds
from schemas.changelog.values import LOCAL_KEY, ORIGIN_KEY, POSITION_KEY, CorruptStateError, sealed
from schemas.changelog.watermark import decode_watermark, encode_watermark, watermark_key

if TYPE_CHECKING:
    from collections.abc import Callable

int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
topics = st.builds(TopicIds, *[st.builds(TopicId, ids, u32)] * 5)
names = st.text(max_size=60)
output_ends = st.builds(OutputEnds, int64, int64, int64)
slots = st.integers(0, 2**16 - 1)
positions = st.builds(Position, int64, int64, u32, ids, ids, slots, topics, names, names, output_ends, int64)
index_marks = st.builds(IndexMark, int64, int64, int64, output_ends, st.builds(MarkTags, u32, u32, u32, u32))

POSITION = Position(120, 100, 0xDEADBEEF, b"definition 16 by", b"state id 16 byte", 4)
TOPICS = TopicIds(*(TopicId(bytes([n]) * 16, 0xC0FFEE00 + n) for n in range(5)))
NAMED = replace(POSITION, topics=TOPICS, application="a", pipeline="b-c.route")
ORIGIN = Origin(7, 6, NO_TOPIC, 5)
INDEX_MARK = IndexMark(9, 8, 7, OutputEnds(6, -1, 5), MarkTags(1, 2, 0, 3))
MARK = LocalMark(77, b"state id 16 byte")
KEY = watermark_key()
VALUES: list[tuple[bytes, bytes, Callable[[bytes], object]]] = [
    (POSITION_KEY, POSITION.encode(), Position.decode),
    (POSITION_KEY, NAMED.encode(), Position.decode),
    (ORIGIN_KEY, ORIGIN.encode(), Origin.decode),
    (ORIGIN_KEY, replace(ORIGIN, known_before=3).encode(), Origin.decode),
    (ORIGIN_KEY, replace(ORIGIN, reset_ms=3).encode(), Origin.decode),
    (ORIGIN_KEY, replace(ORIGIN, beginning=(7, 9)).encode(), Origin.decode),
    (LOCAL_KEY, MARK.encode(), LocalMark.decode),
    (MARK_KEY, INDEX_MARK.encode(), IndexMark.decode),
    (KEY, encode_watermark(KEY, 2**40), lambda value: decode_watermark(KEY, value)),
]
each = pytest.mark.parametrize(
    ("key", "value", "decode"),
    VALUES,
    ids=[
        "position",
        "named position",
        "origin",
        "origin of a reset",
        "dated origin",
        "origin at the end",
        "local",
        "mark",
        "watermark",
    ],
)


@given(positions)
def test_a_position_is_read_back_as_it_was_written(position: Position) -> None:
    assert Position.decode(position.encode()) == position


@given(index_marks)
def test_a_mark_of_an_index_is_read_back_as_it_was_written(mark: IndexMark) -> None:
    assert IndexMark.decode(mark.encode()) == mark


@given(st.tuples(int64, int64, int64, int64, st.just(0) | int64, st.just(0) | int64))
def test_an_origin_is_read_back_as_it_was_written(offsets: tuple[int, int, int, int, int, int]) -> None:
    assert Origin.decode(Origin(*offsets).encode()) == Origin(*offsets)


@given(int64, ids)
def test_a_local_mark_is_read_back_as_it_was_written(offset: int, state_id: bytes) -> None:
    assert LocalMark.decode(LocalMark(offset, state_id).encode()) == LocalMark(offset, state_id)


@given(st.binary(max_size=40), int64)
def test_a_watermark_is_read_back_as_it_was_written_for_any_scope(scope: bytes, sequence: int) -> None:
    key = watermark_key(scope)
    assert decode_watermark(key, encode_watermark(key, sequence)) == sequence


def test_the_layouts_are_the_ones_that_stored_state_has() -> None:
    definition, state_id = b"definition 16 by".hex(), b"state id 16 byte".hex()
    numbers = "01 0004 0000000000000078 0000000000000064 deadbeef".replace(" ", "")
    known = numbers[2:] + definition + state_id
    unknown = "f" * 48 + "0" * 16
    assert POSITION.encode()[:-4].hex() == "03" + known + bytes(5 * 20).hex() + "0000" + unknown
    topics = "".join(f"{number:02x}" * 16 + f"c0ffee{number:02x}" for number in range(5))
    named = "03" + known + topics + "0161" + "09" + b"b-c.route".hex()
    assert NAMED.encode()[:-4].hex() == named + unknown
    ended = replace(NAMED, ends=OutputEnds(6, -1, 5), since_ms=8).encode()
    ends = f"{6:016x}" + "f" * 16 + f"{5:016x}"
    assert ended[:-4].hex() == named + ends + f"{8:016x}"
    tags = f"{1:08x}{2:08x}{0:08x}{3:08x}"
    assert INDEX_MARK.encode()[:-4].hex() == "01" + f"{9:016x}{8:016x}{7:016x}" + ends + tags
    offsets = "0000000000000007 0000000000000006 ffffffffffffffff 0000000000000005".replace(" ", "")
    assert ORIGIN.encode()[:-4].hex() == "01" + offsets
    knowing = replace(ORIGIN, known_before=9).encode()
    assert knowing[:-4].hex() == "02" + offsets + "0000000000000009"
    dated = replace(ORIGIN, known_before=9, reset_ms=10).encode()
    assert dated[:-4].hex() == "03" + offsets + "0000000000000009" + "000000000000000a"
    begun = replace(ORIGIN, beginning=(7, 9)).encode()
    assert begun[:-4].hex() == "04" + offsets + bytes(16).hex() + "00000002" + f"{7:016x}{9:016x}"
    assert Origin.decode(begun) == replace(ORIGIN, beginning=(7, 9))
    assert MARK.encode()[:-4].hex() == "01000000000000004d" + state_id
    assert encode_watermark(b"W", -2)[:-4].hex() == "0100fffffffffffffffe"
    assert (POSITION_KEY, ORIGIN_KEY, LOCAL_KEY, KEY, MARK_KEY) == (b"P", b"O", b"\0L", b"W", b"M")
    assert NO_BATCH == NO_TOPIC == -1


def test_a_position_of_before_there_were_ids_is_read_and_written_anew_with_what_is_known() -> None:
    head = struct.pack(">BHqqI16s16s", 1, 4, 120, 100, 0xDEADBEEF, b"definition 16 by", b"state id 16 byte")
    old = Position.decode(sealed(POSITION_KEY, head))

    assert old == POSITION
    assert (old.topics, old.application, old.pipeline) == (NO_TOPIC_IDS, "", "")
    assert Position.decode(replace(old, topics=TOPICS).encode()).topics == TOPICS


def test_a_topic_is_made_anew_where_name_and_id_say_so_and_taken_on_under_another_name() -> None:
    one, other = TopicId.of("clean", b"1" * 16), TopicId.of("clean", b"2" * 16)
    renamed, unsaid = TopicId.of("cleaner", b"2" * 16), TopicId.of("clean")

    assert one.made_anew(other)
    assert not one.made_anew(one)
    assert not one.made_anew(renamed)
    assert one.is_other(renamed)
    assert not one.made_anew(unsaid)
    assert not unsaid.made_anew(one)
    # A broker that says no ids does not make them forgotten; another topic does.
    now = TopicIds(unsaid, renamed, unsaid)
    assert TopicIds(one, one, other).kept(now) == TopicIds(one, renamed, other)


@each
def test_every_single_flipped_bit_is_found(key: bytes, value: bytes, decode: Callable[[bytes], object]) -> None:
    if key != MARK_KEY:  # which stands in no changelog
        check_entry(key, value)
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptStateError):
            decode(bytes(flipped))


@each
def test_every_cut_and_every_longer_value_is_found(
    key: bytes, value: bytes, decode: Callable[[bytes], object]
) -> None:
    for wrong in [value[:size] for size in range(len(value))] + [value + b"\0"]:
        with pytest.raises(CorruptStateError):
            decode(wrong)
        with pytest.raises(CorruptStateError):
            check_entry(key, wrong)


def test_a_value_under_another_key_is_found() -> None:
    for key, value, _ in VALUES:
        for other in (POSITION_KEY, LOCAL_KEY, KEY, watermark_key(b"scope")):
            if other != key:
                with pytest.raises(CorruptStateError):
                    check_entry(other, value)


@each
def test_a_version_that_is_not_known_is_refused_by_its_number(
    key: bytes, value: bytes, decode: Callable[[bytes], object]
) -> None:
    newer = b"\x09" + value[1:]
    with pytest.raises(CorruptStateError, match=r"has version 9, this Seqmark reads [12]") as caught:
        decode(newer)
    assert repr(key) in str(caught.value)


def test_a_key_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptStateError, match="no kind that this Seqmark knows"):
        check_entry(b"Z\0\0", b"anything")


def test_a_position_names_the_topic_of_its_verdicts_and_without_one_is_as_it_was() -> None:
    plain = Position(7, 5, 3, b"definition 16 by", b"state id 16 byte", 2)
    named = replace(plain, verdicts=TopicId(b"\x01" * 16, 9))
    assert plain.encode()[0] == 3
    assert named.encode()[0] == 4
    assert Position.decode(named.encode()) == named
    assert Position.decode(plain.encode()) == plain
    cut = named.encode()[:-24]
    with pytest.raises(CorruptStateError):
        Position.decode(cut)
