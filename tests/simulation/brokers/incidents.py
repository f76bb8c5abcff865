"""Topics that are deleted and made again, under a worker or not: what must not come of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.kafka.client import TopicPartition
from tests.simulation.brokers.explain.asked import explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.brokers.episode import WorkerEpisode

MOST_ENDS = 6
MORE = 3
"""Times that producers write as much as they do else: much has to come after it."""
SOON_A_S = 10.0
"""How often a second something happens that comes soon."""


def after_some_ends(episode: WorkerEpisode, act: Callable[[], None]) -> None:
    """Have something happen when some transactions have ended from now on, or a moment later."""
    dice, brokers = episode.dice, episode.brokers
    left = dice.randrange(1, MOST_ENDS)
    after_s = dice.choice((0.0, dice.expovariate(SOON_A_S)))

    def ended() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            asyncio.get_running_loop().call_later(after_s, act, context=episode.outside)

    brokers.ended = ended


def nothing_more(episode: WorkerEpisode) -> None:
    """Have nothing happen any more when transactions end."""
    episode.brokers.ended = lambda: None


async def output_made_again(episode: WorkerEpisode) -> None:
    """Delete an output and create it again; no worker goes on into it before a reset has said so."""
    topic = _an_output(episode)
    if not _has_written(episode, topic):
        return
    if episode.dice.random() < 0.7:
        await _under_a_worker(episode, topic)
    offsets = [
        episode.brokers.offsets.get(TopicPartition("source", number))
        for number in range(episode.brokers.topics["source"].partitions)
    ]
    to = {number: offset for number, offset in enumerate(offsets) if offset is not None}
    if len(to) < len(offsets):
        return
    # What a worker has written into it before it noticed does not count.
    episode.brokers.recreate(topic)
    episode.anew = frozenset([topic])
    await explained(episode, f"{topic} was made again")
    await episode.refused(episode.now, f"{topic}, which was made again")
    await episode.reset(to, forget=False)


async def _under_a_worker(episode: WorkerEpisode, topic: str) -> None:
    """Make it again while more is taken in: whoever wrote to the one before must not commit into this one."""
    brokers = episode.brokers

    def make_again() -> None:
        episode.may_stop = True
        brokers.recreate(topic, late=True)

    for number in [*range(len(episode.scenario.records))] * MORE:
        episode.scenario.fill(episode.dice, brokers, number)
    after_some_ends(episode, make_again)
    await episode.work(episode.now)
    nothing_more(episode)
    episode.may_stop = False
    episode.note()
    assert not brokers.written_on, f"{topic} was made again, and is written on as if it were the same"


def _an_output(episode: WorkerEpisode) -> str:
    (pipeline,) = episode.now.pipelines
    # Which new ids there were nobody knows any more without the notes.
    topics = [] if getattr(episode.scenario.rules, "rename", None) else ["receipts"]
    topics += ["sink"] if pipeline.writes_records else []
    topics += ["verdicts"] if pipeline.verdicts else []
    # Which records were too large is not known any more without it.
    topics += [] if episode.scenario.small else ["quarantine"]
    return episode.dice.choice(topics)


def _has_written(episode: WorkerEpisode, topic: str) -> bool:
    """Say whether the last state names a topic: it is not one that comes new."""
    last = episode.story[0][-1]
    return {"sink": last.records, "verdicts": last.verdicts}.get(topic, True)
