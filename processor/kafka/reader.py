"""Reads the committed records of one partition between two offsets.

Whole batches, read_committed, aborted transactions left out, as a worker reads its source. A reader goes on
over gaps that compaction has left, gives up where nothing comes any more, and asks its policy what to do about
a batch that cannot be decoded and about offsets that are no longer there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from processor.state.changelog import ChangelogBounds
from processor.wire.decode import UndecodableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client
    from processor.wire.decode import Chunk, Decoder, Piece

log = logging.getLogger(__name__)

EMPTY_FETCHES = 60
"""Half a second each: a leader that says nothing for this long is not going to."""


class ReadPolicy(ABC):
    """Decides how reading goes on where it cannot simply go on."""

    @abstractmethod
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        """Return where to go on behind a batch that cannot be decoded; at ``stop`` reading ends.

        Raises:
            StopError: Reading must not go on; says what to do.
        """

    @abstractmethod
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        """Return where to go on behind offsets that are gone.

        Raises:
            StopError: Reading must not go on; says what to do.
            RebuildError: What is known of the partition is out of date.
        """


@dataclass(frozen=True)
class StopReading(ReadPolicy):
    """Stops at whatever cannot be read.

    Attributes:
        damage: What follows from a batch that cannot be decoded, and what to do; ends the message.
        loss: Likewise where offsets are gone.
    """

    damage: str
    loss: str

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        raise StopError(f"{name}: {error}{self.damage}") from error

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        raise StopError(f"{error}{self.loss}") from error


@dataclass(frozen=True)
class StepOver(StopReading):
    """Steps over batches that cannot be decoded, and logs which.

    Attributes:
        to_the_end: Go on at the end where nobody can tell where the next batch begins; else stop there.
    """

    to_the_end: bool

    @override
    def after_damage(self, name: str, error: UndecodableError, stop: int) -> int:
        if error.next_offset is None and not self.to_the_end:
            return super().after_damage(name, error, stop)
        after = stop if error.next_offset is None else min(error.next_offset, stop)
        log.warning(
            "%s: %s; its records up to offset %s are stepped over, nothing of them is remembered",
            name,
            error,
            after - 1,
        )
        return after


class PartitionReader:
    """Reads one partition of a topic.

    It wants connections of its own: a waiting fetch blocks them. Other readers may share the decoder, one at a
    time. With ``ahead`` the next bytes are fetched while the last are worked on, and opened in a thread: nobody
    else may use the decoder meanwhile. ``most_bytes`` bounds one fetch, see `Fetcher.fetch`.
    """

    def __init__(
        self,
        client: Client,
        decoder: Decoder,
        tp: TopicPartition,
        policy: ReadPolicy,
        *,
        ahead: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        self.name = f"{tp.topic}:{tp.partition}"
        self._client = client
        self._decoder = decoder
        self._tp = tp
        self._policy = policy
        self._ahead = ahead
        self._most_bytes = most_bytes

    async def columns(self, start: int, stop: int) -> AsyncGenerator[tuple[Columns, int]]:
        """Yield the records from ``start`` to before ``stop``, and the position after them.

        Raises what `pieces` does, and gives columns for as long as it gives pieces.
        """
        async with aclosing(self.pieces(start, stop)) as pieces:
            async for piece in pieces:
                yield piece.up_to(stop)

    async def pieces(self, start: int, stop: int) -> AsyncGenerator[Piece]:
        """Yield the records from ``start`` to before ``stop``; the last piece may go beyond.

        A piece is good until the next one, and where others share the decoder until the next await.

        Raises:
            StopError: Something cannot be read, and the policy does not go on.
            RebuildError: Nothing comes any more, or the policy says so.
        """
        fetcher = Fetcher(self._client)
        at, empty = start, 0
        coming: asyncio.Task[list[Chunk]] | None = None
        try:
            while at < stop:
                before = at
                try:
                    fetching, coming = coming or fetcher.fetch({self._tp: at}, self._most_bytes), None
                    for chunk in await fetching:
                        if not chunk.data:
                            # It says that nothing is left up to there: see `Fetcher.fetch`.
                            at = max(at, min(stop, chunk.last_stable_offset))
                            continue
                        coming = self._next_fetch(fetcher, chunk, stop)
                        opened = self._decoder.pieces(chunk)
                        # Not beyond the end: a worker may have stopped before a batch that cannot be read.
                        while at < stop and (piece := await self._next_piece(opened)) is not None:
                            at = piece.next_offset
                            yield piece
                except UndecodableError as error:
                    await _drop(coming)
                    coming, at = None, max(at, error.offset)
                    if at < stop:
                        at = max(at + 1, self._policy.after_damage(self.name, error, stop))
                except OutOfRangeError as error:
                    at = await self._policy.after_loss(self.name, error, stop)
                empty = 0 if at > before else empty + 1
                if empty >= EMPTY_FETCHES:
                    raise RebuildError("fetch", f"{self.name}: nothing comes from offset {at} on, of {stop}")
        finally:
            await _drop(coming)

    def _next_fetch(self, fetcher: Fetcher, chunk: Chunk, stop: int) -> asyncio.Task[list[Chunk]] | None:
        """Fetch what comes after a chunk already."""
        if not self._ahead:
            return None
        after = self._decoder.next_offset(chunk)
        if after is None or not chunk.position < after < stop:
            return None
        return asyncio.create_task(
            fetcher.fetch({self._tp: after}, self._most_bytes), name=f"fetch {self.name}"
        )

    async def _next_piece(self, opened: Iterator[Piece]) -> Piece | None:
        return await asyncio.to_thread(next, opened, None) if self._ahead else next(opened, None)


async def first_record(reader: PartitionReader, start: int, stop: int) -> int | None:
    """Return the offset of the first committed record from ``start`` to before ``stop``; None: there is none.

    Markers and what was aborted take offsets, too.

    Raises:
        StopError, RebuildError: As `PartitionReader.pieces`.
    """
    async with aclosing(reader.columns(start, stop)) as pieces:
        async for columns, _ in pieces:
            if len(columns):
                return int(columns.offset[0])
    return None


class _OnlyCopy(StopReading):
    """Stops at a damaged batch, for nothing else knows what it said; rebuilds where records were deleted."""

    @override
    async def after_loss(self, name: str, error: OutOfRangeError, stop: int) -> int:
        raise RebuildError("changelog", f"{name}: {error}") from error


_ONLY_COPY = _OnlyCopy(damage="; restore the topic from a copy", loss="")


class ChangelogPartition(PartitionReader):
    """A `processor.state.changelog.Changelog` in Kafka.

    Several may share a decoder: whoever takes columns is done with them before the next await.
    """

    def __init__(self, client: Client, decoder: Decoder, topic: str, partition: int) -> None:
        super().__init__(client, decoder, TopicPartition(topic, partition), _ONLY_COPY)

    async def bounds(self) -> ChangelogBounds:
        """Return where it begins and ends now."""
        return ChangelogBounds(*(await bounds(self._client, [self._tp]))[self._tp])


async def _drop(coming: asyncio.Task[list[Chunk]] | None) -> None:
    if coming is not None:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming
