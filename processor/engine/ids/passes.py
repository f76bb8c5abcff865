"""Remembers when sampled ids passed, and finds those that pass again.

An open-addressing table, 24 bytes per slot, linear probing. An entry is an id in one partition::

    key u64     depth u6 | keyed hash u58        0: free
    at i64      the partition's clock when the id passed last there, ms
    note i64    partition u48 | open u1 | escaped u15

``depth`` is how many leading zeros the id's lot has, 63 at most: an id is in the sample of level L where its
depth is at least L, so a sample of 2^-L of all ids becomes one of half of that by leaving entries out.
``open``: no pass before it has been seen.
``escaped``: how often the id has escaped in this partition.

A pass is a duplicate that escaped if the id passed before it, at most the horizon ago: of two passes in
different partitions the one that is later by the partitions' clocks, whichever is taken in first.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.siphash import absorb, begin, end
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOT_BYTES = 24
LEVELS = 64
UNWANTED = 255


class PassKind(IntEnum):
    """What is said of an id; values of a ``kind`` column (uint8)."""

    PASSED = 0
    RENEWED = 1
    """A duplicate has renewed its window."""


class PassTable(NamedTuple):
    """The slots, a power of two.

    Attributes:
        key: uint64[n].
        at: int64[n].
        note: int64[n].
    """

    key: NDArray[np.uint64]
    at: NDArray[np.int64]
    note: NDArray[np.int64]

    @classmethod
    def empty(cls, slots: int) -> PassTable:
        """Return one without entries."""
        return cls(np.zeros(slots, np.uint64), np.zeros(slots, np.int64), np.zeros(slots, np.int64))


class Passes(NamedTuple):
    """Passes of sampled ids, in the order in which they are taken in.

    Attributes:
        key: uint64[n], see above.
        at: int64[n], the partition's clock, ms.
        partition: int64[n].
        kind: uint8[n], `PassKind` values.
    """

    key: NDArray[np.uint64]
    at: NDArray[np.int64]
    partition: NDArray[np.int64]
    kind: NDArray[np.uint8]

    def part(self, rows: slice) -> Passes:
        """Return some of them."""
        return Passes(self.key[rows], self.at[rows], self.partition[rows], self.kind[rows])


# Columns of what escaped, int64 each.
COPY_PARTITION, COPY_AT, BEFORE_PARTITION, BEFORE_AT, ESCAPED_BEFORE, DEPTH = range(6)
ESCAPE_COLUMNS = 6


def depth_of(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the deepest levels that ids are in the samples of."""
    return (keys >> np.uint64(58)).astype(np.int64)


@kernel
def drawn(
    lot: NDArray[np.uint64],
    fingerprint: NDArray[np.uint64],
    kind: NDArray[np.uint8],
    at: NDArray[np.int64],
    partition: NDArray[np.int64],
    level: Int,
    key: NDArray[np.uint64],
    out: Passes,
) -> Int:
    """Draw the ids of records that are in the sample of a level; returns how many.

    Args:
        lot: uint64[n], see `processor.engine.extract.ids.Ids`.
        fingerprint: uint64[n], by which records of one id are told apart; uint64[0] where they are not.
        kind: uint8[n], `PassKind` values, or `UNWANTED`.
        at: int64[n], the partition's clock at each.
        partition: int64[n].
        level: 0 to 63.
        key: uint64[2], of the hash: who does not know it learns no lot from a key.
        out: Room for n.
    """
    b0, b1, b2, b3 = begin(key)
    least = np.uint64(2**64 - 1) >> np.uint64(level)
    count: Int = 0
    for row in range(lot.size):
        if lot[row] > least or lot[row] == np.uint64(2**64 - 1) or kind[row] == 255:
            continue
        v0, v1, v2, v3 = absorb(b0, b1, b2, b3, lot[row])
        if fingerprint.size > 0:
            v0, v1, v2, v3 = absorb(v0, v1, v2, v3, fingerprint[row])
        hashed, _ = end(v0, v1, v2, v3)
        depth, left = np.uint64(0), lot[row]
        while depth < np.uint64(63) and left >> np.uint64(63) == np.uint64(0):
            left <<= np.uint64(1)
            depth += np.uint64(1)
        out.key[count] = (depth << np.uint64(58)) | max(np.uint64(hashed) >> np.uint64(6), np.uint64(1))
        out.at[count], out.partition[count], out.kind[count] = at[row], partition[row], kind[row]
        count += 1
    return count


