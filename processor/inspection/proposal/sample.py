"""Takes records of a topic, spread over its partitions, with bounds on what is read.

Of a partition with more than are wanted a third are the oldest, a third lie in the middle, and a third are the
newest. Those of a third are consecutive, so that a copy is likely to be there with the record that it is of.
"""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.topic_records import TopicRecord, records
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.ensure import connected, describe
from processor.ops.status_text import count
from processor.wire.decode import Decoder
from schemas.near import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from processor.kafka.client import Client
    from schemas.config import Kafka

MOST_PARTITIONS = 32
"""Looked at, those with the most records: of a thousand partitions one record each would show no copies."""
MOST_BYTES = 64 * 1024 * 1024
"""Of keys and values, all partitions together."""
_FEW_MORE = 3
"""Times the wanted records: a partition that has no more offsets is looked at from its end alone."""
_LOOKS, _WIDER = 4, 8
"""Markers and compaction leave fewer records than offsets: so often a range so many times as wide is read."""


@dataclass
class TopicSample:
    """What was read of a topic.

    Attributes:
        partitions: How many it has.
        existing: Those of the other topics that were asked about which exist, with their partitions.
        records: Partition after partition, in the order of their offsets.
        notes: What could not be read.
    """

    partitions: int
    existing: Mapping[str, int]
    records: list[TopicRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def take_sample(
    kafka: Kafka, topic: str, most: int, others: Collection[str], *, optional: bool = False
) -> TopicSample:
    """Read about ``most`` records of a topic, and look which of the ``others`` exist.

    With ``optional`` those that may not be looked at are taken for missing ones.

    Raises:
        StopError: The broker cannot be reached, the topic does not exist or has no records.
        ConfigError: Files of certificates or keys are wrong.
    """
    async with connected(kafka) as admin:
        found = await (describe(admin, [topic], others) if optional else describe(admin, [topic, *others]))
        if topic not in found:
            there = [name for name in await admin.list_topics() if not name.startswith("__")]
            instead = nearest(topic, there) if there else "the cluster has no topics yet"
            raise StopError(f"there is no topic {topic} at {kafka.bootstrap_servers}: {instead}")
    existing = {name: found[name].partitions for name in others if name in found and name != topic}
    sample = TopicSample(found[topic].partitions, existing)
    async with open_client(kafka, "seqmark-init", [topic]) as client:
        try:
            hidden = await _read(client, topic, most, sample)
        except RebuildError as error:
            raise StopError(f"{topic} cannot be read: {error}. Is the cluster well?") from error
    if not sample.records:
        # What cannot be read is the better reason.
        why = " ".join(sample.notes) or "run this again when its producer has written"
        behind = f" but {count(hidden, 'offset')} behind an open transaction" if hidden else ""
        raise StopError(f"{topic} has no records{behind}: {why}")
    return sample


async def _read(client: Client, topic: str, most: int, sample: TopicSample) -> int:
    """Add the records to the sample; return how many offsets lie behind open transactions."""
    numbers = [TopicPartition(topic, number) for number in sorted(client.partitions(topic))]
    now = await bounds(client, numbers)
    decoder, policy = Decoder(), NoteAndGoOn(client, sample.notes.append)
    wanted = shares({tp.partition: max(each.stable - each.start, 0) for tp, each in now.items()}, most)
    for number in sorted(wanted):
        tp = TopicPartition(topic, number)
        reader = PartitionReader(client, decoder, tp, policy)
        start, stop = now[tp].start, now[tp].stable
        share, most_bytes = wanted[number], MOST_BYTES // len(wanted)
        if stop - start > share * _FEW_MORE:
            for begin in (start, (start + stop) // 2):
                first = await _first(reader, tp, begin, stop, share // 3, most_bytes // 3)
                start = first[-1].offset + 1 if first else start
                sample.records += first
            share, most_bytes = share - 2 * (share // 3), most_bytes // 3
        sample.records += await _newest(reader, tp, start, stop, share, most_bytes)
    return sum(max(each.end - each.stable, 0) for each in now.values())


async def _first(
    reader: PartitionReader, tp: TopicPartition, start: int, stop: int, wanted: int, most_bytes: int
) -> list[TopicRecord]:
    """Return the first records from an offset on, about ``wanted`` of them."""
    first: list[TopicRecord] = []
    size = 0
    async with aclosing(records(reader, tp, start, stop)) as found:
        async for some in found:
            first += some[: wanted - len(first)]
            size += sum(len(each.key or b"") + len(each.value or b"") for each in some)
            if len(first) >= wanted or size > most_bytes:
                break
    return first


async def _newest(
    reader: PartitionReader, tp: TopicPartition, start: int, stop: int, wanted: int, most_bytes: int
) -> list[TopicRecord]:
    """Return the last records of a partition, about ``wanted`` of them."""
    newest: deque[TopicRecord] = deque(maxlen=wanted)
    span = wanted
    for _ in range(_LOOKS):
        newest.clear()
        begin, size = max(start, stop - span), 0
        async with aclosing(records(reader, tp, begin, stop)) as found:
            async for some in found:
                newest.extend(some)
                size += sum(len(each.key or b"") + len(each.value or b"") for each in some)
                if size > most_bytes:
                    return list(newest)
        if len(newest) >= wanted / 2 or begin == start:
            break
        span *= _WIDER
    return list(newest)


def shares(there: Mapping[int, int], most: int) -> dict[int, int]:
    """Return how many records to take of each partition: alike, and more where others have fewer.

    Args:
        there: How many offsets each has; those without any get no share.
        most: All together.
    """
    fullest = sorted(((number, each) for number, each in there.items() if each), key=lambda item: -item[1])
    wanted = {}
    left = most
    for behind, (number, each) in enumerate(reversed(fullest[:MOST_PARTITIONS])):
        share = min(each, -(-left // (min(len(fullest), MOST_PARTITIONS) - behind)))
        if share:
            wanted[number] = share
        left -= share
    return wanted
