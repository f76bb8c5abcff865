"""Holds the ids of the open transaction, which are in no filter yet.

They are in a table: open addressing by the id's hash, at most half full, 16 B per slot, and per id 24, 32 where
its route word is kept.

Invariant: an id stands in the table once, as it was last remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SLOTS = 1024
READING, ROUTE = 0, 1
"""Columns of what is kept of an id: the clock when it was last remembered, its route word."""


class HashedColumns(NamedTuple):
    """Ids in the order in which they came, each once, and a hash table that finds them.

    Attributes:
        slots: int64[2^s], at most half full: an id's row plus one, 0 empty.
        hash: uint64[m, 2].
        info: int64[m, columns], what is known of each.
    """

    slots: NDArray[np.int64]
    hash: NDArray[np.uint64]
    info: NDArray[np.int64]


class HashedIds:
    """A table that grows.

    Attributes:
        count: How many ids there are.
        routed: Whether their route words are kept.
        table: With room for them and more.
    """

    def __init__(self, *, routed: bool = False) -> None:
        hashes = np.zeros((FIRST_SLOTS // 2, 2), np.uint64)
        self.count = 0
        self.routed = routed
        self.table = HashedColumns(
            np.zeros(FIRST_SLOTS, np.int64), hashes, np.zeros((FIRST_SLOTS // 2, 1 + routed), np.int64)
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.nbytes for each in self.table)

    def reserve(self, rows: int) -> None:
        """Make room for as many more; the table stays half empty."""
        count = self.count + rows
        _, hashes, info = self.table
        if count <= len(hashes):
            return
        size = 1 << (2 * count - 1).bit_length()
        hashes.resize((size // 2, 2), refcheck=False)
        info.resize((size // 2, info.shape[1]), refcheck=False)
        self.table = HashedColumns(np.zeros(size, np.int64), hashes, info)
        _reindex(self.table, self.count)


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
def _reindex(table: HashedColumns, count: Int) -> None:
    """Put the first ``count`` ids, all different, into empty slots."""
    slots, hashes, _ = table
    mask = slots.size - 1
    for row in range(count):
        at = np.int64(hashes[row, 0] & np.uint64(mask))
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = row + 1