@kernel
def take(
    table: PassTable,
    passes: Passes,
    room: Int,
    window_ms: Int,
    horizon_ms: Int,
    escapes: NDArray[np.int64],
) -> tuple[Int, Int, Int]:
    """Take passes into the table, and write down what escaped.

    Args:
        table: Has more than ``room`` free slots.
        passes: To take, in order.
        room: How many entries there may be more.
        window_ms: Within it nothing passes again in one partition: what does is a stream that is judged again.
        horizon_ms: What passed longer ago is forgotten.
        escapes: int64[m, 6], filled from the front.

    Returns:
        How many passes were taken, how many entries came, how many escaped. It ends early where there may be no
        room for what the next pass needs.
    """
    keys, ats, notes = table
    mask = np.int64(keys.size - 1)
    came: Int = 0
    escaped: Int = 0
    for row in range(passes.key.size):
        if came >= room:
            return row, came, escaped
        key, at, partition, kind = passes.key[row], passes.at[row], passes.partition[row], passes.kind[row]
        first, depth = np.int64(key & np.uint64(mask)), np.int64(key >> np.uint64(58))
        # What is known of the id: here, and next to it in time elsewhere.
        here, near, before, followers = np.int64(-1), np.int64(-1), np.int64(0), np.int64(0)
        slot = first
        while keys[slot] != np.uint64(0):
            if keys[slot] == key:
                before += notes[slot] & 32767
                if notes[slot] >> 16 == partition:
                    here = slot
                elif abs(ats[slot] - at) <= horizon_ms:
                    earlier = ats[slot] < at or (ats[slot] == at and notes[slot] >> 16 < partition)
                    if not earlier and notes[slot] & 32768:
                        followers += 1
                    if earlier and (near < 0 or ats[slot] > ats[near]):
                        near = slot
            slot = (slot + 1) & mask
        free = slot
        if escaped + followers + 1 > escapes.shape[0]:
            return row, came, escaped
        again = here >= 0 and at - ats[here] < window_ms
        if kind == 1:
            again = False
        if again:
            continue
        if kind != 1 and followers > 0:
            slot = first
            while keys[slot] != np.uint64(0):
                if keys[slot] == key and notes[slot] >> 16 != partition and notes[slot] & 32768:
                    later = ats[slot] > at or (ats[slot] == at and notes[slot] >> 16 > partition)
                    if later and ats[slot] - at <= horizon_ms:
                        escapes[escaped, 0], escapes[escaped, 1] = notes[slot] >> 16, ats[slot]
                        escapes[escaped, 2], escapes[escaped, 3] = partition, at
                        escapes[escaped, 4], escapes[escaped, 5] = before, depth
                        escaped += 1
                        before += 1
                        notes[slot] = (notes[slot] & ~np.int64(32768)) + (notes[slot] & 32767 < 32767)
                slot = (slot + 1) & mask
        known = here if here >= 0 and at - ats[here] <= horizon_ms else near
        counted = kind == 0 and known >= 0
        if counted:
            escapes[escaped, 0], escapes[escaped, 1] = partition, at
            escapes[escaped, 2], escapes[escaped, 3] = notes[known] >> 16, ats[known]
            escapes[escaped, 4], escapes[escaped, 5] = before, depth
            escaped += 1
        if here < 0:
            here = free
            keys[here], ats[here], notes[here] = key, at, partition << 16
            came += 1
        ats[here] = max(ats[here], at)
        note = notes[here] & ~np.int64(32768)
        if counted and note & 32767 < 32767:
            note += 1
        notes[here] = note | 32768 if kind == 0 and not counted else note
    return passes.key.size, came, escaped


@kernel
def remaining(table: PassTable, floor_ms: Int, level: Int) -> Int:
    """Return how many entries passed at ``floor_ms`` or later and are in the sample of ``level``."""
    count: Int = 0
    for slot in range(table.key.size):
        if table.key[slot] != np.uint64(0) and table.at[slot] >= floor_ms:
            count += np.int64(table.key[slot] >> np.uint64(58)) >= level
    return count


@kernel
def move(table: PassTable, floor_ms: Int, level: Int, out: PassTable) -> None:
    """Write those entries into another table, which has room."""
    mask = np.uint64(out.key.size - 1)
    for slot in range(table.key.size):
        key = table.key[slot]
        if key == np.uint64(0) or table.at[slot] < floor_ms or np.int64(key >> np.uint64(58)) < level:
            continue
        to = np.int64(key & mask)
        while out.key[to] != np.uint64(0):
            to = np.int64((np.uint64(to) + np.uint64(1)) & mask)
        out.key[to], out.at[to], out.note[to] = key, table.at[slot], table.note[slot]


@kernel
def leave_out(table: PassTable, floor_ms: Int, level: Int) -> None:
    """Leave out all other entries of a table that is not full, in place.

    It begins behind a free slot, where no run of entries goes on: so what an entry is moved past has been
    moved, and no entry is moved to where one still waits.
    """
    keys, ats, notes = table
    mask = np.int64(keys.size - 1)
    free = np.int64(0)
    while keys[free] != np.uint64(0):
        free += 1
    for step in range(1, keys.size):
        slot = (free + step) & mask
        key, at, note = keys[slot], ats[slot], notes[slot]
        if key == np.uint64(0):
            continue
        keys[slot], ats[slot], notes[slot] = np.uint64(0), 0, 0
        if at < floor_ms or np.int64(key >> np.uint64(58)) < level:
            continue
        to = np.int64(key & np.uint64(mask))
        while keys[to] != np.uint64(0):
            to = (to + 1) & mask
        keys[to], ats[to], notes[to] = key, at, note
