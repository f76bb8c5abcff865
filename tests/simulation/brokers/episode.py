"""One episode of workers: slots as they live in a worker, over brokers that do whatever brokers may.

As `tests.simulation.episode`, a layer below: fence, fetch, restore, positions, markers and the slot's own
reactions are the product's, only what would go over a socket is simulated. It costs more, so there are fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from processor.errors import SeqmarkError, StopError
from processor.kafka.client import KafkaError, TopicPartition
from processor.kafka.topics.ensure import ensure
from processor.ops.fault_points import CommitStep, heard_by
from processor.reset.decide import ResetState
from tests.simulation import scenario as scenarios
from tests.simulation.brokers import backfills, finals, incidents, troubles
from tests.simulation.brokers.explain.asked import explained
from tests.simulation.brokers.explain.fates import state_of
from tests.simulation.brokers.explain.meddling import meddled, strange
from tests.simulation.brokers.kafka.cluster import Brokers, Luck
from tests.simulation.brokers.kafka.connection import connected
from tests.simulation.brokers.processes import Process, adopt, end_here
from tests.simulation.brokers.resets import is_refusal, reset
from tests.simulation.brokers.served import in_group, served
from tests.simulation.brokers.streams.clean_topic import materialized
from tests.simulation.brokers.streams.finals import streamed
from tests.simulation.brokers.worker import SimulatedWorker, on_hosts
from tests.simulation.clockwork import clockwork
from tests.simulation.episode import HOSTS, Outcome, lose_some
from tests.simulation.faults import Fate, Killed
from tests.simulation.small_sizes import small_sizes
from tests.simulation.truth.oracle import Stretch, require_exact
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from enum import StrEnum

    from processor.state.kv.store import MemoryStore
    from schemas.config import Settings

PARTITIONS = 3
LIMIT_S = 3_000.0
"""Of simulated time: far above what an episode takes."""
ARRIVED_S = 10.0
"""After it nothing is on its way."""
LONGEST_TRANSACTION_S = 60.0
"""After it a coordinator has ended what nobody else has."""
RESETS = 5
"""Tries of a reset, until nothing happens to it."""


class Host:
    """Where workers run one after the other."""

    def __init__(self) -> None:
        self.stores: dict[tuple[str, int], MemoryStore] = {}
        self.older: dict[tuple[str, int], MemoryStore] = {}
        self.busy = False


class WorkerEpisode:
    """A group of workers over hosts, of which one has everything, or believes so.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.fate = troubles.drawn(dice)
        self.brokers = Brokers(dice, nodes=dice.choice((1, 1, 3)), verifies=dice.random() < 0.5)
        self.calm = Fate(dice, troubles.BrokerOdds(), 0, 0)
        self._hosts = [Host() for _ in range(HOSTS)]
        self._lives: list[asyncio.Task[None]] = []
        self._owner: Process | None = None
        self._alive: dict[Process, None] = {}
        self._done = False
        self._interrupted = False
        self._small = False
        self.anew: frozenset[str] = frozenset()
        self.switches = self.backfilled = self.loose = self.shared = False
        self._commits: dict[str, int] = {}
        self.may_stop = False
        self._known_from: dict[int, int] = {}
        self._start: dict[int, int] = {}
        self.story: defaultdict[int, list[Stretch]] = defaultdict(list)
        self.states: defaultdict[int, list[bytes | None]] = defaultdict(list)

    def run(self) -> Outcome:
        """Run it, and compare what it leaves with the truth."""
        faults = self.fate.left
        with (
            clockwork(self.dice, LIMIT_S) as runner,
            small_sizes(self.dice),
            connected(self.dice) as patch,
            heard_by(self._heard),
        ):
            on_hosts(patch)
            in_group(patch)
            runner.get_loop().set_task_factory(_of_a_process)  # type: ignore[arg-type] # typeshed wants Task[T]
            runner.run(self._run())
        return Outcome(self.fate.kills, faults - self.fate.left)

    async def _run(self) -> None:
        self.outside = contextvars.copy_context()
        dice = self.dice
        self.brokers.create("source", PARTITIONS, {"max.message.bytes": "1048588"})
        self.scenario = scenario = scenarios.drawn(dice, self.brokers, small_sinks=True)
        self._small = scenario.small
        topics = scenario.kind.topics
        self.switches = None not in {topics.verdicts, topics.quarantine} and dice.random() < 0.5
        if self._small:
            self.brokers.create("sink", PARTITIONS, {"max.message.bytes": str(scenarios.SMALL_SINK_BYTES)})
        await self.calmly(ensure(scenario.settings, create=True))
        self.brokers.luck = Luck(self._marker_s, lambda: self.fate.has("unmarked"), self._fetch_bytes)
        self._known_from = dict.fromkeys(range(len(scenario.records)), 0)
        self._start = dict(self._known_from)
        if scenario.kind.topics.quarantine is None:
            # A worker that stops leaves a marker that is missing to whoever comes next.
            self.fate.odds = replace(self.fate.odds, unmarked=0.0)
            self.switches = False
            await self.work(self._settings())
            # What one that stops could not abort is aborted by whoever comes next, and stops there too.
            process = Process(self.brokers, self.calm)
            self.brokers.group_owner = process
            await process.begin(SimulatedWorker(process, self._settings()).run())
            await process.gone()
            await require_exact(scenario, self.brokers, self.stores)
            return
        eras = dice.choice((1, 1, 2, 3))
        if self._can_be_loose and dice.random() < 0.3:
            self.loose, eras = True, 1
            # What another owner, or a request that comes late, writes without transactions nobody keeps out.
            self.fate.odds = replace(self.fate.odds, paused=0.0, late=0.0, **troubles.NO_RIVALS)
        self.now = self._settings()
        if not self.loose and self._can_begin_with_history and dice.random() < 0.4:
            await self._begin_with_history()
        for era in range(eras):
            if era:
                await self._between()
            await self.calmly(ensure(self.now, create=True))
            await self.work(self.now, interrupted=era < eras - 1 and dice.random() < 0.3)
            self.note()
            await explained(self, "a run is over")
        await self.settled()
        await require_exact(scenario, self.brokers, self.stores, self.story)
        if self.loose:
            return
        await meddled(self)
        await finals.certified(self)
        await finals.read_by_verdicts(self)
        await streamed(self)
        if await materialized(self):
            await finals.foreign(self)
        else:
            await dice.choice((finals.foreign, finals.grown, finals.source_made_again, served))(self)

    @property
    def _can_be_loose(self) -> bool:
        (pipeline,) = self.scenario.settings.pipelines
        plain = pipeline.verdicts is None and not pipeline.observe
        return plain and not isinstance(self.scenario.rules, IdRules)

    @property
    def _can_begin_with_history(self) -> bool:
        scenario = self.scenario
        # Which of two contents of one id and time came first a history does not say.
        return not (scenario.small or isinstance(scenario.rules, FingerprintRules))

    async def _begin_with_history(self) -> None:
        """Load what lies before a cut, as delivered by others."""
        cuts = dict.fromkeys(range(PARTITIONS), 0)
        for number in self._start:
            cuts[number] = self.dice.randint(0, self.brokers.log("source", number).stable)
        if self.dice.random() < 0.2:
            await backfills.overtaken(self, cuts, self.now.worker.slots + 1)
            self.note()
            return
        await backfills.backfilled(self, cuts)
        self._start = {number: cuts[number] for number in self._start}
        self.backfilled = True

    @property
    def stores(self) -> list[dict[tuple[str, int], MemoryStore]]:
        """What hosts have locally."""
        return [host.stores for host in self._hosts]

    def note(self) -> None:
        """Note what has been taken in since the last time."""
        (pipeline,) = self.now.pipelines
        for number, start in self._start.items():
            stop = self.brokers.offsets.get(TopicPartition("source", number), 0)
            # Without transactions the group's offset may lag.
            stop = self.brokers.log("source", number).end if self.loose else stop
            how = self._small, pipeline.writes_records, pipeline.verdicts is not None
            self.story[number].append(
                Stretch(self._known_from[number], start, stop, *how, self.anew, self.backfilled, self.loose)
            )
            self._start[number] = stop
            self.states[number].append(state_of(self.brokers, self.scenario, number))
        self.anew = frozenset()

    async def _between(self) -> None:
        """Do what operators do, and producers, while no worker runs."""
        dice = self.dice
        if dice.random() < 0.5:
            for number in self._start:
                self.scenario.fill(dice, self.brokers, number)
        if self._small and dice.random() < 0.7:
            self._small = False
            self.brokers.configure("sink", {"max.message.bytes": "1048588"})
        self.now = self._settings()
        await self.calmly(ensure(self.now, create=True))
        if dice.random() < 0.2:
            strange(self)
        await explained(self, "the next run is to come")
        if dice.random() < 0.4:
            await incidents.output_made_again(self)
        if dice.random() < 0.6:
            forget = dice.random() < 0.2
            numbers = [number for number in self._start if dice.random() < 0.7]
            ends = {number: self.brokers.log("source", number).stable for number in numbers}
            to = {number: dice.choice((0, end, dice.randint(0, end))) for number, end in ends.items()}
            await self.reset(to, forget=forget)

    async def refused(self, settings: Settings, what: str) -> None:
        """Start a worker that has to stop."""
        process = Process(self.brokers, self.calm, dict(self.dice.choice(self.stores)))
        self.brokers.group_owner = process
        worker = SimulatedWorker(process, settings)
        await process.begin(worker.run())
        await process.gone()
        assert isinstance(worker.error, StopError), f"a worker goes on with {what}: {worker.error!r}"

    async def reset(self, to: dict[int, int], *, forget: bool) -> None:
        """Reset to offsets, whatever happens to that."""
        tried, rules = 0, self.scenario.rules
        # A filter that is made again by exact rules keeps, by blocks, some of what had expired: nobody models
        # which.
        forget = forget or (isinstance(rules, IdRules) and not rules.exact)
        while True:
            fate, tried = self.fate if tried < RESETS else self.calm, tried + 1
            process = Process(self.brokers, fate)
            try:
                done = await process.begin(reset(self.now, to, forget=forget))
                break
            except (Killed, asyncio.CancelledError, SeqmarkError, KafkaError) as error:
                if fate is not self.calm:
                    continue
                # Only what was not written cannot be known again, or what others had delivered.
                known = "refresh" in str(error) or (self.backfilled and "backfill" in str(error))
                if not (is_refusal(error) and known):
                    raise
                return
            finally:
                await process.gone()
        for number, (state, known_from) in done.items():
            if number in self._start:
                self._start[number] = to[number]
                if state is ResetState.EMPTY:
                    self._known_from[number] = known_from
        await explained(self, "a reset is done")

    def _heard(self, step: StrEnum, hop: str) -> None:
        """Hear of a step that is done; its process may end here."""
        if self.loose and step == CommitStep.CHANGELOG:
            self._commits[hop] = self.brokers.commits
        if self.loose and step == CommitStep.OFFSETS:
            assert self.brokers.commits > self._commits[hop], "offsets are called committed before they are"
        end_here()

    def _marker_s(self) -> float:
        return self.dice.choice((0.0, 0.0, 0.0, 0.01, 1.0))

    def _fetch_bytes(self) -> int:
        return self.dice.choice((1, 300, 1_000, 5_000, 1_000_000))

    def _settings(self) -> Settings:
        worker = self.scenario.settings.worker.model_copy(
            update={
                "slots": 1 if self.loose else self.dice.choice((1, 1, 2, 3)),
                "guarantee": "at_least_once" if self.loose else "exactly_once",
                "commit_interval_ms": self.dice.choice((1, 100, 500)),
                "transaction_timeout_ms": self.dice.choice((10_000, int(LONGEST_TRANSACTION_S * 1000))),
            }
        )
        (pipeline,) = self.scenario.settings.pipelines
        if self.switches:
            output = self.dice.choice(("records", "verdicts", "both"))
            verdicts = None if output == "records" else pipeline.verdicts
            pipeline = pipeline.model_copy(update={"output": output, "verdicts": verdicts})
        return self.scenario.settings.model_copy(update={"worker": worker, "pipelines": [pipeline]})

    async def settled(self) -> None:
        """Wait for what workers of another number of slots have left: nobody has taken their ids since."""
        if any(log.open for log in self.brokers.logs.values()):
            await asyncio.sleep(LONGEST_TRANSACTION_S)

    async def calmly(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in a process of its own to which nothing happens."""
        process = Process(self.brokers, self.calm)
        try:
            return await process.begin(work)
        finally:
            await process.gone()

    # ---------------------------------------------------------------- workers

    async def work(self, settings: Settings, *, interrupted: bool = False) -> None:
        """Have the source taken in, by as many workers as it takes; or some of it, until all are killed."""
        self._done = self._interrupted = False
        self.brokers.slots = settings.worker.slots
        if interrupted:
            after_s = self.dice.expovariate(1)
            asyncio.get_running_loop().call_later(after_s, self._interrupt, context=self.outside)
        self._assign(settings)
        while self._lives:
            await asyncio.wait(self._lives, return_when=asyncio.FIRST_COMPLETED)
            for each in [life for life in self._lives if life.done()]:
                self._lives.remove(each)
                each.result()
            if not self._done and not self._interrupted and self._owner is None:
                self._assign(settings)
        # What was on its way has arrived by then, or was refused.
        await asyncio.sleep(ARRIVED_S)

    def _interrupt(self) -> None:
        self._interrupted = True
        for process in list(self._alive):
            with contextlib.suppress(Killed):
                process.kill()

    def _assign(self, settings: Settings) -> None:
        """Deal everything to a worker on a host that does nothing, if there is one."""
        free = [host for host in self._hosts if not host.busy]
        if free and self._owner is None and not self._interrupted:
            host = self.dice.choice(free)
            host.busy = True
            self._owner = process = Process(
                self.brokers, self.fate, host.stores, lambda: self._halted(process, settings)
            )
            self.brokers.group_owner = process
            self._alive[process] = None
            self._lives.append(asyncio.create_task(self._live(host, process, settings)))

    def _halted(self, process: Process, settings: Settings) -> None:
        if self._owner is process and not all(host.busy for host in self._hosts):
            self._owner = None
            # Not here, in the process's own context: what it makes is its own.
            asyncio.get_running_loop().call_soon(self._assign, settings, context=self.outside)

    async def _live(self, host: Host, process: Process, settings: Settings) -> None:
        worker = SimulatedWorker(process, settings)
        try:
            drained = await process.begin(worker.run())
        except (Killed, asyncio.CancelledError):
            assert not process.alive
            drained = False
        await process.gone()
        self._alive.pop(process)
        if not process.alive:
            lose_some(self.dice, host.stores, host.older)
        host.busy = False
        if isinstance(worker.error, StopError) and (
            self.may_stop or self.scenario.kind.topics.quarantine is None
        ):
            drained = True
        elif worker.error is not None:
            raise worker.error
        if process is self._owner:
            self._owner = None
            self._done = drained
        elif not drained:
            # It may have fenced before the owner was done, and leaves its transaction to whoever comes next.
            self._done = False


def _of_a_process(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return adopt(asyncio.Task(work, loop=loop, **options))
