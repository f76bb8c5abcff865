"""A time line counts what it leaves out, also of records that the source does not retain any more."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from processor.inspection.explain.explainer import Explainer
from processor.inspection.timeline.line import Timeline, tell
from processor.inspection.timeline.scan import Scan, ScanOrder
from processor.inspection.timeline.wanted import wanted_id
from tests.support.explain.world import (
    CHANGELOG,
    DUPLICATES,
    QUARANTINE,
    SINK,
    SOURCE,
    WorldClient,
    identified,
    origin,
    position,
    receipt,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from schemas.config import Settings

MOST = 5


def timeline(settings: Settings, world: WorldClient, word: str) -> Timeline:
    """Return the time line of an id, of which so many of the first and of the last are shown."""
    client: Any = world
    line = Timeline("clicks", word)
    pipeline = settings.pipelines[0]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        yield client

    async def run() -> None:
        scan = Scan(ScanOrder(pipeline, wanted_id(pipeline, [word]), most=MOST), connect, line.notes.append)
        await scan.open(client)
        found = await scan.run(lambda _: None)
        await tell(line, found, Explainer(settings, client), MOST)

    asyncio.run(run())
    assert line.notes == []
    return line


def world_of(settings: Settings, count: int, begins: int) -> WorldClient:
    """Return the topics of a pipeline whose records all have one id, with what retention has left."""
    world = WorldClient()
    world.put(SOURCE, *identified(*["a"] * count))
    world.starts[SOURCE] = begins
    world.put(SINK, *identified("a"))
    world.put(DUPLICATES, *[receipt(n, "a", 0) for n in range(1, count)])
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, 0), position(settings, count))
    return world


@pytest.mark.parametrize("begins", [0, 1, 7, 30, 60])
def test_what_is_shown_and_what_is_left_out_are_all_records(tmp_path: Path, begins: int) -> None:
    settings = settings_of(tmp_path)

    line = timeline(settings, world_of(settings, 60, begins), "a")

    assert len(line.events) == 2 * MOST
    assert len(line.events) + line.left_out == 60


def test_clean_records_that_the_source_does_not_retain_are_counted(tmp_path: Path) -> None:
    settings, world = settings_of(tmp_path), WorldClient()
    items = identified(*["a"] * 60)
    world.put(SOURCE, *items)
    world.starts[SOURCE] = 50
    world.put(SINK, *items)
    world.put(DUPLICATES)
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, 0), position(settings, 60))

    line = timeline(settings, world, "a")

    assert (len(line.events), line.left_out) == (2 * MOST, 60 - 2 * MOST)


def test_nothing_is_left_out_where_all_is_shown(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)

    line = timeline(settings, world_of(settings, 2 * MOST, 3), "a")

    assert (len(line.events), line.left_out) == (2 * MOST, 0)
