"""What `explain`, `verify`, `read` and `report` say of topics that were recorded is what they said then."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from processor.inspection.explain.story import Outcome
from tests.simulation.brokers.explain import recorded

MOST_SHOWN = 40


@cache
def scenes() -> dict[str, dict[str, Any]]:
    """Return the scenes by name."""
    return {each["name"]: each for each in recorded.read()}


@pytest.mark.parametrize("name", recorded.SCENES)
def test_of_recorded_topics_the_same_is_said_at_every_position(name: str) -> None:
    scene = scenes()[name]
    wrong = list(recorded.differing(scene["answers"], recorded.answers(scene)))
    assert not wrong, f"{len(wrong)} answers differ:\n" + "\n".join(wrong[:MOST_SHOWN])


def test_the_recorded_topics_have_nearly_everything_that_can_become_of_a_record() -> None:
    stories = [story for each in scenes().values() for story in each["answers"]["explain"].values()]
    assert {story["outcome"] for story in stories} == set(Outcome) - {Outcome.FOREIGN}
    assert {story["asked"]["role"] for story in stories} == {"source", "sink", "duplicates", "quarantine"}
    assert any(story["elsewhere"] for story in stories)
    assert any(story["earlier"] for story in stories)
