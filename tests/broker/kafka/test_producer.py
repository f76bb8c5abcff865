"""The producer keeps its promises: order over the sequence's wrap, fencing, no guessed outcome."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import Client, KafkaError, TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.protocol.requests import ListOffsetsRequest
from processor.kafka.transactions.producer import SEQUENCES, Producer
from processor.wire.encode import EncodedBatch, plain_batch
from tests.support.kafka.topics import (
    alter_topic,
    create_topic,
    delete_topic,
    dice,
    group_offsets,
    new,
    open_transactions,
    read_topic,
    sequences,
    unique,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def batch(numbers: Iterable[int], value: bytes = b"value") -> EncodedBatch:
    """Return a batch of records with these sequences."""
    records = [new(number, value=value) for number in numbers]
    return plain_batch([(key, content, when, headers) for key, content, headers, when in records])


@asynccontextmanager
async def fenced(broker: Broker, topic: str, identity: str | None) -> AsyncIterator[Producer]:
    """Open a producer for ``topic`` that holds ``identity``, and close it at the end."""
    client = await Client.open({"bootstrap_servers": broker.bootstrap_servers}, "test", [topic])
    producer = Producer(client, identity, deadline_s=20)
    try:
        await producer.fence()
        yield producer
    finally:
        await producer.close()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions."""
    name = unique("out")
    create_topic(broker.bootstrap_servers, name, 2)
    return name


@pytest.mark.parametrize("transactional", [True, False])
def test_sequences_wrap_to_zero_as_the_broker_expects(
    broker: Broker, topic: str, *, transactional: bool
) -> None:
    async def run() -> None:
        async with fenced(broker, topic, unique("tx") if transactional else None) as producer:
            # The broker takes any first sequence of a producer that is new to it.
            producer._sequence[TopicPartition(topic, 0)] = SEQUENCES - 25
            producer.begin()
            for at in range(0, 100, 10):
                await producer.send(topic, 0, [batch(range(at, at + 10))])
                await producer.flush()
            if transactional:
                await producer.end(commit=True)
            assert producer._sequence[TopicPartition(topic, 0)] == 75

    asyncio.run(run())

    assert sequences(read_topic(broker.bootstrap_servers, topic)) == list(range(100))


@pytest.mark.parametrize("transactional", [True, False])
def test_a_topic_that_was_made_anew_in_between_is_told_by_where_a_batch_lands(
    broker: Broker, topic: str, *, transactional: bool
) -> None:
    async def run() -> None:
        async with fenced(broker, topic, unique("tx") if transactional else None) as producer:
            producer.begin()
            await producer.send(topic, 0, [batch(range(5))])
            await producer.flush()
            if transactional:
                await producer.end(commit=True)
                await producer._ended_everywhere()
            await asyncio.to_thread(delete_topic, broker.bootstrap_servers, topic)
            await asyncio.to_thread(create_topic, broker.bootstrap_servers, topic, 2)
            producer.begin()
            await producer.send(topic, 0, [batch(range(5))])
            with pytest.raises(StopError, match=r":0 has taken a batch at offset 0, but .* up to 5 before"):
                await producer.flush()
            await producer.abort()

    asyncio.run(run())

    left = [] if transactional else list(range(5))
    assert sequences(read_topic(broker.bootstrap_servers, topic)) == left


def test_batches_queued_for_new_partitions_meanwhile_wait_for_the_coordinator(
    broker: Broker, topic: str
) -> None:
    async def run() -> None:
        async with fenced(broker, topic, unique("tx")) as producer:
            producer.begin()
            await producer.send(topic, 0, [batch(range(5))])
            await asyncio.sleep(0)  # the coordinator is being told of partition 0 only
            await producer.send(topic, 1, [batch(range(5))])
            await producer.flush()
            await producer.end(commit=True)

    asyncio.run(run())

    assert len(read_topic(broker.bootstrap_servers, topic)) == 10


