"""Asks brokers how many bytes partitions take (DescribeLogDirs).

It needs DESCRIBE on the cluster; without it brokers answer with nothing, and sizes are not known.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from processor.kafka.client import Client, KafkaError, TopicPartition, by_topic
from processor.kafka.protocol.requests import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Collection

ASK_S = 5.0


async def topic_bytes(client: Client, partitions: Collection[TopicPartition]) -> dict[str, int]:
    """Return the bytes of the topics of ``partitions``, one copy of each; what is not known is left out."""
    request = DescribeLogDirsRequest(by_topic((tp, tp.partition) for tp in partitions))
    largest: dict[TopicPartition, int] = {}
    for rows in await asyncio.gather(*(_asked(client, node, request) for node in client.nodes())):
        for tp, size in rows:
            largest[tp] = max(size, largest.get(tp, 0))
    found: dict[str, int] = defaultdict(int)
    for tp, size in largest.items():
        found[tp.topic] += size
    return dict(found)


async def _asked(
    client: Client, node: int, request: DescribeLogDirsRequest
) -> list[tuple[TopicPartition, int]]:
    try:
        answer = await client.request(node, request, coordination=True, timeout_s=ASK_S)
    except KafkaError:
        return []
    return [
        (TopicPartition(topic, number), size)
        for code, _, topics, _ in answer.folders
        if code == 0
        for topic, rows, _ in topics
        for number, size, _, is_future, _ in rows
        if not is_future
    ]
