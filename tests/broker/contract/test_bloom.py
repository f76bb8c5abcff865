"""What does a worker do with Bloom filters, by the contract? On a real broker.

A hit is a duplicate; receipts have neither owner nor expiry, and the boundary is exact to one bucket.
The rest of the contract's sentences is what `test_insert_id.py` asks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New
from tests.support.worker.stories import Stories, Story, Told

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.fast]

WINDOW_MS = 3_600_000
BUCKET_MS = 600_000
DAY_MS = 24 * WINDOW_MS
BEGUN_MS = (int(time.time() * 1000) - 2 * WINDOW_MS) // BUCKET_MS * BUCKET_MS
"""Where a bucket begins: two hours ago."""
BLOOM = {"bucket": "10m", "expected_per_bucket": 1000}
STORIES = Stories({"plain": IdRules(bloom=BLOOM), "refresh": IdRules(bloom=BLOOM, refresh=True)}, apart_ms=0)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("contract"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def at(later_ms: int, name: bytes | None = b"a") -> New:
    """Return a record so much later than a bucket's beginning."""
    return New(b"key", b"value", () if name is None else (("id", name),), BEGUN_MS + later_ms)


def test_every_story_is_judged_as_the_naive_model_does(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [story.expected for story in told.all()]


@sent("plain", at(0), at(1), at(1, b"b"), at(5, b"\xff"), at(6, b"\xff"))
def test_a_receipt_says_the_id_and_neither_owner_nor_expiry(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass", "pass", "duplicate"]
    place = {"pipeline": "plain", "topic": story.pipeline.source, "partition": story.partition}
    assert story.told == [
        {
            **place,
            "offset": story.source[row].offset,
            "timestamp": story.source[row].timestamp,
            "verdict": "duplicate",
            "mode": "insert-id",
            "id": [name],
        }
        for row, name in ((1, "a"), (4, {"base64": "/w=="}))
    ]


@sent("plain", at(0), at(WINDOW_MS - 1))
def test_inside_the_window_an_id_is_a_duplicate(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate"]


@sent("plain", at(0), at(WINDOW_MS + BUCKET_MS - 2), at(WINDOW_MS + BUCKET_MS - 1))
def test_an_id_is_remembered_a_bucket_longer_at_most(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]


@sent("plain", at(BUCKET_MS - 1), at(BUCKET_MS + WINDOW_MS - 2), at(BUCKET_MS + WINDOW_MS - 1))
def test_at_the_end_of_its_bucket_an_id_is_remembered_for_just_the_window(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]


@sent("plain", at(WINDOW_MS), at(-30 * DAY_MS), at(-30 * DAY_MS, b"late"), at(-40 * DAY_MS, b"late"))
def test_a_late_record_is_judged_like_any_other(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass", "duplicate"]


@sent("plain", at(0), at(WINDOW_MS + BUCKET_MS, None), at(0))
def test_a_record_that_cannot_be_judged_changes_no_state_the_clock_included(story: Story) -> None:
    assert story.outcomes == ["pass", "header_missing", "duplicate"]


@sent("refresh", at(0), at(WINDOW_MS), at(WINDOW_MS + WINDOW_MS // 2))
def test_refresh_renews_an_id(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate"]


@sent("plain", at(0), at(WINDOW_MS), at(WINDOW_MS + WINDOW_MS // 2))
def test_without_refresh_a_duplicate_does_not_renew_its_id(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "pass"]
