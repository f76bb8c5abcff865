"""Reads the topic of verdicts for `seqmark apply`, by the worker's own reader."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.wire.decode import Decoder
from schemas.verdicts.ranges import VerdictRanges
from schemas.verdicts.record import UNKNOWN_TOPIC, CorruptVerdictError, VerdictRecord, begun_at
from spark_sink.batch.lake.apply.job import RANGE_COST, SkippedRange, VerdictTopic, VerdictTopicState
from spark_sink.batch.lake.apply.progress import ApplyProgress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
    from typing import Any, TypeVar

    from processor.kafka.client import Client
    from schemas.config import Kafka, Pipeline

    T = TypeVar("T")

CLIENT_ID = "seqmark-apply"
_READ = StopReading(
    damage=": nothing behind it was applied",
    loss=": retention has removed it meanwhile. Run the same command again",
)


class AppliedVerdicts(VerdictTopic):
    """The verdicts of one pipeline, and its source.

    Args:
        kafka: How the cluster is reached.
        pipeline: Whose.
        skip_expired: Whether verdicts of a topic that had the source's name before are passed over.
        say: Told of verdicts that are not retained any more.
    """

    def __init__(
        self, kafka: Kafka, pipeline: Pipeline, *, skip_expired: bool, say: Callable[[str], None]
    ) -> None:
        assert pipeline.verdicts is not None  # noqa: S101 - the command has asked
        self.source, self._verdicts = pipeline.source, pipeline.verdicts
        self._kafka, self._skip_expired, self._say = kafka, skip_expired, say
        self._decoder = Decoder()
        self._starts: dict[int, int] = {}
        self._begins: dict[int, list[tuple[int, int]]] = {}
        """By partition the records that begin, of those to be read: their offsets, and their ranges' bases."""

    def look(self) -> VerdictTopicState:
        """Return the topic of verdicts as it is now."""
        return _ran(self._look())

    def ranges(self, at: Mapping[int, int], ends: Mapping[int, int], most: int) -> list[SkippedRange]:
        """Return the next records."""
        return _ran(self._ranges(at, ends, most))

    def first_records(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return where the source goes on."""
        return _ran(self._first_records(spans)) if spans else {}

    async def _look(self) -> VerdictTopicState:
        async with open_client(self._kafka, CLIENT_ID, [self.source, self._verdicts]) as client:
            for topic in (self.source, self._verdicts):
                if not client.partitions(topic):
                    raise StopError(f"there is no topic {topic} at {self._kafka.bootstrap_servers}")
            numbers = sorted(client.partitions(self._verdicts))
            found = await bounds(client, [TopicPartition(self._verdicts, number) for number in numbers])
            limits = {tp.partition: each for tp, each in found.items()}
            self._starts = {number: each.start for number, each in limits.items()}
            verdicts_id, source_id = (
                client.ids.get(topic, UNKNOWN_TOPIC).hex() for topic in (self._verdicts, self.source)
            )
        ends = {number: each.stable for number, each in limits.items()}
        return VerdictTopicState(self._verdicts, ApplyProgress(verdicts_id, source_id, self._starts), ends)

    async def _begun(self, client: Client, number: int, start: int, stop: int) -> list[tuple[int, int]]:
        found = []
        async with aclosing(self._values(client, number, start, stop)) as values:
            async for offset, value in values:
                if (base := begun_at(value)) is not None:
                    found.append((offset, base))
        return found

    async def _values(
        self, client: Client, number: int, start: int, stop: int
    ) -> AsyncGenerator[tuple[int, bytes]]:
        reader = PartitionReader(client, self._decoder, TopicPartition(self._verdicts, number), _READ)
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, _ in pieces:
                for row in range(len(columns)):
                    at, size = int(columns.value[row]), max(0, int(columns.value_length[row]))
                    yield int(columns.offset[row]), columns.data[at : at + size].tobytes()

    async def _ranges(self, at: Mapping[int, int], ends: Mapping[int, int], most: int) -> list[SkippedRange]:
        found: list[SkippedRange] = []
        size = 0
        async with open_client(self._kafka, CLIENT_ID, [self.source, self._verdicts]) as client:
            for number, start in at.items():
                if size >= most:
                    break
                async with aclosing(self._ranges_of(client, number, start, ends[number])) as some:
                    async for each in some:
                        found.append(each)
                        size += each.skipped.size + RANGE_COST
                        if size >= most:
                            break
        return found

    async def _ranges_of(
        self, client: Client, number: int, start: int, stop: int
    ) -> AsyncGenerator[SkippedRange]:
        ranges = VerdictRanges(number, client.ids.get(self.source, UNKNOWN_TOPIC))
        # The record before says where the next has to go on.
        begin = max(self._starts[number], start - 1)
        if start >= stop:
            return
        if number not in self._begins:
            self._begins[number] = await self._begun(client, number, start, stop)
        last: SkippedRange | None = None
        first = start == self._starts[number]
        async with aclosing(self._values(client, number, begin, stop)) as values:
            async for offset, value in values:
                try:
                    found = self._taken(ranges, value, finished=offset < start)
                except CorruptVerdictError as error:
                    raise StopError(
                        f"{self._verdicts}:{number}:{offset}: the verdict record: {error}"
                    ) from error
                if offset < start:
                    continue
                if first and found is not None and not found.begins and found.base:
                    self._say(
                        f"{self._verdicts}:{number}: verdicts of source offsets before {found.base} are not "
                        "retained any more: rows that they skip stay, unless an earlier run has deleted them"
                    )
                first = False
                if last is not None:
                    yield last
                last = self._left(number, offset, found)
        if last is not None:
            # What is behind it are markers of transactions: retention may take them, and nothing is unread.
            yield last._replace(after=stop)

    def _left(self, number: int, offset: int, found: VerdictRecord | None) -> SkippedRange:
        """Return a record without what newer ones overrule; None: it is of another topic."""
        if found is None:
            return SkippedRange(number, offset + 1, 0, 0, np.zeros(0, np.int64))
        cut = min((base for at, base in self._begins[number] if at > offset), default=found.end)
        end = max(found.base, min(found.end, cut))
        return SkippedRange(number, offset + 1, found.base, end, found.skipped[found.skipped < end])

    def _taken(self, ranges: VerdictRanges, value: bytes, *, finished: bool) -> VerdictRecord | None:
        """Return the next verdict record; None: it speaks of another topic.

        Raises:
            CorruptVerdictError: It is not right.
        """
        found = VerdictRecord.decode(value)
        other = UNKNOWN_TOPIC not in {found.topic_id, ranges.topic_id} and found.topic_id != ranges.topic_id
        if not other:
            return ranges.take(value)
        if not (finished or self._skip_expired):
            raise CorruptVerdictError(
                "it was made from another topic by the source's name, which was deleted and made anew. If the "
                "table has rows of the new topic only, --skip-expired goes on behind what it said of the other"
            )
        ranges.end = -1  # What follows has to begin.
        return None

    async def _first_records(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        found = {}
        async with open_client(self._kafka, CLIENT_ID, [self.source]) as client:
            limits = await bounds(client, [TopicPartition(self.source, number) for number in spans])
            for tp, each in limits.items():
                start, stop = spans[tp.partition]
                found[tp.partition] = (
                    start if each.start > start else await self._first(client, tp, start, stop)
                )
        return found

    async def _first(self, client: Client, tp: TopicPartition, start: int, stop: int) -> int:
        reader = PartitionReader(client, self._decoder, tp, _READ)
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, _ in pieces:
                if len(columns):
                    return int(columns.offset[0])
        return stop


def _ran(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except RebuildError as error:
        raise StopError(f"the brokers do not answer ({error}): run the same command again") from error
