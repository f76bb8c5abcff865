"""Tells whether this is still the source that the state was made from, where brokers have no topic ids.

A topic that was deleted and made anew cannot be told from the old one by its name. Where brokers give ids, they
tell (`processor.state.belonging`). All the same the state remembers base offset and CRC of the last batch it
took in, and they are compared when a partition is assigned: a log that was cut is found by that, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, BATCH_COLUMNS, CRC
from processor.engine.batch.scan import walk
from processor.errors import RebuildError, StopError
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from schemas.changelog.position import Position

ATTEMPTS = 20


async def check_same_source(
    client: Client, tp: TopicPartition, position: Position, limits: Bounds, *, compacted: bool
) -> None:
    """Compare the source with what the state remembers of it.

    Of a compacted topic CRCs say nothing: the cleaner rewrites batches. ``limits`` may be older than the state.

    Raises:
        StopError: It is another topic by the same name, or has lost its end.
        RebuildError: The batch cannot be fetched, or no leader answers.
    """
    name = f"{tp.topic}:{tp.partition}"
    advice = "See 'A source made anew' in docs/operations.md."
    if position.next_offset > limits.end:
        # Who halts between the two looks finds a state that another owner has brought further since the first.
        limits = (await bounds(client, [tp]))[tp]
    if position.next_offset > limits.end:
        raise StopError(
            f"{name} ends at {limits.end}, but {position.next_offset} has been read already: the topic "
            f"was deleted and made anew, or lost records. {advice}"
        )
    if compacted or position.batch_offset == NO_BATCH or position.batch_offset < limits.start:
        return
    found = await _batch_at(client, tp, position.batch_offset)
    if found != (position.batch_offset, position.batch_crc):
        raise StopError(
            f"{name}: the batch at offset {position.batch_offset} is not the one that was read before "
            f"(CRC-32C {found[1]:#010x}, was {position.batch_crc:#010x}): the topic was deleted and made "
            f"anew. Its state does not fit. {advice}"
        )


async def _batch_at(client: Client, tp: TopicPartition, offset: int) -> tuple[int, int]:
    """Return base offset and CRC of the batch that holds ``offset``."""
    fetcher = Fetcher(client)
    table = np.empty((1, BATCH_COLUMNS), np.int64)
    for _ in range(ATTEMPTS):
        try:
            chunks = await fetcher.fetch({tp: offset})
        except OutOfRangeError as error:
            raise RebuildError("source", str(error)) from error
        for chunk in chunks:
            count, _, _ = walk(np.frombuffer(chunk.data, np.uint8), table)
            if count:
                return int(table[0, BASE_OFFSET]), int(table[0, CRC])
    raise RebuildError("source", f"{tp.topic}:{tp.partition}: nothing comes from offset {offset}")
