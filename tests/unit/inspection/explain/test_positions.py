"""The changelog says how far was judged: beside a worker that goes on, and behind a reset without one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.explain.explainer import Explainer
from processor.inspection.explain.story import Outcome
from schemas.config import Settings  # noqa: TC001 - a fixture's annotation
from tests.support.explain.world import (
    CHANGELOG,
    DUPLICATES,
    SECOND,
    SINK,
    SOURCE,
    START_MS,
    HiddenTail,
    ask,
    explained,
    identified,
    judged_world,
    position,
    receipt,
    reset_world,
    settings_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.explain.world import WorldClient

ALL = [(SOURCE, 0), (SOURCE, 2), (SINK, 2), (DUPLICATES, 0)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def gone_on(settings: Settings, world: WorldClient) -> None:
    """Let a worker judge two more records: one passes, one is a duplicate."""
    new, copy = identified(*"abacbdea")[6:]
    world.put(SOURCE, new, copy)
    world.put(SINK, new)
    world.put(DUPLICATES, receipt(7, "a", 0))
    world.put(CHANGELOG, position(settings, 8))


@pytest.mark.parametrize("offset", [None, 3])
def test_a_group_that_was_forgotten_or_lags_does_not_say_how_far_was_judged(
    settings: Settings, offset: int | None
) -> None:
    world = judged_world(settings)
    known = explained(settings, world, *ALL)
    world.offsets = {} if offset is None else {SOURCE: offset}

    stories = explained(settings, world, *ALL)

    assert [each.outcome for each in stories] == [Outcome.PASSED, Outcome.DUPLICATE] * 2
    assert [each.sentence for each in stories] == [each.sentence for each in known]
    assert [each.position for each in stories] == [6] * 4


def test_a_position_far_before_the_end_of_the_changelog_is_found(settings: Settings) -> None:
    world = judged_world(settings)
    world.put(CHANGELOG, *[(b"scope", b"left by no commit", START_MS, ())] * 700)
    del world.offsets[SOURCE]

    (story,) = explained(settings, world, (SOURCE, 2))

    assert (story.outcome, story.position) == (Outcome.DUPLICATE, 6)


def test_many_blocks_without_a_position_are_not_all_read(settings: Settings) -> None:
    world = judged_world(settings)
    world.put(CHANGELOG, *[(b"block", bytes(4_000), START_MS, ())] * 700)
    world.offsets[SOURCE] = 3

    (story,) = explained(settings, world, (SOURCE, 2))

    assert (story.outcome, story.position) == (Outcome.DUPLICATE, 3)
    assert min(world.fetched[CHANGELOG]) >= 702 - 256


def test_without_a_changelog_the_group_says_how_far_was_judged(settings: Settings) -> None:
    world = judged_world(settings)
    del world.topics[CHANGELOG]
    world.offsets[SOURCE] = 3

    before, behind = explained(settings, world, (SOURCE, 2), (SOURCE, 3))

    assert (before.outcome, behind.outcome) == (Outcome.DUPLICATE, Outcome.PENDING)


def test_a_position_of_before_a_reset_is_traced_back_though_nothing_is_judged_again(settings: Settings) -> None:
    world = reset_world(settings)

    passed, dropped, source = explained(settings, world, (SINK, 2), (DUPLICATES, 0), (SOURCE, 3))

    assert [each.exit_code for each in (passed, dropped, source)] == [0, 0, 0]
    assert [str(each.source) for each in (passed, dropped)] == [f"{SOURCE}:0:3", f"{SOURCE}:0:2"]
    for story in (passed, dropped):
        assert f"{story.asked} is of a run before a reset; what follows is of the run of now" in story.notes
    assert (source.outcome, [str(each.ref) for each in source.earlier]) == (Outcome.PENDING, [f"{SINK}:0:2"])


def test_of_equal_records_before_a_reset_none_is_named_where_nothing_says_which(settings: Settings) -> None:
    world, (again, *_) = reset_world(settings), identified("a")
    world.put(SOURCE, again)
    world.topics[SINK][3] = (3).to_bytes(8, "big") + world.topics[SINK][0][8:]

    (story,) = explained(settings, world, (SOURCE, 6))

    assert (story.outcome, story.earlier) == (Outcome.PENDING, [])


def test_what_the_run_of_now_dropped_may_have_passed_before_it(settings: Settings) -> None:
    world = reset_world(settings)
    items = identified(*"abacbd")
    world.put(SINK, *(items[n] for n in (0, 1, 5)))
    world.put(DUPLICATES, receipt(2, "a", 0), receipt(3, "c", 1), receipt(4, "b", 1))
    world.put(CHANGELOG, position(settings, 6, SECOND, START_MS + 100_000))

    (story,) = explained(settings, world, (SINK, 2))

    assert (story.exit_code, story.outcome) == (0, Outcome.DUPLICATE)
    assert f"{SINK}:0:2 is of a run before a reset; what follows is of the run of now" in story.notes


def test_a_clean_record_without_any_source_record_contradicts_the_rules(
    settings: Settings,
) -> None:
    world = reset_world(settings)
    world.put(SINK, *identified(*"xxxxxxxxx")[8:])

    (story,) = explained(settings, world, (SINK, 4))

    assert (story.exit_code, story.outcome) == (3, Outcome.CONTRADICTION)


def test_fresh_positions_beside_a_running_worker_contradict_nothing(settings: Settings) -> None:
    world = judged_world(settings)
    client: Any = world

    async def run() -> list[Any]:
        explainer = Explainer(settings, client)
        await ask(explainer, [(SOURCE, 5)])
        gone_on(settings, world)
        return await ask(explainer, [(SINK, 4), (DUPLICATES, 2)])

    passed, dropped = asyncio.run(run())

    assert [each.exit_code for each in (passed, dropped)] == [0, 0], (passed.sentence, dropped.sentence)
    assert [each.outcome for each in (passed, dropped)] == [Outcome.PASSED, Outcome.DUPLICATE]


@pytest.mark.parametrize("asked", [(SINK, 4), (DUPLICATES, 2)])
def test_an_output_that_hears_of_a_commit_before_the_changelog_contradicts_nothing(
    settings: Settings, asked: tuple[str, int]
) -> None:
    world = judged_world(settings)
    gone_on(settings, world)
    # More often than a contradiction in topics at rest is looked at.
    world.hidden[CHANGELOG] = HiddenTail(1, looks=6)

    (story,) = explained(settings, world, asked)

    assert story.exit_code == 0, story.sentence
