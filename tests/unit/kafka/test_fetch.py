"""What a leader says of a position that was left meanwhile says nothing.

With leaders that answer when they are told to: two of one partition at once are not to be had on a broker.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.fetch import Fetcher

TP = TopicPartition("clicks", 0)
OLD, NEW = 1, 2


class Leaders:
    """Knows no ids of topics."""

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}
        self.leads = OLD
        loop = asyncio.get_running_loop()
        self.asked = {node: asyncio.Event() for node in (OLD, NEW)}
        self.answers: dict[int, asyncio.Future[Any]] = {node: loop.create_future() for node in (OLD, NEW)}

    def leader(self, tp: TopicPartition) -> int:
        del tp
        return self.leads

    def epoch(self, tp: TopicPartition) -> int:
        del tp
        return -1

    async def request(self, node: int, request: object, *, timeout_s: float) -> Any:
        del request, timeout_s
        self.asked[node].set()
        return await self.answers[node]

    def say(self, node: int, code: int, data: bytes) -> None:
        part: Any = (TP.partition, code, 20, 20, 0, [], data)
        self.answers[node].set_result(SimpleNamespace(topics=[(TP.topic, [part])], API_VERSION=5))


def test_a_position_that_was_left_is_not_out_of_range() -> None:
    async def story() -> list[int]:
        leaders: Any = Leaders()
        fetcher, positions = Fetcher(leaders), {TP: 5}
        fetching = asyncio.create_task(fetcher.fetch(positions))
        await leaders.asked[OLD].wait()
        leaders.leads = NEW
        # The call is given up, its request is not.
        fetching.cancel()
        fetching = asyncio.create_task(fetcher.fetch(positions))
        await leaders.asked[NEW].wait()
        leaders.say(NEW, KafkaCode.NONE, b"records")
        (chunk,) = await fetching
        positions[TP] = 9
        leaders.answers[NEW] = asyncio.get_running_loop().create_future()
        leaders.say(OLD, KafkaCode.OFFSET_OUT_OF_RANGE, b"")
        try:
            nothing = await fetcher.fetch(positions)
        finally:
            fetcher.close()
        return [chunk.position, *(each.position for each in nothing)]

    assert asyncio.run(story()) == [5]
