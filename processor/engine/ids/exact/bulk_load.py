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

from processor.engine.arrays import grown
from processor.engine.bytes.loads import be64
from processor.engine.ids.exact.hash_table import (
    DEPTH,
    FLOOR,
    FULL,
    LINE,
    LINES,
    LOW,
    MOST_DEPTH,
    NEXT,
    OCCUPIED,
    SEGMENTS,
    HashTable,
    full_of,
    glance,
    home_of,
    tag_of,
)
from processor.engine.ids.exact.kernels import place, seek
from processor.engine.ids.page import HASH_BYTES, PAGE_HEAD_BYTES, ending, last_reading, look_at, mask_of
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP_BITS = 8
GROUPS = 1 << GROUP_BITS
"""256 groups of 12.5 million ids have a megabyte of segments each, half a second-level cache; and the 256 lines
that are written to at a time fit into the first-level cache."""
BLOCK = 512
"""Entries of a block: a page of memory."""
HOME_BITS = 10
GROWTH = 8
BEFORE = np.uint64(1) << np.uint64(63)
NONE = -1
WAITING = 1 << 18
"""Entries, 2 MB, that may wait, and one more for each `SHARE` ids that are in slots already."""
SHARE = 4
"""What waits is bound to be given back, and a worker that had room for its ids has to have room to start again:
2.3 bytes per id with the array's slack, a fifth of what its slot takes. Each time the table is a quarter larger
than before, so that all of it is gone through some five times as often as in one go, in order."""


class Chains(NamedTuple):
    """Chains of blocks, one per group.

    Attributes:
        arena: uint64[blocks * BLOCK], the entries.
        following: int32[blocks], the block after each.
        chain: int64[GROUPS + 1, 3], of each group its first block, its last, entries in that; in the last row
            blocks used, entries.
    """

    arena: NDArray[np.uint64]
    following: NDArray[np.int32]
    chain: NDArray[np.int64]


