"""A record is a short, harmless line for people, and whole for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from processor.config.visible import visible
from processor.inspection.read.lines import PeopleLines, json_line
from processor.inspection.read.readable import ReadableTopic
from processor.inspection.topic_records import TopicRecord
from processor.kafka.topics.plan import Purpose

if TYPE_CHECKING:
    from processor.wire.quarantine import Header

QUARANTINED: list[Header] = [
    (b"seqmark.error", b"value_missing"),
    (b"seqmark.detail", b"a tombstone"),
    (b"seqmark.source", b"raw:0:17"),
]


def record(
    value: bytes | None = b"{}", key: bytes | None = b"user-1", headers: list[Header] | None = None
) -> TopicRecord:
    return TopicRecord("raw", 2, 81, 1_772_344_800_123, False, key, value, headers or [])


def line(given: TopicRecord, purpose: Purpose = Purpose.SINK, width: int | None = None) -> str:
    topic = ReadableTopic("raw", frozenset({purpose}), {b"seq": 8, b"epoch": 4})
    return PeopleLines(topic, width).line(given).decode()


def test_a_line_has_place_time_key_value_and_headers() -> None:
    headers: list[Header] = [
        (b"seq", (17).to_bytes(8, "big")),
        (b"epoch", b"\xff\xff\xff\xff"),
        (b"from", b"web"),
    ]

    shown = line(record(b'{"a": 1}', headers=headers))

    assert shown == '2:81  2026-03-01T06:00:00.123Z  user-1  {"a": 1}  seq=17  epoch=-1  from=web'


def test_missing_and_empty_are_told_apart() -> None:
    assert line(record(None, None, [(b"h", None)])).endswith("Z  null  null  h=null")
    assert line(record(b"", b"", [(b"h", b"")])).endswith('Z  ""  ""  h=""')


def test_a_header_of_another_width_than_its_number_has_is_shown_as_it_is() -> None:
    assert line(record(headers=[(b"seq", b"17"), (b"seq", None)])).endswith("seq=17  seq=null")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        (b"a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b2J \u202e \u2028".encode(), "\\x9b2J \\u202e \\u2028"),
        (b"\xff\x00", "\\xff\\x00"),
        ("grüße 你好".encode(), "grüße 你好"),
    ],
)
def test_nothing_of_a_record_commands_the_terminal(raw: bytes, shown: str) -> None:
    assert visible(raw) == shown
    whole = line(record(raw, raw, [(raw, raw)]))
    assert whole.isprintable()
    assert whole.count(shown) == 4


def test_a_forged_receipt_does_not_command_the_terminal_either() -> None:
    forged = {"topic": "\x1b[2J", "partition": 0, "offset": 1, "mode": "insert-id", "id": ["\x07"]}

    shown = line(record(json.dumps(forged | {"verdict": "duplicate"}).encode()), Purpose.DUPLICATES)

    assert "dropped: duplicate" in shown
    assert shown.isprintable()


@pytest.mark.parametrize("value", [b"x" * 5000, "你好".encode() * 900, b"\xff" * 3000, b"\x1b" * 3000])
@pytest.mark.parametrize("headers", [[], [(b"trace", b"y" * 900)]])
def test_a_line_is_as_wide_as_the_terminal_at_most(value: bytes, headers: list[Header]) -> None:
    for width in (80, 81, 120):
        shown = line(record(value, b"k" * 500, headers), width=width)

        assert width - 2 <= cell_len(shown) <= width
        assert shown.endswith("…")
        assert not headers or "  trace=y" in shown


def test_a_short_value_leaves_its_room_to_the_headers_and_the_other_way_round() -> None:
    assert "  {}  trace=yyyyyyyyyyyyyyyyyyyyy" in line(record(headers=[(b"trace", b"y" * 900)]), width=80)
    assert line(record(b"x" * 900, headers=[(b"h", b"1")]), width=80).endswith("xxx…  h=1")


def test_without_a_terminal_nothing_is_shortened() -> None:
    assert "x" * 5000 in line(record(b"x" * 5000))


def test_a_quarantined_record_has_its_sentence_before_its_value_and_own_headers() -> None:
    shown = line(record(None, headers=[(b"own", b"1"), *QUARANTINED]), Purpose.QUARANTINE)

    assert shown.endswith("quarantined: value_missing: a tombstone, came from raw:0:17  null  own=1")


def test_a_sentence_is_not_shortened_to_the_terminal() -> None:
    shown = line(record(b"x" * 900, headers=QUARANTINED), Purpose.QUARANTINE, width=80)

    assert shown.endswith("came from raw:0:17")


def test_programs_get_the_whole_record() -> None:
    shown = json.loads(json_line(record(b"\xff", None, [(b"seq", b"\x00\x01"), (b"h", None)])))

    assert shown == {
        "topic": "raw",
        "partition": 2,
        "offset": 81,
        "timestamp": 1_772_344_800_123,
        "timestamp_type": "CreateTime",
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [["seq", "\x00\x01"], ["h", None]],
    }


def test_the_kind_of_time_is_that_of_the_batch() -> None:
    kinds = [
        json.loads(json_line(record()._replace(append_time=appended, timestamp=timestamp)))["timestamp_type"]
        for appended, timestamp in ((True, 5), (False, 5), (False, -1))
    ]

    assert kinds == ["LogAppendTime", "CreateTime", None]


def test_json_of_a_record_does_not_command_the_terminal_and_says_the_same() -> None:
    text = "\x9b2J \u202e \x7f \U000e0041 grüße"
    shown = json_line(record(text.encode())).decode()
    assert shown.isprintable()
    assert "grüße" in shown
    assert json.loads(shown)["value"] == text
