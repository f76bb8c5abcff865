"""Records that are equal and passed all the same stand each at a place of its own."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.support.explain.world import (
    CHANGELOG,
    DUPLICATES,
    QUARANTINE,
    SINK,
    SOURCE,
    WorldClient,
    explained,
    identified,
    origin,
    position,
    settings_of,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("asked", list(permutations((0, 2, 4))))
def test_what_was_found_of_a_record_is_not_found_for_one_that_is_equal(
    tmp_path: Path, asked: tuple[int, ...]
) -> None:
    by_id = [{"from": "header", "name": "id"}]
    settings = settings_of(tmp_path, mode="insert-id", id=by_id, window="1s")
    again, *others = identified(*"abc")
    items = [again, others[0], again, others[1], again]
    world = WorldClient()
    world.put(SOURCE, *items)
    world.put(SINK, *items)
    world.put(DUPLICATES)
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, 0), position(settings, len(items)))

    stories = explained(settings, world, *((SOURCE, offset) for offset in asked))

    assert {each.outcome for each in stories} == {Outcome.PASSED}
    assert [each.clean for each in stories] == [RecordRef(SINK, 0, offset) for offset in asked]
