"""A broker that ends a transaction without its marker in every partition (KAFKA-20734) costs nothing.

What is committed is seen, what is aborted never is, whatever comes next. That a broker leaves a marker out
cannot be made to happen at will; what it leaves behind can: a batch in a partition that the coordinator was not
told of, on a broker that does not ask it (`transaction.partition.verification.enable`).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from processor.broker.embedded import EmbeddedBroker
from processor.errors import RebuildError
from processor.kafka.client import Client, TopicPartition
from processor.kafka.transactions import markers
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import EncodedBatch, plain_batch
from tests.support.kafka.broker import UNVERIFIED
from tests.support.kafka.hanging import telling_only_of
from tests.support.kafka.topics import (
    create_topic,
    new,
    open_transaction,
    open_transactions,
    read_topic,
    sequences,
    unique,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

pytestmark = pytest.mark.broker

SEEN, LEFT_OUT = 0, 1
"""The partition that gets its marker, and the one that does not."""


@pytest.fixture(scope="module")
def lenient() -> Iterator[str]:
    """A broker that takes a transaction's batches for partitions that are not part of it."""
    with EmbeddedBroker(overrides=UNVERIFIED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(lenient: str) -> str:
    """A topic of two partitions."""
    name = unique("out")
    create_topic(lenient, name, 2)
    return name


def batch(numbers: Iterable[int]) -> EncodedBatch:
    """Return a batch of records with these sequences."""
    records = [new(number) for number in numbers]
    return plain_batch([(key, content, when, headers) for key, content, headers, when in records])


@asynccontextmanager
async def fenced(bootstrap: str, topic: str, identity: str) -> AsyncIterator[Producer]:
    """Open a producer that holds ``identity`` and has looked after both partitions."""
    client = await Client.open({"bootstrap_servers": bootstrap}, "test", [topic])
    producer = Producer(client, identity, deadline_s=20)
    try:
        await producer.fence([TopicPartition(topic, SEEN), TopicPartition(topic, LEFT_OUT)])
        yield producer
    finally:
        await producer.close()


async def write(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Begin a transaction and write the same batch to both partitions."""
    made = list(numbers)
    producer.begin()
    await producer.send(topic, SEEN, [batch(made)])
    await producer.send(topic, LEFT_OUT, [batch(made)])
    await producer.flush()


async def write_unmarked(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Likewise, in a transaction whose end will not reach one of the partitions."""
    with telling_only_of(producer, lambda tp: tp.partition != LEFT_OUT):
        await write(producer, topic, numbers)


async def die(producer: Producer) -> None:
    """End as by kill -9: nothing more is asked or sent."""
    if producer._ending is not None:
        producer._ending.cancel()
        await asyncio.wait([producer._ending])


def seen(bootstrap: str, topic: str) -> tuple[list[int], list[int]]:
    """Return what `read_committed` shows of both partitions."""
    found = read_topic(bootstrap, topic)
    return sequences(found, SEEN), sequences(found, LEFT_OUT)


def test_without_its_marker_a_commit_is_not_seen(lenient: str, topic: str) -> None:
    """What the other tests rest on."""

    async def run() -> None:
        async with fenced(lenient, topic, unique("tx")) as producer:
            await write_unmarked(producer, topic, [1, 2])
            await producer._coordinator.end(commit=True)

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [])


def test_a_commit_whose_marker_was_left_out_is_brought_to_the_partition(lenient: str, topic: str) -> None:
    async def run() -> None:
        async with fenced(lenient, topic, unique("tx")) as producer:
            await write_unmarked(producer, topic, [1, 2])
            await producer.end(commit=True)

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [1, 2])


def test_an_abort_does_not_take_back_the_commit_before_it(lenient: str, topic: str) -> None:
    async def run() -> None:
        async with fenced(lenient, topic, unique("tx")) as producer:
            await write_unmarked(producer, topic, [1, 2])
            await producer.end(commit=True)
            await write(producer, topic, [3, 4])
            await producer.abort()

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [1, 2])


def test_the_next_owner_brings_a_commit_to_the_partition(lenient: str, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as first:
            await write_unmarked(first, topic, [1, 2])
            await first.end(commit=True)
            await die(first)
        async with fenced(lenient, topic, identity) as second:
            await write(second, topic, [3])
            await second.abort()

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [1, 2])


