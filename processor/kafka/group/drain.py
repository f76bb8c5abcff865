"""Waits until a group has read all that is in a topic now.

That is needed where a topic is filled from another one by members of the same group: a drain has emptied the
second one when nothing more comes out of the first. The group's offsets say so, but for a partition whose end
holds nothing: there they stay below it, and a fetch tells that nothing follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.kafka.client import TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import committed, last_stable

if TYPE_CHECKING:
    from processor.kafka.client import Client

POLL_S = 0.2


async def taken_in(client: Client, group_id: str, topic: str) -> None:
    """Wait until the group has committed all of ``topic`` up to the last stable offsets that it has now.

    Waits as long as that takes: what is in the way is for those to say who read the topic.

    Raises:
        RebuildError: No answer within the deadline.
    """
    every = [TopicPartition(topic, number) for number in sorted(client.partitions(topic))]
    left = await last_stable(client, every)
    before: dict[TopicPartition, int] = {}
    while True:
        now = await committed(client, group_id, left)
        for tp, target in list(left.items()):
            at = now.get(tp)
            # Asked only where nothing moves: it costs a fetch.
            if at is not None and (
                at >= target or (before.get(tp) == at and await _nothing(client, tp, at, target))
            ):
                del left[tp]
        if not left:
            return
        before = now
        await asyncio.sleep(POLL_S)


async def _nothing(client: Client, tp: TopicPartition, position: int, target: int) -> bool:
    """Whether there is nothing between a position and an offset, as compaction can leave it."""
    try:
        chunks = await Fetcher(client).fetch({tp: position})
    except OutOfRangeError:
        return False
    return any(not chunk.data and chunk.last_stable_offset >= target for chunk in chunks)
