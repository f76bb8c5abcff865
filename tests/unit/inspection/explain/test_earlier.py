"""What a run before a reset has made of a record is said as it was, and nothing is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.inspection.explain.lookup.eras import EraFinder
from processor.inspection.explain.story import Outcome
from processor.inspection.marks import MarkFrame
from processor.wire.receipt_values import RecordRef
from schemas.changelog.marks import IndexMark
from schemas.changelog.position import Origin
from schemas.changelog.values import ORIGIN_KEY
from tests.support.explain.world import (
    CHANGELOG,
    DUPLICATES,
    QUARANTINE,
    SECOND,
    SINK,
    SOURCE,
    START_MS,
    WorldClient,
    explained,
    identified,
    origin,
    position,
    settings_of,
)
from tests.support.verify.observed import OBSERVED

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_that_only_observes_says_that_its_record_passed_before_a_reset(tmp_path: Path) -> None:
    settings, world = settings_of(tmp_path), WorldClient()
    record = (b"k", b"v", START_MS, ())
    ours = (
        ("seqmark.error", b"header_missing"),
        ("seqmark.detail", b""),
        ("seqmark.source", b"clicks.raw:0:0"),
    )
    world.put(SOURCE, record)
    world.put(SINK, record)
    world.put(DUPLICATES)
    world.put(QUARANTINE, (*record[:3], (OBSERVED, *ours)))
    since_ms = START_MS + 1000
    begun = Origin(1, 1, 0, 1, 1, since_ms).encode()
    world.put(CHANGELOG, (ORIGIN_KEY, begun, START_MS, ()), position(settings, 1, SECOND, since_ms))

    (story,) = explained(settings, world, (SOURCE, 0))

    assert (story.outcome, story.observed) == (Outcome.QUARANTINED, True)
    assert story.clean == RecordRef(SINK, 0, 0)
    assert "passed all the same" in story.sentence


def test_without_receipts_a_collision_is_not_called_a_duplicate(tmp_path: Path) -> None:
    dedup: Any = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "7d"}
    settings = settings_of(tmp_path, **dedup, fingerprint={"of": "bytes"}, on_collision="drop")
    (pipeline,) = settings.pipelines
    bare = settings.model_copy(update={"pipelines": [pipeline.model_copy(update={"duplicates": None})]})
    world, items = WorldClient(), identified("a", "a")
    world.put(SOURCE, *items)
    world.put(SINK, items[0])
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, 0), position(bare, 2))

    (story,) = explained(bare, world, (SOURCE, 1))

    assert (story.outcome, story.problems) == (Outcome.NOT_RETAINED, [])
    assert "a duplicate, or collided" in story.sentence


def test_what_lies_before_the_first_mark_was_not_surely_taken_in() -> None:
    first, second = IndexMark(1, 5, 71), IndexMark(2, 5, 90)

    assert not EraFinder._has_taken_in(MarkFrame(5, None, first))
    assert EraFinder._has_taken_in(MarkFrame(5, first, second))
