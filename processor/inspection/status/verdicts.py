"""Asks how much stands in topics of verdicts, and how far `seqmark materialize` has come in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.status.facts import VerdictsProgress
from processor.kafka.client import TopicPartition
from processor.kafka.group.names import materialize_group
from processor.kafka.offsets import committed
from processor.kafka.topics.sizes import topic_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from schemas.config import Pipeline, Settings


async def verdicts_progress(
    client: Client,
    settings: Settings,
    pipeline: Pipeline,
    limits: Mapping[TopicPartition, Bounds],
    ask_s: float,
) -> VerdictsProgress | None:
    """Return what a pipeline's topic of verdicts holds; None: its output has none.

    Raises:
        RebuildError: The group of `materialize` could not be asked within ``ask_s``.
    """
    topic = pipeline.verdicts
    if topic is None:
        return None
    partitions = [TopicPartition(topic, number) for number in client.partitions(topic)]
    if not partitions:
        return VerdictsProgress(topic)
    sizes = await topic_bytes(client, partitions)
    done = await committed(client, materialize_group(settings, pipeline), partitions, ask_s)
    known = [limits[tp] for tp in partitions if tp in limits]
    # The last offset is a transaction's marker: nothing is to be read there.
    behind = [max(0, limits[tp].stable - 1 - offset) for tp, offset in done.items() if tp in limits]
    return VerdictsProgress(
        topic,
        sizes.get(topic),
        sum(limit.stable - limit.start for limit in known) if len(known) == len(partitions) else None,
        len(behind),
        sum(behind) if behind else None,
    )
