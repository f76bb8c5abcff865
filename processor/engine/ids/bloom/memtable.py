"""Holds the ids that are in no run yet.

With ``confirm`` the ids of a partition's Bloom filters are written locally in runs, some 100,000 at a time
(`processor.engine.ids.bloom.sorted_run`). Until then they are in tables like this one: open addressing by the
id's hash, at most half full, 32 B an id and 16 for its slots.

Invariant: an id stands in a table once, as it was last remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.bloom import bits
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SLOTS = 1024


class Memtable:
    """Ids of one bucket.

    Attributes:
        bucket: Which one.
        below: All ids of the bucket with lower numbers are in this table or in what came before it.
        since: All ids at all with lower numbers are.
        closed: Whether it takes no more.

    Args:
        bucket: Which one.
    """

    def __init__(self, bucket: int) -> None:
        self.bucket = bucket
        self.below = self.since = 0
        self.closed = False
        self._count = 0
        self._slots: NDArray[np.int64] = np.zeros(FIRST_SLOTS, np.int64)
        self._hash: NDArray[np.uint64] = np.zeros((FIRST_SLOTS // 2, 2), np.uint64)
        self._info: NDArray[np.int64] = np.zeros((FIRST_SLOTS // 2, 2), np.int64)

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._slots.nbytes + self._hash.nbytes + self._info.nbytes

    def put(self, hashes: NDArray[np.uint64], owner: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> None:
        """Take ids in; of one that is there already what is said now counts.

        Args:
            hashes: uint64[n, 2].
            owner: int64[n].
            reading_ms: int64[n].
        """
        self._reserve(owner.size)
        self._count = int(_put(self._slots, self._hash, self._info, self._count, hashes, owner, reading_ms))

    def find(
        self,
        hashes: NDArray[np.uint64],
        rows: NDArray[np.int64],
        known: NDArray[np.bool_],
        owner: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
    ) -> None:
        """Look some of n ids up, and write what is known of those that are here.

        Args:
            hashes: uint64[n, 2].
            rows: int64[k], which of them.
            known: bool[n], written.
            owner: int64[n], written.
            reading_ms: int64[n], written.
        """
        _find(self._slots, self._hash, self._info, hashes, rows, known, owner, reading_ms)

    def by_hash(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        """Return uint64[n, 2] hashes, rising, and int64[n] owners and readings."""
        hashes = self._hash[: self._count]
        order = np.argsort(hashes[:, 0])
        first = hashes[order, 0]
        if (first[1:] == first[:-1]).any():
            order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        info = self._info[order]
        return hashes[order], np.ascontiguousarray(info[:, 0]), np.ascontiguousarray(info[:, 1])

    def _reserve(self, rows: int) -> None:
        count = self._count + rows
        if count <= self._hash.shape[0]:
            return
        size = 1 << (2 * count - 1).bit_length()
        self._hash.resize((size // 2, 2), refcheck=False)
        self._info.resize((size // 2, 2), refcheck=False)
        self._slots = np.zeros(size, np.int64)
        bits.reindex(self._hash, self._count, self._slots)


@kernel
def _put(
    slots: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    info: NDArray[np.int64],
    count: Int,
    new: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
) -> Int:
    mask = slots.size - 1
    for row in range(owner.size):
        first, second = new[row, 0], new[row, 1]
        at = np.int64(first & np.uint64(mask))
        while slots[at] != 0:
            place = slots[at] - 1
            if hashes[place, 0] == first and hashes[place, 1] == second:
                break
            at = (at + 1) & mask
        if slots[at] == 0:
            slots[at] = count + 1
            hashes[count, 0], hashes[count, 1] = first, second
            count += 1
        place = slots[at] - 1
        info[place, 0], info[place, 1] = owner[row], reading[row]
    return count


@kernel
def _find(
    slots: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    info: NDArray[np.int64],
    wanted: NDArray[np.uint64],
    rows: NDArray[np.int64],
    known: NDArray[np.bool_],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
) -> None:
    mask = slots.size - 1
    for k in range(rows.size):
        row = rows[k]
        first, second = wanted[row, 0], wanted[row, 1]
        at = np.int64(first & np.uint64(mask))
        while slots[at] != 0:
            place = slots[at] - 1
            if hashes[place, 0] == first and hashes[place, 1] == second:
                known[row] = True
                owner[row], reading[row] = info[place, 0], info[place, 1]
                break
            at = (at + 1) & mask