def test_a_commit_does_not_show_what_was_aborted_before_it(lenient: str, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as first:
            await write_unmarked(first, topic, [1, 2])
            await first.abort()
        async with fenced(lenient, topic, identity) as second:
            await write(second, topic, [3])
            await second.end(commit=True)

    asyncio.run(run())

    assert seen(lenient, topic) == ([3], [3])


def test_a_fence_that_does_not_reach_a_partition_is_brought_there(lenient: str, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as first:
            await write_unmarked(first, topic, [1, 2])
            async with fenced(lenient, topic, identity) as second:
                await write(second, topic, [3])
                await second.end(commit=True)

    asyncio.run(run())

    assert seen(lenient, topic) == ([3], [3])


def hanging(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Make the next marker that is written hang for ever, and those after it not; set when it does."""
    write_marker, reached = markers._write_marker, asyncio.Event()

    async def hang(*arguments: Any) -> None:
        if reached.is_set():
            await write_marker(*arguments)
        else:
            reached.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(markers, "_write_marker", hang)
    return reached


def test_closing_while_a_commit_is_brought_does_not_take_it_back(
    lenient: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = unique("tx")

    async def run() -> None:
        reached = hanging(monkeypatch)
        async with fenced(lenient, topic, identity) as first:
            await write_unmarked(first, topic, [1, 2])
            await first.end(commit=True)
            await reached.wait()
        async with fenced(lenient, topic, identity) as second:
            await write(second, topic, [3])
            await second.abort()

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [1, 2])


@pytest.mark.parametrize("commit", [True, False])
def test_a_fence_that_is_cut_off_does_not_forget_how_it_ended(
    lenient: str, topic: str, monkeypatch: pytest.MonkeyPatch, *, commit: bool
) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as first:
            await write_unmarked(first, topic, [1, 2])
            await first._coordinator.end(commit=commit)
        reached = hanging(monkeypatch)

        async def second() -> None:
            async with fenced(lenient, topic, identity):
                pytest.fail("it has taken what it cannot have looked at")

        opening = asyncio.create_task(second())
        async with asyncio.timeout(20):
            await reached.wait()
        opening.cancel()
        await asyncio.wait([opening])
        async with fenced(lenient, topic, identity) as third:
            await write(third, topic, [3])
            # The opposite of what is to be kept.
            await (third.abort() if commit else third.end(commit=True))

    asyncio.run(run())

    assert seen(lenient, topic) == (([1, 2], [1, 2]) if commit else ([3], [3]))


def test_a_commit_between_the_question_and_the_fence_is_not_taken_for_an_abort(
    lenient: str, topic: str
) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as zombie:
            await write_unmarked(zombie, topic, [1, 2])
            client = await Client.open({"bootstrap_servers": lenient}, "test", [topic])
            owner = Producer(client, identity, deadline_s=20)
            describe = owner._coordinator.describe

            async def too_late() -> Any:
                last = await describe()
                if last is not None and last.open:
                    await zombie.end(commit=True)
                return last

            owner._coordinator.describe = too_late  # type: ignore[method-assign]
            try:
                await owner.fence([TopicPartition(topic, SEEN), TopicPartition(topic, LEFT_OUT)])
            finally:
                await owner.close()

    asyncio.run(run())

    assert seen(lenient, topic) == ([1, 2], [1, 2])


def test_a_marker_that_is_refused_is_written_again(
    lenient: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_marker, times = markers._write_marker, 0

    async def refused_once(*arguments: Any) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise markers._MarkerError("NOT_LEADER_OR_FOLLOWER")
        await write_marker(*arguments)

    monkeypatch.setattr(markers, "_write_marker", refused_once)

    async def run() -> None:
        async with fenced(lenient, topic, unique("tx")) as producer:
            await write_unmarked(producer, topic, [1, 2])
            await producer.end(commit=True)
            await write(producer, topic, [3, 4])
            await producer.abort()

    asyncio.run(run())

    assert times > 1
    assert seen(lenient, topic) == ([1, 2], [1, 2])


def test_a_transaction_that_cannot_be_mended_stops_all_writing(
    lenient: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> None:
        raise markers._MarkerError("cannot write it: grant this principal ALTER on the cluster")

    monkeypatch.setattr(markers, "_write_marker", refused)
    told: list[Exception] = []

    async def run() -> None:
        client = await Client.open({"bootstrap_servers": lenient}, "test", [topic])
        producer = Producer(client, unique("tx"), deadline_s=5, failed=told.append)
        await producer.fence()
        await write_unmarked(producer, topic, [1, 2])
        await producer.end(commit=True)
        try:
            with pytest.raises(RebuildError, match="is not seen in"):
                await producer._ended_everywhere()
            with pytest.raises(RebuildError, match="is not seen in"):
                await write(producer, topic, [3, 4])
        finally:
            await producer.close()

    asyncio.run(run())

    assert told, "a slot that has nothing to do does not hear of it"
    assert sequences(read_topic(lenient, topic, "read_uncommitted"), SEEN) == [1, 2]


def test_the_coordinator_tells_how_its_id_stands(lenient: str, topic: str) -> None:
    async def run() -> list[str | None]:
        told = []
        async with fenced(lenient, topic, unique("tx")) as producer:

            async def ask() -> None:
                last = await producer._coordinator.describe()
                told.append(None if last is None else last.state)

            await ask()
            await write(producer, topic, [1])
            await ask()
            await producer.end(commit=True)
            await producer._ended_everywhere()
            await ask()
            await write(producer, topic, [2])
            await producer.abort()
            await ask()
        return told

    taken, begun, committed, aborted = asyncio.run(run())

    assert taken == "Empty"
    assert begun == "Ongoing"
    # The last marker may be seen before the coordinator has written down that it was the last.
    assert committed in {"PrepareCommit", "CompleteCommit"}
    assert aborted in {"PrepareAbort", "CompleteAbort"}


def test_anothers_open_transaction_in_a_shared_topic_holds_nobody_up(lenient: str, topic: str) -> None:
    other = open_transaction(lenient, topic, [new(100)], partition=SEEN)
    identity = unique("tx")

    async def run() -> None:
        async with fenced(lenient, topic, identity) as producer:
            for number in range(3):
                await write(producer, topic, [number])
                await producer.end(commit=True)
            # Until then the coordinator may still be writing markers, which is not yet an end.
            await producer._ended_everywhere()
            assert open_transactions(lenient, identity) == []

    asyncio.run(run())
    other.commit_transaction()

    assert seen(lenient, topic) == ([100, 0, 1, 2], [0, 1, 2])
