"""Judges ids exactly: seen inside the window or not, and by which record.

The kernels of the exact backend, over the table of `processor.engine.ids.exact.hash_table`. A chunk is judged
in two steps, for what an id really is stands in pages that somebody has to fetch: `candidates` lists the
committed ids that could be those of the chunk's records, all at once; then `judge` goes through the records in
order, with the candidates' rows at hand. Ids of the open transaction are in memory with all that is known of
them, so they are no candidates.

Invariant: two ids are equal if 128 bits are, never by a slot. Of several rows of one id the one with the
highest number counts: the others are of an earlier time. An id has at most one row in a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.exact.hash_table import (
    FLOOR,
    FREED,
    HOP,
    LINE,
    LINES,
    LOW,
    MOST_HOPS,
    NEXT,
    NOTHING,
    OCCUPIED,
    STAGED,
    TOUCHED,
    WANT,
    full_of,
    glance,
    home_of,
    number_of,
    relieve,
    tag_of,
)
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.exact.hash_table import HashTable

# Columns of what is kept of a staged id, int64.
OWNER, READING, SUPERSEDES = range(3)
INFO = 3
NONE = -1
"""No number, no owner."""
AHEAD = 256
"""Rows whose lines are loaded together: so many loads wait for memory at a time, and what they brought (16
KiB) is still in the first-level cache when it is used."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Committed ids that could be those of a chunk's records; what they are has to be looked up.

    Attributes:
        row: int64[k], whose record's, rising; one row may have several.
        number: int64[k], under which each is remembered.
        page: int64[p], first numbers of the pages where they stand, each once, rising.
        which: int64[k], index of each one's page.
        at: int64[k], each one's place in its page.
    """

    row: NDArray[np.int64]
    number: NDArray[np.int64]
    page: NDArray[np.int64]
    which: NDArray[np.int64]
    at: NDArray[np.int64]


@kernel
def touch(
    table: HashTable,
    hashes: NDArray[np.uint64],
    start: Int,
    stop: Int,
) -> None:
    """Bring the home lines of some hashes into the cache, many at a time."""
    slots, directory, meta = table.slots, table.directory, table.meta
    brought = np.uint64(0)
    for row in range(start, stop):
        segment, home = home_of(hashes[row, 0], directory, meta)
        brought ^= slots[np.uint64((segment * meta[LINES] + home) * LINE)]
    meta[TOUCHED] ^= np.int64(brought)  # used for something, or the compiler leaves the loads out


@kernel
def candidates(
    table: HashTable,
    hashes: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    alive: Int,
    start: Int,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> tuple[Int, Int]:
    """List the committed ids that could be those of the rows from ``start`` on.

    Args:
        table: All ids.
        hashes: uint64[n, 2].
        skip: bool[n], rows that are not looked up.
        alive: Numbers below are certainly expired and not listed.
        start: First row.
        rows: int64[m], written: rows of candidates, rising; m > 64 more than there are rows.
        numbers: int64[m], written: under which the candidate is remembered.

    Returns:
        The row that there was no room for, or n; how many candidates.
    """
    slots, directory, meta = table.slots, table.directory, table.meta
    count = 0
    lines = meta[LINES]
    hops = min(lines, MOST_HOPS)
    staged = meta[STAGED]
    touched = start
    for row in range(start, hashes.shape[0]):
        if row == touched:
            touched = min(row + AHEAD, hashes.shape[0])
            touch(table, hashes, row, touched)
        if skip[row]:
            continue
        if count + hops * LINE > rows.size:
            return row, count
        first = hashes[row, 0]
        segment, home = home_of(first, directory, meta)
        wanted = tag_of(first, meta) >> np.uint64(32)
        for hop in range(hops):
            line = (segment * lines + ((home + hop) & (lines - 1))) * LINE
            hit, gap = glance(slots, line, wanted + np.uint64(hop))
            if hit > 0:
                for k in range(LINE):
                    slot = slots[np.uint64(line + k)]
                    if slot >> np.uint64(32) == wanted + np.uint64(hop):
                        number = number_of(slot, meta)
                        if alive <= number < staged:
                            rows[count] = row
                            numbers[count] = number
                            count += 1
            if gap > 0:
                break
    return hashes.shape[0], count


@kernel
def seek(
    table: HashTable,
    first: Int,
    number: Int,
) -> Int:
    """Return where the id stands that has this hash and number, or -1."""
    slots, directory, meta = table.slots, table.directory, table.meta
    lines = meta[LINES]
    segment, home = home_of(first, directory, meta)
    wanted = tag_of(first, meta) | (np.uint64(number) & LOW)
    for hop in range(min(lines, MOST_HOPS)):
        line = (segment * lines + ((home + hop) & (lines - 1))) * LINE
        hit, gap = glance(slots, line, (wanted >> np.uint64(32)) + np.uint64(hop))
        if hit > 0:
            for k in range(LINE):
                if slots[np.uint64(line + k)] == wanted + np.uint64(hop) * HOP:
                    return line + k
        if gap > 0:
            break
    return np.int64(-1)


@kernel
def place(
    table: HashTable,
    first: Int,
    number: Int,
) -> bool:
    """Put an id that is not there under a number; whether there was room (see ``meta[WANT]``)."""
    slots, directory, prefix, used, meta = table.slots, table.directory, table.prefix, table.used, table.meta
    lines = meta[LINES]
    tag = tag_of(first, meta)
    while True:
        segment, home = home_of(first, directory, meta)
        if used[segment] < full_of(prefix[segment], lines * LINE):
            for hop in range(min(lines, MOST_HOPS)):
                line = (segment * lines + ((home + hop) & (lines - 1))) * LINE
                gap = glance(slots, line, np.uint64(0))[1]
                if gap > 0:
                    slots[np.uint64(line + gap - 1)] = (tag | (np.uint64(number) & LOW)) + np.uint64(hop) * HOP
                    used[segment] += 1
                    meta[OCCUPIED] += 1
                    return True
        meta[WANT] = relieve(table, segment)
        if meta[WANT] != NOTHING:
            return False


@kernel
def judge(
    table: HashTable,
    hashes: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    offset: NDArray[np.int64],
    reading: NDArray[np.int64],
    window: Int,
    refresh: bool,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int64],
    found: NDArray[np.uint64],
    owners: NDArray[np.int64],
    readings: NDArray[np.int64],
    cursor: Int,
    start: Int,
    staged: NDArray[np.uint64],
    info: NDArray[np.int64],
    verdict: NDArray[np.uint8],
    owner: NDArray[np.int64],
    expires: NDArray[np.int64],
) -> tuple[Int, Int]:
    """Judge rows from ``start`` on, in order, and stage the ids that are remembered.

    Args:
        table: All ids.
        hashes: uint64[n, 2].
        skip: bool[n], rows that are not judged: nothing is written for them.
        offset: int64[n].
        reading: int64[n], the partition's clock at each record.
        window: ms.
        refresh: Whether a duplicate renews its id.
        rows: int64[k], rows of candidates, rising.
        numbers: int64[k], under which each is remembered.
        found: uint64[k, 2], what is written there.
        owners: int64[k], the same.
        readings: int64[k], the same.
        cursor: First candidate.
        start: First row.
        staged: uint64[m, 2], written: hashes of staged ids, from number ``meta[STAGED]`` on; room for all rows.
        info: int64[m, INFO], written: the same.
        verdict: uint8[n], written.
        owner: int64[n], written: of a duplicate, the offset of the record that passed.
        expires: int64[n], written: of a duplicate, when its id expires.

    Returns:
        The row that there was no room for (``meta[WANT]`` says of what), or n; the first candidate not used.
    """
    slots, directory, prefix, used, meta = table.slots, table.directory, table.prefix, table.used, table.meta
    lines = meta[LINES]
    hops = min(lines, MOST_HOPS)
    begun = meta[STAGED]
    touched = start
    for row in range(start, hashes.shape[0]):
        if row == touched:
            # Once more: of 20,000 rows the first ones are no longer where `candidates` has brought them.
            touched = min(row + AHEAD, hashes.shape[0])
            touch(table, hashes, row, touched)
        if skip[row]:
            continue
        first, second = hashes[row, 0], hashes[row, 1]
        best = np.int64(NONE)
        whose = np.int64(NONE)
        when = np.int64(0)
        while cursor < rows.size and rows[cursor] < row:
            cursor += 1
        for k in range(cursor, rows.size):
            if rows[k] != row:
                break
            if found[k, 0] == first and found[k, 1] == second and numbers[k] > best:
                best, whose, when = numbers[k], owners[k], readings[k]
        # Ids of this transaction are found in the same look as where a new one would go.
        free = np.int64(NONE)
        segment, home = home_of(first, directory, meta)
        wanted = tag_of(first, meta) >> np.uint64(32)
        for hop in range(hops):
            line = (segment * lines + ((home + hop) & (lines - 1))) * LINE
            hit, gap = glance(slots, line, wanted + np.uint64(hop))
            if hit > 0:
                for k in range(LINE):
                    slot = slots[np.uint64(line + k)]
                    number = number_of(slot, meta)
                    if slot >> np.uint64(32) == wanted + np.uint64(hop) and begun <= number < meta[NEXT]:
                        index = number - begun
                        if staged[index, 0] == first and staged[index, 1] == second:
                            best, whose, when = number, info[index, OWNER], info[index, READING]
            if gap > 0:
                free = line + gap - 1
                wanted += np.uint64(hop)
                break
        now = reading[row]
        known = best >= 0 and when + window > now
        if known and not (refresh and now > when):
            verdict[row], owner[row], expires[row] = 1, whose, when + window
            continue
        if not known:
            whose = offset[row]
        # Remembered: as it passes, or as it is renewed.
        if best >= begun:
            info[best - begun, OWNER] = whose
            info[best - begun, READING] = now
        else:
            number = meta[NEXT]
            at = seek(table, first, best) if best >= 0 else np.int64(NONE)
            if at >= 0:
                slots[at] = (slots[at] & ~LOW) | (np.uint64(number) & LOW)
            elif free >= 0 and used[segment] < full_of(prefix[segment], lines * LINE):
                slots[free] = (wanted << np.uint64(32)) | (np.uint64(number) & LOW)
                used[segment] += 1
                meta[OCCUPIED] += 1
            elif not place(table, first, number):
                return row, cursor
            index = number - begun
            staged[index, 0], staged[index, 1] = first, second
            info[index, OWNER], info[index, READING], info[index, SUPERSEDES] = whose, now, best
            meta[NEXT] = number + 1
        if known:
            verdict[row], owner[row], expires[row] = 1, whose, now + window
        else:
            verdict[row] = 0
    return hashes.shape[0], cursor


@kernel
def drop(
    table: HashTable,
    staged: NDArray[np.uint64],
    info: NDArray[np.int64],
) -> None:
    """Forget the staged ids; what they replaced is there again."""
    slots, meta = table.slots, table.meta
    for index in range(meta[NEXT] - meta[STAGED] - 1, -1, -1):
        at = seek(table, staged[index, 0], meta[STAGED] + index)
        if at >= 0:
            before = info[index, SUPERSEDES]
            if before >= meta[FLOOR]:
                slots[at] = (slots[at] & ~LOW) | (np.uint64(before) & LOW)
            else:
                slots[at] = FREED
    meta[NEXT] = meta[STAGED]
