"""Holds the ids that are in no run yet.

With ``confirm`` the ids of a partition's Bloom filters are written locally in runs, about 100,000 at a time
(`processor.engine.ids.bloom.sorted_run`). Until then they are in tables like this one: open addressing by the
id's hash, at most half full, 32 B per id and 16 for its slots.

Invariant: an id stands in a table once, as it was last remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SLOTS = 1024


class HashedIds:
    """Ids in the order in which they came, each once, and a hash table that finds them.

    Attributes:
        count: How many there are.
        slots: int64[2^s], at most half full: an id's row plus one, 0 empty.
        hash: uint64[m, 2], m >= count.
        info: int64[m, columns], what is known of each.

    Args:
        columns: Of ``info``.
    """

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.slots: NDArray[np.int64] = np.zeros(FIRST_SLOTS, np.int64)
        self.hash: NDArray[np.uint64] = np.zeros((FIRST_SLOTS // 2, 2), np.uint64)
        self.info: NDArray[np.int64] = np.zeros((FIRST_SLOTS // 2, columns), np.int64)

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.slots.nbytes + self.hash.nbytes + self.info.nbytes

    def reserve(self, rows: int) -> None:
        """Make room for as many more; the table stays half empty."""
        count = self.count + rows
        if count <= self.hash.shape[0]:
            return
        size = 1 << (2 * count - 1).bit_length()
        self.hash.resize((size // 2, 2), refcheck=False)
        self.info.resize((size // 2, self.info.shape[1]), refcheck=False)
        self.slots = np.zeros(size, np.int64)
        _reindex(self.hash, self.count, self.slots)


class Memtable(HashedIds):
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
        super().__init__(columns=2)
        self.bucket = bucket
        self.below = self.since = 0
        self.closed = False

    def __len__(self) -> int:
        return self.count

    def put(self, hashes: NDArray[np.uint64], owner: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> None:
        """Insert ids; of one that is there already what is said now counts.

        Args:
            hashes: uint64[n, 2].
            owner: int64[n].
            reading_ms: int64[n].
        """
        self.reserve(owner.size)
        self.count = int(_put(self.slots, self.hash, self.info, self.count, hashes, owner, reading_ms))

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
        _find(self.slots, self.hash, self.info, hashes, rows, known, owner, reading_ms)

    def by_hash(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        """Return uint64[n, 2] hashes, rising, and int64[n] owners and readings."""
        hashes = self.hash[: self.count]
        order = np.argsort(hashes[:, 0])
        first = hashes[order, 0]
        if (first[1:] == first[:-1]).any():
            order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        info = self.info[order]
        return hashes[order], np.ascontiguousarray(info[:, 0]), np.ascontiguousarray(info[:, 1])


@inlined
def find_slot(slots, hashes, first, second):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the slot where an id is, or would be put, and its row; -1: it is not there."""
    slot_mask = slots.size - 1
    slot_at = np.int64(first & np.uint64(slot_mask))
    slot_row = np.int64(-1)
    while slots[slot_at] != 0:
        slot_other = slots[slot_at] - 1
        if hashes[slot_other, 0] == first and hashes[slot_other, 1] == second:
            slot_row = slot_other
            break
        slot_at = (slot_at + 1) & slot_mask
    return slot_at, slot_row


@kernel
def _reindex(hashes: NDArray[np.uint64], count: Int, slots: NDArray[np.int64]) -> None:
    """Put the first ``count`` ids, all different, into an empty hash table."""
    mask = slots.size - 1
    for row in range(count):
        at = np.int64(hashes[row, 0] & np.uint64(mask))
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = row + 1


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
    for row in range(owner.size):
        first, second = new[row, 0], new[row, 1]
        at, there = find_slot(slots, hashes, first, second)
        if there < 0:
            there = np.int64(count)
            slots[at] = there + 1
            hashes[there, 0], hashes[there, 1] = first, second
            count += 1
        info[there, 0], info[there, 1] = owner[row], reading[row]
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
    for k in range(rows.size):
        row = rows[k]
        first, second = wanted[row, 0], wanted[row, 1]
        _, there = find_slot(slots, hashes, first, second)
        if there >= 0:
            known[row] = True
            owner[row], reading[row] = info[there, 0], info[there, 1]
