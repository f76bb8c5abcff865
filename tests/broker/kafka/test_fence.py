"""No owner commits half a transaction while another takes its transactional id.

On a broker that does not verify partitions, so that nothing but the fence stands in its way; it acts once
between each two requests of the new owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from processor.broker.embedded import EmbeddedBroker
from processor.errors import SeqmarkError
from processor.kafka.client import Client, KafkaError, TopicPartition
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import EncodedBatch, plain_batch
from tests.support.kafka.broker import UNVERIFIED
from tests.support.kafka.hanging import telling_only_of
from tests.support.kafka.topics import create_topic, group_offsets, new, read_topic, sequences, unique

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = pytest.mark.broker

SINK, CHANGELOG = 0, 1
BY_OLD, BY_NEW = 1, 2
"""What the old and the new owner write."""
MOST = 40
"""Far more requests than a fence has."""


@pytest.fixture(scope="module")
def lenient() -> Iterator[str]:
    """A broker that takes a transaction's batches whether it is open or not."""
    with EmbeddedBroker(overrides=UNVERIFIED) as broker:
        yield broker.bootstrap_servers


class Ids:
    """The owners of one transactional id, who write to both partitions of one topic and commit an offset.

    Args:
        bootstrap: Of the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._identity, self.topic, self._group = unique("tx"), unique("out"), unique("group")
        create_topic(bootstrap, self.topic, 2)

    async def producer(self) -> tuple[Client, Producer]:
        """Return one that does not hold the id yet, and its connections."""
        client = await Client.open({"bootstrap_servers": self._bootstrap}, "test", [self.topic])
        return client, Producer(client, self._identity, deadline_s=20)

    async def fence(self, producer: Producer) -> None:
        """Have it take the id."""
        await producer.fence([TopicPartition(self.topic, number) for number in (SINK, CHANGELOG)])

    async def write(self, producer: Producer, *partitions: int, number: int = BY_OLD) -> None:
        """Write one record to each of these partitions."""
        for partition in partitions:
            await producer.send(self.topic, partition, [batch(number)])
        await producer.flush()

    async def commit(self, producer: Producer) -> None:
        """Do steps 4 and 5."""
        await producer.add_offsets(self._group, {TopicPartition(self.topic, SINK): BY_OLD})
        await producer.end(commit=True)
        # The fence is to meet an id that is at rest again, not one whose end is on its way.
        coordinator = producer._coordinator
        while (last := await coordinator.describe()) is not None and last.ending:  # noqa: ASYNC110 - the broker's
            await asyncio.sleep(0)

    def assert_whole(self) -> None:
        """See all of the old owner's transaction or nothing, and the new owner's."""
        found = read_topic(self._bootstrap, self.topic)
        sink, changelog = sequences(found, SINK), sequences(found, CHANGELOG)
        assert sink == changelog, "half a transaction is seen"
        assert sink.count(BY_NEW) == 1
        offsets = group_offsets(self._bootstrap, self._group)
        assert offsets == ({(self.topic, SINK): BY_OLD} if BY_OLD in sink else {}), "an offset without state"


def batch(number: int) -> EncodedBatch:
    """Return a batch of one record."""
    key, content, headers, when = new(number)
    return plain_batch([(key, content, when, headers)])


def after_request(client: Client, moment: int, act: Callable[[], Awaitable[None]]) -> Callable[[], int]:
    """Have something done once, after so many requests; returns a count of all requests."""
    request, asked = client.request, 0

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal asked
        answer = await request(*arguments, **more)
        asked += 1
        if asked == moment:
            with contextlib.suppress(SeqmarkError):  # the old owner may learn that it is fenced
                await act()
        return answer

    client.request = counted  # type: ignore[method-assign]
    return lambda: asked


async def half_begun(ids: Ids, old: Producer) -> Callable[[], Awaitable[None]]:
    """Have written the sink's half; goes on with the other one and the commit."""
    old.begin()
    old.expect(TopicPartition(ids.topic, CHANGELOG))
    await ids.write(old, SINK)

    async def act() -> None:
        await ids.write(old, CHANGELOG)
        await ids.commit(old)

    return act


async def not_begun(ids: Ids, old: Producer) -> Callable[[], Awaitable[None]]:
    """Have nothing open; goes on with a whole transaction."""
    old.begin()
    await ids.write(old, SINK, CHANGELOG, number=0)
    await old.end(commit=True)
    await old._ended_everywhere()

    async def act() -> None:
        old.begin()
        await ids.write(old, SINK, CHANGELOG)
        await ids.commit(old)

    return act


async def not_marked(ids: Ids, old: Producer) -> Callable[[], Awaitable[None]]:
    """Likewise, and the broker will leave the changelog without the transaction's end."""
    await not_begun(ids, old)

    async def act() -> None:
        with telling_only_of(old, lambda tp: tp.partition != CHANGELOG):
            old.begin()
            await ids.write(old, SINK, CHANGELOG)
            await ids.commit(old)

    return act


@pytest.mark.parametrize(("before", "commit"), [(half_begun, True), (not_begun, False), (not_marked, False)])
def test_an_old_owner_that_goes_on_between_two_requests_of_the_fence_commits_all_or_nothing(
    lenient: str, before: Callable[[Ids, Producer], Awaitable[Callable[[], Awaitable[None]]]], *, commit: bool
) -> None:
    async def run(ids: Ids, moment: int) -> bool:
        _, old = await ids.producer()
        client, owner = await ids.producer()
        try:
            await ids.fence(old)
            act = await before(ids, old)
            asked = after_request(client, moment, act)
            await ids.fence(owner)
            there = asked() >= moment
            owner.begin()
            if not commit:
                # Whatever is left open is decided about by an abort first.
                await ids.write(owner, SINK, CHANGELOG, number=3)
                await owner.end(commit=False)
                owner.begin()
            await ids.write(owner, SINK, CHANGELOG, number=BY_NEW)
            await owner.end(commit=True)
            await owner._ended_everywhere()
        finally:
            await old.close()
            await owner.close()
        return there

    for moment in itertools.count(1):
        ids = Ids(lenient)
        there = asyncio.run(run(ids, moment))
        ids.assert_whole()
        if not there:
            break
        assert moment < MOST
    assert moment > 3, "the fence asks less than is known of it"


def test_a_batch_that_arrives_after_its_owner_has_given_up_is_not_in_anothers_transaction(lenient: str) -> None:
    ids = Ids(lenient)

    async def run() -> None:
        old_client, old = await ids.producer()
        await ids.fence(old)
        old.begin()
        old.expect(TopicPartition(ids.topic, CHANGELOG))
        await ids.write(old, SINK)
        request, late = old_client.request, []

        async def lost(*arguments: Any, **more: Any) -> Any:
            late.append((arguments, more))
            raise KafkaError("no answer")

        old_client.request = lost  # type: ignore[method-assign]
        with pytest.raises(SeqmarkError):
            await ids.write(old, CHANGELOG)
        old_client.request = request  # type: ignore[method-assign]
        await old.abort()
        _, owner = await ids.producer()
        await ids.fence(owner)
        for arguments, more in late:
            await request(*arguments, **more)
        owner.begin()
        await ids.write(owner, SINK, CHANGELOG, number=BY_NEW)
        await owner.end(commit=True)
        await owner._ended_everywhere()
        await old.close()
        await owner.close()

    asyncio.run(run())

    ids.assert_whole()
