"""Puts the ids of a whole window into an empty index, faster than one by one.

One by one, each waits for memory: its line may be anywhere. Here ids are first collected by the first 8 bits of
their hash, in 8 bytes each: what a slot needs, but for those 8 bits. Then they are inserted, one such group
after the other, into as many segments as will be needed. A group's segments fit into the cache, and none is
split while it is filled. An entry is::

      63      62    61              42 41         32 31                 0
    | row    | 0 | next 20 bits of   | last 10 bits | number, low 32 bits |
    | before |   | the hash          | of word one  |                     |

Bit 63 set: it says no more than that the entry behind it takes the place of the row of this number.

Groups are chains of blocks in one array, so nobody has to know how many ids there will be. In a group they are
in the order in which they came, so the slots are those that `processor.engine.ids.exact.kernels` would have
filled: of several rows of an id the highest number counts, and a slot is given to one only.

Invariant: an entry is inserted once. What is expired by then is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.ids.exact.hash_table import (
    DEPTH,
    FULL,
    LINE,
    LINES,
    LOW,
    MOST_DEPTH,
    OCCUPIED,
    SEGMENTS,
    HashTable,
    full_of,
    glance,
    home_of,
    life_of,
    tag_of,
)
from processor.engine.ids.exact.kernels import place, seek
from processor.engine.ids.page import NONE
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.block import IdRows

GROUP_BITS = 8
GROUPS = 1 << GROUP_BITS
"""256 groups of 12.5 million ids have a megabyte of segments each, half a second-level cache; and the 256 lines
that are written to at a time fit into the first-level cache."""
BLOCK = 512
"""Entries of a block: a page of memory."""
HOME_BITS = 10
GROWTH = 8
BEFORE = np.uint64(1) << np.uint64(63)
WAITING = 1 << 18
"""Entries, 2 MB, that may wait, and one more for each `SHARE` ids that are in slots already."""
SHARE = 4
"""What waits is bound to be given back, and a worker that had room for its ids has to have room to start again:
2.3 bytes per id with the array's slack, a fifth of what its slot takes. Each time the table is a quarter larger
than before, so that all of it is gone through some five times as often as in one go, in order."""


class BulkLoad(NamedTuple):
    """Committed ids that are not in slots yet: chains of blocks, one per group.

    Attributes:
        arena: uint64[blocks * BLOCK], the entries.
        following: int32[blocks], the block after each.
        chain: int64[GROUPS + 1, 3], of each group its first block, its last, entries in that; in the last row
            blocks used, entries.
    """

    arena: NDArray[np.uint64]
    following: NDArray[np.int32]
    chain: NDArray[np.int64]

    @classmethod
    def empty(cls) -> BulkLoad:
        """Return one that takes ids; it grows in place."""
        chain = np.full((GROUPS + 1, 3), NONE, np.int64)
        chain[GROUPS] = 0
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int32), chain)

    @property
    def entries(self) -> int:
        """How many wait: one for each row, and one more where that takes the place of another."""
        return int(self.chain[GROUPS, 1])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.nbytes for each in self)

    def take(self, rows: IdRows, floor: int) -> None:
        """Collect the ids of a block; numbers below the floor are expired."""
        # Each group may begin a block, and be left with an unfilled one.
        most = int(self.chain[GROUPS, 0]) + GROUPS + -(-2 * len(rows) // BLOCK)
        grown(self.arena, most * BLOCK, GROWTH)
        grown(self.following, most, GROWTH)
        collect(self, rows.hash, rows.supersedes, rows.first, floor)


def table_for(ids: int, lines: int, tag_bits: int, meta: NDArray[np.int64]) -> HashTable:
    """Return an empty table for so many ids; its depth and segments are noted in ``meta``."""
    size = lines * LINE
    # As deep as those are that the stream has split: where bounds differ, some are split while they are filled.
    # With room to spare for all, a restored index would be twice as large as the one that it is made after.
    deep = 1
    while deep < min(MOST_DEPTH, tag_bits) and ids > (size << deep) * FULL:
        deep += 1
    count = 1 << deep
    meta[[DEPTH, SEGMENTS]] = deep, count
    return HashTable(
        np.zeros(count * size, np.uint64),
        np.arange(count, dtype=np.uint32),
        np.full(count, deep, np.uint8),
        np.arange(count, dtype=np.uint32),
        np.zeros(count, np.int32),
        meta,
    )


@inlined
def _first_of(of_group, of_entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry's hash, as far as slots need it."""
    of_first = np.uint64(of_group) << np.uint64(64 - GROUP_BITS)
    of_first |= ((of_entry >> np.uint64(42)) & np.uint64(0xFFFFF)) << np.uint64(36)
    return of_first | ((of_entry >> np.uint64(32)) & np.uint64((1 << HOME_BITS) - 1))


