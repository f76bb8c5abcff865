"""Brokers say from which offset on they have a partition themselves: by it a gap is told from slow storage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.kafka.client import Client, KafkaCode, TopicPartition
from processor.kafka.protocol.requests import LocalStartRequest
from tests.support.kafka.topics import create_topic, delete_records, produce, unique
from tests.support.worker.process import new

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_where_nothing_is_in_remote_storage_it_is_the_first_offset_that_is_retained(broker: Broker) -> None:
    servers, topic = broker.bootstrap_servers, unique("clicks")
    create_topic(servers, topic)
    produce(servers, topic, [new(sequence) for sequence in range(1, 6)])

    async def local_start() -> tuple[int, int]:
        client = await Client.open({"bootstrap_servers": servers}, "test", [topic])
        try:
            leader = client.leader(TopicPartition(topic, 0))
            assert leader is not None
            answer = await client.request(leader, LocalStartRequest([(topic, [(0, -1)])]), timeout_s=10.0)
        finally:
            await client.close()
        ((_, ((_, code, _, offset, *_),), _),) = answer.topics
        return code, offset

    assert asyncio.run(local_start()) == (KafkaCode.NONE, 0)
    delete_records(servers, topic, 3)
    assert asyncio.run(local_start()) == (KafkaCode.NONE, 3)
