"""Writes records for the partitions of their ids, and takes off what they carried.

The records of a piece go, in their order, into a batch for each partition, with their source's codec: a record
that fits the sink by it still does when it gets there. A batch is cut where the codec changes, or it
would hold more than `run_bytes` says. The layout of what is added to a record is drawn in
`processor.engine.repartition`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine import repartition
from processor.engine.batch.columns import ATTRIBUTES, CODEC_MASK
from processor.wire.encode import RunBuffer, cut, equal_runs, fit, packed
from processor.wire.quarantine import codec_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch


class Refs(NamedTuple):
    """What records carry on their way, see `processor.engine.repartition`.

    Attributes:
        source: int64[n], source refs.
        word: uint16[n], route words.
    """

    source: NDArray[np.int64]
    word: NDArray[np.uint16]


class RouteEncoder:
    """Writes records for the internal topic; owns the buffer that they are written into."""

    def __init__(self) -> None:
        self._out = RunBuffer()

    def encode(
        self,
        piece: Piece,
        target: NDArray[np.int64],
        refs: Refs,
        partitions: int,
        limit_bytes: int,
    ) -> dict[int, list[EncodedBatch]]:
        """Return batches by the partition that they go to, in order.

        Args:
            piece: As the decoder gave it; must still be the newest.
            target: int64[n], where each record goes, see `processor.engine.repartition.targets`.
            refs: Where each came from, and its route word.
            partitions: Of the internal topic.
            limit_bytes: Its ``max.message.bytes``.

        Raises:
            TooLargeError: A record exceeds the limit even alone.
        """
        out: dict[int, list[EncodedBatch]] = {}
        size = piece.columns.end - piece.columns.body
        codecs = piece.batches[:, ATTRIBUTES] & CODEC_MASK
        for begin, end in equal_runs(codecs):
            start, stop = int(piece.first_row[begin]), int(piece.first_row[end])
            order, first = repartition.share_out(target, start, stop, partitions)
            for number in np.flatnonzero(np.diff(first)).tolist():
                rows = order[first[number] : first[number + 1]]
                batches = out.setdefault(number, [])
                for one, other in cut(size[rows], limit_bytes):
                    some = rows[one:other]
                    write = partial(self._batch, piece.columns, some, refs, int(codecs[begin]))
                    batches += fit(some, limit_bytes, write)
        return out

    def alone_bytes(self, piece: Piece, row: int, refs: Refs) -> int:
        """Return the size of a batch of this record alone, by its source's codec; arguments as for `encode`."""
        return self._batch(piece.columns, np.array([row]), refs, codec_of(piece, row), 0, 1).size

    def _batch(
        self,
        columns: Columns,
        rows: NDArray[np.int64],
        refs: Refs,
        codec: int,
        start: int,
        stop: int,
    ) -> EncodedBatch:
        some = rows[start:stop]
        out = self._out.of(
            int((columns.end[some] - columns.body[some]).sum()) + some.size * repartition.MORE_BYTES
        )
        base = int(columns.timestamp[some[0]])
        used = repartition.encode(columns.data, columns.table, some, *refs, base, out)
        return packed(columns, some, codec, self._out.deflated(codec, int(used), some.size))


def places(source_ref: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return int64[n] source partitions and int64[n] offsets of n source refs."""
    return source_ref & (repartition.MOST_PARTITIONS - 1), source_ref >> repartition.PARTITION_BITS


def take_off(piece: Piece) -> Refs:
    """Make the records of a piece what they were before they were routed.

    None of its batches can go on as it is: the bytes that were fetched hold the header still.

    Returns:
        What they carried, up to the first record that was not routed.
    """
    piece.whole[:] = False
    return Refs(*repartition.take_off(piece.columns.data, piece.columns.table))
