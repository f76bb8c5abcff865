"""Gives the broker that is measured with, and makes and removes its topics."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from processor.broker.embedded import EmbeddedBroker
from processor.kafka.client import Client, TopicPartition
from processor.kafka.offsets import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEEP = {"retention.ms": "-1"}
"""Records of a load are stamped with a fixed time of the past: a broker would remove them after minutes."""
BROKER_VARIABLE = "SEQMARK_KAFKA__BOOTSTRAP_SERVERS"


@contextmanager
def cluster(say: Callable[[str], None]) -> Iterator[tuple[str, int | None]]:
    """Give bootstrap servers, and the broker's process id where it is the embedded one."""
    if servers := os.environ.get(BROKER_VARIABLE):
        yield servers, None
        return
    # Topics that systems make for themselves keep their records as well.
    with EmbeddedBroker(overrides={"log.retention.ms": "-1"}, heap_mb=1024, say=say) as broker:
        yield broker.bootstrap_servers, broker.pid


async def create(bootstrap_servers: str, topic: str, partitions: int, **configs: str) -> None:
    """Make a topic that keeps its records, and return once its leaders answer for all partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs={**KEEP, **configs})])
        for name, code, *message in answer.topic_errors:
            if code:
                raise for_code(code)(f"{name}: {message}")
    finally:
        await admin.close()
    client = await Client.open({"bootstrap_servers": bootstrap_servers}, "bench-topics", [topic])
    try:
        # Asks again until a deadline: a leader does not know of its partition at once.
        await bounds(client, [TopicPartition(topic, number) for number in range(partitions)])
    finally:
        await client.close()


async def remove(bootstrap_servers: str, part: str) -> None:
    """Delete all topics that have ``part`` in their names: a system's own among them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        names = [name for name in await admin.list_topics() if part in name]
        if names:
            await admin.delete_topics(names)
    finally:
        await admin.close()
