"""What do the records between two offsets make of a state?

The same as they make of it in a worker: read_committed, whole batches, the same judge, a record that cannot be
judged or is too large for the sink changes nothing. Only, nothing is written. A batch that cannot be decoded is
stepped over, which is said: a worker has stopped at it, and got behind it by a reset.

What the sink takes may have been changed since: those that the quarantine calls too large are left out, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC
from processor.engine.verdict import Fault
from processor.errors import RebuildError, StopError
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.wire.decode import UndecodableError
from processor.wire.quarantine import mark_named, mark_too_large
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from processor.judges.judge import Judge
    from processor.kafka.client import Client, TopicPartition
    from processor.wire.decode import Chunk, Decoder, Piece
    from processor.wire.encode import Encoder

log = logging.getLogger(__name__)

PACKED_RECORDS = 65_536
"""Records after which ids are packed: 23 bytes each then instead of 60."""
EMPTY_FETCHES = 60
"""Half a second each: a leader that says nothing for this long is not going to."""


@dataclass(slots=True)
class Replayed:
    """What was taken in.

    Attributes:
        records: How many.
        unjudged: How many of them could not be judged.
        batch_offset: Base offset of the last batch; `NO_BATCH` where there was none.
        batch_crc: Its CRC-32C.
    """

    records: int = 0
    unjudged: int = 0
    batch_offset: int = NO_BATCH
    batch_crc: int = 0


class Replay:
    """Feeds source records to judges.

    Args:
        client: Connections of its own: a waiting fetch blocks them.
        decoder: Nobody else's while it runs.
        encoder: Measures what may be too large for the sink.
        sink_limit_bytes: What the sink takes.
        advance: Called with the number of offsets done since its last call.
        too_large: Offset and timestamp of source records that were too large for the sink when a worker came to
            them.
    """

    def __init__(
        self,
        client: Client,
        decoder: Decoder,
        encoder: Encoder,
        sink_limit_bytes: int,
        advance: Callable[[int], None],
        too_large: Collection[tuple[int, int]] = (),
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._encoder = encoder
        self._limit_bytes = sink_limit_bytes
        self._advance = advance
        self._too_large = too_large

    async def run(
        self, tp: TopicPartition, span: tuple[int, int], judge: Judge, *, to_the_end: bool
    ) -> Replayed:
        """Judge the records of a span of offsets, its end exclusive and not above the last stable offset.

        Args:
            tp: Source partition.
            span: From where to where.
            judge: What takes them in.
            to_the_end: Where a batch is such that nobody can tell where the next one begins: go on at the end.

        Raises:
            StopError: Retention has taken records of them meanwhile, or there is such a batch.
            RebuildError: Nothing comes.
        """
        start, stop = span
        done = Replayed()
        fetcher = Fetcher(self._client)
        at, empty = start, 0
        while at < stop:
            try:
                chunks = await fetcher.fetch({tp: at})
            except OutOfRangeError as error:
                raise StopError(f"{error}: retention has removed it meanwhile. Nothing is changed") from error
            before = at
            for chunk in chunks:
                at = self._take(chunk, stop, judge, done, to_the_end=to_the_end)
            self._advance(min(at, stop) - before)
            empty = 0 if at > before else empty + 1
            if empty >= EMPTY_FETCHES:
                raise RebuildError("source", f"{tp.topic}:{tp.partition}: nothing comes from offset {at} on")
        return done

    def _take(self, chunk: Chunk, stop: int, judge: Judge, done: Replayed, *, to_the_end: bool) -> int:
        """Judge one chunk up to ``stop``; return the position after it."""
        if not chunk.data:
            # Between the position and the last stable offset there is nothing.
            return max(chunk.position, min(chunk.last_stable_offset, stop))
        at = chunk.position
        try:
            for piece in self._decoder.pieces(chunk):
                self._judge(piece, stop, judge, done)
                at = piece.next_offset
                if at >= stop:
                    return stop
        except UndecodableError as error:
            at = max(at, error.offset)
            if at < stop and error.next_offset is None and not to_the_end:
                raise StopError(
                    f"{chunk.topic}:{chunk.partition}: {error}, nor can it be told where the next one begins: "
                    "the state cannot be recomputed. With --forget it begins with an empty one"
                ) from error
            return _step_over(chunk, error, at, stop)
        return at

    def _judge(self, piece: Piece, stop: int, judge: Judge, done: Replayed) -> None:
        columns = piece.columns
        rows = int(np.searchsorted(columns.offset, stop))
        if not rows:
            return
        evidence = judge.extract(columns)
        mark_too_large(self._encoder, piece, evidence.fault, self._limit_bytes)
        mark_named(columns, self._too_large, evidence.fault, Fault.TOO_LARGE)
        evidence = evidence.before(rows)
        judge.judge(evidence)
        judge.absorb(PACKED_RECORDS)
        done.records += rows
        done.unjudged += int(np.count_nonzero(evidence.fault))
        batch = piece.batches[int(np.searchsorted(piece.first_row, rows, side="left")) - 1]
        done.batch_offset, done.batch_crc = int(batch[BASE_OFFSET]), int(batch[CRC])


def _step_over(chunk: Chunk, error: UndecodableError, at: int, stop: int) -> int:
    """Return where to go on behind a batch that cannot be decoded; unknown: at ``stop``."""
    if at >= stop:
        return stop
    after = stop if error.next_offset is None else min(error.next_offset, stop)
    log.warning(
        "%s:%s: %s; its records up to offset %s are stepped over, nothing of them is remembered",
        chunk.topic,
        chunk.partition,
        error,
        after - 1,
    )
    return max(after, at + 1)
