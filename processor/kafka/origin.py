"""Says where the source and the outputs of a partition stand before the first record of its state.

Asked once per state, after the owners of the transactional id are fenced: nothing moves meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from schemas.changelog.position import NO_TOPIC, Origin

if TYPE_CHECKING:
    from processor.kafka.client import Client


async def origin_at(
    client: Client, sink: str, duplicates: str | None, quarantine: str | None, number: int, source_offset: int
) -> Origin:
    """Return where source and outputs stand before what is taken in from ``source_offset`` on.

    Nothing moves while it is asked: all who could write to partition ``number`` of the outputs are fenced.
    """
    names = [sink, *filter(None, (duplicates, quarantine))]
    ends = await bounds(client, [TopicPartition(name, number) for name in names])
    offsets = {tp.topic: limits.end for tp, limits in ends.items()}
    return Origin(
        source_offset,
        offsets[sink],
        offsets.get(duplicates or "", NO_TOPIC),
        offsets.get(quarantine or "", NO_TOPIC),
    )
