"""Writes to and reads a topic of one partition that all workers share, for what may be lost.

No transaction, no group, no position that anybody keeps. Whatever fails is raised; whoever uses it closes
it then, and opens another one later. The topic is never created here.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from processor.errors import RebuildError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, ReadPolicy
from processor.kafka.transactions.produce_request import BatchesRequest
from processor.wire.encode import plain_batch
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from processor.kafka.fetch import OutOfRangeError
    from processor.wire.decode import Decoder, UndecodableError

_LEADER_ACK = 1
_DEADLINE_S = 10.0


class _GoOn(ReadPolicy):
    """Passes over all that cannot be read."""

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        return stop if error.next_offset is None else min(error.next_offset, stop)

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        return stop


class BoardTopic:
    """One topic, over connections of its own, for one task.

    Attributes:
        position: The offset from which on `read` reads.
    """

    def __init__(self, client: Client, topic: str, about: str, decoder: Decoder) -> None:
        self._client = client
        self._tp = TopicPartition(topic, 0)
        self._about = about
        self._decoder = decoder
        self.position = 0

    @classmethod
    async def open(
        cls, options: Mapping[str, Any], client_id: str, topic: str, about: str, decoder: Decoder
    ) -> BoardTopic:
        """Connect.

        Args:
            options: Keyword arguments of an aiokafka client.
            client_id: For brokers' logs.
            topic: This one.
            about: The topic of which workers tell each other.
            decoder: For no other task at the same time.

        Raises:
            KafkaError: No broker answers.
            RebuildError: There is no such topic.
        """
        client = await Client.open(options, client_id, [topic, about])
        board = cls(client, topic, about, decoder)
        if client.leader(board._tp) is None:
            await client.refresh()
        if client.leader(board._tp) is None:
            await client.close()
            raise RebuildError("board", f"topic {topic} is not there, or may not be read")
        return board

    @property
    def topic_id(self) -> bytes:
        """16 bytes, of the topic: another one by this name has another."""
        return self._client.ids.get(self._tp.topic, UNKNOWN_ID)

    @property
    def partitions(self) -> int:
        """How many partitions there are to tell of; 0: not known."""
        return len(self._client.partitions(self._about))

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the values of what has been written since `position`, as of now.

        Raises:
            KafkaError, RebuildError: It cannot be read.
        """
        self._require_same()
        limits = (await bounds(self._client, [self._tp]))[self._tp]
        start = self.position if limits.start <= self.position <= limits.stable else limits.start
        if start < limits.stable:
            reader = PartitionReader(self._client, self._decoder, self._tp, _GoOn())
            async with aclosing(reader.columns(start, limits.stable)) as read:
                async for columns, _ in read:
                    # All of it before the next await: others share the decoder.
                    values = [value for _, value in columns.items(np.arange(len(columns)))]
                    for value in values:
                        if value is not None:
                            yield value
        self.position = limits.stable

    async def write(self, value: bytes) -> None:
        """Append a record.

        Raises:
            KafkaError, RebuildError: It was refused, or nobody knows.
        """
        self._require_same()
        leader = self._client.leader(self._tp)
        if leader is None:
            await self._client.refresh()
            raise RebuildError("board", f"{self._tp.topic} has no leader")
        batch = plain_batch([(None, value, int(time.time() * 1000), ())])
        parts = batch.parts(-1, -1, -1, transactional=False)
        request = BatchesRequest(
            None, _LEADER_ACK, int(_DEADLINE_S * 1000), by_topic([(self._tp, (self._tp.partition, parts))])
        )
        response = await self._client.request(leader, request, timeout_s=_DEADLINE_S)
        for _, answers in response.topics:
            for _, code, *_ in answers:
                if code != KafkaCode.NONE:
                    await self._client.refresh()
                    raise KafkaError(f"{self._tp.topic} refused a message: {error_name(code)}")

    def _require_same(self) -> None:
        if self._tp.topic in self._client.lost:
            raise RebuildError("board", f"{self._tp.topic} was deleted")

    async def close(self) -> None:
        """Close the connections; never raises."""
        await self._client.close()
