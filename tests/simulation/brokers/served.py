"""The worker itself, in a group that gives it all, nothing, or what nobody sees: is it ready as it says?"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from processor.kafka.client import TopicPartition
from processor.ops.metrics import Metrics
from processor.worker import worker as worker_module
from processor.worker.worker import Worker
from tests.simulation.brokers.processes import Process
from tests.simulation.brokers.worker import SimulatedHome, works_on
from tests.simulation.truth.oracle import require_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from processor.worker.slot_work import Event
    from tests.simulation.brokers.episode import WorkerEpisode

SOON_S = 60.0
"""Of simulated time: far above what a worker needs to which nothing happens."""
LOOK_S = 0.05


class ServedGroup:
    """A group as one member has it: stands for `processor.kafka.group.membership.Membership`.

    Attributes:
        latest: The last that was made: a worker makes its own.
    """

    latest: ServedGroup

    def __init__(self, *_: Any) -> None:
        ServedGroup.latest = self
        self.owner: Any = None
        self._unseen: list[str] = []

    async def join(self, owner: Any) -> None:
        """Take a worker in; it is told later what it has."""
        self.owner = owner

    async def deal(self, partitions: frozenset[TopicPartition], unseen: list[str]) -> None:
        """Rebalance: take everything back, and give what there is to give, as the leader sees it."""
        self._unseen = unseen
        await self.owner.revoked()
        self.owner.assigned(partitions)

    def unseen(self) -> list[str]:
        """Return the topics of which the leader sees nothing."""
        return self._unseen

    async def cause(self) -> str:
        """Say why nothing is given."""
        return ""

    async def failed(self) -> None:
        """Never fail."""
        await asyncio.Event().wait()

    async def current(self) -> bool:
        """Say that what was given is still the member's."""
        return True

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nobody commits without transactions here."""
        raise AssertionError(offsets)

    async def leave(self) -> None:
        """Let it go."""


async def served(episode: WorkerEpisode) -> None:
    """Have a worker go through rebalances and take in what is left; ready is who has what it should."""
    scenario, brokers = episode.scenario, episode.brokers
    numbers = range(len(scenario.records))
    for number in numbers:
        scenario.fill(episode.dice, brokers, number)
    process = Process(brokers, episode.calm, dict(episode.dice.choice(episode.stores)))
    brokers.group_owner = process
    try:
        await process.begin(_through_rebalances(episode))
    finally:
        await process.gone()
    episode.note()
    for number in numbers:
        require_outputs(scenario, brokers, number, episode.story[number])


async def _through_rebalances(episode: WorkerEpisode) -> None:
    dice, brokers, source = episode.dice, episode.brokers, episode.now.pipelines[0].source
    everything = frozenset(TopicPartition(source, each) for each in range(brokers.topics[source].partitions))
    metrics, queues = Metrics(), defaultdict[tuple[str, int], asyncio.Queue["Event"]](asyncio.Queue)
    channels: list[asyncio.Task[None]] = []

    async def put(hop: str, slot: int, event: Event) -> None:
        if (hop, slot) not in queues:
            channels.append(asyncio.create_task(works_on(queues[hop, slot])))
        await queues[hop, slot].put(event)

    worker = Worker(episode.now, metrics, put)
    ready = partial(_is_ready, worker, metrics)
    assert not ready(), "a worker is ready before it is in the group"
    await worker.start()
    try:
        group = ServedGroup.latest
        assert not ready(), "a worker is ready before the group has given it anything"
        steps = ["nothing", "unseen", "all"]
        dice.shuffle(steps)
        for step in (*steps, "all"):
            dealt = everything if step == "all" else frozenset[TopicPartition]()
            await group.deal(dealt, [source] if step == "unseen" else [])
            if step == "all":
                assert not ready(), "a worker is ready before it has restored anything"
                await _until(lambda: ready() and _is_taken_in(episode, everything))
                continue
            await asyncio.sleep(dice.expovariate(1))
            assert ready() == (step != "unseen"), f"ready is {ready()} with {step} assigned"
    finally:
        await worker.stop()
        for channel in channels:
            channel.cancel()
    assert not ready(), "a worker is ready that has given everything up"


def in_group(patch: pytest.MonkeyPatch) -> None:
    """Have workers be members of such groups."""
    patch.setattr(worker_module, "Membership", ServedGroup)
    patch.setattr(worker_module, "Home", SimulatedHome)
    patch.setattr(worker_module, "watch", _nothing)


async def _nothing(*_: object) -> None:
    """Watch nothing."""


def _is_ready(worker: Worker, metrics: Metrics) -> bool:
    """Return whether it is ready, by its word and by the metric, which have to be one."""
    (metric,) = metrics.ready.collect()
    shown = bool(metric.samples[0].value)
    assert shown == worker.ready, f"the metric of readiness is {shown}, the worker says {worker.ready}"
    return shown


def _is_taken_in(episode: WorkerEpisode, everything: frozenset[TopicPartition]) -> bool:
    brokers = episode.brokers
    return all(brokers.offsets.get(tp, 0) == brokers.logs[tp].end for tp in everything)


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not reached():  # noqa: ASYNC110 - nobody says when the time has come
            await asyncio.sleep(LOOK_S)
