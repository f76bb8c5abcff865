"""Takes a slot's transactional id, so that whoever held it before can write no more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from processor.kafka.transactions.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from processor.kafka.client import Client, TopicPartition

DEADLINE_SHARE = 0.8
"""Of a transaction's time-out, for each step: a failure is known here before the coordinator acts."""


class SlotId(NamedTuple):
    """A slot, which always has the same partitions.

    With another number of slots it has others, so the number is part of the id: fencing those who worked with
    another number must not fence ourselves.
    """

    application_id: str
    pipeline: str
    slot: int
    slots: int

    @property
    def transactional_id(self) -> str:
        """The id that fences the slot's owners."""
        return f"{self.application_id}-{self.pipeline}-{self.slot}-of-{self.slots}"

    def numbers(self, partitions: int) -> range:
        """Return which of so many partitions it has."""
        return range(self.slot, partitions, self.slots)

    def former(self, number: int, slots: int) -> SlotId | None:
        """Return which slot partition ``number`` was in where its state was written with so many slots.

        None: in ours, or in none that is known (0). Whoever wrote it is fenced by that slot's id, not by ours.
        """
        return None if slots in {0, self.slots} else self._replace(slot=number % slots, slots=slots)


async def fenced(
    client: Client,
    identity: str | None,
    timeout_ms: int,
    written: Iterable[TopicPartition],
    *,
    deadline_s: float = math.inf,
    failed: Callable[[Exception], None] = lambda _: None,
) -> Producer:
    """Return the producer that holds an id from now on.

    Args:
        client: Connections of its own; closed where this fails.
        identity: None: idempotent only.
        timeout_ms: After which the coordinator aborts a transaction by itself.
        written: All partitions that the id's owners write to; nothing of theirs is left open there.
        deadline_s: For each step, within its share of the time-out.
        failed: See `Producer`.

    Raises:
        RebuildError: Not done within the deadline.
        TransactionTimeoutError: The time-out is above the broker's.
    """
    producer = Producer(
        client, identity, timeout_ms, min(deadline_s, DEADLINE_SHARE * timeout_ms / 1000), failed
    )
    try:
        await producer.fence(written)
    except BaseException:
        await producer.close()
        raise
    return producer
