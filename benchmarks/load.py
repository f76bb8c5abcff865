"""What is measured on: click events with a sequence, 5 % resent, as a well-set producer batches them.

Batches are made by aiokafka's own builder (an independent encoder) and sent whole, so that making the
input takes seconds and not minutes.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from processor.engine.records import HEADER_BYTES
from processor.kafka.producer import Producer
from processor.kafka.seam import Link
from processor.wire.encode import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

BATCH_BYTES = 256 * 1024
LZ4 = 3
START_MS = 1_760_000_000_000
RESEND_LAST = 50
"""A resend repeats one of the last so many records, as after a time-out."""
_BATCH = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True)
class Load:
    """One input.

    Attributes:
        records: In all partitions, resent ones included.
        duplicates: Share that is resent.
        partitions: Of the topic.
        seed: Same seed, same input.
    """

    records: int = 4_000_000
    duplicates: float = 0.05
    partitions: int = 4
    seed: int = 7


def _sequences(load: Load, partition: int, rng: random.Random) -> Iterator[int]:
    """Yield a partition's sequences: rising, some repeated."""
    share = load.records // load.partitions + (partition < load.records % load.partitions)
    top = -1
    for _ in range(share):
        if top >= 0 and rng.random() < load.duplicates:
            yield max(0, top - rng.randrange(RESEND_LAST))
        else:
            top += 1
            yield top


def _value(partition: int, sequence: int) -> bytes:
    """About 120 B of JSON; with key and header a record of about 150 B."""
    mixed = (sequence * 0x9E3779B97F4A7C15 + partition) & 0xFFFFFFFFFFFFFFFF
    return (
        b'{"event_id":"%016x","campaign":"spring-%d","user_id":%d,"page":"/p/%d","amount":%d.%02d,'
        b'"ms":%d}'
        % (mixed, mixed % 40, mixed % 999_983, mixed % 5003, mixed % 90, mixed % 100, START_MS + sequence)
    )


def batches(load: Load, partition: int) -> Iterator[EncodedBatch]:
    """Yield a partition's input as whole batches."""
    rng = random.Random(load.seed * 1000 + partition)  # noqa: S311 - a repeatable load, not a secret
    builder, count = _builder(), 0
    for sequence in _sequences(load, partition, rng):
        headers = [("seq", struct.pack(">q", sequence))]
        key = b"user-%d" % (sequence % 100_000)
        while True:
            fields = (count, START_MS + sequence, key, _value(partition, sequence), headers)
            if builder.append(*fields) is not None:
                count += 1
                break
            yield _encoded(builder)
            builder, count = _builder(), 0
    if count:
        yield _encoded(builder)


def _builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(2, LZ4, 0, -1, -1, -1, BATCH_BYTES)


def _encoded(builder: DefaultRecordBatchBuilder) -> EncodedBatch:
    raw = bytes(builder.build())
    fields = _BATCH.unpack_from(raw)
    return EncodedBatch(LZ4, fields[7], fields[8], fields[12], raw[HEADER_BYTES:])


async def produce(bootstrap_servers: str, topic: str, load: Load, progress: Progress) -> int:
    """Write the input, partitions taking turns, and return how many records must pass."""
    link = await Link.open({"bootstrap_servers": bootstrap_servers}, "bench-load", [topic])
    producer = Producer(link, None)
    await producer.fence()
    task = progress.add_task("producing", total=load.records)
    sources = {number: batches(load, number) for number in range(load.partitions)}
    while sources:
        for number in list(sources):
            batch = next(sources[number], None)
            if batch is None:
                del sources[number]
                continue
            await producer.send(topic, number, [batch])
            progress.advance(task, batch.count)
    await producer.flush()
    await producer.close()
    return sum(
        max(_sequences(load, number, random.Random(load.seed * 1000 + number)), default=-1) + 1  # noqa: S311
        for number in range(load.partitions)
    )
