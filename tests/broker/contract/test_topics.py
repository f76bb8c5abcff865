"""Do sink, duplicates and quarantine hold what the contract says, field by field? Mode watermark.

Records, receipts and all codes of quarantine on a real broker; one worker run judges all that ends none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.rules import EPOCH_HEADER, Rules
from tests.support.kafka.topics import New, dice, group_offsets, sequences
from tests.support.worker.process import new_config, produce, read_topic, run_drain
from tests.support.worker.stories import OURS, SINK_LIMIT_BYTES, TIME_MS, Stories, Story, Told, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.fast]

SEQ_VALUE = {"from": "value", "pointer": "/a/seq"}
EPOCH_VALUE = {"from": "value", "pointer": "/epoch", "format": "text"}
LARGE = dice(1).randbytes(2 * SINK_LIMIT_BYTES)
STORIES = Stories(
    {
        "header": Rules(),
        "text": Rules(sequence={"from": "header", "name": "seq", "format": "text"}),
        "key": Rules("key", epoch=EPOCH_HEADER, reorder_window=2),
        "value": Rules(sequence=SEQ_VALUE),
        "order": Rules("header:producer", sequence=SEQ_VALUE, epoch=EPOCH_HEADER),
        "values": Rules("key", sequence=SEQ_VALUE, epoch=EPOCH_VALUE),
    }
)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("contract"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def test_every_record_is_in_one_topic_as_the_naive_model_says(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [story.expected for story in told.all()]


# ------------------------------------------------------------------ sink


ODD = (
    record(1, key=None, value=None),
    record(2, key=b"", value=b""),
    record(3, key=bytes(range(256)), headers=(("x", None), ("x", b""), ("\N{SNOWMAN}", b"\xff"))),
    record(3),
    record(4, value=b"a" * 5_000)._replace(timestamp=1),
    record(5)._replace(timestamp=TIME_MS - 10**9),
)


@sent("header", *ODD)
def test_each_passed_record_is_in_the_sink_exactly_as_it_came(story: Story) -> None:
    passed = [each for at, each in enumerate(story.source) if at != 3]
    assert [each.content for each in story.sink] == [each.content for each in passed]


@sent("header", *map(record, [1, 3, 2, 3, 5, 4, 8]))
def test_the_sink_has_the_order_of_the_source_and_the_partition_of_the_same_number(story: Story) -> None:
    assert story.partition > 0
    assert sequences(story.sink, story.partition) == [1, 3, 5, 8]


@sent("header", record(7)._replace(timestamp=TIME_MS + 5), record(8)._replace(timestamp=TIME_MS - 5))
def test_the_sinks_timestamps_are_create_times(story: Story) -> None:
    assert [each.timestamp for each in story.sink] == [TIME_MS + 5, TIME_MS - 5 + 1]
    assert all(each.create_time for each in story.sink)


# ------------------------------------------------------------------ duplicates


def fields(story: Story, offset: int, verdict: str, sequence: int, watermark: int) -> dict[str, object]:
    """Return what a receipt says of a record, without its epoch."""
    return {
        "pipeline": story.pipeline.name,
        "topic": story.pipeline.source,
        "partition": story.partition,
        "offset": offset,
        "timestamp": story.source[offset].timestamp,
        "verdict": verdict,
        "mode": "watermark",
        "sequence": sequence,
        "watermark": watermark,
    }


@sent("header", record(1), record(5), record(5, key=b"again"), record(6), record(-2, key=None))
def test_a_receipt_has_exactly_the_fields_of_its_record_duplicate_and_late(story: Story) -> None:
    assert story.told == [fields(story, 2, "duplicate", 5, 5), fields(story, 4, "late", -2, 6)]


@sent("key", record(5, epoch=3), record(5, epoch=3), record(9, epoch=2), record(2, epoch=3), record(3, epoch=3))
def test_a_receipt_tells_the_records_own_epoch_whether_late_by_epoch_or_by_number(story: Story) -> None:
    assert story.told == [
        {**fields(story, 1, "duplicate", 5, 5), "epoch": 3},
        {**fields(story, 2, "late", 9, 5), "epoch": 2},
        {**fields(story, 3, "late", 2, 5), "epoch": 3},
    ]
    assert story.outcomes[-1] == "pass"


@sent("key", *(record(number, epoch=0) for number in (10, 9, 9, 12, 10, 11, 11, 9)))
def test_the_watermark_in_a_receipt_is_that_before_the_record_and_a_late_one_that_passed_left_it(
    story: Story,
) -> None:
    assert [(each["offset"], each["verdict"], each["watermark"]) for each in story.told] == [
        (2, "duplicate", 10),
        (4, "duplicate", 12),
        (6, "duplicate", 12),
        (7, "late", 12),
    ]


@sent("header", record(1), *(record(1, key=key) for key in (b"a", b"", None, bytes(range(256)))), record(0))
def test_a_receipt_has_the_key_and_the_timestamp_of_the_dropped_record(story: Story) -> None:
    dropped = story.source[1:]
    assert [(each.key, each.timestamp) for each in story.receipts] == [
        (each.key, each.timestamp) for each in dropped
    ]
    assert [each.create_time for each in story.receipts] == [True] * len(dropped)
    assert len({each.timestamp for each in dropped}) == len(dropped)


@sent("header", record(1), record(b"bad"), record(2), record(), record(3, value=LARGE))
def test_there_is_no_receipt_for_a_passed_or_a_quarantined_record(story: Story) -> None:
    assert story.outcomes == ["pass", "header_malformed", "pass", "header_missing", "too_large"]
    assert story.receipts == []


@sent("header", record(4), record(4), record(3))
def test_receipts_are_in_the_partition_of_the_same_number(story: Story) -> None:
    assert story.partition > 0
    assert [each["partition"] for each in story.told] == [story.partition] * 2
    assert [each.partition for each in story.receipts] == [story.partition] * 2


# ------------------------------------------------------------------ quarantine


@sent(
    "header",
    record(key=None, value=None, headers=(("x", None), ("x", b"2"))),
    record(b"bad", value=bytes(range(256)), headers=(("seqmark.error", b"from before"),)),
    record(3, value=LARGE),
)
def test_quarantine_keeps_the_record_and_adds_three_headers_after_its_own(story: Story) -> None:
    assert len(story.quarantine) == 3
    for came, kept in zip(story.source, story.quarantine, strict=True):
        assert kept.content == (*came.content[:3], kept.headers, came.timestamp)
        assert kept.headers[:-3] == came.headers
        assert tuple(name for name, _ in kept.headers[-3:]) == OURS
        assert kept.headers[-2][1], "a detail for people"
        assert kept.headers[-1][1] == f"{story.pipeline.source}:{story.partition}:{came.offset}".encode()
    assert [dict(each.headers)["seqmark.error"] for each in story.quarantine] == [
        b"header_missing",
        b"header_malformed",
        b"too_large",
    ]


@sent("text", record(), record(b"x"), record(headers=(("seq", None),)), record(b"9" * 30), record(b"1"))
def test_codes_of_a_header_definition(story: Story) -> None:
    codes = ["header_missing", "header_malformed", "header_malformed", "out_of_range"]
    assert story.outcomes == [*codes, "pass"]


@sent("key", record(1, key=None, epoch=1), record(1), record(epoch=1), record(1, epoch=1))
def test_codes_of_a_key_definition(story: Story) -> None:
    assert story.outcomes == ["key_missing", "header_missing", "header_missing", "pass"]


@sent(
    "value",
    record(value=None),
    record(value=b'{"a":'),
    record(value=b"{}"),
    record(value=b'{"a":null}'),
    record(value=b'{"a":"seq"}'),
    record(value=b'[{"seq":1}]'),
    record(value=b"null"),
    record(value=b'{"a":{"seq":null}}'),
    record(value=b'{"a":{"seq":"1"}}'),
    record(value=b'{"a":{"seq":1.0}}'),
    record(value=b'{"a":{"seq":%d}}' % 2**63),
    record(value=b'{"a":{"seq":1},"x":"' + LARGE.hex().encode() + b'"}'),
    record(value=b'{"a":{"seq":1}}'),
)
def test_codes_of_a_value_definition(story: Story) -> None:
    missing, wrong = ["field_missing"] * 5, ["field_type"] * 3
    codes = ["value_missing", "value_not_json", *missing, *wrong, "out_of_range", "too_large"]
    assert story.outcomes == [*codes, "pass"]


@sent(
    "order",
    record(value=None),
    record(value=None, headers=(("producer", None), ("epoch", b"bad"))),
    record(value=None, producer=b"p"),
    record(value=b"{", producer=b"p", headers=(("epoch", b"bad"),)),
    record(value=b'{"a":{}}', producer=b"p"),
    record(value=b'{"a":{"seq":1}}', producer=b"p"),
    record(value=b'{"a":{"seq":1}}', producer=b"p", headers=(("epoch", b"bad"),)),
    record(value=b'{"a":{"seq":1}}', producer=b"p", epoch=0),
)
def test_with_several_faults_the_first_of_scope_sequence_and_epoch_counts(story: Story) -> None:
    scope = ["header_missing", "header_malformed"]
    sequence = ["value_missing", "value_not_json", "field_missing"]
    assert story.outcomes == [*scope, *sequence, "header_missing", "header_malformed", "pass"]


@sent(
    "values",
    record(key=None, value=b"{"),
    record(value=b'{"epoch":null,"a":{"seq":"1"}}'),
    record(value=b'{"epoch":1,"a":{"seq":1}}'),
    record(value=b'{"a":{"seq":1}}'),
    record(value=b'{"epoch":"1","a":{}}'),
    record(value=b'{"epoch":"%d","a":{"seq":1}}' % 2**63),
    record(value=b'{"epoch":"1","a":{"seq":1}}'),
    record(value=b'{"epoch":"0","a":{"seq":2}}'),
)
def test_the_same_order_holds_where_sequence_and_epoch_are_in_the_value(story: Story) -> None:
    codes = ["key_missing", "field_type", "field_type", "field_missing", "field_missing", "out_of_range"]
    assert story.outcomes == [*codes, "pass", "late"]


# They repeat themselves, so that the sink takes them.
LONGEST, TOO_LONG = b"k" * 65_536, b"k" * 65_537


@sent(
    "key",
    record(1, key=LONGEST, epoch=1),
    record(1, key=TOO_LONG, epoch=1),
    record(b"bad", key=TOO_LONG),
    record(1, key=TOO_LONG, value=LARGE),
    record(1, key=LONGEST, epoch=1),
)
def test_a_key_above_64_kib_is_no_scope_and_that_counts_before_the_sequence(story: Story) -> None:
    assert story.outcomes == ["pass", "scope_too_large", "scope_too_large", "too_large", "duplicate"]


@sent(
    "order",
    record(value=b'{"a":{"seq":1}}', producer=LONGEST, epoch=0),
    record(value=b'{"a":{"seq":1}}', producer=TOO_LONG, epoch=0),
    record(value=b"{", producer=TOO_LONG),
    record(value=b'{"a":{"seq":1}}', producer=LONGEST, epoch=0),
)
def test_nor_is_a_header_above_64_kib(story: Story) -> None:
    assert story.outcomes == ["pass", "scope_too_large", "scope_too_large", "duplicate"]


@sent("header", record(1), record(9, value=LARGE), record(b"bad", value=LARGE), record(2))
def test_a_record_too_large_for_the_sink_is_too_large_before_it_is_judged(story: Story) -> None:
    assert story.outcomes == ["pass", "too_large", "too_large", "pass"]


def test_every_code_of_the_contract_is_produced_by_a_real_record(told: Told) -> None:
    found = {outcome for story in told.all() for outcome in story.outcomes}
    assert found == {
        *("pass", "duplicate", "late"),
        *("too_large", "header_missing", "header_malformed", "key_missing", "value_missing"),
        *("value_not_json", "field_missing", "field_type", "out_of_range", "scope_too_large"),
    }


# ------------------------------------------------------------------ what ends the worker


def test_without_quarantine_the_worker_commits_what_comes_before_and_exits_1_naming_the_record(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2)
    config = replace(config, pipelines=(replace(config.pipelines[0], sequence=SEQ_VALUE),))
    values = [b'{"a":{"seq":%d}}' % number for number in (1, 2, 2)]
    records = [New(b"k", value, (), TIME_MS) for value in (*values, b'{"a":{"seq":null}}', b'{"a":{"seq":3}}')]
    produce(config.bootstrap_servers, config.source, records, partition=1)

    ended = run_drain(config)

    assert ended.code == 1
    assert f"{config.source}:1:3: the record cannot be judged: field_type" in ended.stderr
    sink = read_topic(config.bootstrap_servers, config.sink)
    assert [(each.partition, each.value) for each in sink] == [(1, value) for value in values[:2]]
    assert group_offsets(config.bootstrap_servers, config.application_id)[config.source, 1] == 3
