"""Leaves a committed transaction without its end in a partition, as a broker may (KAFKA-20734).

It needs a broker that takes batches for partitions that the coordinator was not told of:
`tests.support.kafka.broker.UNVERIFIED`.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from processor.kafka.client import Client, TopicPartition
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import plain_batch
from tests.support.kafka.topics import create_topic, unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kafka.topics import New


@contextmanager
def telling_only_of(producer: Producer, wanted: Callable[[TopicPartition], bool]) -> Iterator[None]:
    """Keep the other partitions that a producer writes to from its coordinator: no end will reach them."""
    coordinator = producer._coordinator
    tell = coordinator.add_partitions
    coordinator.add_partitions = lambda partitions: tell(  # type: ignore[method-assign]
        [each for each in partitions if wanted(each)]
    )
    try:
        yield
    finally:
        coordinator.add_partitions = tell  # type: ignore[method-assign]


def leave_hanging(bootstrap: str, topic: str, identity: str, record: New) -> None:
    """Write a record to partition 0 of a topic and commit it, without its end there.

    Args:
        bootstrap: Of the broker.
        topic: Where it hangs.
        identity: The transactional id: who takes it next has to bring the end.
        record: What is committed, and not seen before the end is there.
    """
    told = unique("told")
    create_topic(bootstrap, told)
    asyncio.run(_leave_hanging(bootstrap, told, topic, identity, record))


async def _leave_hanging(bootstrap: str, told: str, topic: str, identity: str, record: New) -> None:
    key, value, headers, timestamp = record
    batch = plain_batch([(key, value, timestamp, headers)])
    client = await Client.open({"bootstrap_servers": bootstrap}, "hanging", [told, topic])
    producer = Producer(client, identity, deadline_s=60)
    try:
        await producer.fence([TopicPartition(told, 0), TopicPartition(topic, 0)])
        with telling_only_of(producer, lambda tp: tp.topic == told):
            producer.begin()
            await producer.send(told, 0, [batch])
            await producer.send(topic, 0, [batch])
            await producer.flush()
        await producer._coordinator.end(commit=True)
    finally:
        await producer.close()
        await client.close()
