"""Asks what this principal may do with topics and with the cluster (KIP-430); changes nothing.

Brokers tell it with the metadata, as bits. Of a topic that may not even be described they say just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from processor.kafka.protocol.codes import NOT_TOLD, Operation, lacking
from processor.kafka.protocol.requests import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.kafka.client import Client


class TopicRights(NamedTuple):
    """What a broker says of a topic: Kafka's code, and the bits of `processor.kafka.protocol.codes`."""

    code: int
    operations: int


class Rights(NamedTuple):
    """What this principal may do; `NOT_TOLD` where brokers do not say (before 2.3)."""

    cluster: int
    topics: Mapping[str, TopicRights]


async def rights(client: Client, topics: Sequence[str] | None) -> Rights:
    """Ask any broker; None: about all topics that this principal may look at.

    Raises:
        KafkaError: No answer.
    """
    return told(await client.request(await client.any_node(), MetadataRequest(topics, operations=True)))


def unwritable(answer: Any) -> set[str]:
    """Return the topics that this principal may not write to, as far as the broker says."""
    topics = told(answer).topics
    return {topic for topic, said in topics.items() if lacking(said.operations, [Operation.WRITE])}


def told(answer: Any) -> Rights:
    """Return what an answer to a `MetadataRequest` with ``operations`` says."""
    if answer.API_VERSION < MetadataRequest.VERSION:
        return Rights(NOT_TOLD, {topic[1]: TopicRights(topic[0], NOT_TOLD) for topic in answer.topics})
    found = {name: TopicRights(code, operations) for code, name, _, _, _, operations, _ in answer.topics}
    return Rights(answer.authorized_operations, found)
