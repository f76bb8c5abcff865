"""Compares dropped records by content with what passed under their numbers, for a share of all numbers.

A record's number is its sequence, in its scope and epoch: a copy has the number of the record that passed. So
the share is one of numbers: of a record that is not in it no more is hashed than that. Where a dropped one's
number has passed with other content, or never, its content has not.

An open-addressing table, uint64[n, 2], n a power of two, linear probing. An entry is a content that passed::

    depth u6 | hash of the number u58        0: free
    hash of the content

``depth`` is how many leading zeros the number's lot has, 63 at most: the share of level L has those of L and
more, 2^-L of all numbers. A number has all of its contents in the table, or none.

Floors, int64[k, 2], k a power of two, say up to which epoch and sequence numbers may have passed before; k = 0:
none has. Of such a number the first content that is dropped is taken for the one that passed, and each other
counts once: no more are counted than never passed. Scopes are told apart by their tags, see
`processor.engine.watermark.scope_arrays`: of those that share a floor the highest counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.jit import Int, inlined, kernel
from processor.engine.watermark.scope_arrays import EPOCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = 64
LOOKED_AT, UNSEEN = range(2)
"""Columns of what is counted, int64[LEVELS, 2], by depth."""
# Odd numbers with no pattern in their bits.
_C1, _C2, _C3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xD6E8FEB86659FD93)


class JudgedNumbers(NamedTuple):
    """The numbers of n records, and what became of them.

    Attributes:
        tag: uint32[n], hashes of their scopes; uint32[0] where there is one.
        sequence: int64[n].
        epoch: int64[n]; int64[0] where there is none.
        verdict: uint8[n], `Verdict` values.
    """

    tag: NDArray[np.uint32]
    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64]
    verdict: NDArray[np.uint8]


@inlined
def _mixed(word):  # type: ignore[no-untyped-def]  # inlined kernel
    mixed_1 = (word ^ (word >> np.uint64(32))) * _C1
    mixed_2 = (mixed_1 ^ (mixed_1 >> np.uint64(29))) * _C2
    return mixed_2 ^ (mixed_2 >> np.uint64(32))


@kernel
def drawn(
    records: JudgedNumbers, salt: Int, level: Int, rows: NDArray[np.int64], lots: NDArray[np.uint64]
) -> Int:
    """Find the records whose numbers are in the share of a level; return how many.

    Args:
        records: n of them.
        salt: uint64; of the partition.
        level: 0 to 63.
        rows: int64[n], written: which they are.
        lots: uint64[n], written: theirs.
    """
    tag, sequence, _, verdict = records
    least = np.uint64(2**64 - 1) >> np.uint64(level)
    scoped = tag.size > 0
    count: Int = 0
    for row in range(sequence.size):
        word = np.uint64(sequence[row]) * _C3 + salt
        if scoped:
            word += np.uint64(tag[row]) * _C2
        lot = _mixed(word)
        if lot <= least and verdict[row] != 3:
            rows[count], lots[count] = row, lot
            count += 1
    return count


@kernel
def compare(
    table: NDArray[np.uint64],
    room: Int,
    records: JudgedNumbers,
    rows: NDArray[np.int64],
    lots: NDArray[np.uint64],
    contents: NDArray[np.uint64],
    start: Int,
    floors: NDArray[np.int64],
    salt: Int,
    level: Int,
    counts: NDArray[np.int64],
    unseen: NDArray[np.bool_],
) -> tuple[Int, Int]:
    """Compare what was dropped, and remember what passed, in order.

    Args:
        table: Has more than ``room`` free slots.
        room: How many entries may come.
        records: As they were drawn from.
        rows: int64[k], as `drawn` found them.
        lots: uint64[k].
        contents: uint64[k], hashes of their contents.
        start: The first of the k to take.
        floors: See above.
        salt: As for `drawn`.
        level: Records that are not in its share any more are left out.
        counts: Added to.
        unseen: bool[k], set where a dropped record's content never passed.

    Returns:
        The first of the k that there was no room for, or k; how many entries came.
    """
    tag, sequence, epoch, verdict = records
    mask = np.int64(table.shape[0] - 1)
    came: Int = 0
    for k in range(start, rows.size):
        depth, left = np.uint64(0), lots[k]
        while depth < np.uint64(63) and left >> np.uint64(63) == np.uint64(0):
            left <<= np.uint64(1)
            depth += np.uint64(1)
        if np.int64(depth) < level:
            continue
        if came >= room:
            return k, came
        row = rows[k]
        number, own, scope = sequence[row], np.int64(0), np.uint64(0)
        if tag.size > 0:
            scope = np.uint64(tag[row])
        if epoch.size > 0:
            own = epoch[row]
        hashed = _mixed(scope * _C2 + np.uint64(own) * _C1 + _mixed(np.uint64(number) + salt))
        wanted = (depth << np.uint64(58)) | max(hashed >> np.uint64(6), np.uint64(1))
        known, same = False, False
        slot = np.int64(wanted & np.uint64(mask))
        while table[slot, 0] != np.uint64(0) and not same:
            if table[slot, 0] == wanted:
                known = True
                same = table[slot, 1] == contents[k]
            slot = (slot + 1) & mask
        passes, below = verdict[row] == 0, False
        if floors.shape[0] > 0:
            floor = np.int64(scope & np.uint64(floors.shape[0] - 1))
            below = own < floors[floor, 0] or (own == floors[floor, 0] and number <= floors[floor, 1])
        if not same and (passes or below):
            table[slot, 0], table[slot, 1] = wanted, contents[k]
            came += 1
        if passes or (below and not known):
            continue
        counts[np.int64(depth), 0] += 1
        if not same:
            counts[np.int64(depth), 1] += 1
            unseen[k] = True
    return rows.size, came


@kernel
def keep(table: NDArray[np.uint64], level: Int, out: NDArray[np.uint64]) -> Int:
    """Write the entries of a level's share into an empty table of equal size; return how many."""
    mask = np.int64(out.shape[0] - 1)
    count: Int = 0
    for slot in range(table.shape[0]):
        key = table[slot, 0]
        if key != np.uint64(0) and np.int64(key >> np.uint64(58)) >= level:
            to = np.int64(key & np.uint64(mask))
            while out[to, 0] != np.uint64(0):
                to = (to + 1) & mask
            out[to, 0], out[to, 1] = key, table[slot, 1]
            count += 1
    return count


@kernel
def raise_floors(
    floors: NDArray[np.int64], words: NDArray[np.int64], slots: NDArray[np.uint64], layout: NDArray[np.int64]
) -> None:
    """Raise floors to what scopes have reached; see `processor.engine.watermark.scope_arrays`."""
    epoch_at = layout[EPOCH]
    for slot in slots:
        if slot != np.uint64(0):
            word = np.int64(slot & np.uint64(0xFFFFFFFF)) - 1
            floor = np.int64((slot >> np.uint64(32)) & np.uint64(floors.shape[0] - 1))
            epoch = words[word + epoch_at] if epoch_at > 0 else np.int64(0)
            number, low = words[word + 1], floors[floor, 0]
            if epoch > low or (epoch == low and number > floors[floor, 1]):
                floors[floor, 0], floors[floor, 1] = epoch, number
