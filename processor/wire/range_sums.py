"""Sums up what a source has in ranges of offsets, as verdict records say it of what was judged."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC, LAST_DELTA
from schemas.verdicts.record import SourceSums, xored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.wire.decode import Piece


class RangeSums:
    """The records of some ranges that follow each other, as they were read."""

    def __init__(self) -> None:
        self._offsets: list[NDArray[np.int64]] = []
        self._timestamps: list[NDArray[np.int64]] = []
        self._batches: dict[int, int] = {}

    def take(self, piece: Piece, stop: int) -> None:
        """Take the records of a piece that lie before ``stop``."""
        columns, _ = piece.up_to(stop)
        self._offsets.append(columns.offset.copy())
        self._timestamps.append(columns.timestamp.copy())
        ends = piece.batches[:, BASE_OFFSET] + piece.batches[:, LAST_DELTA]
        self._batches |= dict(zip(ends.tolist(), piece.batches[:, CRC].tolist(), strict=True))

    def sums(self, cuts: Sequence[int]) -> list[SourceSums]:
        """Return what the source has between each two of ``cuts``, which rise."""
        none = np.zeros(0, np.int64)
        offsets, times = np.concatenate([none, *self._offsets]), np.concatenate([none, *self._timestamps])
        ends = np.array(sorted(self._batches), np.int64)
        crcs = np.array([self._batches[end] for end in ends.tolist()], np.int64)
        rows, batches = np.searchsorted(offsets, cuts).tolist(), np.searchsorted(ends, cuts).tolist()
        return [
            SourceSums().more(stop - start, xored(times[start:stop]), crcs[first:last])
            for (start, stop), (first, last) in zip(pairwise(rows), pairwise(batches), strict=True)
        ]
