"""Reads a partition as a plain consumer sees it.

For checks that must not share code with the worker: aiokafka's own consumer and record parser, no raw
batches, no group.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Seen = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]
"""Key, value, headers, timestamp in ms, offset."""

_STALL_S = 60.0
_POLL_MS = 500
_FETCH_BYTES = 8 * 1024 * 1024


async def read_partition(options: Mapping[str, Any], topic: str, partition: int) -> list[Seen]:
    """Return all committed records of a partition up to the end that it has now.

    Raises:
        StopError: The broker cannot be read, or gives nothing for a minute.
    """
    tp = TopicPartition(topic, partition)
    seen: list[Seen] = []
    consumer = AIOKafkaConsumer(
        **options,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    with _translated():
        async with consumer:
            consumer.assign([tp])
            await consumer.seek_to_beginning(tp)
            end = (await consumer.end_offsets([tp]))[tp]
            deadline = time.monotonic() + _STALL_S
            # By the position: the last offset may be a control record, which is never handed out.
            while (position := await consumer.position(tp)) < end:
                polled = await consumer.getmany(tp, timeout_ms=_POLL_MS)
                seen += [
                    (record.key, record.value, record.headers, record.timestamp, record.offset)
                    for record in polled.get(tp, ())
                ]
                if polled or await consumer.position(tp) > position:
                    deadline = time.monotonic() + _STALL_S
                elif time.monotonic() > deadline:
                    raise StopError(f"{topic}:{partition} gives nothing from offset {position} on, of {end}")
    return [record for record in seen if record[-1] < end]


async def read_spans(
    options: Mapping[str, Any],
    spans: Mapping[TopicPartition, tuple[int, int]],
    most_bytes: int,
    deadline_s: float = _STALL_S,
) -> list[tuple[TopicPartition, Seen]]:
    """Return the committed records between two offsets of each partition, in each partition's order.

    Offsets are the first and the one after the last. It ends early after ``most_bytes`` of keys and values, and
    at the deadline: a look, not a proof.

    Raises:
        StopError: The broker cannot be read.
    """
    seen: list[tuple[TopicPartition, Seen]] = []
    left = {tp: stop for tp, (start, stop) in spans.items() if start < stop}
    if not left:
        return seen
    consumer = AIOKafkaConsumer(
        **options,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # what retention deletes meanwhile is gone
    )
    deadline = time.monotonic() + deadline_s
    with _translated():
        async with consumer:
            consumer.assign(list(left))
            for tp in left:
                consumer.seek(tp, spans[tp][0])
            while left and most_bytes > 0 and time.monotonic() < deadline:
                polled = await consumer.getmany(*left, timeout_ms=_POLL_MS)
                for tp, records in polled.items():
                    some = [each for each in records if each.offset < spans[tp][1]]
                    most_bytes -= sum(len(each.key or b"") + len(each.value or b"") for each in some)
                    seen += [
                        (tp, (each.key, each.value, each.headers, each.timestamp, each.offset)) for each in some
                    ]
                left = {tp: stop for tp, stop in left.items() if await consumer.position(tp) < stop}
    return seen


class GroupPosition:
    """How far a consumer group has come in a topic; an async context manager with one connection."""

    def __init__(self, options: Mapping[str, Any], group_id: str, topic: str) -> None:
        self._admin = AIOKafkaAdminClient(**options)
        self._group_id = group_id
        self._topic = topic

    async def __aenter__(self) -> Self:
        with _translated():
            await self._admin.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def committed(self) -> dict[int, int]:
        """Return the committed offset by partition; partitions without one are left out.

        A look for a progress bar: empty, too, while the group has no coordinator or it does not answer.
        """
        try:
            offsets = await self._admin.list_consumer_group_offsets(self._group_id)
        except KafkaError:
            return {}
        return {
            tp.partition: meta.offset
            for tp, meta in offsets.items()
            if tp.topic == self._topic and meta.offset >= 0
        }


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise StopError(f"reading from Kafka failed: {error!r}") from error
