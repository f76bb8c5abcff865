"""Which batches carry a piece's records to the partitions of their ids, and what came with them?

The records of a piece go, in their order, into a batch for each partition, with their source's codec: a record
that fits the sink by it still does when it gets there. A batch is cut where the codec changes, or it
would hold more than `RUN_BYTES`. The layout of what is added to a record is drawn in
`processor.engine.repartition`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from processor.engine import repartition
from processor.engine.batch.columns import ATTRIBUTES, CODEC_MASK
from processor.wire.codec import deflate
from processor.wire.encode import RUN_BYTES, EncodedBatch, TooLargeError
from processor.wire.quarantine import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.wire.decode import Piece


class RouteEncoder:
    """Writes records for the internal topic; owns the buffer that they are written into."""

    def __init__(self) -> None:
        self._out = np.empty(RUN_BYTES, np.uint8)

    def encode(
        self,
        piece: Piece,
        target: NDArray[np.int64],
        place: NDArray[np.int64],
        partitions: int,
        limit_bytes: int,
    ) -> dict[int, list[EncodedBatch]]:
        """Return batches by the partition that they go to, in order.

        Args:
            piece: As the decoder gave it; must still be the newest.
            target: int64[n], where each record goes, see `processor.engine.repartition.targets`.
            place: int64[n], where each came from.
            partitions: Of the internal topic.
            limit_bytes: Its ``max.message.bytes``.

        Raises:
            TooLargeError: A record exceeds the limit even alone.
        """
        out: dict[int, list[EncodedBatch]] = {}
        size = piece.columns.end - piece.columns.body
        for codec, start, stop in _runs_of_codec(piece):
            order, first = repartition.share_out(target, start, stop, partitions)
            for number in np.flatnonzero(np.diff(first)).tolist():
                rows = order[first[number] : first[number + 1]]
                batches = out.setdefault(number, [])
                for some in _bounded(rows, size):
                    self._write(piece.columns, some, place, codec, limit_bytes, batches)
        return out

    def alone_bytes(self, piece: Piece, row: int, place: NDArray[np.int64]) -> int:
        """Return the size of a batch of this record alone, by its source's codec; ``place`` as for `encode`."""
        return self._batch(piece.columns, np.array([row]), place, codec_of(piece, row)).size

    def _write(
        self,
        columns: Columns,
        rows: NDArray[np.int64],
        place: NDArray[np.int64],
        codec: int,
        limit_bytes: int,
        out: list[EncodedBatch],
    ) -> None:
        batch = self._batch(columns, rows, place, codec)
        if batch.size <= limit_bytes:
            out.append(batch)
            return
        if rows.size == 1:
            raise TooLargeError(int(rows[0]), batch.size)
        half = rows.size // 2
        self._write(columns, rows[:half], place, codec, limit_bytes, out)
        self._write(columns, rows[half:], place, codec, limit_bytes, out)

    def _batch(
        self, columns: Columns, rows: NDArray[np.int64], place: NDArray[np.int64], codec: int
    ) -> EncodedBatch:
        most = int((columns.end[rows] - columns.body[rows]).sum()) + rows.size * repartition.MORE_BYTES
        if self._out.size < most:
            self._out = np.empty(most, np.uint8)
        base = int(columns.timestamp[rows[0]])
        used, newest = repartition.encode(columns, rows, place, base, self._out)
        offsets = int(columns.offset[rows[0]]), int(columns.offset[rows[-1]])
        data = deflate(codec, self._out[:used])
        return EncodedBatch(codec, base, newest, int(rows.size), data, *offsets)


def take_off(piece: Piece) -> NDArray[np.int64]:
    """Make the records of a piece what they were before they were routed.

    None of its batches can go on as it is: the bytes that were fetched hold the header still.

    Returns:
        int64[k], their places, up to the first record that was not routed: all where k is the piece's length.
    """
    place, good = repartition.take_off(piece.columns)
    piece.whole[:] = False
    return place[:good]


def _runs_of_codec(piece: Piece) -> Iterator[tuple[int, int, int]]:
    """Yield codec, first row and the row after the last of consecutive batches of one codec."""
    codecs = piece.batches[:, ATTRIBUTES] & CODEC_MASK
    if not codecs.size:
        return
    cuts = [0, *(np.flatnonzero(np.diff(codecs)) + 1).tolist(), codecs.size]
    for begin, end in itertools.pairwise(cuts):
        yield int(codecs[begin]), int(piece.first_row[begin]), int(piece.first_row[end])


def _bounded(rows: NDArray[np.int64], size: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut rows where their bytes exceed what a batch holds; a part has at least one."""
    after = np.cumsum(size[rows])
    start = 0
    while start < rows.size:
        before = int(after[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(after, before + RUN_BYTES, side="right")))
        yield rows[start:stop]
        start = stop
