"""What stands in the changelog is read back as it was written, or refused with words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.changelog.check import check_entry
from schemas.changelog.marks import MARK_KEY, IndexMark, MarkTags
from schemas.changelog.position import NO_BATCH, NO_TOPIC, LocalMark, Origin, OutputEnds, Position
from schemas.changelog.topic_ids import TopicId, TopicIds
from schemas.changelog.values import LOCAL_KEY, ORIGIN_KEY, POSITION_KEY, CorruptStateError, sealed
from schemas.changelog.watermark import decode_watermark, encode_watermark, watermark_key

if TYPE_CHECKING:
    from collections.abc import Callable

int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
topic_id = st.builds(TopicId, ids, u32)
topics = st.builds(TopicIds, *[topic_id] * 5)
names = st.text(max_size=60)
output_ends = st.builds(OutputEnds, int64, int64, int64)
slots = st.integers(0, 2**16 - 1)
positions = st.builds(
    Position, int64, int64, u32, ids, ids, slots, topics, names, names, output_ends, int64, topic_id
)
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


@given(st.builds(Origin, *[int64] * 6, st.lists(int64, max_size=5).map(tuple), names))
def test_an_origin_is_read_back_as_it_was_written(origin: Origin) -> None:
    assert Origin.decode(origin.encode()) == origin


@given(int64, ids)
def test_a_local_mark_is_read_back_as_it_was_written(offset: int, state_id: bytes) -> None:
    assert LocalMark.decode(LocalMark(offset, state_id).encode()) == LocalMark(offset, state_id)


@given(st.binary(max_size=40), int64)
def test_a_watermark_is_read_back_as_it_was_written_for_any_scope(scope: bytes, sequence: int) -> None:
    key = watermark_key(scope)
    assert decode_watermark(key, encode_watermark(key, sequence)) == sequence


def test_the_layouts_are_the_ones_that_stored_state_has() -> None:
    definition, state_id = b"definition 16 by".hex(), b"state id 16 byte".hex()
    numbers = "01 00 0004 0000000000000078 0000000000000064 deadbeef".replace(" ", "")
    head = numbers + definition + state_id
    unknown = "f" * 48 + "0" * 16
    assert POSITION.encode()[:-4].hex() == head + bytes(6 * 20).hex() + unknown + "0000"
    topics = "".join(f"{number:02x}" * 16 + f"c0ffee{number:02x}" for number in range(5)) + bytes(20).hex()
    names = "0161" + "09" + b"b-c.route".hex()
    assert NAMED.encode()[:-4].hex() == head + topics + unknown + names
    ended = replace(NAMED, ends=OutputEnds(6, -1, 5), since_ms=8).encode()
    ends = f"{6:016x}" + "f" * 16 + f"{5:016x}"
    assert ended[:-4].hex() == head + topics + ends + f"{8:016x}" + names
    judged = replace(NAMED, verdicts=TopicId(b"\x09" * 16, 0xC0FFEE09)).encode()
    assert judged[:-4].hex() == head + topics[: 5 * 40] + "09" * 16 + "c0ffee09" + unknown + names
    tags = f"{1:08x}{2:08x}{0:08x}{3:08x}"
    assert INDEX_MARK.encode()[:-4].hex() == "01" + f"{9:016x}{8:016x}{7:016x}" + ends + tags
    offsets = "0000000000000007 0000000000000006 ffffffffffffffff 0000000000000005".replace(" ", "")
    assert ORIGIN.encode()[:-4].hex() == "0100" + offsets + bytes(16 + 1 + 4).hex()
    begun = replace(ORIGIN, known_before=9, reset_ms=10, beginning=(7, 9), backfill="a").encode()
    known = f"{9:016x}{10:016x}" + "0161" + "00000002" + f"{7:016x}{9:016x}"
    assert begun[:-4].hex() == "0100" + offsets + known
    assert MARK.encode()[:-4].hex() == "01000000000000004d" + state_id
    assert encode_watermark(b"W", -2)[:-4].hex() == "0100fffffffffffffffe"
    assert (POSITION_KEY, ORIGIN_KEY, LOCAL_KEY, KEY, MARK_KEY) == (b"P", b"O", b"\0L", b"W", b"M")
    assert NO_BATCH == NO_TOPIC == -1


@pytest.mark.parametrize(("key", "value"), [(POSITION_KEY, POSITION.encode()), (ORIGIN_KEY, ORIGIN.encode())])
def test_flags_that_are_not_known_and_states_of_before_the_release_are_refused(
    key: bytes, value: bytes
) -> None:
    with pytest.raises(CorruptStateError, match="has flags 0x2, which a newer Seqmark has set"):
        check_entry(key, sealed(key, value[:1] + b"\2" + value[2:-4]))
    with pytest.raises(CorruptStateError, match="or one of before the first release"):
        check_entry(key, sealed(key, b"\3" + value[2:-4]))


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
    with pytest.raises(CorruptStateError, match="has version 9, this Seqmark reads 1: ") as caught:
        decode(newer)
    assert repr(key) in str(caught.value)


def test_a_key_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptStateError, match="no kind that this Seqmark knows"):
        check_entry(b"Z\0\0", b"anything")
