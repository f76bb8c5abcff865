"""The state is asked for a key that is the id as it is for the id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.inspection.timeline.run import TimelineQuestion, asked_of_state
from processor.inspection.timeline.wanted import wanted_id, wanted_key
from tests.support.explain.world import settings_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("word", ["user-3", "text:text:17", "base64:/w==", "17"])
def test_a_key_that_is_the_id_is_looked_for_as_the_id(tmp_path: Path, word: str) -> None:
    pipeline = settings_of(tmp_path, mode="insert-id", id=[{"from": "key"}], window="7d").pipelines[0]

    by_id = asked_of_state(TimelineQuestion(pipeline, wanted_id(pipeline, [word]), (word,)))
    by_key = asked_of_state(TimelineQuestion(pipeline, wanted_key(word), key=word))

    assert by_key == by_id
    assert by_key is not None
    assert len(by_key.ids) == 1


def test_a_key_that_is_no_id_is_not_asked_for(tmp_path: Path) -> None:
    pipeline = settings_of(tmp_path).pipelines[0]

    assert asked_of_state(TimelineQuestion(pipeline, wanted_key("user-3"), key="user-3")) is None


def test_a_key_that_is_the_scope_is_asked_for_as_the_scope(tmp_path: Path) -> None:
    sequence = {"from": "header", "name": "seq"}
    pipeline = settings_of(tmp_path, mode="watermark", scope="key", sequence=sequence).pipelines[0]

    asked = asked_of_state(TimelineQuestion(pipeline, wanted_key("base64:/w=="), key="base64:/w=="))

    assert asked is not None
    assert (asked.scope, asked.ids) == (b"\xff", ())
