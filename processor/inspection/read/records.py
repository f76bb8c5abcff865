"""Reads the committed records of a topic, one partition after the other, as a consumer without a group.

Nothing is joined and nothing is committed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem, RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.read.order import Begin
from processor.inspection.topic_records import records
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.offsets import bounds, last_stable, offsets_at
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.ensure import connected, describe
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from processor.inspection.read.order import ReadOrder
    from processor.inspection.topic_records import TopicRecord
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from schemas.config import Kafka

POLL_S = 0.25
"""Between two looks whether more has come; a person who watches notices no delay."""
ANSWER_S = 2.0
"""For the leaders to say where partitions end; after that a person is told that they do not answer."""
GONE_S = 5.0
"""Whoever deletes a topic to begin it anew creates it within this."""


@dataclass
class ReadResult:
    """What has been read.

    Attributes:
        records: How many were given out.
        left: Offsets behind the limit, markers of transactions included.
        open: Offsets that were behind an open transaction.
        damaged: Places that could not be read.
    """

    records: int = 0
    left: int = 0
    open: int = 0
    damaged: int = 0


async def read_topic(
    kafka: Kafka, order: ReadOrder, take: Callable[[list[TopicRecord]], None], note: Callable[[str], None]
) -> ReadResult:
    """Give the records to ``take``, some at a time, and sentences about what was left out to ``note``.

    Partition after partition, each in the order of its offsets, up to the last stable offset that it has now;
    with ``follow`` whatever comes then, until the task is cancelled. That waits while no broker answers, and
    reads a topic that is deleted and created again from its beginning.

    Raises:
        StopError: The topic does not exist, or not any more, or cannot be read.
        ConfigError: There is no such partition, or files of certificates or keys are wrong.
    """
    result = ReadResult()
    while True:
        async with connected(kafka) as admin:
            if order.topic not in await describe(admin, [order.topic]):
                raise StopError(
                    f"the topic {order.topic} does not exist: `seqmark topics` creates what a pipeline writes, "
                    "and so does a worker when it starts"
                )
        async with open_client(kafka, "seqmark-read", [order.topic]) as client:
            try:
                if await _TopicReading(client, order, take, note, result).run():
                    return result
            except RebuildError as error:
                raise StopError(f"{order.topic} cannot be read: {error}. Is the cluster well?") from error
        # A client speaks of one topic by a name: the new one has another client.
        note(f"{order.topic} was deleted and created again: reading it from its beginning")
        order = replace(order, begin=Begin(), partition=order.only)


@dataclass
class _TopicReading:
    """One run of `read_topic`; its arguments are attributes."""

    client: Client
    order: ReadOrder
    take: Callable[[list[TopicRecord]], None]
    note: Callable[[str], None]
    result: ReadResult
    decoder: Decoder = field(default_factory=Decoder)
    at: dict[int, int] = field(default_factory=dict)
    """By partition: the offset behind what was looked at."""

    async def run(self) -> bool:
        """Return whether all is read; else the topic is another one than it was."""
        result = self.result
        now = await self._bounds(self._partitions())
        self.at = await self._starts(now)
        ends = {number: max(self.at[number], each.stable) for number, each in now.items()}
        result.open = sum(max(each.end - each.stable, 0) for each in now.values())
        for number, end in ends.items():
            await self._partition(number, end)
        result.left = sum(end - self.at[number] for number, end in ends.items())
        return not self.order.follow or await self._follow({n: each.stable for n, each in now.items()})

    async def _follow(self, ends: dict[int, int]) -> bool:
        """Give out what comes behind ``ends``, the last stable offsets; returns as `run` does."""
        topic, gone_s, waiting = self.order.topic, 0.0, False
        while not self._is_full():
            await asyncio.sleep(POLL_S)
            await self.client.refresh()
            if topic in self.client.lost:
                if self.client.partitions(topic):
                    return False
                gone_s += POLL_S
                if gone_s > GONE_S:
                    raise StopError(f"the topic {topic} does not exist any more")
                continue
            gone_s = 0.0
            try:
                now = await self._ends()
                # Not every broker says by an id which topic it means; no log that goes on becomes shorter.
                if any(now[number] < end for number, end in ends.items()):
                    return False
                ends = now
                for number, end in ends.items():
                    await self._partition(number, end)
            except RebuildError as error:
                if not waiting and topic not in self.client.lost:
                    self.note(f"no broker answers; waiting ({error})")
                    waiting = True
                continue
            if waiting:
                self.note("the broker is back")
                waiting = False
        return True

    async def _ends(self) -> dict[int, int]:
        """Return where partitions end now; those that were added are read from their beginning."""
        added = self.client.partitions(self.order.topic) if self.order.only is None else set()
        self.at = dict.fromkeys(sorted(added), 0) | self.at
        found = await last_stable(self.client, map(self._tp, self.at), ANSWER_S)
        return {tp.partition: end for tp, end in found.items()}

    def _is_full(self) -> bool:
        return self.order.limit is not None and self.result.records >= self.order.limit

    def _tp(self, number: int) -> TopicPartition:
        return TopicPartition(self.order.topic, number)

    async def _bounds(self, numbers: Iterable[int]) -> dict[int, Bounds]:
        found = await bounds(self.client, map(self._tp, numbers))
        return {tp.partition: each for tp, each in found.items()}

    def _partitions(self) -> list[int]:
        """Return the numbers of the partitions to read, rising."""
        order, there = self.order, sorted(self.client.partitions(self.order.topic))
        wanted = order.only
        if wanted is None:
            return there
        if wanted not in there:
            key = "--partition" if order.begin.partition is None else "--from"
            right = f"must name one of the partitions 0 to {len(there) - 1} of {order.topic}"
            raise ConfigError([Problem(key, right)])
        return [wanted]

    async def _starts(self, now: dict[int, Bounds]) -> dict[int, int]:
        """Return where to begin in each partition."""
        begin = self.order.begin
        if begin.time_ms is not None:
            found = await offsets_at(self.client, map(self._tp, now), begin.time_ms)
            # None: nothing is as young as that yet.
            return {
                tp.partition: now[tp.partition].stable if at is None else at
                for tp, at in sorted(found.items(), key=lambda item: item[0].partition)
            }
        if begin.offset is None:
            return {number: each.stable if begin.latest else each.start for number, each in now.items()}
        ((number, there),) = now.items()
        name = f"{self.order.topic}:{number}"
        if begin.offset < there.start:
            self.note(
                f"{name} begins at offset {there.start} now: offset {begin.offset} is not retained any more."
            )
        elif begin.offset > there.end:
            self.note(f"{name} ends before offset {there.end} now: offset {begin.offset} is still to come.")
        return {number: max(begin.offset, there.start)}

    async def _partition(self, number: int, stop: int) -> None:
        """Give out one partition's records up to before ``stop``, and keep how far that is."""
        start = self.at[number]
        if start >= stop or self._is_full():
            return
        policy = NoteAndGoOn(self.client, self._damage)
        reader = PartitionReader(self.client, self.decoder, self._tp(number), policy)
        async with aclosing(records(reader, self._tp(number), start, stop, self.order.key)) as found:
            async for some in found:
                left = None if self.order.limit is None else self.order.limit - self.result.records
                self.take(some[:left])
                self.result.records += len(some[:left])
                self.at[number] = some[:left][-1].offset + 1
                if self._is_full():
                    return
        self.at[number] = stop

    def _damage(self, sentence: str) -> None:
        self.result.damaged += 1
        self.note(sentence)
