"""Without receipts, what was dropped is called late by the rules: behind all that its scope remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.lookup import evidence
from tests.support.explain.world import (
    CHANGELOG,
    QUARANTINE,
    SINK,
    SOURCE,
    START_MS,
    WorldClient,
    explained,
    origin,
    position,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from processor.inspection.explain.story import Story
    from tests.support.explain.world import Item


def numbered(*sequences: int) -> list[Item]:
    return [(b"k", b"v%d" % n, START_MS + n, (("seq", b"%d" % each),)) for n, each in enumerate(sequences)]


def told(
    folder: Path, sequences: Sequence[int], passed: Sequence[int], boots: Sequence[str] = (), **dedup: object
) -> Story:
    """Return what became of the last of some records, of which these passed."""
    by = {"from": "header", "name": "seq", "format": "text"}
    settings = settings_of(folder, duplicates=False, **{"mode": "watermark", "sequence": by, **dedup})
    world, items = WorldClient(), numbered(*sequences)
    for n, boot in enumerate(boots):
        items[n] = (*items[n][:3], (*items[n][3], ("boot", boot.encode())))
    world.put(SOURCE, *items)
    world.put(SINK, *(items[n] for n in passed))
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, -1), position(settings, len(items)))
    return explained(settings, world, (SOURCE, len(items) - 1))[0]


@pytest.mark.parametrize(
    ("reorder_window", "sequences", "passed", "verdict"),
    [
        (100, (5, 9, 5), (0, 1), "duplicate"),
        (4, (5, 9, 5), (0, 1), "duplicate"),
        (3, (5, 9, 5), (0, 1), "late"),
        (0, (5, 9, 5), (0, 1), "late"),
        (0, (5, 5), (0,), "duplicate"),
        (0, (5, 5, 5, 5), (0,), "duplicate"),
        (0, (9, 5, 5), (0,), "late"),
        (2, (9, 5, 5), (0,), "late"),
        (100, (9, 5, 5), (0, 1), "duplicate"),
    ],
)
def test_a_record_is_late_only_behind_the_reorder_window(
    tmp_path: Path, reorder_window: int, sequences: Sequence[int], passed: Sequence[int], verdict: str
) -> None:
    story = told(tmp_path, sequences, passed, reorder_window=reorder_window)

    assert (story.outcome.value, story.problems) == (verdict, [])
    assert not any("may have been" in note for note in story.notes)


@pytest.mark.parametrize(
    ("sequences", "passed", "verdict"),
    [
        ((250, 251, 3, 250), (0, 1, 2), "late"),
        ((250, 3, 3), (0, 1), "duplicate"),
        # What is ahead of it was dropped itself, or passed a round before.
        ((10, 255, 250, 10), (0,), "duplicate"),
        ((100, 200, 44, 100, 100), (0, 1, 2, 3), "duplicate"),
    ],
)
def test_of_numbers_that_wrap_what_passed_last_decides(
    tmp_path: Path, sequences: Sequence[int], passed: Sequence[int], verdict: str
) -> None:
    by = {"from": "header", "name": "seq", "format": "text", "wraps": 256}
    story = told(tmp_path, sequences, passed, sequence=by)

    assert (story.outcome.value, story.problems) == (verdict, [])
    assert not any("may have been" in note for note in story.notes)


@pytest.mark.parametrize(
    ("boots", "passed", "verdict"),
    [
        (("a", "a"), (0,), "duplicate"),
        (("a", "b", "a"), (0, 1), "late"),
        (("a", "b", "b"), (0, 1), "duplicate"),
    ],
)
def test_of_an_epoch_that_was_left_a_record_is_late_whatever_its_number(
    tmp_path: Path, boots: Sequence[str], passed: Sequence[int], verdict: str
) -> None:
    epoch = {"from": "header", "name": "boot", "order": "change"}
    story = told(tmp_path, [5] * len(boots), passed, epoch=epoch, boots=boots)

    assert (story.outcome.value, story.grounds.epoch) == (verdict, boots[-1])
    assert story.owner is not None
    assert str(story.owner.ref) == f"{SOURCE}:0:{max(passed)}"
    assert ('or its epoch "a" was over, another one had begun' in story.sentence) == (verdict == "late")


def test_an_equal_number_that_was_dropped_itself_does_not_make_a_late_record_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_FIRST_BACK", 2)

    assert told(tmp_path, (9, *[1] * 6, 5, 1, 5), (0,)).outcome.value == "late"


def test_where_what_it_was_compared_with_is_too_far_back_it_says_that_it_may_be_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "MOST_BACK", 3)

    story = told(tmp_path, (9, *[1] * 6, 5, 1, 5), (0,))

    assert story.outcome.value == "duplicate"
    assert "it may have been dropped as late" in story.notes[0]
