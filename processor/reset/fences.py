"""Takes the transactional ids of the slots that are reset, so that nobody else can write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.kafka.client import Client, TopicPartition
from processor.kafka.options import client_options
from processor.kafka.transactions.coordinator import TransactionTimeoutError
from processor.kafka.transactions.fencing import SlotId, fenced

if TYPE_CHECKING:
    from collections.abc import Collection

    from processor.kafka.transactions.producer import Producer
    from processor.reset.context import ResetContext

TIMEOUT_MS = 900_000
"""A transaction holds the whole state, which may be gigabytes: as long as brokers allow by default
(transaction.max.timeout.ms), and the worker's own time-out where one allows less."""
DEADLINE_S = 60.0
"""For each request, and for each 8 MiB of state."""


class SlotFences:
    """The producers of a hop's slots, each with its slot's transactional id.

    Args:
        context: Of the hop.
        more: What its slots' ids write to beside what a worker's do.
    """

    def __init__(self, context: ResetContext, more: Collection[TopicPartition] = ()) -> None:
        self._context = context
        self._more = more
        self._producers: dict[int, Producer] = {}

    async def fence(self, slot: int) -> None:
        """Take the id of a slot and hold it."""
        self._producers[slot] = await self._taken(self._slot(slot))

    async def fence_former(self, number: int, slots: int) -> None:
        """Fence who wrote the state of a partition with another number of slots."""
        former = self._slot(0).former(number, slots)
        if former is not None:
            await (await self._taken(former)).close()

    def producer(self, slot: int) -> Producer:
        """Return who writes for a slot that has been fenced."""
        return self._producers[slot]

    async def close(self) -> None:
        """Give the ids back."""
        for producer in self._producers.values():
            await producer.close()

    def _slot(self, slot: int) -> SlotId:
        context = self._context
        return SlotId(context.application, context.hop.name, slot, context.settings.worker.slots)

    async def _taken(self, slot: SlotId) -> Producer:
        context, identity = self._context, slot.transactional_id
        # All partitions of the slot, also those that are not reset: its id has written to them.
        numbers = slot.numbers(context.partitions)
        written = [TopicPartition(*each) for each in context.topics.written_from(numbers)]
        written += self._more
        try:
            return await self._taken_for(identity, written, TIMEOUT_MS)
        except TransactionTimeoutError:
            return await self._taken_for(identity, written, context.settings.worker.transaction_timeout_ms)

    async def _taken_for(self, identity: str, written: list[TopicPartition], timeout_ms: int) -> Producer:
        options = client_options(self._context.settings.kafka)
        topics = dict.fromkeys((*self._context.topics.written, *(tp.topic for tp in self._more)))
        client = await Client.open(options, f"{identity}-reset", topics)
        return await fenced(client, identity, timeout_ms, written, deadline_s=DEADLINE_S)
