"""Reads the retained topics of a pipeline once, and keeps where the wanted records were seen.

However often they occur, only the first and the last of a partition are kept, and how many there were. Of those
that are not kept it is counted how many are to be told of: what is in the source, and what stands in an output
of a record that the source does not retain any more. So the clean topic is read when the source has been.

Two partitions are read at a time, each over connections of its own; nothing is joined and nothing written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.timeline.wanted import rows_of
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds, offsets_at
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.plan import Purpose
from processor.wire.decode import Decoder
from processor.wire.quarantine import QuarantineNote
from processor.wire.receipt_values import ReceiptValue, RecordRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.timeline.wanted import Matcher, Wanted
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from schemas.config import Pipeline

AT_ONCE = 2
"""Partitions: one is compared while the next bytes of the other come."""


class Sighting(NamedTuple):
    """A record that was asked for, or a receipt of one.

    Attributes:
        ref: Where it stands.
        timestamp_ms: Its timestamp; a receipt has that of the record it is about.
        source: The record in the source that it is about; None: it does not say, as a record of the sink.
    """

    ref: RecordRef
    timestamp_ms: int
    source: RecordRef | None


@dataclass
class Sightings:
    """What was seen in one partition; ``most`` are kept of the first ones, and of the last ones.

    Attributes:
        role: What the topic is.
        tp: The partition.
        bounds: Its bounds when it was read.
        span: From which offset to before which it was read.
        since_ms: The timestamp of the first record that was read; None: there was none.
        count: How many were seen.
        records: How many were looked at.
        untold: Of those that were not kept, how many are to be told of.
        counts: Says whether one is.
    """

    role: Purpose
    tp: TopicPartition
    bounds: Bounds
    span: tuple[int, int]
    most: int
    since_ms: int | None = None
    count: int = 0
    records: int = 0
    first: list[Sighting] = field(default_factory=list)
    last: deque[Sighting] = field(default_factory=deque)
    untold: int = 0
    counts: Callable[[Sighting], bool] = field(default=lambda _: True)

    def add(self, seen: Sighting) -> None:
        """Note one; they come in the order of their offsets."""
        self.count += 1
        if len(self.first) < self.most:
            self.first.append(seen)
            return
        self.last.append(seen)
        if len(self.last) > self.most:
            self.untold += self.counts(self.last.popleft())

    @property
    def kept(self) -> list[Sighting]:
        """Those that were kept, in order."""
        return [*self.first, *self.last]

    @property
    def is_whole(self) -> bool:
        """Whether all were kept."""
        return self.count == len(self.first) + len(self.last)


@dataclass(frozen=True)
class SeenSources:
    """What was seen in the partitions of the source.

    Attributes:
        by_number: By partition, what was seen.
        times: The timestamps of what was kept.
        first_ms: The earliest of them; None: nothing was.
        whole: Whether nothing was left out.
    """

    by_number: Mapping[int, Sightings]
    times: frozenset[int]
    first_ms: int | None
    whole: bool

    @classmethod
    def of(cls, found: Iterable[Sightings]) -> SeenSources:
        """Return what was seen up to now."""
        by_number = {each.tp.partition: each for each in found if each.role is Purpose.SOURCE}
        times = frozenset(seen.timestamp_ms for each in by_number.values() for seen in each.kept)
        whole = all(each.is_whole for each in by_number.values())
        return cls(by_number, times, min(times, default=None), whole)

    def is_gone(self, seen: Sighting) -> bool:
        """Whether the source does not retain the record any more that a receipt or a copy is about.

        Else it has been seen there, or is another's.
        """
        if seen.source is None or seen.source.partition not in self.by_number:
            return False
        return seen.source.offset < self.by_number[seen.source.partition].bounds.start

    def lacks(self, seen: Sighting) -> bool:
        """Whether no record of the source is that of a clean one, which keeps its timestamp."""
        if seen.timestamp_ms in self.times:
            return False
        return self.whole or self.first_ms is None or seen.timestamp_ms < self.first_ms


@dataclass(frozen=True)
class ScanOrder:
    """What is read, and how much of it is kept.

    Attributes:
        pipeline: Whose topics.
        wanted: What was asked for.
        begin_ms: Only from the first record with at least this timestamp on.
        end_ms: Only up to before the first record with at least this timestamp.
        most: So many of the first sightings of a partition are kept, and of the last.
        secrets: By partition, where a content is asked for.
    """

    pipeline: Pipeline
    wanted: Wanted
    begin_ms: int | None = None
    end_ms: int | None = None
    most: int = 20
    secrets: Mapping[int, bytes] = field(default_factory=dict)

    def topics(self) -> Iterator[tuple[Purpose, str]]:
        """Yield what is read; nothing twice."""
        pipeline = self.pipeline
        yield Purpose.SOURCE, pipeline.source
        if pipeline.writes_records:
            yield Purpose.SINK, pipeline.clean_topic
        # A field of the value stands in no receipt: those of what was found in the source are looked up.
        if pipeline.duplicates is not None and not self.wanted.fields:
            yield Purpose.DUPLICATES, pipeline.duplicates
        if pipeline.quarantine is not None:
            yield Purpose.QUARANTINE, pipeline.quarantine

    def matchers(self, role: Purpose, number: int) -> list[Matcher]:
        """Return what finds the wanted records in a partition."""
        if role is Purpose.DUPLICATES:
            return self.wanted.of_receipts()
        return self.wanted.of_records(self.pipeline, self.secrets.get(number))


class Scan:
    """One pass over all topics of an order.

    Args:
        order: What is read.
        connect: Opens connections that know all its topics.
        note: Takes sentences about what could not be read.
    """

    def __init__(
        self,
        order: ScanOrder,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        note: Callable[[str], None],
    ) -> None:
        self._order = order
        self._connect = connect
        self._note = note
        self._sources_read = asyncio.Event()
        self.found: list[Sightings] = []

    async def open(self, client: Client) -> int:
        """Look at the topics; returns how many offsets there are to read.

        Raises:
            RebuildError: The brokers do not answer.
        """
        order = self._order
        roles = {
            TopicPartition(topic, number): role
            for role, topic in order.topics()
            for number in sorted(client.partitions(topic))
        }
        limits = await bounds(client, roles)
        begin = {} if order.begin_ms is None else await offsets_at(client, roles, order.begin_ms)
        end = {} if order.end_ms is None else await offsets_at(client, roles, order.end_ms)
        for tp, role in roles.items():
            stop = limits[tp].stable
            first, last = begin.get(tp, limits[tp].start), end.get(tp, stop)
            # None: nothing is as young as that yet.
            span = stop if first is None else first, stop if last is None else min(last, stop)
            self.found.append(Sightings(role, tp, limits[tp], span, order.most))
        return sum(max(0, each.span[1] - each.span[0]) for each in self.found)

    async def run(self, advance: Callable[[int], None]) -> list[Sightings]:
        """Read everything; ``advance`` is called with the number of offsets done since its last call.

        Raises:
            RebuildError: The brokers do not answer.
        """
        turn = iter(sorted(self.found, key=lambda each: each.role is Purpose.SINK))
        left = {each.tp for each in self.found if each.role is Purpose.SOURCE}
        if not left:
            self._sources_read.set()

        async def work() -> None:
            async with self._connect() as client:
                decoder = Decoder()
                for each in turn:
                    await self._judge_by_source(each)
                    await self._read(client, decoder, each, advance)
                    left.discard(each.tp)
                    if not left:
                        self._sources_read.set()

        tasks = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(self.found)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self.found

    async def _judge_by_source(self, seen: Sightings) -> None:
        """Say what of an output is to be told of, once that is known."""
        if seen.role is Purpose.SINK:
            await self._sources_read.wait()
            seen.counts = SeenSources.of(self.found).lacks
        elif seen.role is not Purpose.SOURCE:
            seen.counts = SeenSources.of(self.found).is_gone

    async def _read(
        self, client: Client, decoder: Decoder, seen: Sightings, advance: Callable[[int], None]
    ) -> None:
        matchers = self._order.matchers(seen.role, seen.tp.partition)
        at, stop = seen.span
        reader = PartitionReader(client, decoder, seen.tp, NoteAndGoOn(client, self._note), ahead=True)
        async with aclosing(reader.columns(at, stop)) as pieces:
            async for columns, after in pieces:
                self._take(seen, columns, rows_of(matchers, columns))
                advance(after - at)
                at = after
        advance(max(0, stop - at))

    def _take(self, seen: Sightings, columns: Columns, rows: NDArray[np.int64]) -> None:
        if len(columns) and seen.since_ms is None:
            seen.since_ms = int(columns.timestamp[0])
        seen.records += len(columns)
        for row in rows.tolist():
            ref = RecordRef(seen.tp.topic, seen.tp.partition, int(columns.offset[row]))
            source = self._source(seen.role, columns, row, ref)
            if source is not None or seen.role is Purpose.SINK:
                seen.add(Sighting(ref, int(columns.timestamp[row]), source))

    def _source(self, role: Purpose, columns: Columns, row: int, ref: RecordRef) -> RecordRef | None:
        """Return which record of the source a row is, or is about; None: it does not say, or is another's."""
        pipeline = self._order.pipeline
        if role is Purpose.SOURCE:
            return ref
        if role is Purpose.DUPLICATES:
            said = ReceiptValue.at(columns, row)
            return said.source if said is not None and said.pipeline == pipeline.name else None
        if role is Purpose.QUARANTINE:
            aside = QuarantineNote.at(columns, row)
            return aside.source if aside is not None and aside.source.topic == pipeline.source else None
        return None
