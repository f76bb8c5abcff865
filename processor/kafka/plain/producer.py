"""Writes a generated stream into a topic, in order, and notes where each record landed.

Sends whole batches with aiokafka's own idempotent producer, which shares no code with the worker's: a fault in
the one is not hidden by the same fault in the other. Partitions take turns, a batch each, so that they
advance through event time together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from processor.errors import StopError
from processor.generator.truth import Truth
from processor.kafka.options import client_options
from processor.kafka.topics.ensure import connected, describe, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from processor.generator import StreamPartition
    from schemas.config import Kafka

BATCH_BYTES = 262_144
"""Inflated bytes of a batch: what a producer set for throughput makes (256 KB and 50 ms of linger)."""

_RENDER_RECORDS = 1_000
_FLUSHES_PER_S = 10  # with a rate: so many batches per second and partition
_TIMEOUT_MS = 60_000
_APPEAR_S = 30.0
_REPLICAS = 3  # what Kafka's own documentation advises, where there are so many brokers
_APPEAR_POLL_S = 0.05


class RecordSource(Protocol):
    """The records of one partition, in order."""

    def __len__(self) -> int: ...

    def records(self, start: int, stop: int) -> Sequence[Any]:
        """Return some: key, value, headers and timestamp (ms) of each."""


@dataclass(slots=True)
class _Lane:
    """One partition on its way: what is rendered, and what is sent but not acknowledged."""

    number: int
    partition: RecordSource
    offsets: NDArray[np.int64]
    position: int = 0
    block: Sequence[Any] = ()
    block_start: int = 0


async def open_source(
    kafka: Kafka, topic: str, partitions: int, configs: Mapping[str, str] | None = None
) -> int:
    """Return how many partitions ``topic`` has; where there is none it is made with so many, and ``configs``.

    Raises:
        StopError: The broker cannot be reached, or refuses.
    """
    async with connected(kafka) as admin:
        deadline = time.monotonic() + _APPEAR_S
        while not (view := await describe(admin, [topic])):
            brokers = len((await admin.describe_cluster())["brokers"])
            wanted = NewTopic(topic, partitions, min(_REPLICAS, brokers), topic_configs=dict(configs or {}))
            for _, why in refusals(await admin.create_topics([wanted])):
                raise StopError(f"topic {topic} cannot be created: {why}")
            if time.monotonic() > deadline:
                raise StopError(f"topic {topic} was created, but does not appear")
            await asyncio.sleep(_APPEAR_POLL_S)
        return view[topic].partitions


async def produce(
    kafka: Kafka,
    topic: str,
    stream: Sequence[StreamPartition],
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Truth]:
    """Send a stream, by partition number; return the truth of each partition, with the offsets it was given.

    See `send`.
    """
    offsets = await send(kafka, topic, stream, rate, progress)
    return [
        Truth(found, part.passes, part.kind, part.faults) for found, part in zip(offsets, stream, strict=True)
    ]


async def send(
    kafka: Kafka,
    topic: str,
    partitions: Sequence[RecordSource],
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[NDArray[np.int64]]:
    """Send records, by partition number; return the offsets that they were given.

    Returns when the broker has acknowledged the last record. ``rate`` is in records per second in all, None: as
    fast as it goes; ``progress`` is called with the number of records that were added to a batch.

    Raises:
        StopError: The broker refused a batch or cannot be reached.
    """
    producer = AIOKafkaProducer(
        **client_options(kafka),
        client_id="seqmark-generate",
        enable_idempotence=True,
        compression_type="lz4",
        max_batch_size=BATCH_BYTES,
        # What does not compress grows by a header and a little more.
        max_request_size=max(1_048_576, 2 * BATCH_BYTES),
        request_timeout_ms=_TIMEOUT_MS,
    )
    lanes = [
        _Lane(number, partition, np.empty(len(partition), np.int64))
        for number, partition in enumerate(partitions)
    ]
    try:
        async with producer:
            await _send(producer, topic, lanes, rate, progress)
    except KafkaError as error:
        raise StopError(f"producing to {topic} failed: {error!r}") from error
    return [lane.offsets for lane in lanes]


async def _send(
    producer: AIOKafkaProducer,
    topic: str,
    lanes: list[_Lane],
    rate: float | None,
    progress: Callable[[int], None],
) -> None:
    # A batch holds at most this many records, so that a slow stream flows instead of coming in gulps.
    most = max(1, int(rate / len(lanes) / _FLUSHES_PER_S)) if rate else None
    waiting: deque[tuple[_Lane, slice, asyncio.Future[Any]]] = deque()
    began = time.monotonic()
    sent = 0
    open_lanes = deque(lane for lane in lanes if len(lane.partition))
    while open_lanes:
        lane = open_lanes.popleft()
        start = lane.position
        batch = _fill(producer, lane, most)
        # Waits while the partition's batch before has not been taken: that bounds the memory.
        future = await producer.send_batch(batch, topic, partition=lane.number)
        waiting.append((lane, slice(start, lane.position), future))
        await asyncio.sleep(0)  # let the sender work: where nothing is waited for nothing else runs
        while waiting and waiting[0][-1].done():
            await _note(topic, *waiting.popleft())
        sent += lane.position - start
        progress(lane.position - start)
        if lane.position < len(lane.partition):
            open_lanes.append(lane)
        if rate:
            await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
    while waiting:
        await _note(topic, *waiting.popleft())


def _fill(producer: AIOKafkaProducer, lane: _Lane, most: int | None) -> Any:
    batch = producer.create_batch()
    append = batch.append
    stop = len(lane.partition) if most is None else min(len(lane.partition), lane.position + most)
    while lane.position < stop:
        at = lane.position - lane.block_start
        if at >= len(lane.block):
            lane.block_start, at = lane.position, 0
            lane.block = lane.partition.records(lane.position, lane.position + _RENDER_RECORDS)
        added = 0
        for key, value, headers, timestamp_ms in lane.block[at : at + stop - lane.position]:
            if append(timestamp=timestamp_ms, key=key, value=value, headers=list(headers)) is None:
                lane.position += added
                return batch
            added += 1
        lane.position += added
    batch.close()
    return batch


async def _note(topic: str, lane: _Lane, rows: slice, future: asyncio.Future[Any]) -> None:
    """Write down where a batch landed."""
    base = (await future).offset
    if base < 0:
        # A retried batch that the broker had, but no longer knows the offset of.
        raise StopError(
            f"{topic}:{lane.number}: a batch was acknowledged without its offset, so the truth is not "
            "known; generate again into a new topic"
        )
    lane.offsets[rows] = base + np.arange(rows.stop - rows.start)
