"""Audits records that are sent, without a broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from processor.inspection.audit.audit import Audit, collected_twice, judged
from processor.inspection.topic_records import TopicRecord
from tests.support.wire import batches
from tests.unit.inspection.audit.cases import START_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.audit.trial import Collected
    from tests.unit.inspection.audit.cases import Sent


def placed(sent: Sequence[Sent]) -> list[TopicRecord]:
    """Return records as they stand in a topic, in the order in which they were sent."""
    ends: dict[int, int] = defaultdict(int)
    found = []
    for each in sent:
        key = None if each.key is None else each.key.encode()
        where = "raw", each.partition, ends[each.partition]
        found.append(TopicRecord(*where, START_MS + each.at_ms, False, key, each.raw, list(each.headers)))
        ends[each.partition] += 1
    return found


def audited(sent: Sequence[Sent], *, whole: bool = True) -> Audit:
    """Return what an audit finds in a topic of these records."""
    there = placed(sent)
    partitions = sorted({each.partition for each in there})
    by_partition = {number: [each for each in there if each.partition == number] for number in partitions}

    async def collect(collected: Collected) -> None:
        for number, some in by_partition.items():
            collected.begin(number, len(some))
            for begin in range(0, len(some), 1_000):
                batch = batches.by_hand([_on_wire(each) for each in some[begin : begin + 1_000]])
                for piece in batches.DECODER.pieces(batches.chunk(batch, position=begin)):
                    collected.take(piece.columns)

    async def record(partition: int, offset: int) -> TopicRecord | None:
        return by_partition[partition][offset]

    sample = [each for number in partitions for each in by_partition[number]]
    return judged("raw", asyncio.run(collected_twice(sample, collect, record)), whole=whole)


def _on_wire(record: TopicRecord) -> batches.Record:
    headers = tuple((name if isinstance(name, bytes) else name.encode(), each) for name, each in record.headers)
    return batches.Record(record.offset, record.timestamp, record.key, record.value, headers)
