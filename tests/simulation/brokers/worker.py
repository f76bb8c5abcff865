"""A worker without web, group protocol and Faust: its slots, each with its channel, over simulated brokers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from processor.errors import FencedError, RebuildError
from processor.kafka.client import KafkaError
from processor.kafka.options import client_options
from processor.kafka.transactions.broker_time import BrokerTime
from processor.kafka.transactions.pace import Pace
from processor.ops.metrics import Metrics
from processor.pipeline.hops import hops
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.wire.decode import Decoder
from processor.wire.encode import Encoders
from processor.worker import open_partition, open_slot
from processor.worker.context import Context
from processor.worker.slot import SlotRun
from processor.worker.standstill import Standstill
from tests.simulation.brokers.processes import HostStore, Process, here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from processor.kafka.client import TopicPartition
    from processor.kafka.group.membership import Membership
    from processor.state.home import Home
    from processor.worker.slot_work import Event
    from schemas.config import Settings

_METRICS = Metrics()
_ENCODERS = Encoders()
_DECODER = Decoder()
"""Of all workers: each is done with what they give before its next await, as the slots of one worker are."""
_MONOTONIC = time.monotonic
_TIMED = (SlotPipeline, Pace, Standstill, BrokerTime)
"""Their constructors have a clock by default, which is this machine's whatever the simulation's time is."""
LOOK_S = 0.2
"""Between two looks whether all is drained: the slots say so as well."""


class SimulatedMembership:
    """A place in the group: the brokers say whose it is, and deal everything to one member."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._asked = False
        self.lost = False

    async def current(self) -> bool:
        """Ask whether what was assigned is still ours."""
        self._asked = True
        brokers = self._process.brokers
        try:
            return bool(await self._process.ask(lambda: brokers.group_owner is self._process))
        except KafkaError:
            return False

    def rejoin(self) -> None:
        """Give everything back, to be dealt again; only who was told that it may be another's does so."""
        assert self._asked, "a slot has the group rebalance without asking whose it is"
        self.lost = True

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the group's offsets outside of a transaction; only a member's count."""
        brokers = self._process.brokers

        def effect() -> None:
            if brokers.group_owner is not self._process:
                raise FencedError("offset commit: ILLEGAL_GENERATION")
            brokers.offsets.update(offsets)
            brokers.commits += 1

        try:
            await self._process.ask(effect)
        except KafkaError as error:
            raise RebuildError("commit_offsets", f"offset commit: {error!r}") from error


class SimulatedHome:
    """Folders that are only names."""

    def __init__(self, *_: Any) -> None:
        """Claim nothing."""

    def release(self) -> None:
        """Give nothing free."""

    @staticmethod
    def partition(pipeline: str, partition: int) -> Path:
        """Return the folder of one source partition's state."""
        return Path("/nowhere", pipeline, str(partition))


class SimulatedWorker:
    """Everything that a worker of one member has to do, until it is drained.

    Attributes:
        error: What has stopped it.
    """

    def __init__(self, process: Process, settings: Settings) -> None:
        self._process = process
        self._settings = settings
        self._failed: asyncio.Future[None] | None = None
        self.error: Exception | None = None

    async def run(self) -> bool:
        """Work; returns whether all is taken in. Killed it raises `Killed`."""
        progressed = asyncio.Event()
        membership = SimulatedMembership(self._process)
        context = Context(
            self._settings,
            client_options(self._settings.kafka),
            cast("Membership", membership),
            cast("Home", SimulatedHome()),
            _METRICS,
            fail=self._fail,
            progressed=progressed.set,
            drain=True,
            decoder=_DECODER,
            encoders=_ENCODERS,
        )
        runs, channels = self._slots(context)
        for run in runs:
            run.start()
        try:
            while self.error is None and not membership.lost:
                if all(run.drained for run in runs):
                    await asyncio.gather(*(run.settled() for run in runs))
                    if all(run.drained for run in runs):
                        return True
                if self._process.fate.has("rebalanced"):
                    return False
                progressed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await progressed.wait()
            return False
        finally:
            if self._process.alive:
                await asyncio.gather(*(run.close() for run in runs))
            for channel in channels:
                channel.cancel()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error

    def _slots(self, context: Context) -> tuple[list[SlotRun], list[asyncio.Task[None]]]:
        runs, channels, slots = [], [], self._settings.worker.slots
        brokers = self._process.brokers
        for hop in hops(self._settings):
            by_slot: dict[int, list[int]] = defaultdict(list)
            # The group has dealt out what it has seen, maybe of a topic that is just gone.
            topic = brokers.topics.get(hop.source) or brokers.gone[hop.source]
            for number in range(topic.partitions):
                by_slot[number % slots].append(number)
            for slot, numbers in by_slot.items():
                queue: asyncio.Queue[Event] = asyncio.Queue()
                channels.append(asyncio.create_task(works_on(queue)))
                runs.append(SlotRun(context, hop, slot, numbers, queue.put))
        return runs, channels


async def works_on(queue: asyncio.Queue[Event]) -> None:
    """Be the agent of one slot."""
    while True:
        event = await queue.get()
        await event.slot.handle(event.work)


def open_host_store(folder: Path) -> tuple[MemoryStore, str | None]:
    """Open the local state of a partition in the host's memory, which may be damaged."""
    process = here()
    process.require_alive()
    host = process.stores.setdefault((folder.parent.name, int(folder.name)), MemoryStore())
    damage = None
    if process.fate.has("damaged"):
        host.clear()
        damage = "a block's checksum is wrong"
    return HostStore(host, process), damage


def on_hosts(patch: pytest.MonkeyPatch) -> None:
    """Have workers keep their local state in their host's memory, and go by the simulation's time."""
    for timed in _TIMED:
        made = timed.__init__
        by_name = {name: _simulated(each) for name, each in (made.__kwdefaults__ or {}).items()}
        patch.setattr(made, "__defaults__", tuple(map(_simulated, made.__defaults__ or ())))
        patch.setattr(made, "__kwdefaults__", by_name)
    nothing: Callable[..., Any] = lambda *_: None  # noqa: E731 - two in a row
    patch.setattr(open_partition, "open_store", open_host_store)
    patch.setattr(open_partition, "note_definition", nothing)
    patch.setattr(open_slot, "give_back", nothing)


def _simulated(default: object) -> object:
    return _now_s if default is _MONOTONIC else default


def _now_s() -> float:
    return time.monotonic()
