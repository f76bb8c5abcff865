"""Has this id been seen inside the window, and by which record?

The kernels of the exact backend, over the extents of `processor.engine.ids.exact.hash_table`. A chunk is judged
in two steps, for what an id really is stands in pages that somebody has to fetch: `candidates` lists the
committed ids that could be those of the chunk's records, all at once; then `judge` goes through the records in
order, with the candidates' rows at hand. Ids of the open transaction are in memory with all that is known of
them, so they are no candidates.

Invariant: two ids are equal if 128 bits are, never by a slot. Of several rows of one id the one with the
highest number counts: the others are of an earlier time. An id has at most one row in a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.exact.hash_table import (
    BUCKETS,
    FLOOR,
    FREED,
    HOP,
    LINE,
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

# Columns of what is kept of a staged id, int64.
OWNER, READING, SUPERSEDES = range(3)
INFO = 3
NONE = -1
"""No number, no owner."""
AHEAD = 256
"""Rows whose buckets are loaded together: so many loads wait for memory at a time, and what they brought (16
KiB) is still in the first-level cache when it is used."""


@kernel
def touch(
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    meta: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    start: Int,
    stop: Int,
) -> None:
    """Bring the home buckets of some hashes into the cache, many at a time."""
    brought = np.uint64(0)
    for row in range(start, stop):
        extent, bucket = home_of(hashes[row, 0], directory, meta)
        brought ^= slots[np.uint64((extent * meta[BUCKETS] + bucket) * LINE)]
    meta[TOUCHED] ^= np.int64(brought)  # used for something, or the compiler leaves the loads out


@kernel
def candidates(
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    meta: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    alive: Int,
    start: Int,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> tuple[Int, Int]:
    """List the committed ids that could be those of the rows from ``start`` on.

    Args:
        slots: uint64[extents * buckets * 8].
        directory: uint32[2^depth].
        meta: Counters, see above.
        hashes: uint64[n, 2].
        skip: bool[n], rows that are not looked up.
        alive: Numbers below are certainly expired and not listed.
        start: First row.
        rows: int64[m], written: rows of candidates, rising; m > 64 more than there are rows.
        numbers: int64[m], written: under which the candidate is remembered.

    Returns:
        The row that there was no room for, or n; how many candidates.
    """
    count = 0
    buckets = meta[BUCKETS]
    hops = min(buckets, MOST_HOPS)
    staged = meta[STAGED]
    touched = start
    for row in range(start, hashes.shape[0]):
        if row == touched:
            touched = min(row + AHEAD, hashes.shape[0])
            touch(slots, directory, meta, hashes, row, touched)
        if skip[row]:
            continue
        if count + hops * LINE > rows.size:
            return row, count
        first = hashes[row, 0]
        extent, bucket = home_of(first, directory, meta)
        wanted = tag_of(first, meta) >> np.uint64(32)
        for hop in range(hops):
            line = (extent * buckets + ((bucket + hop) & (buckets - 1))) * LINE
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
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    meta: NDArray[np.int64],
    first: Int,
    number: Int,
) -> Int:
    """Return where the id stands that has this hash and number, or -1."""
    buckets = meta[BUCKETS]
    extent, bucket = home_of(first, directory, meta)
    wanted = tag_of(first, meta) | (np.uint64(number) & LOW)
    for hop in range(min(buckets, MOST_HOPS)):
        line = (extent * buckets + ((bucket + hop) & (buckets - 1))) * LINE
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
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    depth: NDArray[np.uint8],
    prefix: NDArray[np.uint32],
    used: NDArray[np.int32],
    meta: NDArray[np.int64],
    first: Int,
    number: Int,
) -> bool:
    """Put an id that is not there under a number; whether there was room (see ``meta[WANT]``)."""
    buckets = meta[BUCKETS]
    tag = tag_of(first, meta)
    while True:
        extent, bucket = home_of(first, directory, meta)
        if used[extent] < full_of(prefix[extent], buckets * LINE):
            for hop in range(min(buckets, MOST_HOPS)):
                line = (extent * buckets + ((bucket + hop) & (buckets - 1))) * LINE
                gap = glance(slots, line, np.uint64(0))[1]
                if gap > 0:
                    slots[np.uint64(line + gap - 1)] = (tag | (np.uint64(number) & LOW)) + np.uint64(hop) * HOP
                    used[extent] += 1
                    meta[OCCUPIED] += 1
                    return True
        meta[WANT] = relieve(slots, directory, depth, prefix, used, meta, extent)
        if meta[WANT] != NOTHING:
            return False


@kernel
def judge(
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    depth: NDArray[np.uint8],
    prefix: NDArray[np.uint32],
    used: NDArray[np.int32],
    meta: NDArray[np.int64],
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
        slots: As in `processor.engine.ids.exact.hash_table`.
        directory: The same.
        depth: The same.
        prefix: The same.
        used: The same.
        meta: The same.
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
    buckets = meta[BUCKETS]
    hops = min(buckets, MOST_HOPS)
    begun = meta[STAGED]
    touched = start
    for row in range(start, hashes.shape[0]):
        if row == touched:
            # Once more: of 20,000 rows the first ones are no longer where `candidates` has brought them.
            touched = min(row + AHEAD, hashes.shape[0])
            touch(slots, directory, meta, hashes, row, touched)
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
        extent, bucket = home_of(first, directory, meta)
        wanted = tag_of(first, meta) >> np.uint64(32)
        for hop in range(hops):
            line = (extent * buckets + ((bucket + hop) & (buckets - 1))) * LINE
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
        # Remembered anew: as it passes, or as it is renewed.
        if best >= begun:
            info[best - begun, OWNER] = whose
            info[best - begun, READING] = now
        else:
            number = meta[NEXT]
            at = seek(slots, directory, meta, first, best) if best >= 0 else np.int64(NONE)
            if at >= 0:
                slots[at] = (slots[at] & ~LOW) | (np.uint64(number) & LOW)
            elif free >= 0 and used[extent] < full_of(prefix[extent], buckets * LINE):
                slots[free] = (wanted << np.uint64(32)) | (np.uint64(number) & LOW)
                used[extent] += 1
                meta[OCCUPIED] += 1
            elif not place(slots, directory, depth, prefix, used, meta, first, number):
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
    slots: NDArray[np.uint64],
    directory: NDArray[np.uint32],
    meta: NDArray[np.int64],
    staged: NDArray[np.uint64],
    info: NDArray[np.int64],
) -> None:
    """Forget the staged ids; what they replaced is there again."""
    for index in range(meta[NEXT] - meta[STAGED] - 1, -1, -1):
        at = seek(slots, directory, meta, staged[index, 0], meta[STAGED] + index)
        if at >= 0:
            before = info[index, SUPERSEDES]
            if before >= meta[FLOOR]:
                slots[at] = (slots[at] & ~LOW) | (np.uint64(before) & LOW)
            else:
                slots[at] = FREED
    meta[NEXT] = meta[STAGED]


@kernel
def expired(last: NDArray[np.int64], start: Int, stop: Int, clock: Int, window: Int) -> Int:
    """Return the first page from ``start`` on, below ``stop``, that has an id that is not expired."""
    page = start
    while page < stop and last[page] + window <= clock:
        page += 1
    return page
