"""One stream of Spark's over topics that grow, expire and are created again, through kills and restarts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from processor.errors import StopError
from tests.simulation.brokers.processes import Process
from tests.simulation.brokers.streams.engine import Audience, Checkpoint, Engine, Way
from tests.simulation.brokers.streams.histories import made_again
from tests.simulation.brokers.streams.judge import StreamJudge
from tests.simulation.brokers.streams.tapes import SOURCE
from tests.simulation.brokers.troubles import BrokerOdds
from tests.simulation.faults import Fate, Killed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.brokers.streams.tapes import World

LIVES = 6
"""Of a driver, until nothing happens any more."""
LAST_LIVES = 4
"""Then: as it is, with loss accepted, begun anew, and that with loss accepted."""
SHARE = 0.15
UNREACHED = "start again when it can be reached"
"""What a refusal says that is none of what was read."""


class StreamEpisode:
    """A stream, whoever operates it, and what becomes of its topics meanwhile.

    Args:
        dice: Decide everything.
        world: Has the topics, of which nothing has come yet.
        by_verdicts: How it reads.
    """

    def __init__(self, dice: random.Random, world: World, *, by_verdicts: bool) -> None:
        self._dice, self._world = dice, world
        latest = dice.random() < 0.25
        self._way = Way(by_verdicts, latest, dice.random() < 0.1, dice.choice((None, 1, 2)))
        self._judge = StreamJudge(world, self._way)
        self._checkpoint = Checkpoint()
        odds = BrokerOdds.drawn(dice, SHARE)
        self._fate = Fate(dice, odds, dice.choice((0, 0, 5)), dice.choice((0, 2, 5)))
        self._calm = Fate(dice, BrokerOdds(), 0, 0)
        self._events = self._drawn()

    def _drawn(self) -> list[Callable[[], None]]:
        """Draw what happens to the topics beside that they grow."""
        dice = self._dice
        every = (self._trim, self._trim, self._trim_all, self._make_again, self._hide, self._show, self._change)
        return [dice.choice(every) for _ in range(dice.choice((0, 1, 1, 2, 3)))]

    async def run(self) -> None:
        """Run it, and compare each batch that counts with the truth."""
        dice, world = self._dice, self._world
        for _ in range(dice.randrange(12)):
            world.play_some()
        for _ in range(LIVES):
            await self._life(self._fate, dice.expovariate(0.5))
            if dice.random() < 0.15 and self._checkpoint.outputs:
                self._checkpoint.set_back(dice.randint(1, len(self._checkpoint.outputs)))
        self._events.clear()
        world.play_all()
        for _ in range(LAST_LIVES):
            if await self._life(self._calm, None):
                self._require_whole()
                return
        raise AssertionError("a stream is refused whatever its operator does")

    def _require_whole(self) -> None:
        """All that has come counts."""
        (plan, topic) = self._checkpoint.plans[-1], self._way.topics[0]
        ends = {number: stable for number, (_, stable) in self._world.seen(topic).bounds.items()}
        assert plan.next == ends, f"a stream has come to {plan.next}, and its topic to {ends}"

    async def _life(self, fate: Fate, after_s: float | None) -> bool:
        """Run a driver until it is stopped, or all is read; returns whether it was not refused."""
        world, dice = self._world, self._dice
        driver, executor = Process(world.brokers, fate), Process(world.brokers, fate)
        engine = Engine(world, self._way, self._checkpoint, Audience(self._judge.planned, self._judge.read))
        ids = self._judge.ids()
        goes_on = asyncio.create_task(self._go_on()) if after_s is not None else None
        try:
            async with asyncio.timeout(after_s):
                await driver.begin(engine.run(driver, executor, dice, once=after_s is None))
        except (Killed, TimeoutError, asyncio.CancelledError):
            return True
        except StopError as error:
            self._refused(error, fate, ids)
            return False
        finally:
            if goes_on is not None:
                goes_on.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await goes_on
            for process in (driver, executor):
                process.alive = False
                await process.gone()
        return True

    # ---------------------------------------------------------------- what an operator does

    def _refused(self, error: StopError, fate: Fate, began: set[str]) -> None:
        """Do what a refusal asks for; it has to have a reason."""
        why = self._judge.reason(self._checkpoint, began)
        if not why:
            assert UNREACHED in str(error), f"a stream is refused without a reason: {error}"
            assert fate is not self._calm, f"brokers are not reached though all are well: {error}"
            return
        if why == "hidden":
            self._world.show(SOURCE)
            for topic in self._way.topics:
                self._world.show(topic)
            if len(self._checkpoint.plans) > len(self._checkpoint.outputs):
                self._checkpoint.plans.pop()
        elif why == "anew" or self._way.accept_loss or self._dice.random() < 0.5:
            self._checkpoint = Checkpoint()
            lossy = self._way.accept_loss or fate is self._calm
            self._use(self._way._replace(accept_loss=lossy))
        else:
            self._use(self._way._replace(accept_loss=True))

    def _use(self, way: Way) -> None:
        self._way = self._judge.way = way

    # ---------------------------------------------------------------- what happens meanwhile

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._dice.expovariate(2))
            if self._events and self._dice.random() < 0.3:
                self._events.pop()()
            self._world.play_some()

    def _topic(self) -> str:
        return self._dice.choice(self._way.topics)

    def _trim(self) -> None:
        self._world.trim(self._topic(), self._dice.random())

    def _trim_all(self) -> None:
        self._world.trim(self._topic(), 1.0)

    def _make_again(self) -> None:
        """A topic is deleted and created again; what comes is more than there was, or less."""
        topic, world = self._topic(), self._world
        ends = [tape.end for tape in world.tapes(topic)]
        made_again(self._dice, world, topic)
        for number, end in enumerate(ends):
            if self._dice.random() < 0.7:
                world.tape(topic, number).play_to(end + 1)

    def _hide(self) -> None:
        """A broker that has just started does not know of all partitions."""
        topic = self._topic()
        known = self._world.brokers.topics[topic].partitions
        self._world.show(topic, max(1, known - 1))

    def _show(self) -> None:
        for topic in self._way.topics:
            self._world.show(topic)

    def _change(self) -> None:
        if self._way.by_verdicts:
            self._world.change(self._dice.randrange(len(self._world.tapes(SOURCE))))
