"""Holds the ids that are in no run yet.

With ``confirm`` the ids of a partition's Bloom filters are written locally in runs, about 100,000 at a time
(`processor.engine.ids.bloom.sorted_run`). Until then they are in tables like this one: open addressing by the
id's hash, at most half full, 32 B per id and 16 for its slots.

Invariant: an id stands in a table once, as it was last remembered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.block import IdRows
from processor.engine.ids.page import NO_FINGERPRINTS, NONE
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SLOTS = 1024


class BloomLookup(NamedTuple):
    """What a look-up of ids says.

    Attributes:
        known: bool[n], whether the id is remembered at all; of others the rest says nothing.
        owner: int64[n].
        reading_ms: int64[n], the clock when it was last remembered.
        fingerprint: uint64[n]; 0 of a definition without fingerprints.
    """

    known: NDArray[np.bool_]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    fingerprint: NDArray[np.uint64]

    @classmethod
    def nothing(cls, count: int) -> BloomLookup:
        """Return one in which so many ids are not remembered."""
        owner, reading_ms = np.zeros((2, count), np.int64)
        return cls(np.zeros(count, np.bool_), owner, reading_ms, np.zeros(count, np.uint64))

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> BloomLookup:
        """Return what is said of some ids."""
        known, owner, reading_ms, fingerprint = self
        return BloomLookup(known[rows], owner[rows], reading_ms[rows], fingerprint[rows])

    def put(self, rows: NDArray[np.int64], said: BloomLookup) -> None:
        """Take over what is said of some ids."""
        for mine, other in zip(self, said, strict=True):
            mine[rows] = other


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
        table: With room for them and more.
    """

    def __init__(self, columns: int) -> None:
        hashes = np.zeros((FIRST_SLOTS // 2, 2), np.uint64)
        self.count = 0
        self.table = HashedColumns(
            np.zeros(FIRST_SLOTS, np.int64), hashes, np.zeros((FIRST_SLOTS // 2, columns), np.int64)
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


class Memtable(HashedIds):
    """Ids of one bucket.

    Attributes:
        bucket: Which one.
        below: All ids of the bucket with lower numbers are in this table or in what came before it.
        since: All ids at all with lower numbers are.
        closed: Whether it takes no more.
    """

    def __init__(self, bucket: int, *, fingerprints: bool = False) -> None:
        super().__init__(columns=3 if fingerprints else 2)
        self.bucket = bucket
        self.below = self.since = 0
        self.closed = False

    def __len__(self) -> int:
        return self.count

    def put(
        self,
        hashes: NDArray[np.uint64],
        owner: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
        fingerprint: NDArray[np.uint64] = NO_FINGERPRINTS,
    ) -> None:
        """Insert n ids; of one that is there already what is said now counts."""
        self.reserve(owner.size)
        self.count = int(_put(self.table, self.count, hashes, owner, reading_ms, fingerprint))

    def find(self, hashes: NDArray[np.uint64], rows: NDArray[np.int64], found: BloomLookup) -> None:
        """Look some ``rows``, int64[k], of n ids up, and write what is known of those that are here."""
        _find(self.table, hashes, rows, found)

    def by_hash(self, first: int) -> IdRows:
        """Return the ids in the order of their hashes, under numbers from ``first`` on."""
        hashes = self.table.hash[: self.count]
        order = np.argsort(hashes[:, 0])
        words = hashes[order, 0]
        if (words[1:] == words[:-1]).any():
            order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        owner, reading_ms, *prints = np.ascontiguousarray(self.table.info[order].T)
        rows = IdRows(first, hashes[order], owner, reading_ms, np.full(self.count, NONE, np.int64))
        if not prints:
            return rows
        return replace(rows, fingerprint=prints[0].view(np.uint64), collision=np.zeros(self.count, np.bool_))


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


@kernel
def _put(
    table: HashedColumns,
    count: Int,
    new: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
    fingerprint: NDArray[np.uint64],
) -> Int:
    slots, hashes, info = table
    for row in range(owner.size):
        first, second = new[row, 0], new[row, 1]
        at, there = find_slot(slots, hashes, first, second)
        if there < 0:
            there = np.int64(count)
            slots[at] = there + 1
            hashes[there, 0], hashes[there, 1] = first, second
            count += 1
        info[there, 0], info[there, 1] = owner[row], reading[row]
        if fingerprint.size > 0:
            info[there, 2] = np.int64(fingerprint[row])
    return count


@kernel
def _find(
    table: HashedColumns, wanted: NDArray[np.uint64], rows: NDArray[np.int64], found: BloomLookup
) -> None:
    slots, hashes, info = table
    known, owner, reading, fingerprint = found
    for k in range(rows.size):
        row = rows[k]
        _, there = find_slot(slots, hashes, wanted[row, 0], wanted[row, 1])
        if there >= 0:
            known[row] = True
            owner[row], reading[row] = info[there, 0], info[there, 1]
            if info.shape[1] > 2:
                fingerprint[row] = np.uint64(info[there, 2])
