"""A worker judges by the content of values as the contract says, sentence by sentence, on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.id_rules import IdModel, IdRules, shown
from tests.support.kafka.topics import New
from tests.support.verify.certificate import certificate
from tests.support.worker.stories import Stories, Story, Told

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.fast]

NOW_MS = int(time.time() * 1000) - 3_720_000
CONTENT = {"from": "content", "exclude": ["/sent_at", "/meta/hops/0"]}
AS_BYTES = {"from": "content", "of": "bytes"}
STORIES = Stories(
    {
        "value": IdRules((CONTENT,)),
        "bytes": IdRules((AS_BYTES,)),
        "beside": IdRules(({"from": "key"}, {"from": "content"}, {"from": "value", "pointer": "/a"})),
        "pass": IdRules((AS_BYTES,), on_missing="pass"),
    },
    apart_ms=0,
)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("content"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def valued(value: bytes | None, key: bytes | None = b"key") -> New:
    return New(key, value, (), NOW_MS)


def contents(story: Story) -> list[str]:
    return [part["content"] for each in story.told for part in each["id"] if isinstance(part, dict)]


def test_every_story_is_judged_as_the_naive_model_does(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [story.expected for story in told.all()]


def test_every_receipt_shows_what_the_naive_model_does(told: Told) -> None:
    for story in told.all():
        assert isinstance(story.rules, IdRules)
        model = IdModel(story.rules)
        said = [(each, model.judge(each)) for each in story.source]
        expected = [
            (came.offset, shown(came, story.rules), each.owner)
            for came, each in said
            if each.verdict == "duplicate"
        ]
        found = [(each["offset"], each["id"], each["owner"]["offset"]) for each in story.told]
        assert expected == found


def test_a_certificate_proves_it(told: Told) -> None:
    answer = certificate(told.config)
    assert answer.code == 0, answer.stderr
    assert answer.last["ok"]


@sent(
    "value",
    valued(b'{"a":1,"b":[true,{"c":"x"}]}'),
    valued(b' { "b" : [ true, {"\\u0063":"\\u0078"}] , "a":1 }\n'),
    valued(b'{"a":2,"a":1,"b":[true,{"c":"x"}]}'),
    valued(b'{"a":1,"b":[{"c":"x"},true]}'),
    valued(b'{"a":1.0,"b":[true,{"c":"x"}]}'),
    valued(b'{"a":1,"b":[true,{"c":"x"}],"d":{}}'),
)
def test_values_with_the_same_leaves_are_one_and_all_others_are_not(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate", "pass", "pass", "pass"]
    assert len(set(contents(story))) == 1


@sent(
    "value",
    valued(b'{"a":1,"sent_at":1,"meta":{"hops":[1,2]}}'),
    valued(b'{"a":1,"sent_at":{"s":2},"meta":{"hops":[3,2]}}'),
    valued(b'{"a":1,"meta":{"hops":[{},2]}}'),
    valued(b'{"a":1,"meta":{"hops":[1,3]}}'),
    valued(b'{"a":1,"meta":{"hops":[1,2],"sent_at":1}}'),
)
def test_what_is_excluded_does_not_count_with_all_below_it(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate", "pass", "pass"]


@sent("value", valued(None), valued(b"{"), valued(b""), valued(b"null"), valued(b"null"), valued(b'"a"'))
def test_a_null_value_and_what_is_no_json_cannot_be_judged(story: Story) -> None:
    assert story.outcomes == ["value_missing", "value_not_json", "value_not_json", "pass", "duplicate", "pass"]


@sent("bytes", *map(valued, [b"{ }", b"{}", b"{}", b"", b"", b"\xff", None]))
def test_as_bytes_a_value_counts_as_it_stands(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "duplicate", "pass", "duplicate", "pass", "value_missing"]
    assert len(set(contents(story))) == 2


@sent(
    "beside",
    valued(b'{"a":"1"}'),
    valued(b'{"a":"1"}'),
    valued(b'{"a":"1"}', b"other"),
    valued(b'{"a":"1","b":0}'),
    valued(b'{"a":1}'),
    valued(b'{"b":0}'),
)
def test_content_is_one_part_beside_others(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass", "pass", "pass", "field_missing"]


@sent("pass", valued(None), valued(None), valued(b"x"), valued(b"x"))
def test_where_missing_parts_pass_a_null_value_does(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "pass", "duplicate"]
