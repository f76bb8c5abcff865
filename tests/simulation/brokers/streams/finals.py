"""What Spark makes of topics: those that an episode of workers has left, or others that are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.brokers.streams.blocking import blocking
from tests.simulation.brokers.streams.histories import drawn_world
from tests.simulation.brokers.streams.named import NamedQuery, require_backlog
from tests.simulation.brokers.streams.stream import StreamEpisode
from tests.simulation.brokers.streams.tapes import SOURCE, VERDICTS, World

if TYPE_CHECKING:
    from tests.simulation.brokers.episode import WorkerEpisode


async def streamed(episode: WorkerEpisode) -> None:
    """Read topics as streams and queries of Spark's."""
    dice = episode.dice
    with blocking():
        for by_verdicts in (True, dice.random() < 0.3):
            world = _recorded(episode, by_verdicts=by_verdicts)
            if world is None or dice.random() >= 0.5:
                world = drawn_world(dice, by_verdicts=by_verdicts)
            await StreamEpisode(dice, world, by_verdicts=by_verdicts).run()
        await NamedQuery(dice, drawn_world(dice, by_verdicts=False)).run()
        require_backlog(dice)


def _recorded(episode: WorkerEpisode, *, by_verdicts: bool) -> World | None:
    """Return a world in which topics of an episode come to be once more; None: it has not written them."""
    brokers, numbers = episode.brokers, range(len(episode.scenario.records))
    topic = SOURCE if by_verdicts else "sink"
    if (by_verdicts and VERDICTS not in brokers.topics) or topic not in brokers.topics:
        return None
    world = World(episode.dice)
    world.create(
        SOURCE, [brokers.log(topic, number) for number in numbers], topic_id=brokers.topics[topic].topic_id
    )
    if by_verdicts:
        world.create(VERDICTS, [brokers.log(VERDICTS, number) for number in numbers])
    return world
