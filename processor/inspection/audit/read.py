"""Reads what is retained of a topic: a sample of it, and then all of it once, for who judges it.

Nothing is written into Kafka and no group is joined. The partitions are read one after the other, the next
bytes are fetched while the last are judged. Unlike a worker it steps over what cannot be decoded, and says so.
Where not all is read, the oldest, the newest and what lies between are, of each partition; or the newest.

Those of a stretch of the sample are consecutive: a copy is likely to be there with what it is a copy of.
"""

from __future__ import annotations

import math
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from processor.errors import RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.topic_records import TopicRecord, records
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import bounds, spans_since
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.ensure import connected, describe
from processor.ops.status_text import count
from processor.wire.decode import Decoder
from schemas.near import nearest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client
    from schemas.config import Kafka

    Progress = Callable[[int], Callable[[int], None]]
    """Called before each pass with the number of offsets; gives a function that takes how many were read."""

LOOKED_AT = 5_000
"""Records that are taken apart for what could tell them from each other; Python looks at each."""
MOST_PARTITIONS = 32
"""Sampled, those with the most records: of a thousand partitions one record each would show no copies."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of the sample's keys and values, all partitions together."""
_FEW_MORE = 3
"""Times the wanted records: a partition that has no more offsets is looked at from its end alone."""
_LOOKS, _WIDER = 4, 8
"""Markers and compaction leave fewer records than offsets: so often a range so many times as wide is read."""


class ReadExtent(NamedTuple):
    """What is read of a topic.

    Attributes:
        since_ms: From the first record at or after this time; None: from the earliest.
        records: About so many; None: all.
        seconds: For about so long; None: until all is read.
        newest: Whether of less than all the newest are read, the same part of each partition.
    """

    since_ms: int | None = None
    records: int | None = None
    seconds: float | None = None
    newest: bool = False


class ReadStretch(NamedTuple):
    """Consecutive offsets of a partition."""

    tp: TopicPartition
    start: int
    stop: int


class Taker(Protocol):
    """Who takes the records of a pass."""

    def begin(self, partition: int, some: int) -> None:
        """Begin a stretch of a partition, of which ``some`` records are for who cannot take all."""

    def take(self, columns: Columns) -> None:
        """Take the next records of the stretch."""


