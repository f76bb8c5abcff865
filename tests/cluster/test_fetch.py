"""One leader that is missing, or says nothing, holds up the partitions of no other one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from processor.kafka import client as kafka_client
from processor.kafka.client import Client, TopicPartition
from processor.kafka.fetch import Fetcher
from processor.kafka.offsets import bounds
from processor.wire.decode import Decoder
from tests.support.kafka.topics import new, produce, unique, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.kafka.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.crash]

ROUNDS = 12
CLIENTS = 4
"""Each asks brokers in an order by chance."""
PATIENCE_S = 90.0
"""Of a busy machine; a request may last 30 s, so as many rounds that wait for one take four times as long."""


@asynccontextmanager
async def connected(cluster: Cluster, topic: str) -> AsyncIterator[Client]:
    client = await Client.open({"bootstrap_servers": cluster.bootstrap_servers}, "test", [topic])
    try:
        yield client
    finally:
        await client.close()


async def read(
    fetcher: Fetcher, positions: dict[TopicPartition, int], wanted: TopicPartition, end: int
) -> None:
    """Fetch until a partition is read up to an offset."""
    decoder = Decoder()
    while positions[wanted] < end:
        for chunk in await fetcher.fetch(positions):
            after = decoder.next_offset(chunk)
            if after is not None:
                positions[TopicPartition(chunk.topic, chunk.partition)] = after


def test_a_leader_that_swallows_packets_holds_up_no_other_leaders_partitions(cluster: Cluster) -> None:
    topic = unique("swallowed")
    cluster.create_topic(topic, (1, 2))
    here, there = (TopicPartition(topic, number) for number in (0, 1))

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), connected(cluster, topic) as client:
            fetcher, positions = Fetcher(client), {here: 0, there: 0}
            for number in (0, 1):
                await asyncio.to_thread(produce, cluster.direct, topic, [new(1)], partition=number)
            await read(fetcher, positions, there, 1)
            await read(fetcher, positions, here, 1)

            cluster.proxies[2].swallow()
            for sent in range(2, 2 + ROUNDS):
                await asyncio.to_thread(produce, cluster.direct, topic, [new(sent)])
                await read(fetcher, positions, here, sent)
            assert positions[there] == 1

            await asyncio.to_thread(produce, cluster.direct, topic, [new(2)], partition=1)
            cluster.proxies[2].heal()
            await read(fetcher, positions, there, 2)

    asyncio.run(story())


def test_a_partition_without_a_leader_is_fetched_as_soon_as_it_has_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Metadata would say so by itself after a minute.
    monkeypatch.setattr(kafka_client, "METADATA_MAX_AGE_MS", 3_600_000)
    topic = unique("leaderless")
    cluster.create_topic(topic, (1, 2), replicas=1)
    here, there = (TopicPartition(topic, number) for number in (0, 1))
    for number in (0, 1):
        produce(cluster.direct, topic, [new(1)], partition=number)

    async def story() -> None:
        cluster.nodes[2].kill()
        await asyncio.to_thread(until, lambda: cluster.leaders(topic)[1] == -1, "a partition has no leader")
        async with asyncio.timeout(PATIENCE_S), connected(cluster, topic) as client:
            assert client.leader(there) is None
            fetcher, positions = Fetcher(client), {here: 0, there: 0}
            await read(fetcher, positions, here, 1)
            await asyncio.to_thread(cluster.nodes[2].start)
            await read(fetcher, positions, there, 1)

    asyncio.run(story())


def test_a_link_is_opened_and_knows_bounds_whichever_broker_swallows_packets(cluster: Cluster) -> None:
    topic = unique("reached")
    cluster.create_topic(topic, (1, 1))
    every = [TopicPartition(topic, number) for number in (0, 1)]

    async def story() -> None:
        cluster.proxies[2].swallow()
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(CLIENTS):
                async with connected(cluster, topic) as client:
                    await bounds(client, every)

    asyncio.run(story())
