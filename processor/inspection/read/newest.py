"""Reads the newest receipts of a topic, for a page: from the ends of its partitions, bounded in bytes.

Newest are those that stand last in their partitions; among partitions the time of the dropped record decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.errors import StopError
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.offsets import bounds
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import read_spans
from processor.wire.receipt_values import receipt_fields

if TYPE_CHECKING:
    from schemas.config import Kafka

MOST_BYTES = 8 * 1024 * 1024
"""A receipt takes some hundred bytes, and with long ids some thousand."""
OFFSETS_PER_RECEIPT = 2
"""Each may stand alone in its transaction, before a marker."""
DEADLINE_S = 10.0


async def newest_receipts(kafka: Kafka, topic: str, count: int) -> list[dict[str, Any]]:
    """Return the newest receipts of a duplicates topic, at most ``count``, the newest first.

    Raises:
        StopError: The topic does not exist, or no broker answers.
        RebuildError: It cannot be read.
    """
    async with open_client(kafka, "seqmark-receipts", [topic]) as client:
        numbers = sorted(client.partitions(topic))
        if not numbers:
            raise StopError(f"the topic {topic} does not exist")
        limits = await bounds(client, [TopicPartition(topic, number) for number in numbers], DEADLINE_S)
    spans = {
        tp: (max(limit.start, limit.stable - OFFSETS_PER_RECEIPT * count), limit.stable)
        for tp, limit in limits.items()
        if limit.start < limit.stable
    }
    records = await read_spans(client_options(kafka), spans, MOST_BYTES, DEADLINE_S)
    # Of a record: key, value, headers, timestamp, offset.
    newest = sorted(records, key=lambda each: (each[1][3], each[1][4]), reverse=True)
    strange = {"verdict": "no receipt: another program has written it"}
    said = (receipt_fields(seen[1]) for _, seen in newest[:count])
    return [strange if each is None else each for each in said]