class RetainedReader:
    """Reads a topic.

    Attributes:
        partitions: How many it has.
        existing: Those of the other topics that were asked about which exist, with their partitions.
        sample: Some of its records: partition after partition, in the order of their offsets.
        notes: What was left out.
        cut: How many stretches of the last pass were not read to their end for lack of time.
    """

    def __init__(self, client: Client, topic: str, existing: Mapping[str, int]) -> None:
        self.partitions = len(client.partitions(topic))
        self.existing = existing
        self.sample: list[TopicRecord] = []
        self.notes: list[str] = []
        self.cut = 0
        self._client, self._topic = client, topic
        self._decoder, self._policy = Decoder(), NoteAndGoOn(client, self._note)

    def _note(self, text: str) -> None:
        if text not in self.notes:  # a second pass finds the same
            self.notes.append(text)

    async def plan(self, extent: ReadExtent) -> tuple[list[ReadStretch], int]:
        """Return the stretches to read, and how many offsets there are.

        Raises:
            StopError: There are none.
        """
        retained = await spans_since(self._client, self._topic, extent.since_ms)
        spans = {tp: (start, stop) for tp, (start, stop) in retained.items() if start < stop}
        if not spans:
            wait = "choose an earlier --since, or wait for its producer"
            raise StopError(f"{self._topic} has no records there: {wait}")
        return stretches(spans, extent), sum(stop - start for start, stop in spans.values())

    async def run(
        self,
        plan: Sequence[ReadStretch],
        taker: Taker,
        some: int,
        progress: Progress,
        seconds: float | None = None,
    ) -> None:
        """Have all of a plan be taken, in about so many seconds; ``some`` records are parted by stretches."""
        self.cut, ends_s = 0, math.inf if seconds is None else time.monotonic() + seconds
        offsets = sum(each.stop - each.start for each in plan)
        advance = progress(offsets)
        for number, (tp, start, stop) in enumerate(plan):
            now_s, at = time.monotonic(), start
            until_s = now_s + max(0.0, ends_s - now_s) / (len(plan) - number)
            taker.begin(tp.partition, -(-(stop - start) * some // offsets))
            reader = PartitionReader(self._client, self._decoder, tp, self._policy, ahead=True)
            async with aclosing(reader.columns(start, stop)) as pieces:
                async for columns, after in pieces:
                    taker.take(columns)
                    advance(after - at)
                    at = after
                    if time.monotonic() > until_s and at < stop:
                        self.cut += 1
                        break

    async def record(self, partition: int, offset: int) -> TopicRecord | None:
        """Return a record; None: it is not there any more."""
        tp = TopicPartition(self._topic, partition)
        found, _ = await self._some(tp, offset, offset + 1, 1, _MOST_BYTES)
        return found[0] if found else None

    async def take_sample(self, most: int = LOOKED_AT) -> None:
        """Take about ``most`` records, a third of them the oldest, in the middle, and the newest each.

        Raises:
            StopError: There are none.
        """
        numbers = [
            TopicPartition(self._topic, number) for number in sorted(self._client.partitions(self._topic))
        ]
        now = await bounds(self._client, numbers)
        wanted = shares({tp.partition: max(each.stable - each.start, 0) for tp, each in now.items()}, most)
        for number in sorted(wanted):
            tp = TopicPartition(self._topic, number)
            start, stop = now[tp].start, now[tp].stable
            share, most_bytes = wanted[number], _MOST_BYTES // len(wanted)
            if stop - start > share * _FEW_MORE:
                for begin in (start, (start + stop) // 2):
                    first, _ = await self._some(tp, begin, stop, share // 3, most_bytes // 3)
                    start = first[-1].offset + 1 if first else start
                    self.sample += first
                share, most_bytes = share - 2 * (share // 3), most_bytes // 3
            self.sample += await self._newest(tp, start, stop, share, most_bytes)
        if not self.sample:
            # What cannot be read is the better reason.
            why = " ".join(self.notes) or "run this again when its producer has written"
            hidden = sum(max(each.end - each.stable, 0) for each in now.values())
            behind = f" but {count(hidden, 'offset')} behind an open transaction" if hidden else ""
            raise StopError(f"{self._topic} has no records{behind}: {why}")

    async def _newest(
        self, tp: TopicPartition, start: int, stop: int, wanted: int, most_bytes: int
    ) -> list[TopicRecord]:
        """Return the last records of a partition, about ``wanted`` of them."""
        newest: list[TopicRecord] = []
        span = wanted
        for _ in range(_LOOKS):
            begin = max(start, stop - span)
            newest, full = await self._some(tp, begin, stop, span, most_bytes)
            if full or len(newest) >= wanted / 2 or begin == start:
                break
            span *= _WIDER
        return newest[-wanted:]

    async def _some(
        self, tp: TopicPartition, start: int, stop: int, wanted: int, most_bytes: int
    ) -> tuple[list[TopicRecord], bool]:
        """Return the first records from an offset on, and whether more bytes are not taken."""
        found: list[TopicRecord] = []
        reader, size = PartitionReader(self._client, self._decoder, tp, self._policy), 0
        async with aclosing(records(reader, tp, start, stop)) as there:
            async for some in there:
                found += some
                size += sum(len(each.key or b"") + len(each.value or b"") for each in some)
                if len(found) >= wanted or size > most_bytes:
                    break
        return found[:wanted], size > most_bytes


@asynccontextmanager
async def opened(
    kafka: Kafka, client_id: str, topic: str, others: Collection[str]
) -> AsyncIterator[RetainedReader]:
    """Open a topic, take a sample of it, and look which of the others exist; one that is hidden does not.

    Raises:
        StopError: The broker cannot be reached, the topic does not exist, has no records or cannot be read.
        ConfigError: Files of certificates or keys are wrong.
    """
    check_aiokafka()
    async with connected(kafka) as admin:
        found = await describe(admin, [topic], others)
        if topic not in found:
            there = [name for name in await admin.list_topics() if not name.startswith("__")]
            instead = nearest(topic, there) if there else "the cluster has no topics yet"
            raise StopError(f"there is no topic {topic} at {kafka.bootstrap_servers}: {instead}")
    existing = {name: found[name].partitions for name in others if name in found and name != topic}
    async with open_client(kafka, client_id, [topic]) as client:
        try:
            reader = RetainedReader(client, topic, existing)
            await reader.take_sample()
            yield reader
        except RebuildError as error:
            raise StopError(f"{topic} cannot be read: {error}. Is the cluster well?") from error


def stretches(spans: Mapping[TopicPartition, tuple[int, int]], extent: ReadExtent) -> list[ReadStretch]:
    """Return what to read of some spans: all, the newest, or the oldest, the newest and the middle of each.

    Args:
        spans: From which offset to before which the partitions go.
        extent: How many; where time may end before all is read, each of the three is as long as it can be.
    """
    there = sum(stop - start for start, stop in spans.values())
    most = there if extent.records is None else min(extent.records, there)
    if most >= there and extent.seconds is None:
        return [ReadStretch(tp, *span) for tp, span in spans.items()]
    found = []
    for tp, (start, stop) in spans.items():
        if extent.newest:
            found.append((tp, stop - -(-(stop - start) * most // there), stop))
            continue
        third = max(1, math.ceil((stop - start) * most / there / 3))
        middle = max(start + third, (start + stop - third) // 2)
        newest = max(min(middle + third, stop), stop - third)
        found += [
            (tp, start, min(start + third, stop)),
            (tp, middle, min(middle + third, stop)),
            (tp, newest, stop),
        ]
    return [ReadStretch(*each) for each in found if each[1] < each[2]]


def shares(there: Mapping[int, int], most: int) -> dict[int, int]:
    """Return how many records to sample of each partition: alike, and more where others have fewer.

    Args:
        there: How many offsets each has; those without any get no share.
        most: All together.
    """
    fullest = sorted(((number, each) for number, each in there.items() if each), key=lambda item: -item[1])
    fullest, wanted, left = fullest[:MOST_PARTITIONS], {}, most
    for behind, (number, each) in enumerate(reversed(fullest)):
        share = min(each, -(-left // (len(fullest) - behind)))
        if share:
            wanted[number] = share
        left -= share
    return wanted
