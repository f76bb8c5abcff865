"""Waits until a hop has taken in all that is in its source now.

That is needed where a topic is filled from another one: a drain has emptied the second one when nothing more
comes out of the first. The positions that the first hop has committed to its own topic say so. The group's
offsets follow them, and can be set: where one is ahead, the first hop still reads what lies between.
A partition whose end holds nothing stays below it, and a fetch tells that nothing follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.kafka.client import TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import last_stable
from processor.kafka.reader import ChangelogPartition
from processor.state.changelog import last_position
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.kafka.client import Client

POLL_S = 0.2


async def taken_in(client: Client, topic: str, positions: str) -> None:
    """Wait until a hop has committed all of ``topic`` up to the last stable offsets that it has now.

    ``positions`` is its topic of positions. An old answer about that can only say less than there is.

    Waits as long as that takes: what is in the way is for those to say who read the topic.

    Raises:
        RebuildError: No answer within the deadline.
        StopError: A position cannot be read.
    """
    every = [TopicPartition(topic, number) for number in sorted(client.partitions(topic))]
    left = await last_stable(client, every)
    before: dict[TopicPartition, int] = {}
    decoder = Decoder()
    while True:
        now = await _committed(client, decoder, positions, left)
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


async def _committed(
    client: Client, decoder: Decoder, positions: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the positions that a hop has committed; what has none is left out."""
    found: dict[TopicPartition, int] = {}
    for tp in partitions:
        if tp.partition in client.partitions(positions):
            last = await last_position(ChangelogPartition(client, decoder, positions, tp.partition))
            if last is not None:
                found[tp] = last.next_offset
    return found


async def _nothing(client: Client, tp: TopicPartition, position: int, target: int) -> bool:
    """Whether there is nothing between a position and an offset, as compaction can leave it."""
    try:
        chunks = await Fetcher(client).fetch({tp: position})
    except OutOfRangeError:
        return False
    return any(not chunk.data and chunk.last_stable_offset >= target for chunk in chunks)