@kernel
def collect(
    load: BulkLoad, hashes: NDArray[np.uint64], supersedes: NDArray[np.int64], number: Int, floor: Int
) -> None:
    """Add rows from this number on to their groups; there are blocks enough."""
    arena, following, chain = load
    for row in range(hashes.shape[0]):
        first = hashes[row, 0]
        group = np.int64(first >> np.uint64(64 - GROUP_BITS))
        bits = ((first >> np.uint64(36)) & np.uint64(0xFFFFF)) << np.uint64(42)
        bits |= (first & np.uint64((1 << HOME_BITS) - 1)) << np.uint64(32)
        entries = 2 if supersedes[row] >= floor else 1
        for left in range(entries, 0, -1):
            used = chain[group, 2]
            if used == BLOCK or used < 0:
                block = chain[GROUPS, 0]
                chain[GROUPS, 0] = block + 1
                if used < 0:
                    chain[group, 0] = block
                else:
                    following[chain[group, 1]] = np.int32(block)
                chain[group, 1] = block
                used = np.int64(0)
            entry = bits | (np.uint64(number + row) & LOW)
            if left == 2:
                entry = bits | BEFORE | (np.uint64(supersedes[row]) & LOW)
            arena[np.uint64(chain[group, 1] * BLOCK + used)] = entry
            chain[group, 2] = used + 1
        chain[GROUPS, 1] += entries


@kernel
def insert_at_home(table: HashTable, load: BulkLoad) -> None:
    """Put of what was collected what finds room at its home in empty segments, and leave the rest for `insert`.

    Here nothing has to be read of a line but how many it has, which is counted in the first-level cache: a
    slot is only written, and nobody waits for its memory. A row that takes the place of another is left, whose
    slot may be anywhere, and so is everything where there are fewer segments than groups. Each segment of the
    table is as deep as the directory.
    """
    arena, following, chain = load
    slots, directory, _, prefix, used, meta = table
    if meta[DEPTH] < GROUP_BITS:
        return
    floor, span = life_of(meta)
    lines = meta[LINES]
    segments = np.int64(1) << (meta[DEPTH] - GROUP_BITS)
    counts = np.zeros(segments * lines, np.uint8)
    full = np.zeros(segments, np.int64)
    for group in range(GROUPS):
        if chain[group, 0] < 0:
            continue
        counts[:] = 0
        for k in range(segments):
            full[k] = full_of(prefix[group * segments + k], lines * LINE)
        block, kept_block, kept = chain[group, 0], chain[group, 0], np.int64(0)
        renews = False
        while block >= 0:
            last = block == chain[group, 1]
            stop = chain[group, 2] if last else np.int64(BLOCK)
            for within in range(stop):
                entry = arena[np.uint64(block * BLOCK + within)]
                low = entry & LOW
                after, renews = renews, entry & BEFORE != np.uint64(0)
                if not after and not renews:
                    if ((low - floor) & LOW) >= span:
                        continue
                    first = _first_of(group, entry)
                    segment, home = home_of(first, directory, meta)
                    here = np.uint64((segment - group * segments) * lines + home)
                    count = np.int64(counts[here])
                    if count < LINE and used[segment] < full[segment - group * segments]:
                        slots[np.uint64((segment * lines + home) * LINE + count)] = tag_of(first, meta) | low
                        counts[here] = np.uint8(count + 1)
                        used[segment] += 1
                        continue
                if kept == BLOCK:
                    kept_block, kept = np.int64(following[kept_block]), np.int64(0)
                arena[np.uint64(kept_block * BLOCK + kept)] = entry
                kept += 1
            block = np.int64(NONE) if last else np.int64(following[block])
        chain[group, 1], chain[group, 2] = kept_block, kept
    for segment in range(GROUPS * segments):
        meta[OCCUPIED] += np.int64(used[segment])


@kernel
def insert(table: HashTable, load: BulkLoad, at: NDArray[np.int64]) -> bool:
    """Put what was collected into slots; whether all is done (``meta[WANT]`` says what there was no room for).

    Written is ``at``, int64[3]: group, block and place in it to go on from; first 0, `NONE` and 0.
    """
    arena, following, chain = load
    slots, directory, _, prefix, used, meta = table
    floor, span = life_of(meta)
    lines = meta[LINES]
    group, block, within = at[0], at[1], at[2]
    put: Int = np.int64(0)
    while group < GROUPS:
        if block < 0:
            block, within = chain[group, 0], np.int64(0)
        before = np.int64(NONE)
        while block >= 0:
            last = block == chain[group, 1]
            stop = chain[group, 2] if last else np.int64(BLOCK)
            while within < stop:
                entry = arena[np.uint64(block * BLOCK + within)]
                low = entry & LOW
                within += 1
                # Whoever is expired by now is as if it had not been.
                alive = ((low - floor) & LOW) < span
                if entry & BEFORE != np.uint64(0):
                    if alive:
                        before = np.int64(low)
                        at[0], at[1], at[2] = group, block, within - 1
                    continue
                if not alive:
                    before = np.int64(NONE)
                    continue
                first = _first_of(group, entry)
                slot: Int = np.int64(NONE)
                if before >= 0:
                    slot = seek(table, first, before)
                    if slot >= 0:
                        slots[slot] = (slots[slot] & ~LOW) | low
                if slot < 0:
                    # What `place` does first, here without a call: nine in ten find room in their home.
                    segment, home = home_of(first, directory, meta)
                    line = (segment * lines + home) * LINE
                    gap = glance(slots, line, np.uint64(0))[1]
                    if gap > 0 and used[segment] < full_of(prefix[segment], lines * LINE):
                        slots[np.uint64(line + gap - 1)] = tag_of(first, meta) | low
                        used[segment] += 1
                        put += 1
                    else:
                        if before < 0:
                            at[0], at[1], at[2] = group, block, within - 1
                        if not place(table, first, low):
                            meta[OCCUPIED] += put
                            return False
                before = np.int64(NONE)
            block, within = np.int64(NONE) if last else np.int64(following[block]), np.int64(0)
        group += 1
    meta[OCCUPIED] += put
    return True
