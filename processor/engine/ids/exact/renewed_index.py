"""Takes over renewals that do not say which row they renew.

Filters do not know numbers, so a row that they write of a renewed id names none that it takes the place of. To
an `ExactIndex` each would be an id of its own, and of one that comes a thousand times in a window there would
be a thousand under one hash: it has no place for that many. So the rows before are looked for here.

Invariant: of what was taken over an id has one slot, that of its last row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.ids.exact import hash_table, kernels
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.ids.page import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.block import IdRows
    from processor.engine.jit import Int


class RenewedIndex(ExactIndex):
    """An `ExactIndex` that takes over what filters with refresh have written; 16 bytes more a row of that."""

    def clear(self) -> None:
        """See `ExactIndex.clear`."""
        super().clear()
        self._hashes: NDArray[np.uint64] = np.zeros((0, 2), np.uint64)
        self._first: int | None = None

    def _take(self, rows: IdRows) -> None:
        """See `ExactIndex._take`; what the rows say that they take the place of is not read."""
        if self._first is None:
            self._first = rows.first
        after = rows.first - self._first + len(rows)
        self._hashes = grown(self._hashes, after, 4)
        self._hashes[after - len(rows) : after] = rows.hash
        supersedes = np.maximum(self._before(rows.hash), _within(rows))
        super()._take(replace(rows, supersedes=supersedes))
        self.insert()  # the next rows are looked for among these

    def _before(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return int64[n]: under which number each id is remembered, or `NONE`."""
        rows = len(hashes)
        found = np.full(rows, NONE, np.int64)
        room = np.empty((2, rows + hash_table.MOST_HOPS * hash_table.LINE), np.int64)
        skip = np.zeros(rows, np.bool_)
        start: Int = 0
        while start < rows:
            start, count = kernels.candidates(self._table, hashes, skip, self.floor, start, room)
            whose, which = room[:, :count]
            same = (self._hashes[which - (self._first or 0)] == hashes[whose]).all(axis=1)
            found[whose[same]] = which[same]
        return found


def _within(rows: IdRows) -> NDArray[np.int64]:
    """Return int64[n]: the number of the row before with the same id among these, or `NONE`."""
    found = np.full(len(rows), NONE, np.int64)
    order = np.lexsort((rows.hash[:, 1], rows.hash[:, 0]))  # stable: rows of one id stay in order
    again = np.flatnonzero((rows.hash[order[1:]] == rows.hash[order[:-1]]).all(axis=1))
    found[order[again + 1]] = rows.first + order[again]
    return found