class BulkLoad:
    """Committed ids that are not in slots yet."""

    def __init__(self) -> None:
        self._arena: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._following: NDArray[np.int32] = np.zeros(0, np.int32)
        self._chain: NDArray[np.int64] = np.full((GROUPS + 1, 3), NONE, np.int64)
        self._chain[GROUPS] = 0

    def __len__(self) -> int:
        """Entries that wait: one for each row, and one more where that takes the place of another."""
        return int(self._chain[GROUPS, 1])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._arena.nbytes + self._following.nbytes + self._chain.nbytes

    def take(self, hashes: NDArray[np.uint64], supersedes: NDArray[np.int64], number: int, floor: int) -> None:
        """Collect the ids of consecutive rows.

        Args:
            hashes: uint64[n, 2].
            supersedes: int64[n], the row that each takes the place of, `NONE` where there is none.
            number: The first one's.
            floor: Rows below this number are expired.
        """
        self._make_room_for(len(hashes))
        with np.errstate(over="ignore"):
            collect(self.chains(), hashes, supersedes, number, floor)

    def take_pages(
        self,
        data: NDArray[np.uint8],
        rows: int,
        number: NDArray[np.int64],
        floor: int,
        last_ms: NDArray[np.int64],
    ) -> int:
        """Collect the ids of consecutive pages; of owners nothing is read.

        Args:
            data: The pages, one behind the other.
            rows: How many ids they say that they have.
            number: int64[p], each one's first.
            floor: Rows below this number are expired.
            last_ms: int64[p], written: each one's highest reading.

        Returns:
            A `Wrong` code. If that is not 0, some ids have been collected all the same.
        """
        self._make_room_for(rows)
        with np.errstate(over="ignore"):
            return int(collect_pages(self.chains(), data, rows, number, floor, last_ms))

    def _make_room_for(self, rows: int) -> None:
        # Each group may begin a block, and be left with an unfilled one.
        most = int(self._chain[GROUPS, 0]) + GROUPS + -(-2 * rows // BLOCK)
        self._arena = grown(self._arena, most * BLOCK, GROWTH)
        self._following = grown(self._following, most, GROWTH)

    def chains(self) -> Chains:
        """Return what kernels work on."""
        return Chains(self._arena, self._following, self._chain)


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
def _add(arena, following, chain, add_hash, add_number, add_before, floor):  # type: ignore[no-untyped-def]
    """Add a row to its group; there are blocks enough."""
    add_group = np.int64(add_hash >> np.uint64(64 - GROUP_BITS))
    add_bits = (((add_hash >> np.uint64(36)) & np.uint64(0xFFFFF)) << np.uint64(42)) | (
        (add_hash & np.uint64((1 << HOME_BITS) - 1)) << np.uint64(32)
    )
    add_entries = 1
    if add_before >= floor:
        add_entries = 2
    for add_k in range(add_entries):
        add_used = chain[add_group, 2]
        if add_used == BLOCK or add_used < 0:
            add_block = chain[GROUPS, 0]
            chain[GROUPS, 0] = add_block + 1
            if add_used < 0:
                chain[add_group, 0] = add_block
            else:
                following[chain[add_group, 1]] = np.int32(add_block)
            chain[add_group, 1] = add_block
            add_used = np.int64(0)
        add_put = add_bits | (np.uint64(add_number) & LOW)
        if add_k + 1 < add_entries:
            add_put = add_bits | BEFORE | (np.uint64(add_before) & LOW)
        arena[np.uint64(chain[add_group, 1] * BLOCK + add_used)] = add_put
        chain[add_group, 2] = add_used + 1
    chain[GROUPS, 1] += add_entries


@inlined
def _first_of(of_group, of_entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry's hash, as far as slots need it."""
    of_first = np.uint64(of_group) << np.uint64(64 - GROUP_BITS)
    of_first |= ((of_entry >> np.uint64(42)) & np.uint64(0xFFFFF)) << np.uint64(36)
    return of_first | ((of_entry >> np.uint64(32)) & np.uint64((1 << HOME_BITS) - 1))


@kernel
def collect(
    chains: Chains,
    hashes: NDArray[np.uint64],
    supersedes: NDArray[np.int64],
    number: Int,
    floor: Int,
) -> None:
    """Add rows to their groups; there are blocks enough."""
    arena, following, chain = chains.arena, chains.following, chains.chain
    for row in range(hashes.shape[0]):
        _add(arena, following, chain, hashes[row, 0], number + row, supersedes[row], floor)


@kernel
def collect_pages(
    chains: Chains,
    data: NDArray[np.uint8],
    rows: Int,
    number: NDArray[np.int64],
    floor: Int,
    last_ms: NDArray[np.int64],
) -> Int:
    """Add the rows of pages, see `BulkLoad.take_pages`; there are blocks enough for so many."""
    arena, following, chain = chains.arena, chains.following, chains.chain
    at: Int = np.int64(0)
    row: Int = np.int64(0)
    for page in range(number.size):
        ids, size, wrong = look_at(data, at, data.size, number[page])
        if wrong != 0:
            return wrong
        if row + ids > rows or number[page] != number[0] + row:
            return 4
        body = at + PAGE_HEAD_BYTES
        stop = body + ids * size
        width = np.int64(data[at + 5])
        mask = mask_of(width)
        for k in range(ids):
            before = np.int64(NONE)
            if width != 0:
                back = np.int64(ending(data, stop - width * (ids - k - 1), mask))
                if back != 0:
                    before = number[page] + k - back
            _add(arena, following, chain, be64(data, body + HASH_BYTES * k), number[page] + k, before, floor)
        last_ms[page] = last_reading(data, at, ids)
        at = stop
        row += ids
    if row != rows:
        return 4
    return 0 if at == data.size else 1


@kernel
def insert_at_home(
    table: HashTable,
    chains: Chains,
) -> None:
    """Put of what was collected what finds room at its home in empty segments, and leave the rest for `insert`.

    Here nothing has to be read of a line but how many it has, which is counted in the first-level cache: a
    slot is only written, and nobody waits for its memory. A row that takes the place of another is left, whose
    slot may be anywhere, and so is everything where there are fewer segments than groups.

    Args:
        table: All empty, each segment as deep as the directory.
        chains: What was collected, written.
    """
    arena, following, chain = chains.arena, chains.following, chains.chain
    slots, directory, prefix, used, meta = table.slots, table.directory, table.prefix, table.used, table.meta
    if meta[DEPTH] < GROUP_BITS:
        return
    floor = np.uint64(meta[FLOOR])
    span = np.uint64(meta[NEXT] - meta[FLOOR])
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
def insert(
    table: HashTable,
    chains: Chains,
    at: NDArray[np.int64],
) -> bool:
    """Put what was collected into slots.

    Args:
        table: All ids that are in slots already.
        chains: What was collected.
        at: int64[3], group, block and place in it to go on from, written; first 0, `NONE` and 0.

    Returns:
        Whether all is done; where not, ``meta[WANT]`` says what there was no room for.
    """
    arena, following, chain = chains.arena, chains.following, chains.chain
    slots, directory, prefix, used, meta = table.slots, table.directory, table.prefix, table.used, table.meta
    floor = np.uint64(meta[FLOOR])
    span = np.uint64(meta[NEXT] - meta[FLOOR])
    lines = meta[LINES]
    group, block, within = at[0], at[1], at[2]
    put: Int = np.int64(0)
    while group < GROUPS:
        if block < 0:
            block, within = chain[group, 0], np.int64(0)
        before = np.int64(NONE)
        while block >= 0:
            stop = np.int64(BLOCK)
            if block == chain[group, 1]:
                stop = chain[group, 2]
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
            if block == chain[group, 1]:
                block = np.int64(NONE)
            else:
                block, within = np.int64(following[block]), np.int64(0)
        group += 1
    meta[OCCUPIED] += put
    return True
