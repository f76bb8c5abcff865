"""Reads the topic that is the input of a batch, by the worker's own reader."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING

from processor.commands.console import bar
from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.wire.decode import Decoder
from schemas.changelog.topic_ids import UNKNOWN_ID
from spark_sink.batch.topic.source import BatchTopicReader, TopicBlock, TopicBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client
    from schemas.config import Kafka

CLIENT_ID = "seqmark-batch"
_NOTHING = "; nothing of this run counts"
_POLICY = StopReading(
    damage=f"{_NOTHING}. Write the topic without that batch to another one, and name that as input",
    loss=f": retention has removed it meanwhile{_NOTHING}. Start it again",
)


class BatchTopic(BatchTopicReader):
    """One topic of the cluster.

    Args:
        kafka: How the cluster is reached.
        topic: Its name.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka, self._topic = kafka, topic

    def look(self) -> TopicBounds:
        """Return the topic as it is now."""
        return asyncio.run(self._look())

    def read(
        self, state: TopicBounds, spans: Mapping[int, tuple[int, int]], take: Callable[[int, TopicBlock], None]
    ) -> None:
        """Hand out all committed records of some spans, partition by partition."""
        with ExitStack() as drawn:
            offsets = sum(stop - start for start, stop in spans.values())
            advance = drawn.enter_context(bar(f"reading {self._topic}", offsets))
            asyncio.run(self._read(state, spans, take, advance))

    async def _look(self) -> TopicBounds:
        async with open_client(self._kafka, CLIENT_ID, [self._topic]) as client:
            numbers = sorted(client.partitions(self._topic))
            if not numbers:
                raise StopError(f"there is no topic {self._topic} at {self._kafka.bootstrap_servers}")
            try:
                found = await bounds(client, [TopicPartition(self._topic, number) for number in numbers])
            except RebuildError as error:
                raise self._unreadable(error) from error
            return TopicBounds(
                self._topic,
                self._id(client),
                {tp.partition: (each.start, each.stable) for tp, each in found.items()},
            )

    def _id(self, client: Client) -> str:
        topic_id = client.ids.get(self._topic, UNKNOWN_ID)
        return "" if topic_id == UNKNOWN_ID else topic_id.hex()

    def _unreadable(self, error: RebuildError) -> StopError:
        return StopError(f"topic {self._topic} cannot be read: {error}{_NOTHING}. Is the cluster well?")

    async def _read(
        self,
        state: TopicBounds,
        spans: Mapping[int, tuple[int, int]],
        take: Callable[[int, TopicBlock], None],
        advance: Callable[[int], None],
    ) -> None:
        async with open_client(self._kafka, CLIENT_ID, [self._topic]) as client:
            if self._id(client) != state.topic_id:
                raise StopError(f"topic {self._topic} was deleted and created again meanwhile{_NOTHING}")
            decoder = Decoder()
            for number, (start, stop) in spans.items():
                tp, at = TopicPartition(self._topic, number), start
                reader = PartitionReader(client, decoder, tp, _POLICY)
                try:
                    async with aclosing(reader.columns(start, stop)) as pieces:
                        async for columns, after in pieces:
                            take(number, _block(columns))
                            advance(after - at)
                            at = after
                except RebuildError as error:
                    raise self._unreadable(error) from error


def _block(columns: Columns) -> TopicBlock:
    view = columns.data.data
    return TopicBlock(
        columns.offset.copy(),
        columns.timestamp.copy(),
        _copies(view, columns.key, columns.key_length),
        _copies(view, columns.value, columns.value_length),
    )


def _copies(view: memoryview, start: NDArray[np.int64], length: NDArray[np.int64]) -> list[bytes | None]:
    spans = zip(start.tolist(), length.tolist(), strict=True)
    return [None if size < 0 else bytes(view[at : at + size]) for at, size in spans]
