"""What has arrived in these partitions since these positions?

One request at a time to each leader, read_committed; the answer's bytes are not looked into. Positions
are the caller's: nothing is fetched before it says from where, nothing is reset silently (trap 2).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from processor.errors import RebuildError
from processor.kafka.seam import FetchRequest, Kafka, KafkaError, Link, TopicPartition, error_name
from processor.wire.decode import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

PARTITION_BYTES = 1024 * 1024
"""Per partition and request: some 7,000 records of 150 B uncompressed, 20,000 and more compressed. Kafka
sends a first batch that is larger all the same (KIP-74)."""
FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 500
READ_COMMITTED = 1
BACKOFF_S = 0.1

_RETRY_SILENTLY = {Kafka.OFFSET_NOT_AVAILABLE, Kafka.REPLICA_NOT_AVAILABLE}


class OutOfRangeError(Exception):
    """A position lies outside the log: retention has passed it, or the log was cut."""

    def __init__(self, partition: TopicPartition, position: int) -> None:
        self.partition = partition
        self.position = position
        super().__init__(f"offset {position} of {partition.topic}:{partition.partition} is gone")


class Fetcher:
    """Fetches over a `Link` of its own, because a waiting fetch blocks its connection.

    Args:
        link: See above.
        seen: Told of each partition in each answer: its last stable offset and its high watermark.
    """

    def __init__(self, link: Link, seen: Callable[[TopicPartition, int, int], None] = lambda *_: None) -> None:
        self._link = link
        self._seen = seen
        self._turn = 0

    async def fetch(self, positions: Mapping[TopicPartition, int]) -> list[Chunk]:
        """Return one chunk a partition that has something; waits up to half a second for the first.

        A chunk may hold only control records or aborted batches. Where a leader had nothing for any
        partition, chunks without bytes tell so: between the position and the last stable offset there is
        nothing (compaction can leave a log like that). An empty list is a normal answer.

        Raises:
            OutOfRangeError: See there; other partitions' bytes of this round are fetched again later.
            RebuildError: The topic is not there.
        """
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in positions:
            node = self._link.leader(tp)
            if node is not None:
                by_node[node].append(tp)
        if not by_node:
            await self._link.refresh()
            await asyncio.sleep(BACKOFF_S)
            return []
        self._turn += 1
        answers = await asyncio.gather(*(self._ask(node, tps, positions) for node, tps in by_node.items()))
        return [chunk for chunks in answers for chunk in chunks]

    async def _ask(
        self, node: int, partitions: list[TopicPartition], positions: Mapping[TopicPartition, int]
    ) -> list[Chunk]:
        # The order in the request is the order in which partitions fill the answer: take turns.
        shift = self._turn % len(partitions)
        topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for tp in partitions[shift:] + partitions[:shift]:
            topics[tp.topic].append((tp.partition, positions[tp], PARTITION_BYTES))
        request = FetchRequest(WAIT_MS, 1, FETCH_BYTES, READ_COMMITTED, list(topics.items()))
        try:
            response = await self._link.request(node, request)
        except KafkaError as error:
            log.warning("fetch from broker %s failed: %r", node, error)
            await self._link.refresh()
            await asyncio.sleep(BACKOFF_S)
            return []
        chunks = []
        for topic, parts in response.topics:
            for partition, code, high, stable, *rest in parts:
                tp = TopicPartition(topic, partition)
                if code != Kafka.NONE:
                    await self._failed(tp, code, positions[tp])
                else:
                    self._seen(tp, stable, high)
                    chunks.append(self._chunk(tp, positions[tp], stable, rest, response.API_VERSION))
        full = [chunk for chunk in chunks if chunk.data]
        # Next to others an empty answer only says that the request's limit was reached.
        return full or chunks

    @staticmethod
    def _chunk(tp: TopicPartition, position: int, stable: int, rest: list[object], version: int) -> Chunk:
        # After the last stable offset: v4 aborted, bytes; v5 log start, aborted, bytes; v11 log start,
        # aborted, preferred replica, bytes.
        aborted = rest[0] if version == 4 else rest[1]
        start = -1 if version == 4 else rest[0]
        data = rest[-1] or b""
        return Chunk(tp.topic, tp.partition, position, data, aborted or (), stable, start)  # type: ignore[arg-type]  # untyped protocol

    async def _failed(self, tp: TopicPartition, code: int, position: int) -> None:
        if code == Kafka.OFFSET_OUT_OF_RANGE:
            raise OutOfRangeError(tp, position)
        if code == Kafka.UNKNOWN_TOPIC_OR_PARTITION:
            # It may come back as another topic of the same name: the slot is opened anew, which looks.
            raise RebuildError("source", f"{tp.topic}:{tp.partition}: {error_name(code)}")
        if code not in _RETRY_SILENTLY:
            log.warning(
                "fetch of %s:%s at %s failed: %s",
                tp.topic,
                tp.partition,
                position,
                error_name(code),
            )
        await self._link.refresh()
        await asyncio.sleep(BACKOFF_S)
