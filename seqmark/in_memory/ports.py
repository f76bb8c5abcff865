"""What a slot's pipeline is given in place of Kafka: requests, a producer, a changelog.

Every effect on the cluster goes through a `Wire`, which is where a simulation refuses it, loses its answer,
lets it come late, or ends who asks.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from processor.errors import RebuildError
from processor.kafka.client import TopicPartition
from processor.state.changelog import ChangelogBounds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from processor.engine.batch.columns import Columns
    from processor.wire.decode import Chunk, Decoder
    from processor.wire.encode import EncodedBatch
    from seqmark.in_memory.cluster import MemoryCluster, TransactionOwner

Answer = TypeVar("Answer")


class Wire:
    """Requests that arrive at once, in order, and are answered."""

    @property
    def fetch_bytes(self) -> int:
        """What a fetch brings, about."""
        return 1024 * 1024

    async def request(self, what: str, effect: Callable[[], Answer]) -> Answer:
        """Have ``effect`` happen in the cluster, and return its answer; ``what`` names the request."""
        del what
        return effect()

    def next_of(self, waiting: Sequence[TopicPartition], *, flushing: bool) -> TopicPartition | None:
        """Say whose oldest batch leaves now, of partitions that have one; None: nothing before the flush."""
        del flushing
        return waiting[0]


class MemoryProducer:
    """Sends the batches of one owner; once it has failed, it fails."""

    def __init__(self, cluster: MemoryCluster, owner: TransactionOwner, wire: Wire) -> None:
        self._cluster, self._owner, self._wire = cluster, owner, wire
        self._queues: dict[TopicPartition, deque[EncodedBatch]] = {}
        self._expected: set[TopicPartition] = set()
        self._acknowledged: dict[TopicPartition, int] = {}
        self._failure: Exception | None = None

    def begin(self, group_id: str | None = None) -> None:
        """Begin a transaction: the cluster hears of it with the first batch."""
        del group_id

    def expect(self, partition: TopicPartition) -> None:
        """Say that the transaction will write there: it becomes a part of it with the next batch."""
        self._expected.add(partition)

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches; some of what is queued leaves."""
        self._queues.setdefault(TopicPartition(topic, partition), deque()).extend(batches)
        await self._leave(flushing=False)

    async def flush(self) -> None:
        """Have everything acknowledged."""
        await self._leave(flushing=True)

    async def _leave(self, *, flushing: bool) -> None:
        while waiting := [tp for tp, queue in self._queues.items() if queue]:
            tp = self._wire.next_of(waiting, flushing=flushing)
            if tp is None:
                break
            batch = self._queues[tp].popleft()
            also, self._expected = self._expected, set()
            effect = partial(self._cluster.produce, self._owner, tp, batch, also)
            self._acknowledged[tp] = await self._request("produce", effect)

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last acknowledged batch of a partition."""
        return self._acknowledged[TopicPartition(topic, partition)]

    async def add_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], note: str = "") -> None:
        """Make the group's offsets part of the transaction."""
        del group_id, note
        await self._request("offsets", partial(self._cluster.add_offsets, self._owner, dict(offsets)))

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction."""
        await self._request("end", partial(self._cluster.end, self._owner, commit=commit))

    async def _request(self, what: str, effect: Callable[[], Answer]) -> Answer:
        if self._failure is not None:
            raise self._failure
        try:
            return await self._wire.request(what, effect)
        except Exception as error:
            self._failure = error
            raise


class MemoryChangelog:
    """A `processor.state.changelog.Changelog` over a cluster in memory."""

    def __init__(self, cluster: MemoryCluster, tp: TopicPartition, decoder: Decoder, wire: Wire) -> None:
        self.name = f"{tp.topic}:{tp.partition}"
        self._cluster, self._tp, self._decoder, self._wire = cluster, tp, decoder, wire

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        log = self._cluster.logs[self._tp]
        return await self._wire.request("bounds", lambda: ChangelogBounds(log.start, log.stable, log.end))

    async def columns(self, start: int, stop: int) -> AsyncGenerator[tuple[Columns, int]]:
        """Yield committed records, good until the next await, and the position after them."""
        at = start
        while at < stop:
            chunk = await self._wire.request("fetch", partial(self._fetch, at))
            if not chunk.data:
                return
            for piece in self._decoder.pieces(chunk):
                at = piece.next_offset
                yield piece.up_to(stop)
                if at >= stop:
                    return

    def _fetch(self, position: int) -> Chunk:
        start = self._cluster.logs[self._tp].start
        if position < start:
            # Somebody else owns the slot by now, and has deleted what it needs no more.
            raise RebuildError("changelog", f"{self.name}: it begins at {start}, and {position} was asked for")
        return self._cluster.fetch(self._tp.topic, self._tp.partition, position, self._wire.fetch_bytes)
