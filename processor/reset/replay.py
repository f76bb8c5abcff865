"""Judges source records again without writing any output, to recompute a state.

As a worker does: read_committed, whole batches, the same judge; a record that cannot be judged or is too large
for the sink changes nothing. What the sink takes may have changed since, so records that the quarantine calls
too large are left out too.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC
from processor.engine.verdict import Fault
from processor.wire.quarantine import mark_named, mark_too_large
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from processor.judges.judge import Judge
    from processor.kafka.reader import PartitionReader
    from processor.wire.decode import Piece
    from processor.wire.encode import Encoder

PACKED_RECORDS = 65_536
"""Records after which ids are packed: 23 bytes each then instead of 60."""


@dataclass(slots=True)
class Replayed:
    """What was judged.

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


@dataclass(frozen=True, slots=True)
class Replay:
    """Feeds source records to judges.

    Attributes:
        reader: Of the source partition.
        encoder: Measures what may be too large for the sink.
        sink_limit_bytes: The largest batch that the sink takes.
        advance: Called with the number of offsets done since its last call.
        too_large: Offset and timestamp of source records that were too large for the sink when a worker judged
            them.
    """

    reader: PartitionReader
    encoder: Encoder
    sink_limit_bytes: int
    advance: Callable[[int], None]
    too_large: Collection[tuple[int, int]] = ()

    async def run(self, start: int, stop: int, judge: Judge) -> Replayed:
        """Judge the records from ``start`` to before ``stop``, which is at or below the last stable offset.

        Raises:
            StopError: Retention has taken records of them meanwhile, or a batch cannot be stepped over.
            RebuildError: Nothing comes any more.
        """
        done, at = Replayed(), start
        async with aclosing(self.reader.pieces(start, stop)) as pieces:
            async for piece in pieces:
                self._judge(piece, stop, judge, done)
                after = min(piece.next_offset, stop)
                self.advance(after - at)
                at = after
        self.advance(max(0, stop - at))
        return done

    def _judge(self, piece: Piece, stop: int, judge: Judge, done: Replayed) -> None:
        columns = piece.columns
        rows = int(np.searchsorted(columns.offset, stop))
        if not rows:
            return
        evidence = judge.extract(columns)
        mark_too_large(self.encoder, piece, evidence.fault, self.sink_limit_bytes)
        mark_named(columns, self.too_large, evidence.fault, Fault.TOO_LARGE)
        evidence = evidence.before(rows)
        judge.judge(evidence)
        judge.absorb(PACKED_RECORDS)
        done.records += rows
        done.unjudged += int(np.count_nonzero(evidence.fault))
        batch = piece.batches[int(np.searchsorted(piece.first_row, rows, side="left")) - 1]
        done.batch_offset, done.batch_crc = int(batch[BASE_OFFSET]), int(batch[CRC])
