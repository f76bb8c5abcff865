"""Asks `seqmark explain` what became of some records, and compares the answers with what the episode knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from processor.commands.run.page_answers import _story
from processor.errors import SeqmarkError
from processor.inspection.explain.explainer import Explainer
from processor.kafka.client import KafkaError
from processor.wire.receipt_values import RecordRef
from tests.simulation.brokers.explain.bare import kept_back, shown
from tests.simulation.brokers.explain.fates import Known
from tests.simulation.brokers.explain.lies import lies
from tests.simulation.brokers.processes import Process
from tests.simulation.faults import Killed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.explain.story import Story
    from tests.simulation.brokers.episode import WorkerEpisode

MOST = 8
"""Records that are asked for at a time."""
TRIES = 3
"""Through faults; then without."""


async def explained(episode: WorkerEpisode, when: str) -> None:
    """Ask of some source offsets of a partition."""
    if episode.loose or any(log.open for log in episode.brokers.logs.values()):
        return  # What stands there once more, or is not ended yet, nobody knows.
    number = episode.dice.randrange(len(episode.scenario.records))
    await require(episode, Known.of(episode, number), when)


async def require(episode: WorkerEpisode, known: Known, when: str) -> None:
    """What is said of some source offsets is true, and so it is without what came out of records."""
    dice = episode.dice
    refs = [RecordRef("source", known.number, dice.randrange(known.end + 2)) for _ in range(MOST)]
    wrong: list[str] = []
    for story in await told(episode, refs):
        said = [*lies(known, story), *shown(known, story)]
        wrong += [f"{when}: {story.asked}: {each}; {story.sentence}" for each in said]
    page = await episode.calmly(_story(episode.now, str(refs[0])))
    wrong += [f"{when}: the page of {refs[0]}: {each}" for each in kept_back(known, page, refs[0].offset)]
    assert not wrong, f"{len(wrong)} lies: " + "\n".join(wrong)


async def told(episode: WorkerEpisode, refs: Sequence[RecordRef]) -> list[Story]:
    """Ask through faults: of several over one connection, or of each over its own."""
    apart = episode.dice.random() < 0.3

    async def run() -> list[Story]:
        async with Explainer.open(episode.now) as explainer:
            stories = []
            for each in refs:
                if apart:
                    explainer.forget()
                stories.append(await explainer.explain(each))
            return stories

    for fate in (*[episode.fate] * TRIES, episode.calm):
        process = Process(episode.brokers, fate)
        try:
            return cast("list[Story]", await process.begin(run()))
        except (Killed, asyncio.CancelledError, SeqmarkError, KafkaError):
            if fate is episode.calm:
                raise
        finally:
            await process.gone()
    raise AssertionError