def test_order_is_kept_with_several_requests_in_flight(broker: Broker, topic: str) -> None:
    async def run() -> None:
        async with fenced(broker, topic, unique("tx")) as producer:
            producer.begin()
            for at in range(0, 3000, 10):
                await producer.send(topic, at // 10 % 2, [batch(range(at, at + 10), dice(at).randbytes(3000))])
            await producer.flush()
            await producer.end(commit=True)

    asyncio.run(run())

    found = read_topic(broker.bootstrap_servers, topic)
    for number in (0, 1):
        assert sequences(found, number) == [i for i in range(3000) if i // 10 % 2 == number]


def test_a_second_producer_fences_the_first_and_ends_its_transaction(broker: Broker, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(broker, topic, identity) as first:
            first.begin()
            await first.send(topic, 0, [batch([1])])
            await first.flush()
            assert open_transactions(broker.bootstrap_servers, identity) == [identity]
            async with fenced(broker, topic, identity) as second:
                assert open_transactions(broker.bootstrap_servers, identity) == []
                with pytest.raises(FencedError):
                    await first.end(commit=True)
                first.begin()
                await first.send(topic, 0, [batch([2])])
                with pytest.raises(FencedError):
                    await first.flush()
                second.begin()
                await second.send(topic, 0, [batch([3])])
                await second.flush()
                await second.end(commit=True)

    asyncio.run(run())

    assert sequences(read_topic(broker.bootstrap_servers, topic)) == [3]


def test_a_fenced_producer_cannot_commit_offsets(broker: Broker, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with (
            fenced(broker, topic, identity) as first,
            fenced(broker, topic, identity),
        ):
            first.begin()
            with pytest.raises(FencedError):
                await first.add_offsets(identity, {TopicPartition(topic, 0): 7})

    asyncio.run(run())

    assert group_offsets(broker.bootstrap_servers, identity) == {}


def test_what_a_transaction_is_told_early_is_part_of_it(broker: Broker, topic: str) -> None:
    identity = unique("tx")
    written, expected = (TopicPartition(topic, number) for number in (0, 1))

    async def run() -> tuple[int, int]:
        async with fenced(broker, topic, identity) as producer:
            producer.begin(identity)
            producer.expect(expected)
            await producer.send(topic, 0, [batch([1])])
            await producer.flush()
            await producer.add_offsets(identity, {written: 7})
            await producer.end(commit=True)
        client = await Client.open({"bootstrap_servers": broker.bootstrap_servers}, "test", [topic])
        try:
            ends = await bounds(client, [written, expected])
        finally:
            await client.close()
        return ends[written].end, ends[expected].end

    # A record and its marker; where nothing was written there is the marker alone.
    assert asyncio.run(run()) == (2, 1)
    assert group_offsets(broker.bootstrap_servers, identity) == {(topic, 0): 7}


def test_offsets_are_committed_where_nothing_else_was_sent(broker: Broker, topic: str) -> None:
    identity = unique("tx")

    async def run() -> None:
        async with fenced(broker, topic, identity) as producer:
            for offset in (7, 8):
                producer.begin(identity)
                await producer.add_offsets(identity, {TopicPartition(topic, 0): offset})
                await producer.end(commit=True)

    asyncio.run(run())

    assert group_offsets(broker.bootstrap_servers, identity) == {(topic, 0): 8}


def test_nothing_can_be_committed_after_a_refused_batch(broker: Broker, topic: str) -> None:
    alter_topic(broker.bootstrap_servers, topic, max_message_bytes="2000")
    identity = unique("tx")

    async def run() -> None:
        async with fenced(broker, topic, identity) as producer:
            producer.begin()
            await producer.send(topic, 1, [batch([1])])
            await producer.send(topic, 0, [batch([1], dice(1).randbytes(3000))])
            with pytest.raises(RebuildError, match="MESSAGE_TOO_LARGE"):
                await producer.flush()
            steps = (
                producer.add_offsets(identity, {TopicPartition(topic, 0): 1}),
                producer.end(commit=True),
                producer.send(topic, 1, [batch([2])]),
                producer.flush(),
            )
            for step in steps:
                with pytest.raises(RebuildError, match="MESSAGE_TOO_LARGE"):
                    await step
            await producer.abort()

    asyncio.run(run())

    assert read_topic(broker.bootstrap_servers, topic) == []
    assert open_transactions(broker.bootstrap_servers, identity) == []


def test_nothing_can_be_committed_while_a_batch_is_unacknowledged(broker: Broker, topic: str) -> None:
    async def run() -> None:
        async with fenced(broker, topic, unique("tx")) as producer:
            producer.begin()
            await producer.send(topic, 0, [batch([1])])
            with pytest.raises(RebuildError, match="must not end before its batches"):
                await producer.end(commit=True)
            await producer.flush()
            await producer.abort()

    asyncio.run(run())

    assert read_topic(broker.bootstrap_servers, topic) == []


def test_a_batch_that_the_topic_does_not_take_says_which_records(broker: Broker) -> None:
    compacted = unique("compacted")
    create_topic(broker.bootstrap_servers, compacted, 1, {"cleanup.policy": "compact"})
    keyless = plain_batch([(None, b"value", 1_700_000_000_000, ())], first_offset=41, last_offset=42)

    async def run() -> None:
        async with fenced(broker, compacted, None) as producer:
            producer.begin()
            await producer.send(compacted, 0, [keyless])
            with pytest.raises(StopError, match=r"source offsets 41 to 42\): INVALID_RECORD: the topic"):
                await producer.flush()

    asyncio.run(run())


def test_a_broker_that_answers_nothing_costs_the_deadline_and_no_more() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises((KafkaError, TimeoutError)):
                async with asyncio.timeout(2):
                    await Client.open({"bootstrap_servers": address}, "test")

    asyncio.run(run())


def test_a_port_where_nobody_listens_is_an_error_at_once() -> None:
    async def run() -> None:
        with pytest.raises(KafkaError):
            await Client.open({"bootstrap_servers": "127.0.0.1:1"}, "test")

    began = time.monotonic()
    asyncio.run(run())

    assert time.monotonic() - began < 10


def test_a_request_that_is_not_answered_raises_within_its_deadline(broker: Broker, topic: str) -> None:
    async def run() -> None:
        client = await Client.open({"bootstrap_servers": broker.bootstrap_servers}, "test", [topic])
        try:
            node = client.leader(TopicPartition(topic, 0))
            assert node is not None
            with pytest.raises(KafkaError, match=r"no answer in 0\.0 s|no answer in 1e-06 s"):
                await client.request(node, ListOffsetsRequest(0, [(topic, [(0, -1, -1)])]), timeout_s=1e-6)
        finally:
            await client.close()

    asyncio.run(run())
