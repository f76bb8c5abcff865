"""The comparison finds what is wrong with collisions, and only that, whatever becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.ids.clock import RecordedClock
from tests.support.verify.collisions import (
    ACTIONS,
    COLLISION_PLANTED,
    COLLISION_STREAM,
    SECRET,
    collision_rules,
    collision_topics,
    event,
)
from tests.support.verify.compared import compared, details, found, renumber
from tests.support.verify.corruptions import at, said
from tests.support.verify.id_corruptions import HOUR_MS, id_pipeline

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from tests.support.judges.fingerprints import FingerprintRules
    from tests.support.verify.compared import Topics


def judged(topics: Topics, rules: FingerprintRules, piece: int = 1_000, **keys: Any) -> VerifyReport:
    clock = RecordedClock(*np.zeros((2, 0), np.int64), arrival=False)
    keys = {"secret": SECRET, **keys}
    return compared(topics, piece, pipeline=id_pipeline(rules), clock=clock, **keys)


@pytest.mark.parametrize("piece", [1, 100])
@pytest.mark.parametrize("name", COLLISION_PLANTED)
def test_a_planted_corruption_is_found_where_it_is(name: str, piece: int) -> None:
    action, which, change, expected, text = COLLISION_PLANTED[name]
    topics = collision_topics(COLLISION_STREAM, collision_rules(action))
    records = getattr(topics, which)
    records[:] = change(records)
    renumber(records)

    report = judged(topics, collision_rules(action), piece)

    assert found(report) == expected, details(report)
    assert text in details(report)


COUNTS = {
    # source, sink, duplicates, quarantine, collisions
    "pass": (13, 9, 3, 1, 4),
    "tag": (13, 9, 3, 1, 4),
    "rename": (13, 9, 3, 1, 4),
    "quarantine": (13, 6, 2, 5, 4),
    "drop": (13, 6, 6, 1, 4),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("keys", [{}, {"refresh": True}])
def test_what_is_right_is_proved_and_counted(action: str, keys: dict[str, Any]) -> None:
    rules = collision_rules(action, **keys)
    for piece in (1, 4, 100):
        report = judged(collision_topics(COLLISION_STREAM, rules), rules, piece)
        assert report.ok, details(report)
        assert report.source == report.sink + report.duplicates + report.quarantine
        if not rules.refresh:
            numbers = report.source, report.sink, report.duplicates, report.quarantine, report.collisions
            assert numbers == COUNTS[action]


@pytest.mark.parametrize(
    "rename",
    [
        {"to": "/id", "keep": "/was"},
        {"to": "header:id", "keep": "header"},
        {"to": "header:id", "keep": "/was"},
    ],
)
def test_every_way_to_rename_is_proved(rename: dict[str, str]) -> None:
    parts = ({"from": "header", "name": "id"}, {"from": "value", "pointer": "/id"})
    rules = collision_rules("rename", id=parts, rename=rename)
    report = judged(collision_topics(COLLISION_STREAM, rules), rules, 5)
    assert report.ok, details(report)
    assert report.collisions == 4


def limited(action: str, *, too_large: tuple[int, ...] = (), too_large_edited: tuple[int, ...] = ()) -> Topics:
    """Return a stream in which what is too large decides what comes after it.

    Offset 2 comes when the first ``a`` has expired; at 9 the clock moves on until ``b`` has.
    """
    stream = [
        event("a", 1, 0),
        event("a", 2, 10),
        event("a", 1, HOUR_MS),
        event("a", 2, HOUR_MS + 1),
        event("b", 1, HOUR_MS + 2),
        event("b", 2, 20),
        event("b", 2, 21),
        event("b", 1, 22),
        event("c", 1, HOUR_MS + 10),
        event("c", 2, 2 * HOUR_MS + 9),
        event("b", 2, HOUR_MS + 50),
    ]
    return collision_topics(stream, collision_rules(action), None, too_large, too_large_edited)


@pytest.mark.parametrize("piece", [1, 100])
@pytest.mark.parametrize("action", ["tag", "rename"])
@pytest.mark.parametrize(
    "refused",
    [
        # A collision that only its edit makes too large is judged, and not remembered: copies collide.
        {"too_large_edited": (5,)},
        {"too_large_edited": (1,)},
        {"too_large_edited": (5, 6)},
        {"too_large_edited": (9,)},
        # What was too large as it came was not judged, and has not moved the clock.
        {"too_large": (2,)},
        {"too_large": (2, 3)},
        {"too_large": (0,), "too_large_edited": (5,)},
    ],
)
def test_a_collision_that_was_too_large_with_its_edit_was_judged(
    action: str, refused: dict[str, tuple[int, ...]], piece: int
) -> None:
    report = judged(limited(action, **refused), collision_rules(action), piece)
    assert report.ok, details(report)
    assert report.source == report.sink + report.duplicates + report.quarantine


def test_without_a_duplicates_topic_collisions_are_counted_by_judging() -> None:
    for action in ACTIONS:
        rules = collision_rules(action)
        pipeline = id_pipeline(rules).model_copy(update={"duplicates": None})
        clock = RecordedClock(*np.zeros((2, 0), np.int64), arrival=False)
        topics = collision_topics(COLLISION_STREAM, rules)
        report = compared(topics, 4, pipeline=pipeline, clock=clock, secret=SECRET)
        assert report.ok, details(report)
        numbers = report.source, report.sink, report.duplicates, report.quarantine, report.collisions
        assert numbers == COUNTS[action]


@pytest.mark.parametrize(("action", "gone", "unproved"), [("pass", 2, 1), ("drop", 3, 3)])
def test_of_what_has_no_note_because_the_topic_came_later_only_dropped_records_are_unproved(
    action: str, gone: int, unproved: int
) -> None:
    rules = collision_rules(action)
    topics = collision_topics(COLLISION_STREAM, rules)
    del topics.duplicates[:gone]
    report = judged(topics, rules, 4, receipts_begin_late=True)
    assert report.ok, details(report)
    assert report.unproved == unproved
    assert report.source == report.sink + report.duplicates + report.quarantine + report.unproved


def test_without_the_secret_only_the_form_is_compared_of_what_depends_on_it() -> None:
    rules = collision_rules("tag")
    topics = collision_topics(COLLISION_STREAM, rules)
    report = judged(topics, rules, 4, secret=None)
    assert report.ok, details(report)
    assert report.secret_unknown
    assert not judged(collision_topics(COLLISION_STREAM[:2], rules), rules, 4, secret=None).secret_unknown
    for wrong in ({"fingerprint": "0"}, {"owner_fingerprint": None}, {"owner": None}, {"action": "pass"}):
        topics.duplicates[:] = said(0, **wrong)(collision_topics(COLLISION_STREAM, rules).duplicates)
        assert found(judged(topics, rules, 4, secret=None)) == [(2, "receipt_wrong")]


def test_a_note_without_its_key_is_right_where_it_says_so() -> None:
    rules = collision_rules("rename")
    topics = collision_topics(COLLISION_STREAM, rules)
    topics.duplicates[:] = at(0, key=None, headers=(("seqmark.key", b"left out"),))(topics.duplicates)
    assert judged(topics, rules).ok
    topics.duplicates[:] = at(0, key=None, headers=())(topics.duplicates)
    assert found(judged(topics, rules)) == [(2, "receipt_wrong")]
