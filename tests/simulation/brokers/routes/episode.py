"""One episode of a pipeline with ``route``: two hops, each with slots, transactions and a state of its own.

Nothing decides how records of several source partitions fall in between each other, so what is left is not
compared with one truth, but with what holds of all (`tests.support.worker.routed`). Such a pipeline has no
reset: whoever wants it to begin once more deletes what it has, and may give it a history to begin with.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.kafka.client import TopicPartition
from processor.kafka.topics.ensure import ensure
from tests.simulation.brokers import backfills
from tests.simulation.brokers.backfills import CHANGELOG, INTERNAL, POSITIONS, RUN
from tests.simulation.brokers.episode import PARTITIONS, WorkerEpisode
from tests.simulation.brokers.kafka.cluster import Luck
from tests.simulation.brokers.routes import history as histories
from tests.simulation.brokers.routes import scenario as scenarios
from tests.simulation.truth.oracle import read
from tests.support.worker.routed import Brought, RoutedRules, Topics, assert_judged, judged_alone

if TYPE_CHECKING:
    from tests.support.kafka.topics import Record

OUTPUTS = ("sink", "receipts", "quarantine")


class RoutedEpisode(WorkerEpisode):
    """As `WorkerEpisode`, of a routed pipeline.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._before: dict[TopicPartition, int] = {}
        self._brought: Brought | None = None

    @override
    async def _run(self) -> None:
        self.outside = contextvars.copy_context()
        dice, brokers = self.dice, self.brokers
        self._quarantines = dice.choice((1, 2, PARTITIONS))
        sinks = dice.choice((1, 2, 3, 4))
        for name, count in (("source", PARTITIONS), ("sink", sinks), ("quarantine", self._quarantines)):
            brokers.create(name, count, scenarios.SOURCE_CONFIGS)
        self.scenario = scenarios.drawn(dice, brokers)
        self.now = self._settings()
        await self.calmly(ensure(self.now, create=True))
        brokers.luck = Luck(self._marker_s, lambda: self.fate.has("unmarked"), self._fetch_bytes)
        if dice.random() < 0.7:
            await self._begin_with_history()
        eras = dice.choice((1, 1, 2, 3))
        for era in range(eras):
            if era:
                await self._between()
            interrupted = era < eras - 1 and dice.random() < 0.3
            await self.work(self.now, interrupted=interrupted)
            if not interrupted:
                await self.settled()
                self._require_judged()

    @override
    async def _between(self) -> None:
        for number in range(len(self.scenario.records)):
            if self.dice.random() < 0.5:
                self.scenario.fill(self.dice, self.brokers, number)
        self.now = self._settings()
        if self.dice.random() < 0.5:
            await self._lose_state()
            if self.dice.random() < 0.7:
                await self._begin_with_history()

    async def _lose_state(self) -> None:
        """Delete both states, by which the pipeline begins once more; what is on its way is to go as well."""
        brokers = self.brokers
        for topic in (CHANGELOG, POSITIONS):
            brokers.recreate(topic)
        for tp in [each for each in brokers.offsets if each.topic in {"source", INTERNAL}]:
            del brokers.offsets[tp]
        for host in self._hosts:
            host.stores.clear()
            host.older.clear()
        numbers = range(brokers.topics[INTERNAL].partitions)
        if any(brokers.log(INTERNAL, each).start < brokers.log(INTERNAL, each).end for each in numbers):
            await backfills.refused(self, dict.fromkeys(range(PARTITIONS), 0), "while records are on their way")
        brokers.recreate(INTERNAL)
        self._brought = None
        self._before = {tp: log.end for tp, log in brokers.logs.items() if tp.topic in OUTPUTS}

    @override
    async def _begin_with_history(self) -> None:
        dice, brokers = self.dice, self.brokers
        ends = {number: brokers.log("source", number).stable for number in range(PARTITIONS)}
        cuts = {number: dice.choice((0, end, dice.randint(0, end))) for number, end in ends.items()}
        if dice.random() < 0.2:
            await backfills.overtaken(self, cuts, self.now.worker.slots + 1)
            return
        rules = self._rules
        if dice.random() < 0.5:
            earlier = [
                [each for each in some if each.offset < cuts[number]]
                for number, some in enumerate(self.scenario.records)
            ]
            known = {judged_alone(rules, each)[1] for some in earlier for each in some} - {None}
            self._brought = Brought(RUN, cuts, lambda _judged, _passed: known)
            await backfills.backfilled(self, cuts)
        else:
            history = histories.drawn(dice, brokers, rules, self.scenario.records)
            self._brought = Brought(RUN, cuts, history.known)
            await backfills.backfilled(self, cuts, histories.TOPIC)

    @property
    def _rules(self) -> RoutedRules:
        rules = self.scenario.rules
        assert isinstance(rules, RoutedRules)
        return rules

    def _require_judged(self) -> None:
        """Compare the outputs with what holds of all of them, and look whether anything is left on its way."""
        brokers = self.brokers
        for tp, log in brokers.logs.items():
            assert not log.open, f"a transaction is open on {tp.topic}:{tp.partition}"
        source = [each for some in self.scenario.records for each in some]
        sink, receipts, quarantine = map(self._written, OUTPUTS)
        found = Topics("source", source, sink, receipts, quarantine, self._quarantines)
        assert_judged(found, self._rules, self._brought)
        for topic in ("source", INTERNAL):
            for number in range(brokers.topics[topic].partitions):
                offset, end = brokers.offsets.get(TopicPartition(topic, number)), brokers.log(topic, number).end
                assert offset == end, f"the group is at {offset} of {topic}:{number}, not at {end}"

    def _written(self, topic: str) -> list[Record]:
        """Return what the present state has written to a topic."""
        return [
            each
            for number in range(self.brokers.topics[topic].partitions)
            for each in read(self.brokers, topic, number)
            if each.offset >= self._before.get(TopicPartition(topic, number), 0)
        ]
