"""Gathers what became of a partition's records between two commits, and writes it as one verdict record.

The record is part of a commit's output (step 2), in the same transaction as state and receipts. Its range
begins where the one of the commit before ended, and ends at the position that this commit writes: so there is
neither a gap nor an overlap, whatever the worker has passed over.

Invariant: nothing here holds a piece's columns.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC, LAST_DELTA
from processor.engine.verdict import Verdict
from processor.errors import StopError
from processor.wire.encode import plain_batch
from processor.wire.quarantine import surely_fits
from schemas.verdicts.record import Action, SourceSums, VerdictRecord, xored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from numpy.typing import NDArray

    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch


class VerdictPart(NamedTuple):
    """What became of the records of one piece; lists of offsets are int64[k] and rise.

    Attributes:
        end: The position after the piece.
        records: Their number.
        timestamps: Theirs, XORed.
        crcs: int64[b], of the source batches that end in it.
        skipped: Those that do not go on.
        quarantined: Those of them that go to quarantine.
        faults: uint8[k], why.
        collided: Those whose id came with other content.
        actions: uint8[k], what becomes of them.
    """

    end: int
    records: int
    timestamps: int
    crcs: NDArray[np.int64]
    skipped: NDArray[np.int64]
    quarantined: NDArray[np.int64]
    faults: NDArray[np.uint8]
    collided: NDArray[np.int64]
    actions: NDArray[np.uint8]

    @classmethod
    def of(
        cls, piece: Piece, verdict: NDArray[np.uint8], stays: NDArray[np.uint8], fault: NDArray[np.uint8]
    ) -> VerdictPart:
        """Return that of a piece; the arrays are uint8[n]: `Verdict`, 0 where it goes on, and `Fault`."""
        offset, ends = piece.columns.offset, piece.batches[:, BASE_OFFSET] + piece.batches[:, LAST_DELTA]
        rows = np.flatnonzero(stays)
        aside = rows[fault[rows] != 0]
        collided = np.flatnonzero(verdict == Verdict.COLLISION)
        actions = np.where(stays[collided] == 0, Action.PASS, Action.DROP).astype(np.uint8)
        actions[(stays[collided] != 0) & (fault[collided] != 0)] = Action.QUARANTINE
        return cls(
            piece.next_offset,
            offset.size,
            xored(piece.columns.timestamp),
            piece.batches[ends < piece.next_offset, CRC],
            offset[rows],
            offset[aside],
            fault[aside],
            offset[collided],
            actions,
        )


class VerdictDraft:
    """What one partition's next record says.

    Args:
        topic: The topic of verdicts.
        limit_bytes: The largest batch that it takes.
        number: The partition.
        topic_id: Of the source.
        base: Where the record before ended, or where the first one begins.
        begins: Whether the next record is no continuation.
    """

    def __init__(
        self, topic: str, limit_bytes: int, number: int, topic_id: bytes, base: int, *, begins: bool
    ) -> None:
        self._topic = topic
        self._limit_bytes = limit_bytes
        self._number = number
        self._topic_id = topic_id
        self._base = base
        self._begins = begins
        self._parts: list[VerdictPart] = []

    def add(self, part: VerdictPart) -> None:
        """Take what became of the next piece."""
        self._parts.append(part)

    async def send(self, send: Callable[[str, int, list[EncodedBatch]], Awaitable[None]], end: int) -> int:
        """Queue what `batches` gives, by an output's method; return how many bytes that is."""
        batches = self.batches(end)
        if batches:
            await send(self._topic, self._number, batches)
        return sum(batch.size for batch in batches)

    def batches(self, end: int) -> list[EncodedBatch]:
        """Return the record of all up to the position ``end``, or several where one is too large.

        A commit that moves nothing has none.

        Raises:
            StopError: Not even the record of one piece fits into the topic.
        """
        if end == self._base and not self._begins:
            return []
        cuts = [[0, len(self._parts)]]
        while True:
            values = [self._value(start, stop, end) for start, stop in cuts]
            large = [index for index, value in enumerate(values) if len(value) > surely_fits(self._limit_bytes)]
            if not large:
                break
            start, stop = cuts[large[0]]
            if stop - start < 2:
                size = len(values[large[0]])
                raise StopError(
                    f"{self._topic}:{self._number}: a verdict record of {size} bytes does not fit: the topic "
                    f"needs max.message.bytes of at least {2 * size} (it has {self._limit_bytes})"
                )
            middle = (start + stop) // 2
            cuts[large[0] : large[0] + 1] = [[start, middle], [middle, stop]]
        now_ms = int(time.time() * 1000)
        return [plain_batch([(None, value, now_ms, ())]) for value in values]

    def _value(self, start: int, stop: int, end: int) -> bytes:
        """Return the record of some parts; the last goes on to ``end``."""
        parts = self._parts[start:stop]
        base = self._parts[start - 1].end if start else self._base
        sums = SourceSums()
        for part in parts:
            sums = sums.more(part.records, part.timestamps, part.crcs)
        last = end if stop == len(self._parts) else parts[-1].end
        whole = _joined(parts)
        begins = self._begins and not start
        return VerdictRecord(self._number, base, last, sums, self._topic_id, begins, *whole).encode()

    def committed(self, end: int) -> None:
        """Begin the next record: this one is committed."""
        self._base, self._begins = end, False
        self._parts.clear()


def _joined(
    parts: list[VerdictPart],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]]:
    offsets, codes = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    return (
        np.concatenate([offsets, *(part.skipped for part in parts)]),
        np.concatenate([offsets, *(part.quarantined for part in parts)]),
        np.concatenate([codes, *(part.faults for part in parts)]),
        np.concatenate([offsets, *(part.collided for part in parts)]),
        np.concatenate([codes, *(part.actions for part in parts)]),
    )
