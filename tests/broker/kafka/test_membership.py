"""Members of a real group that get in each other's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from processor.kafka.client import Client, TopicPartition
from processor.kafka.group.membership import Membership
from tests.support.kafka.topics import create_topic, unique

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

SESSION_MS = 6_000
HEARTBEATS_S = 3.0
"""Seven of them, at 15 a session."""


class Owner:
    """Notes that it has something."""

    def __init__(self) -> None:
        self.owns = asyncio.Event()

    async def revoked(self) -> None:
        self.owns.clear()

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions
        self.owns.set()


def test_a_member_that_was_replaced_does_not_take_its_place_back(broker: Broker) -> None:
    topic, group = unique("t"), unique("g")
    create_topic(broker.bootstrap_servers, topic, 1)

    async def member() -> Membership:
        client = await Client.open({"bootstrap_servers": broker.bootstrap_servers}, group, [topic])
        membership, owner = Membership(client, group, {topic: 1}, SESSION_MS, "same"), Owner()
        await membership.join(owner)
        await owner.owns.wait()
        return membership

    async def second_stays() -> None:
        first = await member()
        second = await member()
        try:
            with pytest.raises(StopError, match="gave our place away"):
                await first.failed()
            # The first has not left yet: a worker gives up its slots before.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(second.failed(), HEARTBEATS_S)
        finally:
            await first.leave()
            await second.leave()

    asyncio.run(asyncio.wait_for(second_stays(), 60))
