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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids import collisions
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
    put_near,
    relieve,
    tag_of,
)
from processor.engine.ids.page import NONE
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.exact.hash_table import HashTable
    from processor.engine.ids.judgement import IdColumns, IdJudgement
    from processor.engine.ids.page import CandidateRows

# Columns of what is kept of a staged id, int64.
OWNER, READING, SUPERSEDES = range(3)
INFO = 3
# Columns of what is kept of it where there are fingerprints or routes, uint64.
FINGERPRINT, ROUTE = range(2)
MORE = 2
AHEAD = 256
"""Rows whose lines are loaded together: so many loads wait for memory at a time, and what they brought (16
KiB) is still in the first-level cache when it is used."""


class Candidates(NamedTuple):
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


class StagedIds(NamedTuple):
    """Ids of the open transaction, from number ``meta[STAGED]`` on.

    Attributes:
        hash: uint64[m, 2], with room for all rows that are judged.
        info: int64[m, INFO].
        more: uint64[m, MORE]; uint64[0, MORE] where there are neither fingerprints nor routes.
    """

    hash: NDArray[np.uint64]
    info: NDArray[np.int64]
    more: NDArray[np.uint64]

    @classmethod
    def none(cls) -> StagedIds:
        """Return room for none."""
        return cls(np.zeros((0, 2), np.uint64), np.zeros((0, INFO), np.int64), np.zeros((0, MORE), np.uint64))


@kernel
def touch(table: HashTable, hashes: NDArray[np.uint64], start: Int, stop: Int) -> None:
    """Bring the home lines of some hashes into the cache, many at a time.

    The first and the last slot of each: numpy's memory is aligned to 16 bytes, so a line lies in two of the
    cache's.
    """
    slots, directory, meta = table.slots, table.directory, table.meta
    brought = np.uint64(0)
    for row in range(start, stop):
        segment, home = home_of(hashes[row, 0], directory, meta)
        slot = np.uint64((segment * meta[LINES] + home) * LINE)
        brought ^= slots[slot] ^ slots[slot + np.uint64(LINE - 1)]
    meta[TOUCHED] ^= np.int64(brought)  # used for something, or the compiler leaves the loads out


@kernel
def candidates(
    table: HashTable,
    hashes: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    alive: Int,
    start: Int,
    found: NDArray[np.int64],
) -> tuple[Int, Int]:
    """List the committed ids that could be those of the rows from ``start`` on.

    Numbers below ``alive`` are certainly expired and not listed. Written is ``found``, int64[2, m]: rows of
    candidates, rising, and under which numbers they are remembered; m is larger than a row's most candidates.

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
        if count + hops * LINE > found.shape[1]:
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
                            found[0, count], found[1, count] = row, number
                            count += 1
            if gap > 0:
                break
    return hashes.shape[0], count


@kernel
def seek(table: HashTable, first: Int, number: Int) -> Int:
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
def place(table: HashTable, first: Int, number: Int) -> bool:
    """Put an id that is not there under a number; whether there was room (see ``meta[WANT]``)."""
    slots, directory, _, prefix, used, meta = table
    lines = meta[LINES]
    entry = tag_of(first, meta) | (np.uint64(number) & LOW)
    while True:
        segment, home = home_of(first, directory, meta)
        base = segment * lines * LINE
        room = used[segment] < full_of(prefix[segment], lines * LINE)
        if room and put_near(slots, base, home, lines, entry):
            used[segment] += 1
            meta[OCCUPIED] += 1
            return True
        meta[WANT] = relieve(table, segment)
        if meta[WANT] != NOTHING:
            return False


@kernel
def judge(
    table: HashTable,
    records: IdColumns,
    window: Int,
    refresh: bool,
    listed: Candidates,
    confirmed: CandidateRows,
    cursor: Int,
    start: Int,
    staged: StagedIds,
    judged: IdJudgement,
    prints: Fingerprints | None,
) -> tuple[Int, Int]:
    """Judge rows from ``start`` on, in order, and stage the ids that are remembered.

    Their candidates are those from ``cursor`` on. What is skipped stays as it is. Compiled with and without
    fingerprints.

    Returns:
        The row that there was no room for (``meta[WANT]`` says of what), or n; the first candidate not used.
    """
    slots, directory, _, prefix, used, meta = table
    hashes, _, skip, offset, reading, route = records
    rows, numbers = listed.row, listed.number
    found, owners, readings, printed = confirmed
    ours, info, more = staged
    verdict, owner, expires = judged
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
        now = reading[row]
        if (
            prints is not None
            and collisions.may_have(prints.variants, first)
            and collisions.judge(prints, row, first, second, window, now, offset[row], refresh, judged)
        ):
            continue
        best = np.int64(NONE)
        whose = np.int64(NONE)
        when = np.int64(0)
        what = np.uint64(0)
        while cursor < rows.size and rows[cursor] < row:
            cursor += 1
        for k in range(cursor, rows.size):
            if rows[k] != row:
                break
            if found[k, 0] == first and found[k, 1] == second and numbers[k] > best:
                best, whose, when = numbers[k], owners[k], readings[k]
                if prints is not None:
                    what = printed[k]
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
                        if ours[index, 0] == first and ours[index, 1] == second:
                            best, whose, when = number, info[index, OWNER], info[index, READING]
                            if prints is not None:
                                what = more[index, FINGERPRINT]
            if gap > 0:
                free = line + gap - 1
                wanted += np.uint64(hop)
                break
        known = best >= 0 and when + window > now
        if prints is not None and known and what != prints.own[row]:
            collisions.collide(prints, row, first, second, window, now, offset[row], whose, when, what, judged)
            continue
        if known and not (refresh and now > when):
            verdict[row], owner[row], expires[row] = 1, whose, when + window
            continue
        if not known:
            whose = offset[row]
        # Remembered: as it passes, or as it is renewed.
        if best >= begun:
            info[best - begun, OWNER] = whose
            info[best - begun, READING] = now
            if prints is not None:
                more[best - begun, FINGERPRINT] = prints.own[row]
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
            ours[index, 0], ours[index, 1] = first, second
            info[index, OWNER], info[index, READING], info[index, SUPERSEDES] = whose, now, best
            if route.size > 0:
                more[index, ROUTE] = route[row]
            if prints is not None:
                more[index, FINGERPRINT] = prints.own[row]
            meta[NEXT] = number + 1
        if known:
            verdict[row], owner[row], expires[row] = 1, whose, now + window
        else:
            verdict[row] = 0
    return hashes.shape[0], cursor


@kernel
def drop(table: HashTable, staged: StagedIds) -> None:
    """Forget the staged ids; what they replaced is there again."""
    slots, meta = table.slots, table.meta
    for index in range(meta[NEXT] - meta[STAGED] - 1, -1, -1):
        at = seek(table, staged.hash[index, 0], meta[STAGED] + index)
        if at >= 0:
            before = staged.info[index, SUPERSEDES]
            if before >= meta[FLOOR]:
                slots[at] = (slots[at] & ~LOW) | (np.uint64(before) & LOW)
            else:
                slots[at] = FREED
    meta[NEXT] = meta[STAGED]
