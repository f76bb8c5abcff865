"""What Seqmark writes, as the broker takes it and other clients read it: librdkafka and Kafka's Java client."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import EncodedBatch, Encoder
from tests.support.kafka import topics
from tests.support.wire import batches
from tests.support.wire.batches import chunk
from tests.support.wire.vectors import CLIENTS, CODECS, Known, known, parsed, vector
from tests.support.wire.vectors.generate import java_program

if TYPE_CHECKING:
    from processor.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.broker

RECORDS = [record for group in known() for record in group]
KEPT = [record for index, record in enumerate(RECORDS) if index % 3]


def rewritten() -> list[EncodedBatch]:
    """Return every client's batches of every codec, without every third record: all written by our encoder."""
    made = []
    for client in CLIENTS:
        for codec in CODECS:
            (piece,) = batches.DECODER.pieces(chunk(vector(client, codec).read_bytes()))
            verdict = (np.arange(len(piece.columns)) % 3 == 0).astype(np.uint8)
            made += Encoder().encode(piece, verdict, 1_000_000)
    return made


async def send(bootstrap: str, topic: str, made: list[EncodedBatch]) -> None:
    client = await Client.open({"bootstrap_servers": [bootstrap]}, "foreign", [topic])
    producer = Producer(client, None)
    try:
        await producer.fence()
        await producer.send(topic, 0, made)
        await producer.flush()
    finally:
        await producer.close()
        await client.close()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """Return a topic that holds our batches, of every codec."""
    name = topics.unique("foreign")
    topics.create_topic(broker.bootstrap_servers, name, configs={"retention.ms": "-1"})
    asyncio.run(send(broker.bootstrap_servers, name, rewritten()))
    return name


def test_librdkafka_reads_our_batches_of_every_codec(broker: EmbeddedBroker, topic: str) -> None:
    found = topics.read_topic(broker.bootstrap_servers, topic)
    assert [record.value for record in found] == [record.value for record in KEPT] * len(CLIENTS) * len(CODECS)
    assert [record.key for record in found] == [record.key for record in KEPT] * len(CLIENTS) * len(CODECS)


def test_the_java_client_reads_our_batches_of_every_codec(broker: EmbeddedBroker, topic: str) -> None:
    count = len(KEPT) * len(CLIENTS) * len(CODECS)
    command = java_program("consume", broker.bootstrap_servers, topic, str(count))
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: list[Known] = [parsed(line) for line in run.stdout.splitlines()]
    assert found == KEPT * len(CLIENTS) * len(CODECS)
