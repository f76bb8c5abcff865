"""Has the end of a transaction reached every partition that it wrote to?

Kafka ends a transaction by a marker in each of its partitions. A broker of 4.3.0 leaves a partition out that
has no leader at that moment (KAFKA-20734: the coordinator takes it for deleted; seen here with a single broker
that was being stopped), and says that all is done. What was written there then stays open: `read_committed`
stops before it, and whatever ends the same producer's next transaction decides about it. A commit shows output
that was aborted, an abort takes back output that was committed.

So nothing is written before the end of the transaction before is seen in all its partitions, and where it is
not seen, a transaction of no records over them, ended in the same way, brings it there. That does no harm where
nothing was open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from processor.kafka.offsets import bounds, last_stable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from processor.kafka.coordinator import Coordinator
    from processor.kafka.seam import Link, TopicPartition

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
"""Markers come within milliseconds. In a topic that several pipelines write to, the others' transactions, open
for a commit interval each, look the same: waiting for a few is cheaper than a transaction of our own."""
PAUSE_FIRST_S = 0.001
PAUSE_LAST_S = 0.05


async def bring(
    link: Link,
    coordinator: Coordinator,
    first: Mapping[TopicPartition, int],
    deadline_s: float,
    *,
    commit: bool,
) -> None:
    """See the end of the last transaction in every partition, or bring it there.

    Args:
        link: Connections.
        coordinator: Of the producer that wrote; it has no transaction now.
        first: Offset of the first record that the transaction wrote, by partition.
        deadline_s: For each question.
        commit: How it ended.

    Raises:
        RebuildError, FencedError: It could not be seen or brought.
    """
    open_ = await _still_open(link, first, deadline_s)
    if not open_:
        return
    log.warning(
        "the %s of a transaction has not reached %s, sending it again",
        "commit" if commit else "abort",
        ", ".join(f"{tp.topic}:{tp.partition} (from offset {offset})" for tp, offset in open_.items()),
    )
    await coordinator.add_partitions(open_)
    await coordinator.end(commit=commit)


async def found_open(
    link: Link, partitions: Iterable[TopicPartition], deadline_s: float
) -> dict[TopicPartition, int]:
    """Return the partitions in which a transaction is open, with the offset where it begins.

    Raises:
        RebuildError: No answer within the deadline.
    """
    limits = await bounds(link, partitions, deadline_s)
    return {tp: limit.stable for tp, limit in limits.items() if limit.stable < limit.end}


async def _still_open(
    link: Link, first: Mapping[TopicPartition, int], deadline_s: float
) -> dict[TopicPartition, int]:
    """Return what is still open after a while of patience."""
    open_ = dict(first)
    until, pause = time.monotonic() + PATIENCE_S, PAUSE_FIRST_S
    while open_:
        stable = await last_stable(link, open_, deadline_s)
        open_ = {tp: offset for tp, offset in open_.items() if stable[tp] <= offset}
        if time.monotonic() > until:
            break
        if open_:
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LAST_S)
    return open_
