"""Does a worker judge as the contract says, sentence by sentence? Mode watermark, on a real broker.

One test a sentence of "The rules of judging"; those on what the topics hold are in `test_contract_topics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.judges.rules import EPOCH_HEADER, LEAST, MOST, Rules
from tests.support.kafka.topics import New, int64
from tests.support.worker.stories import Stories, Story, Told, record

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.fast]

POINTER = "/meta/seq"
STORIES = Stories(
    {
        "header": Rules(),
        "int32": Rules(sequence={"from": "header", "name": "seq", "format": "int32"}),
        "text": Rules(sequence={"from": "header", "name": "seq", "format": "text"}),
        "value": Rules(sequence={"from": "value", "pointer": POINTER}),
        "string": Rules(sequence={"from": "value", "pointer": POINTER, "format": "text"}),
        "key": Rules("key"),
        "producer": Rules("header:producer"),
        "epoch": Rules("key", epoch=EPOCH_HEADER),
        "window": Rules(reorder_window=4),
        "widest": Rules(reorder_window=65_536),
        "both": Rules("key", epoch=EPOCH_HEADER, reorder_window=4),
    }
)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("contract"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def valued(text: str, key: bytes = b"key") -> New:
    """Return a record with ``text`` where the pointer leads."""
    return record(key=key, value=f'{{"meta": {{"seq": {text}}}, "x": [1.5, null]}}'.encode())


def whole(value: bytes) -> New:
    return record(value=value)


def test_every_story_is_judged_as_the_naive_model_does(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [story.expected for story in told.all()]


# ------------------------------------------------------------------ both modes


@sent("key", record(7, key=b"here and there"), record(7, key=b"here and there"))
def test_equal_keys_in_one_partition_meet(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]


@sent("key", record(7, key=b"here and there"))
def test_equal_keys_in_different_partitions_do_not_meet(story: Story) -> None:
    assert story.outcomes == ["pass"]


@sent("header", record(5), record(b"short"), record(6))
def test_a_record_that_cannot_be_judged_changes_no_state(story: Story) -> None:
    assert story.outcomes == ["pass", "header_malformed", "pass"]
    assert [receipt["watermark"] for receipt in story.told] == []


@sent("epoch", record(5, epoch=1), record(b"bad", epoch=9), record(6, epoch=1), record(6, epoch=1))
def test_nor_does_the_epoch_of_a_record_that_cannot_be_judged_count(story: Story) -> None:
    assert story.outcomes == ["pass", "header_malformed", "pass", "duplicate"]


@sent(
    "header",
    record(9, headers=(("seq", int64(1)),)),
    record(headers=(("seq", b"bad"), ("seq", int64(2)))),
    record(3, headers=(("seq", b"bad"),)),
    record(3, headers=(("seq", None),)),
)
def test_of_several_headers_of_one_name_the_last_counts(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "header_malformed", "header_malformed"]


@sent("producer", record(5, producer=b"a"), record(5, producer=b"a", headers=(("producer", b"b"),)))
def test_of_several_scope_headers_the_last_counts(story: Story) -> None:
    assert story.outcomes == ["pass", "pass"]


@sent("header", record(headers=(("seq", None),)))
def test_a_header_without_a_value_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["header_malformed"]


@sent("header", record(b"\0" * 7), record(b"\0" * 9), record(b""), record(b"\0\0\0\1"))
def test_a_header_of_the_wrong_width_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["header_malformed"] * 4


@sent("value", valued("1"), valued("2"), whole(b' {"a":{},"meta":{"b":[],"seq":3}} '))
def test_values_are_judged_by_a_json_pointer(story: Story) -> None:
    assert story.outcomes == ["pass"] * 3


@sent(
    "value",
    valued("5"),
    whole(b'{"meta":{"seq":6}} x'),
    whole(b'{"meta":{"seq":6},"x":NaN}'),
    whole(b'{"meta":{"seq":6},"x":"\xff"}'),
    whole(rb'{"meta":{"seq":6},"x":"\ud800"}'),
    whole(rb'{"meta":{"seq":6},"x":"\udc00"}'),
    whole(b'{"meta":{"seq":6},"x":}'),
    whole(b""),
    valued("5"),
)
def test_the_whole_value_must_be_valid_json(story: Story) -> None:
    assert story.outcomes == ["pass", *["value_not_json"] * 7, "duplicate"]


@sent(
    "value",
    whole(b'{"meta":{"seq":1},"x":' + b"[" * 127 + b"]" * 127 + b"}"),
    whole(b'{"meta":{"seq":2},"x":' + b"[" * 128 + b"]" * 128 + b"}"),
)
def test_at_most_128_arrays_and_objects_are_nested(story: Story) -> None:
    assert story.outcomes == ["pass", "value_not_json"]


@sent("value", whole(b'{"meta":{"seq":9,"seq":1}}'), whole(b'{"meta":{"seq":3},"meta":{"seq":2}}'))
def test_of_equal_keys_in_an_object_the_last_counts(story: Story) -> None:
    assert story.outcomes == ["pass", "pass"]


# ------------------------------------------------------------------ watermark


@sent("header", record(-3), record(-3))
def test_the_first_record_of_a_scope_passes_whatever_its_number(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]


@sent("header", record(LEAST), record(LEAST), record(LEAST + 1))
def test_the_first_record_may_have_the_lowest_number_there_is(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]


@sent("header", record(1), record(2), record(1000), record(999), record(1001))
def test_then_a_record_passes_if_its_sequence_is_above_the_watermark_and_gaps_are_fine(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "late", "pass"]


@sent("header", record(-1), record(0), record(MOST), record(LEAST), record(MOST))
def test_sequences_are_signed_64_bit(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "late", "duplicate"]


@sent("int32", record(b"\xff\xff\xff\xff"), record(b"\0\0\0\0"), record(b"\x7f\xff\xff\xff"), record(2**31))
def test_int32_is_signed_and_big_endian(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "header_malformed"]


@sent("value", *map(valued, ["-1", "-0", "1", "1.0", "2e0", "2E1", '"2"', "true", "null", "[2]", "{}", "2"]))
def test_from_a_value_the_sequence_is_a_json_integer(story: Story) -> None:
    assert story.outcomes == [*["pass"] * 3, *["field_type"] * 8, "pass"]


@sent("string", *map(valued, ['"1"', r'"\u0032"', "3", '"3.0"', '"+3"', '""', '"3"']))
def test_with_format_text_it_is_a_string(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", *["field_type"] * 4, "pass"]


@sent("text", *map(record, [b"-1", b"007", b"8", b"008", b"", b"-", b"+9", b" 9", b"9.0", b"0x9", b"9"]))
def test_text_is_digits_with_a_sign_and_leading_zeros_are_allowed(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "duplicate", *["header_malformed"] * 6, "pass"]


@sent("text", *map(record, [b"%d" % LEAST, b"%d" % MOST, b"%d" % (MOST + 1), b"%d" % (LEAST - 1)]))
def test_text_in_headers_is_within_64_bits(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "out_of_range", "out_of_range"]


@sent("string", *map(valued, [f'"{LEAST}"', f'"00{MOST}"', f'"{MOST + 1}"', f'"{LEAST - 1}"']))
def test_text_in_strings_is_within_64_bits(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "out_of_range", "out_of_range"]


@sent("value", *map(valued, [f"{LEAST}", f"{MOST}", f"{MOST + 1}", f"{LEAST - 1}"]))
def test_a_json_integer_is_within_64_bits(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "out_of_range", "out_of_range"]


@sent("key", record(1, key=b"a"), record(1, key=b"b"), record(1, key=b"a"), record(0, key=b"b"))
def test_each_key_has_a_sequence_of_its_own(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "late"]


@sent("producer", record(1, producer=b"a"), record(1, producer=b"b"), record(1, producer=b"a", key=b"other"))
def test_each_producer_has_a_sequence_of_its_own(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent("key", record(1, key=None), record(2, key=b""), record(2, key=b""), record(1, key=None))
def test_a_null_key_cannot_be_judged_and_an_empty_one_is_a_scope(story: Story) -> None:
    assert story.outcomes == ["key_missing", "pass", "duplicate", "key_missing"]


@sent(
    "producer",
    record(1),
    record(1, producer=b""),
    record(1, producer=b""),
    record(1, headers=(("producer", None),)),
)
def test_a_missing_header_cannot_be_judged_and_an_empty_one_is_a_scope(story: Story) -> None:
    assert story.outcomes == ["header_missing", "pass", "duplicate", "header_malformed"]


@sent("epoch", record(9, epoch=1), record(3, epoch=2), record(3, epoch=2), record(4, epoch=2))
def test_a_higher_epoch_starts_the_scope_anew(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "pass"]


@sent("epoch", record(1, epoch=0), record(9, epoch=-1), record(2, epoch=0))
def test_a_lower_epoch_is_dropped_as_late(story: Story) -> None:
    assert story.outcomes == ["pass", "late", "pass"]


@sent("epoch", record(9, epoch=1, key=b"a"), record(1, epoch=0, key=b"b"), record(1, epoch=0, key=b"a"))
def test_the_epoch_of_one_scope_is_not_that_of_another(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "late"]


@sent(
    "epoch",
    record(1),
    record(1, headers=(("epoch", b"123"),)),
    record(1, headers=(("epoch", None),)),
    record(1, epoch=5),
)
def test_a_missing_or_malformed_epoch_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["header_missing", "header_malformed", "header_malformed", "pass"]


@sent("window", record(10), record(20), *map(record, [16, 18, 16, 18]), record(21), record(20))
def test_of_the_numbers_in_the_window_one_that_was_not_seen_passes_and_one_that_was_is_a_duplicate(
    story: Story,
) -> None:
    assert story.outcomes == [*["pass"] * 4, "duplicate", "duplicate", "pass", "duplicate"]


@sent("window", record(20), record(18), record(20), record(19), record(21))
def test_a_late_record_that_passes_leaves_the_watermark(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "pass", "pass"]
    assert [receipt["watermark"] for receipt in story.told] == [20]


@sent("window", record(20), record(16), record(15), record(16), record(-5))
def test_anything_below_the_window_is_late(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "late", "duplicate", "late"]


@sent("widest", record(100_000), record(100_000 - 65_536), record(100_000 - 65_537), record(100_000 - 65_536))
def test_the_window_may_hold_65_536_numbers(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "late", "duplicate"]


@sent("header", record(10), record(10), record(9), record(11), record(10))
def test_without_a_window_an_equal_sequence_is_a_duplicate_and_a_lower_one_late(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "late", "pass", "late"]


@sent(
    "both",
    *(record(number, epoch=1) for number in (8, 10, 9, 8)),
    *(record(number, epoch=2) for number in (10, 9, 8, 8)),
    record(11, epoch=1),
)
def test_a_higher_epoch_forgets_what_the_window_has_seen(story: Story) -> None:
    assert story.outcomes == [*["pass"] * 3, "duplicate", *["pass"] * 3, "duplicate", "late"]
