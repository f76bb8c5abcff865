"""What does a changelog partition hold between two offsets?

Read with the same fetcher and decoder as sources: whole batches, read_committed, aborted transactions left
out. A changelog that cannot be decoded stops the worker: it is the only copy of what was known. A reset reads
other topics in the same way, and does something else where a batch cannot be decoded (`PartitionReader`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from processor.state.restore import ChangelogBounds
from processor.wire.decode import Decoder, UndecodableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client

EMPTY_FETCHES = 60
"""Half a second each: a leader that says nothing for this long is not going to."""


class PartitionReader(ABC):
    """Reads one partition of a topic between two offsets.

    Args:
        client: Connections of its own: a waiting fetch blocks them.
        decoder: May be shared, see `columns`.
        topic: Which.
        partition: Its number.
    """

    def __init__(self, client: Client, decoder: Decoder, topic: str, partition: int) -> None:
        self._client = client
        self._decoder = decoder
        self._tp = TopicPartition(topic, partition)
        self.name = f"{topic}:{partition}"

    @abstractmethod
    def behind(self, error: UndecodableError, stop: int) -> int:
        """Return from where to go on, above ``error.offset``, behind a batch that cannot be decoded.

        Raises:
            StopError: Nobody can go on, and what is to be done.
        """

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        return ChangelogBounds(*(await bounds(self._client, [self._tp]))[self._tp])

    async def columns(self, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        """Yield committed records and the position after them, until it reaches ``stop``.

        They are good until the next are asked for.

        Raises:
            StopError: A batch cannot be decoded.
            RebuildError: Nothing comes, or what was there is gone.

        Between two of them other tasks may run, and with them the decoder that all share: who takes columns
        has to be done with them before awaiting anything.
        """
        fetcher = Fetcher(self._client)
        at = start
        empty = 0
        while at < stop:
            try:
                chunks = await fetcher.fetch({self._tp: at})
            except OutOfRangeError as error:
                raise RebuildError("changelog", f"{self.name}: {error}") from error
            before = at
            for chunk in chunks:
                try:
                    for piece in self._decoder.pieces(chunk):
                        at = piece.next_offset
                        yield piece.columns, at
                except UndecodableError as error:
                    at = max(at, self.behind(error, stop))
                    break
            empty = 0 if at > before else empty + 1
            if empty >= EMPTY_FETCHES:
                raise RebuildError("changelog", f"{self.name}: nothing more at {at}, expected {stop}")


class ChangelogPartition(PartitionReader):
    """A `processor.state.restore.Changelog` in Kafka."""

    async def read(self, start: int, stop: int) -> AsyncIterator[tuple[list[tuple[bytes, bytes | None]], int]]:
        """Yield the same as items; raises the same."""
        async for columns, after in self.columns(start, stop):
            yield columns.items(np.arange(len(columns))), after

    def behind(self, error: UndecodableError, stop: int) -> int:
        """See `PartitionReader.behind`."""
        del stop
        raise StopError(f"{self.name}: {error}; restore the topic from a copy") from error
