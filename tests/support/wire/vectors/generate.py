"""Write the vectors anew: ``python -m tests.support.wire.vectors.generate`` (needs a JDK, not only a JRE).

An embedded broker, the records of records.tsv written by each client with each codec, and the partition's log
as it is fetched from the broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from processor.broker.embedded import EmbeddedBroker
from processor.broker.jars import KAFKA_JARS, resolve
from processor.broker.java import find_java
from processor.kafka.client import Client, TopicPartition
from processor.kafka.fetch import Fetcher
from processor.wire.decode import Chunk, Decoder
from tests.support.wire.vectors import CODECS, FOLDER, RECORDS, Known, known, vector


def java_program(*arguments: str) -> list[str]:
    """Return the command that runs Produce.java."""
    jars = os.pathsep.join(str(jar) for jar in resolve(KAFKA_JARS))
    flags = ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [str(find_java().path), *flags, "-cp", jars, str(FOLDER / "Produce.java"), *arguments]


def main() -> None:
    """Make every vector."""
    with EmbeddedBroker() as broker:
        bootstrap = broker.bootstrap_servers
        for codec in CODECS:
            _topic(bootstrap, f"java-{codec}")
            subprocess.run(
                java_program("produce", bootstrap, f"java-{codec}", codec, str(RECORDS)),
                check=True,
                timeout=300,
            )
            _topic(bootstrap, f"librdkafka-{codec}")
            _librdkafka(bootstrap, f"librdkafka-{codec}", codec)
            for client in ("java", "librdkafka"):
                _save(bootstrap, client, codec)
        _topic(bootstrap, "librdkafka-transactions")
        _transactions(bootstrap, "librdkafka-transactions")
        aborted = sorted(_save(bootstrap, "librdkafka", "transactions"))
        (FOLDER / "aborted.json").write_text(json.dumps(aborted) + "\n", "ascii")


def _topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The records are old: retention would remove them half a minute after the broker's start.
    admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "-1"})])[name].result(30)


def _librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec, "linger.ms": 5_000})
    for group in known():
        _send(producer, topic, group)
        assert producer.flush(30) == 0


def _send(producer: Producer, topic: str, group: list[Known]) -> None:
    for record in group:
        producer.produce(
            topic,
            partition=0,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=[(name.decode(), value) for name, value in record.headers],
        )


def _transactions(bootstrap: str, topic: str) -> None:
    """Write each group in two transactions: one that is aborted, then one that commits."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "vectors",
            "compression.codec": "lz4",
            "linger.ms": 5_000,
        }
    )
    producer.init_transactions(30)
    for group in known():
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            _send(producer, topic, group)
            assert producer.flush(30) == 0
            end(30)


def _save(bootstrap: str, client: str, what: str) -> set[tuple[int, int]]:
    """Write a partition's log to its file; returns the aborted transactions in it."""
    chunks = asyncio.run(_fetched(bootstrap, TopicPartition(f"{client}-{what}", 0)))
    data = b"".join(chunk.data for chunk in chunks)
    vector(client, what).write_bytes(data)
    sys.stdout.write(f"{client}-{what}: {len(data):,} bytes\n")
    return {(producer, first) for chunk in chunks for producer, first in chunk.aborted}


async def _fetched(bootstrap: str, tp: TopicPartition) -> list[Chunk]:
    """Return everything of a partition; a fetch ends with a segment, and markers of today begin a new one."""
    client = await Client.open({"bootstrap_servers": [bootstrap]}, "vectors", [tp.topic])
    decoder, found, position = Decoder(), list[Chunk](), 0
    try:
        async with asyncio.timeout(60):
            while not found or position < found[-1].last_stable_offset:
                for chunk in await Fetcher(client).fetch({tp: position}):
                    position = decoder.next_offset(chunk) or position
                    found.append(chunk)
    finally:
        await client.close()
    return found


if __name__ == "__main__":
    main()
