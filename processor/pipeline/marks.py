"""Writes marks with commits: where the outputs ended when the source had been taken in so far.

A mark is part of the commit (step 3), in the same transaction: it speaks of what is committed, or is not there.
There is at most one per partition and second, and one more with each commit that makes 65,536 records since the
last one: what lies between two is then found by a fetch or a few.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from processor.wire.encode import plain_batch
from schemas.changelog.marks import MARK_KEY, IndexMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.pipeline.ports import OpenPartition, Topics, TransactionOutput
    from schemas.changelog.position import OutputEnds

EVERY_S = float(os.environ.get("SEQMARK_TEST_MARK_S", "1"))
EVERY_RECORDS = 65_536
"""About 10 MB of records of 150 B, uncompressed: what a fetch or a few bring."""


def ends_now(partition: OpenPartition, topics: Topics, output: TransactionOutput) -> OutputEnds:
    """Return where the outputs of a partition end, now that all of this commit's are acknowledged.

    An output that nothing was written to stays where it was.
    """
    where = topics.ends_in(partition.number)
    known = {kind: output.next_offset(*where[kind]) for kind in partition.written if kind in where}
    partition.written.clear()
    return partition.position.ends._replace(**known)


class MarkWriter:
    """Writes the marks of a slot's partitions.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, topics: Topics, output: TransactionOutput, clock: Callable[[], float]) -> None:
        self._topics = topics
        self._output = output
        self._clock = clock
        self._written_at: dict[int, float] = {}
        self._records: dict[int, int] = {}
        self._expected: set[int] = set()

    def expect(self, number: int) -> None:
        """Announce a partition's mark where it is due, so that it costs no round trip of its own."""
        index = self._topics.index
        if index is None or number >= self._topics.index_partitions or number in self._expected:
            return
        if self._is_time(number):
            self._expected.add(number)
            self._output.expect(index, number)

    async def write(self, partition: OpenPartition) -> None:
        """Write a partition's mark, if one is due; its position is as this commit writes it."""
        number, index = partition.number, self._topics.index
        if index is None or number >= self._topics.index_partitions:
            return
        self._records[number] = self._records.get(number, 0) + int(partition.counts.sum())
        many = self._records[number] >= EVERY_RECORDS
        if not (number in self._expected or many or self._is_time(number)):
            return
        self._expected.discard(number)
        self._written_at[number], self._records[number] = self._clock(), 0
        now_ms = int(time.time() * 1000)
        mark = IndexMark.of(partition.position, number, self._topics.quarantined_to(number), now_ms)
        await self._output.send(index, number, [plain_batch([(MARK_KEY, mark.encode(), now_ms, ())])])

    def _is_time(self, number: int) -> bool:
        return self._clock() - self._written_at.get(number, -math.inf) >= EVERY_S
