"""Reads what a certificate compares, a piece at a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.verify.shared_topics import without

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.verify.shared_topics import Others
    from processor.wire.decode import Decoder

PATIENCE_S = 3.0
"""How long what must be there may stay invisible. The end of a transaction is written to one partition after
another, within milliseconds where brokers are well."""
POLL_S = 0.05
LOST = ": retention has removed it, or the topic was made anew, meanwhile"
_POLICY = StopReading(damage=": nothing can be said of what follows", loss=LOST)


def reader(client: Client, decoder: Decoder, tp: TopicPartition) -> PartitionReader:
    """Return what reads a source or output, with a decoder of its own; it stops at what cannot be read."""
    return PartitionReader(client, decoder, tp, _POLICY, ahead=True)


class OutputStream:
    """A `processor.verify.cursor.Stream` in Kafka.

    Several may share the client, and none the decoder. The log's bounds ``limits`` were asked for after the
    committed position: whatever belongs to that stands below ``limits.end``, though the end of its transaction
    may not be there yet. ``theirs`` finds records of other pipelines, which are left out.
    """

    def __init__(
        self,
        client: Client,
        decoder: Decoder,
        tp: TopicPartition,
        start: int,
        limits: Bounds,
        theirs: Others | None = None,
    ) -> None:
        self.name = f"{tp.topic}:{tp.partition}"
        self.floor = limits.stable
        self._client = client
        self._reader = reader(client, decoder, tp)
        self._tp = tp
        self._at = start
        self._end = limits.end
        self._pieces = self._reader.columns(start, limits.stable)
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
            now = (await bounds(self._client, [self._tp]))[self._tp]
            self._end = now.end if self._end < 0 else self._end
            waited = time.monotonic() - began
            if now.stable > self._at:
                self._pieces = self._reader.columns(self._at, now.stable)
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
