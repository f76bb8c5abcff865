"""Takes a slot's transactional id, so that whoever held it before can write no more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from processor.kafka.transactions.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from processor.kafka.client import Client, TopicPartition

DEADLINE_SHARE = 0.8
"""Of a transaction's time-out, for each step: a failure is known here before the coordinator acts."""


def transactional_id(application_id: str, pipeline: str, slot: int, slots: int) -> str:
    """Return the id that fences a slot's owners: it always names the same partitions.

    With another number of slots a slot has other partitions, so the number is in the id: fencing those
    who worked with another number must not fence ourselves.
    """
    return f"{application_id}-{pipeline}-{slot}-of-{slots}"


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
