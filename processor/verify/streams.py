"""How do the records of a partition come, a piece at a time?

While a piece is compared the next bytes are fetched already, and pieces are opened in a thread: the kernels and
codecs let go of the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from processor.verify.shared_topics import without
from processor.wire.decode import Decoder, UndecodableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.verify.shared_topics import Others
    from processor.wire.decode import Chunk

EMPTY_FETCHES = 60
"""Half a second each: a leader that says nothing for this long is not going to."""
PATIENCE_S = 3.0
"""How long what must be there may stay invisible. The end of a transaction is written to one partition after
another, within milliseconds where brokers are well."""
POLL_S = 0.05


class BrokenBatchError(StopError):
    """A batch cannot be decoded.

    Attributes:
        next_offset: Where what follows it begins; None where that cannot be told.
    """

    def __init__(self, message: str, next_offset: int | None) -> None:
        self.next_offset = next_offset
        super().__init__(message)


class StreamReader:
    """Reads one partition at a time, into a buffer of its own.

    Args:
        client: Connections; shared by several readers.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.decoder = Decoder()

    async def pieces(
        self, tp: TopicPartition, start: int, stop: int
    ) -> AsyncGenerator[tuple[Columns, int], None]:
        """Yield committed records and the position after them, until it reaches ``stop``.

        Columns are good until the next are asked for. The last may go beyond ``stop``.

        Raises:
            BrokenBatchError: A batch cannot be decoded.
            StopError: What was there is gone.
            RebuildError: Nothing comes.
        """
        name = f"{tp.topic}:{tp.partition}"
        fetcher = Fetcher(self.client)
        at, empty = start, 0
        coming: asyncio.Task[list[Chunk]] | None = None
        try:
            while at < stop:
                chunks = await (coming or fetcher.fetch({tp: at}))
                coming = None
                before = at
                for chunk in chunks:
                    after = self.decoder.next_offset(chunk)
                    if after is None:
                        # An answer without bytes says that nothing is left there: see `Fetcher.fetch`.
                        at = max(at, min(stop, chunk.last_stable_offset))
                    elif before < after < stop:
                        coming = asyncio.create_task(fetcher.fetch({tp: after}), name=f"fetch {name}")
                    opened = self.decoder.pieces(chunk)
                    # Not beyond the end: what a worker has stopped before may be a batch that cannot be read.
                    while at < stop and (piece := await asyncio.to_thread(next, opened, None)) is not None:
                        at = piece.next_offset
                        yield piece.columns, at
                empty = 0 if at > before else empty + 1
                if empty >= EMPTY_FETCHES:
                    raise RebuildError("fetch", f"{name}: nothing more comes from offset {at} on, of {stop}")
        except UndecodableError as error:
            message = f"{name}: {error}: nothing can be said of what follows"
            raise BrokenBatchError(message, error.next_offset) from error
        except OutOfRangeError as error:
            raise StopError(
                f"{error}: retention has removed it, or the topic was made anew, meanwhile"
            ) from error
        finally:
            if coming is not None:
                coming.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await coming


class OutputStream:
    """A `processor.verify.cursor.Stream` in Kafka.

    Args:
        reader: Used by this stream alone.
        tp: What is read.
        start: The first offset.
        limits: The log's bounds, asked for after the committed position: whatever belongs to that stands below
            ``limits.end``, though the end of its transaction may not be there yet.
        theirs: Tells records of other pipelines, which are left out; None where the topic is not shared.
    """

    def __init__(
        self, reader: StreamReader, tp: TopicPartition, start: int, limits: Bounds, theirs: Others | None = None
    ) -> None:
        self.name = f"{tp.topic}:{tp.partition}"
        self.floor = limits.stable
        self._reader = reader
        self._tp = tp
        self._at = start
        self._end = limits.end
        self._pieces = reader.pieces(tp, start, limits.stable)
        self._patience_s = PATIENCE_S
        self._over = limits.stable >= limits.end
        self._theirs = theirs

    async def close(self) -> None:
        """Ask for nothing more."""
        await self._pieces.aclose()

    def go_on(self) -> None:
        """The committed position has moved: look for more where the stream has ended."""
        self._over = False
        self._end = -1
        self._patience_s = PATIENCE_S

    async def next(self, *, wait: bool) -> Columns | None:
        """See `processor.verify.cursor.Stream`."""
        while True:
            async for columns, after in self._pieces:
                self._at = after
                return columns if self._theirs is None else without(columns, self._theirs)
            if not wait or self._over or not await self._more():
                return None

    async def _more(self) -> bool:
        """Wait until more is visible, or all that belongs to the committed position."""
        began = time.monotonic()
        while True:
            now = (await bounds(self._reader.client, [self._tp]))[self._tp]
            self._end = now.end if self._end < 0 else self._end
            waited = time.monotonic() - began
            if now.stable > self._at:
                self._pieces = self._reader.pieces(self._tp, self._at, now.stable)
                return True
            if now.stable >= self._end or waited >= self._patience_s:
                if self._theirs is not None and now.stable < self._end:
                    # Another pipeline's transaction may stay open for as long as its time-out is.
                    raise StopError(
                        f"{self.name}: a transaction is open from offset {now.stable} on, perhaps of another "
                        "pipeline that writes to this topic, so that nothing can be said of what follows. Run "
                        "it again when it has ended"
                    )
                # What is missing once is missing: the next record that is need not be waited for again.
                self._patience_s = max(0.0, self._patience_s - waited)
                self._over = True
                return False
            await asyncio.sleep(POLL_S)
