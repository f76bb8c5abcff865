"""One episode: a slot that goes from process to process, while everything goes wrong that may.

Everything is drawn from the seed: pipeline, source, faults, and who goes on when. Nothing else decides, so an
episode is the same on any machine.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.transactions.fencing import SlotId
from processor.ops.fault_points import heard_by
from processor.ops.metrics import Metrics
from processor.state.kv.store import MemoryStore
from processor.wire.decode import Decoder
from processor.wire.encode import Encoder
from seqmark.in_memory.cluster import MemoryCluster
from seqmark.in_memory.slot import Machine, MemorySlot
from tests.simulation import scenario as scenarios
from tests.simulation.clockwork import clockwork
from tests.simulation.faults import Fate, FaultyWire, Killed, Odds
from tests.simulation.small_sizes import small_sizes
from tests.simulation.truth.oracle import require_exact

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TRIES = 500
"""Of opening a slot, far above what any episode takes: beyond it nobody gets on."""
HOSTS = 3
"""One that works, and two that may be halted meanwhile."""
_METRICS = Metrics()
_SHARED = [(Decoder(), Decoder(), Encoder()) for _ in range(HOSTS)]
"""By host, over all episodes: a decoder has 64 MiB of address space."""


@dataclass(frozen=True)
class Outcome:
    """What an episode has done."""

    kills: int
    faults: int


class Host:
    """Where processes run one after the other: what a kill leaves of local state, and what it does not."""

    def __init__(self, number: int, machine: Machine, dice: random.Random) -> None:
        self.number = number
        self.machine = machine
        self.busy = False
        self._dice = dice
        self._older: dict[tuple[str, int], MemoryStore] = {}

    def lose_some(self) -> None:
        """Leave the local state as it is, an older one, or none."""
        lose_some(self._dice, self.machine.stores, self._older)


def lose_some(
    dice: random.Random, stores: dict[tuple[str, int], MemoryStore], older: dict[tuple[str, int], MemoryStore]
) -> None:
    """Leave a host's local state as it is, as ``older`` has it, or none; it may become the older one."""
    rolled = dice.random()
    if rolled < 0.15:
        stores.clear()
    elif rolled < 0.3:
        restored = _copied(older)
        stores.clear()
        stores.update(restored)
    if dice.random() < 0.3:
        copied = _copied(stores)
        older.clear()
        older.update(copied)


def _copied(stores: Mapping[tuple[str, int], MemoryStore]) -> dict[tuple[str, int], MemoryStore]:
    found = {}
    for name, store in stores.items():
        found[name] = MemoryStore()
        found[name].write(dict(store.items(b"")))
    return found


class Episode:
    """A group with one slot, over hosts of which one owns it.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = MemoryCluster()
        odds = Odds.drawn(self.dice)
        self.fate = Fate(self.dice, odds, self.dice.choice((0, 5, 20)), self.dice.choice((5, 20, 40)))
        self._hosts: list[Host] = []
        self._lives: list[asyncio.Task[None]] = []
        self._owner: Host | None = None
        self._done = False
        self._tries = 0

    def run(self) -> Outcome:
        """Run it, and compare what it leaves with the truth."""
        faults = self.fate.left
        with (
            clockwork(self.dice) as runner,
            small_sizes(self.dice),
            heard_by(lambda _step, _pipeline: self.fate.end_here()),
        ):
            # Not before: what gzip writes has the time of day in it.
            self.scenario = scenarios.drawn(self.dice, self.cluster)
            runner.run(self._run())
        return Outcome(self.fate.kills, faults - self.fate.left)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number, (decoder, restorer, encoder) in enumerate(_SHARED):
            machine = Machine(
                loop.time,
                self.dice.randbytes,
                decoder=decoder,
                restorer=restorer,
                encoder=encoder,
                metrics=_METRICS,
            )
            self._hosts.append(Host(number, machine, self.dice))
        self._assign()
        while self._lives:
            await asyncio.wait(self._lives, return_when=asyncio.FIRST_COMPLETED)
            for each in [life for life in self._lives if life.done()]:
                self._lives.remove(each)
                each.result()
            if not self._done and (self._owner is None or not self._owner.busy):
                self._assign()
        self.fate.odds = Odds()
        stores = [host.machine.stores for host in self._hosts]
        await require_exact(self.scenario, self.cluster, stores)

    def _assign(self) -> None:
        """Give the slot to a host that does nothing, if there is one."""
        free = [host for host in self._hosts if not host.busy]
        if free:
            self._owner = host = self.dice.choice(free)
            host.busy = True
            self._lives.append(asyncio.ensure_future(self._live(host)))

    def _paused(self, host: Host) -> None:
        if self._owner is host:
            self._assign()

    async def _live(self, host: Host) -> None:
        """Be a process, until it is killed, has lost the slot, or has nothing more to do."""
        identity = SlotId(scenarios.APPLICATION, self.scenario.kind.hop.name, 0, 1).transactional_id
        wire = FaultyWire(self.fate, lambda: self._paused(host), lambda: self.cluster.expire(identity))
        try:
            while True:
                self._tries += 1
                assert self._tries < MOST_TRIES, "nobody gets on"
                slot = MemorySlot(self.scenario.kind, scenarios.APPLICATION, self.cluster, host.machine, wire)
                try:
                    await slot.open(range(len(self.scenario.records)))
                    await self._work(slot)
                except RebuildError:
                    continue
                except FencedError:
                    if self._owner is not host:
                        return
                    continue
                except StopError:
                    if self.scenario.kind.topics.quarantine is not None:
                        raise
                # Who has lost the slot may have nothing more to do, and may not know it: that ends nothing.
                self._done = self._done or self._owner is host
                return
        except Killed:
            host.lose_some()
            # One that had fenced before another finished leaves its transaction to whoever comes next.
            self._done = False
        finally:
            host.busy = False

    async def _work(self, slot: MemorySlot) -> None:
        left = list(range(len(self.scenario.records)))
        while left:
            number = self.dice.choice(left)
            if not await slot.take(number):
                left.remove(number)
            if self.dice.random() < 0.4:
                await slot.pipeline.commit()
                if self.dice.random() < 0.5:
                    slot.trim()
        await slot.pipeline.finish()
