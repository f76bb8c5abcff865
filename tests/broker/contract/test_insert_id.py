"""Does a worker judge as the contract says, sentence by sentence? Mode insert-id, on a real broker.

With the exact backend; for Bloom filters see `test_bloom.py`.

One test a sentence of "The rules of judging"; times in the stories are within the hour of the worker's clock.
"""

from __future__ import annotations

import hashlib
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.id_rules import IdModel, IdRules, IdSaid, shown
from tests.support.kafka.topics import Header, New
from tests.support.worker.stories import SINK_LIMIT_BYTES, Stories, Story, Told

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.fast]

NOW_MS = int(time.time() * 1000)
WINDOW_MS = 3_600_000
DAY_MS = 24 * WINDOW_MS
KEY = {"from": "key"}
HEADER, FIELD, OTHER = (
    {"from": "header", "name": "id"},
    *({"from": "value", "pointer": p} for p in ("/a", "/b")),
)
LARGE = random.Random(1).randbytes(SINK_LIMIT_BYTES + 1)
"""Nothing makes it smaller."""
STORIES = Stories(
    {
        "header": IdRules(),
        "key": IdRules((KEY,)),
        "value": IdRules((FIELD,)),
        "two": IdRules((FIELD, OTHER)),
        "mixed": IdRules((HEADER, KEY)),
        "late": IdRules((FIELD, HEADER)),
        "pass": IdRules((FIELD, KEY), on_missing="pass"),
        "arrival": IdRules(time="arrival"),
        "refresh": IdRules(refresh=True),
        "believing": IdRules(max_ahead="2d"),
        "doubting": IdRules(max_ahead="0s"),
    },
    apart_ms=0,
)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("contract"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def record(
    name: bytes | None = None,
    later_ms: int = 0,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: tuple[Header, ...] = (),
) -> New:
    """Return a record, ``name`` in the header ``id``, so much later than an hour and two minutes ago."""
    named: tuple[Header, ...] = () if name is None else (("id", name),)
    return New(key, value, (*named, *headers), NOW_MS - WINDOW_MS - 120_000 + later_ms)


def keyed(key: bytes | None) -> New:
    return record(key=key)


def valued(text: str, key: bytes | None = b"key") -> New:
    return record(key=key, value=text.encode())


def test_every_story_is_judged_as_the_naive_model_does(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [story.expected for story in told.all()]


def test_every_receipt_says_what_the_naive_model_does(told: Told) -> None:
    for story in told.all():
        assert isinstance(story.rules, IdRules)
        if story.rules.time == "arrival" or story.rules.max_ahead == "0s":
            continue  # what the worker's clock read then is not known
        model = IdModel(story.rules)
        expected = []
        for came in story.source:
            said = model.judge(came) if len(came.value or b"") <= SINK_LIMIT_BYTES else IdSaid("too_large")
            if said.verdict == "duplicate":
                place = {"topic": story.pipeline.source, "partition": story.partition}
                expected.append(
                    {
                        "pipeline": story.pipeline.name,
                        **place,
                        "offset": came.offset,
                        "timestamp": came.timestamp,
                        "verdict": "duplicate",
                        "mode": "insert-id",
                        "id": shown(came, story.rules),
                        "owner": {**place, "offset": said.owner},
                        "expires_at": said.expires_ms,
                    }
                )
        assert story.told == expected
        assert [(each.partition, each.headers) for each in story.receipts] == [(story.partition, ())] * len(
            expected
        )


# ------------------------------------------------------------------ both modes


@sent("key", keyed(b"here and there"), keyed(b"here and there"))
def test_equal_ids_in_one_partition_meet(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]


@sent("key", keyed(b"here and there"))
def test_equal_ids_in_different_partitions_do_not_meet(story: Story) -> None:
    assert story.outcomes == ["pass"]


@sent("header", record(b"a"), record(None, WINDOW_MS), record(b"a"), record(b"b", WINDOW_MS), record(b"a"))
def test_a_record_that_cannot_be_judged_changes_no_state_the_clock_included(story: Story) -> None:
    assert story.outcomes == ["pass", "header_missing", "duplicate", "pass", "pass"]


@sent("header", record(b"a", headers=(("id", b"b"),)), record(b"a"), record(b"b"))
def test_of_several_headers_of_one_name_the_last_counts(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent("header", record(headers=(("id", None),)))
def test_a_header_without_a_value_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["header_malformed"]


@sent("key", keyed(None), keyed(b"a"))
def test_a_null_key_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["key_missing", "pass"]


@sent(
    "value",
    valued('{"a":"x"} y'),
    valued('{"a":"x","b":NaN}'),
    valued("[" * 129 + "]" * 129),
    valued('{"a":"x","a":"y"}'),
    valued('{"a":"x"}'),
    record(value=None),
)
def test_the_whole_value_must_be_valid_json_and_the_last_of_equal_keys_counts(story: Story) -> None:
    assert story.outcomes == [*["value_not_json"] * 3, "pass", "pass", "value_missing"]


@sent("late", record(None, value=b"{}"), record(b"a", value=b"{}"), record(None, value=b'{"a":"x"}'))
def test_with_several_faults_the_first_part_counts(story: Story) -> None:
    assert story.outcomes == ["field_missing", "field_missing", "header_missing"]


@sent(
    "header",
    record(b"a", value=LARGE),
    record(None, value=LARGE),
    record(b"a"),
)
def test_a_record_too_large_for_the_sink_is_not_judged(story: Story) -> None:
    assert story.outcomes == ["too_large", "too_large", "pass"]


# ------------------------------------------------------------------ the clock and the window


@sent("header", record(b"a"), record(b"b", WINDOW_MS), record(b"a"))
def test_the_clock_is_the_highest_timestamp_so_far(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass"]


@sent("header", record(b"a"), record(b"a", WINDOW_MS), record(b"a"))
def test_the_clock_has_this_records_timestamp_in_it(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent("header", record(b"a"), record(b"a", WINDOW_MS - 1))
def test_before_its_window_ends_an_id_is_a_duplicate(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]


@sent("header", record(b"a"), record(b"x", DAY_MS), record(b"a"))
def test_one_record_from_the_future_does_not_expire_the_window(story: Story) -> None:
    # The clock goes 5 minutes beyond the worker's at most: the hour is over then, a day is not.
    assert story.outcomes == ["pass", "pass", "pass"]


@sent("header", record(b"a", WINDOW_MS), record(b"x", DAY_MS), record(b"a"))
def test_nor_an_id_that_is_minutes_old(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent("believing", record(b"a", WINDOW_MS), record(b"x", DAY_MS), record(b"a"))
def test_max_ahead_says_how_far_the_future_is_believed(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass"]


LONGEST = "\N{SNOWMAN}".encode() * 1_365 + b"x"


@sent("header", *[record(name) for name in (LONGEST, b"\xff" * 4_096, b"\xff" * 5_000) for _ in range(2)])
def test_a_part_above_4_kib_is_cut_to_its_digest_in_receipts(story: Story) -> None:
    found = [each["id"][0] for each in story.told]
    assert len(LONGEST) == 4_096
    assert found[0] == LONGEST.decode()
    assert list(found[1]) == ["base64"]
    assert found[2] == {"sha256": hashlib.sha256(b"\xff" * 5_000).hexdigest(), "bytes": 5_000}


@sent("value", *[valued('{"a":"%s"}' % (r"\n" * size)) for size in (4_096, 4_097) for _ in range(2)])
def test_the_bytes_of_a_json_string_are_those_of_its_text(story: Story) -> None:
    digest = {"sha256": hashlib.sha256(b"\n" * 4_097).hexdigest(), "bytes": 4_097}
    assert [each["id"] for each in story.told] == [["\n" * 4_096], [digest]]


@sent("doubting", record(b"a", DAY_MS), record(b"a", 2 * DAY_MS))
def test_without_max_ahead_the_clock_is_never_ahead_of_the_workers(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]
    now_ms = int(time.time() * 1000)
    assert all(NOW_MS <= each["expires_at"] - WINDOW_MS <= now_ms for each in story.told)


@sent(
    "header",
    record(b"a"),
    record(b"late", -10 * DAY_MS),
    record(b"late", WINDOW_MS - 1),
    record(b"late", WINDOW_MS),
)
def test_an_id_is_remembered_with_the_clocks_reading_whatever_its_own_timestamp(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "pass"]


@sent("header", record(b"a", WINDOW_MS), record(b"b", -30 * DAY_MS), record(b"b", -40 * DAY_MS))
def test_a_late_record_is_judged_like_any_other(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent(
    "header", record(b"a", -90 * DAY_MS), record(b"b", -90 * DAY_MS + WINDOW_MS - 1), record(b"a", -99 * DAY_MS)
)
def test_nothing_expires_early_in_a_stream_of_months_ago(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]


@sent("arrival", record(b"a"), record(b"x", DAY_MS), record(b"a", -DAY_MS), record(b"a", DAY_MS))
def test_by_arrival_the_clock_is_the_workers(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "duplicate"]
    now_ms = int(time.time() * 1000)
    assert all(NOW_MS <= each["expires_at"] - WINDOW_MS <= now_ms for each in story.told)


@sent(
    "refresh",
    record(b"a"),
    record(b"a", WINDOW_MS // 2),
    record(b"a", WINDOW_MS),
    record(b"a", 2),
    record(b"a", WINDOW_MS + 60_000),
)
def test_refresh_renews_an_id_and_its_owner_stays(story: Story) -> None:
    assert story.outcomes == ["pass", *["duplicate"] * 4]
    assert {each["owner"]["offset"] for each in story.told} == {story.source[0].offset}
    begun = story.source[0].timestamp
    assert [each["expires_at"] - begun for each in story.told] == [
        WINDOW_MS + at for at in (WINDOW_MS // 2, WINDOW_MS, WINDOW_MS, WINDOW_MS + 60_000)
    ]


@sent("header", record(b"a"), record(b"a", WINDOW_MS // 2), record(b"a", WINDOW_MS))
def test_without_refresh_a_duplicate_does_not_renew_its_id(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]


# ------------------------------------------------------------------ parts


@sent("header", record(b"a\xff\0"), record(b"a\xff\0"), record(b"a\xff"), record(b""), record(b""))
def test_a_header_part_is_its_bytes_empty_ones_too(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass", "pass", "duplicate"]
    assert [each["id"] for each in story.told] == [[{"base64": "Yf8A"}], [""]]


@sent("key", keyed(b""), keyed(b""), keyed(b" "))
def test_an_empty_key_is_a_value(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]


@sent(
    "value",
    valued(r'{"a":"gr\u00fcn\n\"1\\"}'),
    valued('{"a":"gr\u00fcn\\n\\u00221\\u005c"}'),
    valued('{"a":"grun"}'),
)
def test_a_string_is_its_unescaped_text(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]
    assert [each["id"] for each in story.told] == [['gr\u00fcn\n"1\\']]


@sent("value", valued('{"a":1}'), valued('{"a":1.0}'), valued('{"a":1e0}'), valued('{"a": 1 }'))
def test_a_number_is_its_text_as_written(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "duplicate"]


@sent("value", valued('{"a":1}'), valued('{"a":"1"}'))
def test_a_string_and_a_number_differ(story: Story) -> None:
    assert story.outcomes == ["pass", "pass"]


@sent(
    "value",
    valued('{"a":null}'),
    valued('{"a":true}'),
    valued('{"a":{}}'),
    valued('{"a":[]}'),
    valued("{}"),
    valued('{"a":""}'),
    valued('{"a":""}'),
)
def test_null_objects_and_arrays_cannot_be_judged_and_a_boolean_and_an_empty_string_can(story: Story) -> None:
    assert story.outcomes == ["field_type", "pass", *["field_type"] * 2, "field_missing", "pass", "duplicate"]


@sent("two", *map(valued, ('{"a":"a","b":"bc"}', '{"a":"ab","b":"c"}', '{"a":"a","b":"bc"}')))
def test_several_parts_make_one_id_without_ambiguity(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate"]
    assert [each["id"] for each in story.told] == [["a", "bc"]]


@sent("mixed", record(b"a", key=b"b"), record(b"b", key=b"a"), record(b"a", key=b"b"), record(b"a", key=None))
def test_parts_count_in_their_order(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "key_missing"]


@sent(
    "pass",
    *(valued('{"a":null}') for _ in range(2)),
    *(valued("{}") for _ in range(2)),
    *(record(value=None) for _ in range(2)),
    *(valued('{"a":"x"}', key=None) for _ in range(2)),
)
def test_where_missing_parts_pass_such_records_pass_unjudged(story: Story) -> None:
    assert story.outcomes == ["pass"] * 8


@sent("pass", valued('{"a":{}}'), valued('{"a":'), valued('{"a":[]}', key=None))
def test_wrong_types_and_invalid_json_are_quarantined_all_the_same(story: Story) -> None:
    assert story.outcomes == ["field_type", "value_not_json", "field_type"]


@sent(
    "pass",
    valued('{"a":"x"}'),
    valued('{"a":"x"}'),
    record(value=None, later_ms=WINDOW_MS),
    valued('{"a":"x"}'),
)
def test_a_record_that_passes_unjudged_moves_the_clock(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass", "pass"]
