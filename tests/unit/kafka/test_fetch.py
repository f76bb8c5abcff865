"""What a leader says of a position that was left meanwhile says nothing.

With leaders that answer when they are told to: two of one partition at once are not to be had on a broker.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from processor.errors import RebuildError
from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.fetch import Fetcher
from processor.kafka.offsets import newest_timestamps

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

    async def request(self, node: int, request: object, **options: Any) -> Any:
        del request, options
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


class Answering(Leaders):
    """Answers each request at once, and keeps it."""

    def __init__(self, topics: list[Any]) -> None:
        super().__init__()
        self.ids[TP.topic] = b"0123456789abcdef"
        self._topics = topics
        self.requests: list[Any] = []

    def epoch(self, tp: TopicPartition) -> int:
        del tp
        return 7

    async def request(self, node: int, request: Any, **options: Any) -> Any:
        del node, options
        self.requests.append(request)
        return SimpleNamespace(topics=self._topics, error_code=0)


def answered(topics: list[Any]) -> tuple[Answering, list[TopicPartition], list[TopicPartition]]:
    """Return what one fetch asks, whose answers it waits for, and who has answered."""
    owed: list[TopicPartition] = []
    heard: list[TopicPartition] = []

    async def story() -> Answering:
        leaders = Answering(topics)
        client: Any = leaders
        fetcher = Fetcher(client, owed=owed.extend, heard=heard.extend)
        try:
            await fetcher.fetch({TP: 5})
        finally:
            fetcher.close()
        return leaders

    return asyncio.run(story()), owed, heard


def test_what_is_asked_of_a_leader_carries_its_epoch_that_is_known() -> None:
    (fetch,) = answered([])[0].requests

    async def looked() -> Any:
        leaders: Any = Answering([])
        await newest_timestamps(leaders, [TP])
        return leaders.requests[0]

    for request, at in ((fetch, 7), (asyncio.run(looked()), 2)):
        ((_, ((number, epoch, *_),), _),) = vars(request)["_fields"][at]
        assert (number, epoch) == (0, 7)


def test_a_leader_that_holds_a_client_back_by_a_quota_has_answered() -> None:
    _, owed, heard = answered([])
    assert (owed, heard) == ([TP], [TP])


def test_who_may_not_read_is_told_which_right_is_lacking() -> None:
    refused: list[Any] = [
        (b"0123456789abcdef", [(0, KafkaCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1, [], -1, None, {})], {})
    ]
    with pytest.raises(RebuildError, match="grant this principal READ on it") as raised:
        answered(refused)
    assert raised.value.reason == "topics"
