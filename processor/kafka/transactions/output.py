"""Makes a slot's work lasting: in a transaction, or in order.

Both outputs have the same six calls, so that the pipeline's commit reads the same for both guarantees. Whoever
commits beside a slot, a reset, a backfill or `materialize`, does so by a `transaction`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from processor.kafka.client import TopicPartition
from processor.ops.fault_points import CommitStep, reached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from processor.kafka.group.membership import Membership
    from processor.kafka.transactions.producer import Producer
    from processor.wire.encode import EncodedBatch


class OutputProducer(Protocol):
    """What outputs ask of a slot's producer; `processor.kafka.transactions.producer` has it."""

    def begin(self, group_id: str | None = None) -> None:
        """Begin a transaction."""

    def expect(self, partition: TopicPartition) -> None:
        """Say that the transaction will write to a partition."""

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches."""

    async def flush(self) -> None:
        """Wait until all are acknowledged."""

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last acknowledged batch."""

    async def add_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], note: str = "") -> None:
        """Make the group's offsets part of the transaction."""

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction."""


class _ProducerOutput:
    """What both outputs ask of the slot's producer alike."""

    def __init__(self, producer: OutputProducer, source: str) -> None:
        self._producer = producer
        self._source = source
        self.send, self.flush, self.next_offset = producer.send, producer.flush, producer.next_offset

    def _positions(self, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self._source, number): offset for number, offset in offsets.items()}


class ExactlyOnceOutput(_ProducerOutput):
    """Output, changelog and offsets in one transaction of the slot's transactional id, which is fenced.

    ``check`` is awaited before a transaction is committed, and raises what must keep it from that.
    """

    marker = 1

    def __init__(
        self,
        producer: OutputProducer,
        group_id: str,
        source: str,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(producer, source)
        self._group_id = group_id
        self._check = check

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin(self._group_id)

    def expect(self, topic: str, partition: int) -> None:
        """Say that the transaction will write there as well."""
        self._producer.expect(TopicPartition(topic, partition))

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None], note: str = "") -> None:
        """Make source offsets, with a note beside them, part of the transaction, call ``between``, commit."""
        if self._check is not None:
            await self._check()
        await self._producer.add_offsets(self._group_id, self._positions(offsets), note)
        between()
        await self._producer.end(commit=True)


class Transaction(ExactlyOnceOutput):
    """What `transaction` gives: send, `written`, and `done` in the end. Each raises what a `Producer` does."""

    name = ""

    async def written(self, step: CommitStep) -> None:
        """Wait until all that was sent is acknowledged, which is this step of the commit."""
        await self.flush()
        reached(step, self.name)

    async def done(self, offsets: Mapping[int, int], note: str = "") -> None:
        """Commit, with the group's offsets of the source where there are any."""
        if offsets:
            await self.commit(offsets, lambda: reached(CommitStep.OFFSETS, self.name), note)
        else:
            if self._check is not None:
                await self._check()
            await self._producer.end(commit=True)
        reached(CommitStep.ENDED, self.name)


@asynccontextmanager
async def transaction(
    producer: Producer,
    group_id: str,
    source: str,
    check: Callable[[], Awaitable[None]] | None = None,
    name: str = "",
) -> AsyncIterator[Transaction]:
    """Begin a transaction of a producer that holds its id; what the block does not commit is aborted.

    The arguments are those of `ExactlyOnceOutput`; ``name`` is of whoever commits, for faults.
    """
    made = Transaction(producer, group_id, source, check)
    made.name = name
    made.begin()
    reached(CommitStep.BEGUN, name)
    try:
        yield made
    finally:
        await producer.abort()


class AtLeastOnceOutput(_ProducerOutput):
    """Output acknowledged, then changelog, then the group's offsets; nothing binds them together."""

    marker = 0

    def __init__(self, producer: OutputProducer, membership: Membership, source: str) -> None:
        super().__init__(producer, source)
        self._membership = membership

    def begin(self) -> None:
        """Nothing to begin."""

    def expect(self, topic: str, partition: int) -> None:
        """Nobody to tell."""

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None]) -> None:
        """Commit the group's offsets with the member's generation, call ``between``: there is no step 5."""
        await self._membership.commit(self._positions(offsets))
        between()
