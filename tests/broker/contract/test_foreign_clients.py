"""What Seqmark writes, as the broker takes it and other clients read it: librdkafka and Kafka's Java client."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import cramjam
import numpy as np
import pytest

from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.codec import Codec, deflate
from processor.wire.encode import EncodedBatch, Encoder, plain_batch
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
CLICKS = [
    Known(
        1_760_000_000_000 + n,
        b"user-%d" % (n % 97),
        b'{"seq": %d, "page": "/p/%x", "amount": "%d.50"}' % (n, n**2, n % 1_000),
        (),
    )
    for n in range(6_000)
]
"""As many of one form as make several blocks, so that they are compressed by our own kernel."""
WRITTEN = KEPT * len(CLIENTS) * len(CODECS) + CLICKS[1:]


def rewritten() -> list[EncodedBatch]:
    """Return every client's batches of every codec, without every third record: all written by our encoder."""
    made = []
    for client in CLIENTS:
        for codec in CODECS:
            (piece,) = batches.DECODER.pieces(chunk(vector(client, codec).read_bytes()))
            verdict = (np.arange(len(piece.columns)) % 3 == 0).astype(np.uint8)
            made += Encoder().encode(piece, verdict, 1_000_000)
    whole = plain_batch([(click.key, click.value, click.timestamp, ()) for click in CLICKS], Codec.LZ4)
    (piece,) = batches.DECODER.pieces(chunk(whole.build(-1, -1, -1, transactional=False)))
    by_kernel = Encoder().encode(piece, np.arange(len(CLICKS)) == 0, 1_000_000)
    assert len(by_kernel) == 1
    library = deflate(Codec.LZ4, np.frombuffer(bytes(cramjam.lz4.decompress(by_kernel[0].payload)), np.uint8))
    assert by_kernel[0].payload != library
    return made + by_kernel


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
    assert [(record.key, record.value) for record in found] == [(each.key, each.value) for each in WRITTEN]


def test_the_java_client_reads_our_batches_of_every_codec(broker: EmbeddedBroker, topic: str) -> None:
    command = java_program("consume", broker.bootstrap_servers, topic, str(len(WRITTEN)))
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: list[Known] = [parsed(line) for line in run.stdout.splitlines()]
    assert found == WRITTEN
