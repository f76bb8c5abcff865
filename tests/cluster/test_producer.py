"""A producer gives up a broker that is silent as soon as another one stands in its place."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from processor.errors import RebuildError
from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import plain_batch
from tests.support.kafka.cluster import NODES
from tests.support.kafka.topics import new, unique

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.wire.encode import EncodedBatch
    from tests.support.kafka.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@asynccontextmanager
async def opened(cluster: Cluster, topic: str, identity: str) -> AsyncIterator[tuple[Producer, int]]:
    """A producer whose open transaction has something in each partition, and the node that coordinates it."""
    client = await Client.open({"bootstrap_servers": cluster.bootstrap_servers}, "test", [topic])
    producer = Producer(client, identity)
    try:
        await producer.fence()
        producer.begin()
        for number in range(len(NODES)):
            await producer.send(topic, number, [batch(1)])
        await producer.flush()
        yield producer, await client.transaction_coordinator(identity)
    finally:
        await producer.close()


def batch(number: int) -> EncodedBatch:
    record = new(number)
    return plain_batch([(record.key, record.value, record.timestamp, record.headers)])


async def written(producer: Producer, topic: str, number: int) -> None:
    await producer.send(topic, number, [batch(2)])
    await producer.flush()


def test_a_batch_for_a_leader_that_hangs_is_given_up_when_another_leads(cluster: Cluster) -> None:
    topic, identity = unique("hangs"), unique("producer")
    cluster.create_topic(topic, NODES)

    async def story() -> RebuildError:
        async with opened(cluster, topic, identity) as (producer, coordinator):
            node = next(each for each in NODES if each != coordinator)
            await asyncio.to_thread(cluster.pause, node)
            try:
                with pytest.raises(RebuildError) as raised:
                    await written(producer, topic, node - 1)
            finally:
                cluster.resume(node)
        return raised.value

    assert asyncio.run(story()).reason == "leader"


def test_a_coordinator_that_hangs_is_given_up_when_another_coordinates(cluster: Cluster) -> None:
    topic, identity = unique("hangs"), unique("producer")
    cluster.create_topic(topic, NODES)

    async def story() -> RebuildError:
        async with opened(cluster, topic, identity) as (producer, coordinator):
            await asyncio.to_thread(cluster.pause, coordinator)
            try:
                with pytest.raises(RebuildError, match="coordinates by now") as raised:
                    await producer.end(commit=True)
            finally:
                cluster.resume(coordinator)
        return raised.value

    assert asyncio.run(story()).reason == "end"
