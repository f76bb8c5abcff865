"""Finds the number under which an id is remembered, with 64 bits per id.

Extendible hashing (Fagin and others, 1979) over one array. The directory says by the first bits of the hash in
which segment an id lies; a segment is a small open-addressing table of lines of 8 slots, a cache line each,
and when it is full it alone is split in two by the next bit of the hash. So growing costs about 30 us wherever
it happens, and nothing is ever moved but inside one segment. A slot is::

      63                36 35     32 31                 0
    | tag: first 28 bits  | hops u4 | number, low 32 bits |        0: empty;  1: free, but the chain goes on
    | of the hash, not 0  |         |                     |

An id's home line is told by the last bits of its hash's first word; where that is full it lies up to 15
lines further, which the hops say. So a segment can be split without looking any hash up, and 28 + 10 bits
tell ids apart: among 100 million ids 1 in 2,700 collides with another. That is no more than a hint: a hit is a
*candidate*, whose 128 bits have to be compared.

Numbers count the ids as they are remembered, so they are in the order of the clock, and an id is forgotten by
being below the floor: its slot is freed when its segment is full, or swept.

Invariant: a line has an empty slot only if no id lies beyond it that it was passed over for. Every function
here keeps that; a lookup ends at the first line with an empty slot. A kernel that lacks room changes nothing
for the row at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# `meta`, int64[META].
DEPTH, SEGMENTS, LINES, TAG_BITS, FLOOR, STAGED, NEXT, OCCUPIED, WANT, SPLITS, TOUCHED = range(11)
META = 11
# What `meta` says under WANT.
NOTHING, ARENA, DIRECTORY, IMPOSSIBLE = range(4)

LINE = 8
"""Slots of a line: 64 bytes."""
MOST_HOPS = 16
"""Lines that an id can lie in. At 0.8 each further one has half the ids of the one before: 8 are too few."""
MOST_DEPTH = 24
"""2^24 segments of 8,192 slots: far beyond the 2^32 numbers that a slot tells apart."""
FREED = np.uint64(1)
FULL = 0.8
"""Share of used slots from which on a segment is relieved: with 6.4 of 8 a line, one in four is full and a
lookup reads 1.4 lines."""
SPREAD = 0.1
"""Segments fill alike, so all would be full, and split, within one 50th of what they hold: 100 splits of 60 us
a chunk at 30 million ids. Each has a bound of its own, up to this much lower: a fifth as many coincide."""
KEPT = 0.1
"""A segment that has this much less living ids than it may is not split but freed of dead ones: the 819 until
it is looked at again make that 25 ns each. After a split it has 0.3 to 0.35: 27 B per id at most, where all
hover there at once."""
MERGED = 0.55
"""Two halves that have no more than this together become one: 29 B per id before, 14.5 B after."""

LOW = np.uint64(0xFFFFFFFF)
TAG_SHIFT = np.uint64(36)
HOP = np.uint64(1) << np.uint64(32)


class HashTable(NamedTuple):
    """What kernels work on; `processor.engine.ids.exact.index` owns the arrays and grows them.

    Attributes:
        slots: uint64[segments * lines * LINE].
        directory: uint32[2^depth], the segment of each prefix.
        depth: uint8[segments], how many first bits of the hash all ids of a segment share.
        prefix: uint32[segments], those bits.
        used: int32[segments], its slots that are not empty.
        meta: int64[META], counters.
    """

    slots: NDArray[np.uint64]
    directory: NDArray[np.uint32]
    depth: NDArray[np.uint8]
    prefix: NDArray[np.uint32]
    used: NDArray[np.int32]
    meta: NDArray[np.int64]


@inlined
def tag_of(first, meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return a hash's tag, at its place in a slot; fewer bits count for tests only."""
    cut = np.uint64(64 - meta[TAG_BITS])
    tag = (first >> cut) << (cut - TAG_SHIFT)
    return (tag | np.uint64(tag == np.uint64(0))) << TAG_SHIFT


@inlined
def number_of(slot, meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return a slot's number; of an id that is forgotten, any number that is not below ``meta[NEXT]``."""
    return meta[FLOOR] + np.int64((slot - np.uint64(meta[FLOOR])) & LOW)


@inlined
def living(slot, floor, span):  # type: ignore[no-untyped-def]  # inlined kernel
    """Whether a slot holds an id that is not forgotten; see `life_of`."""
    return (slot > FREED) & (((slot - floor) & LOW) < span)


@inlined
def life_of(meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the floor, and the span from there to the next number, as uint64."""
    return np.uint64(meta[FLOOR]), np.uint64(meta[NEXT] - meta[FLOOR])


@kernel
def count_living(table: HashTable, start: Int, stop: Int) -> Int:
    """Return how many slots from ``start`` to ``stop`` hold an id that is not forgotten."""
    slots = table.slots
    floor, span = life_of(table.meta)
    count: Int = np.int64(0)
    for k in range(start, stop):
        count += np.int64(living(slots[np.uint64(k)], floor, span))
    return count


@inlined
def home_of(first, directory, meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return an id's segment and home line in it."""
    segment = np.int64(directory[np.int64(first >> np.uint64(64 - meta[DEPTH]))])
    return segment, np.int64(first & np.uint64(meta[LINES] - 1))


@inlined
def full_of(prefix, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many slots of a segment may be used before it is relieved; evenly spread over prefixes."""
    spread = np.int64((np.uint64(prefix) * np.uint64(0x9E3779B1) >> np.uint64(16)) & np.uint64(255))
    return np.int64(FULL * size) - (np.int64(SPREAD * size) * spread >> 8)


@inlined
def glance(slots, line, wanted):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return, without branching, a slot of a line with these first 32 bits and an empty one, from 1; or 0."""
    glance_hit: Int = np.int64(0)
    glance_gap: Int = np.int64(0)
    for glance_k in range(LINE):
        glance_slot = slots[np.uint64(line) + np.uint64(glance_k)]
        if glance_slot >> np.uint64(32) == wanted:
            glance_hit = glance_k + 1
        if glance_slot == np.uint64(0):
            glance_gap = glance_k + 1
    return glance_hit, glance_gap


@kernel
def put_near(slots: NDArray[np.uint64], base: Int, home: Int, lines: Int, entry: Int) -> bool:
    """Put an entry without hops as near to its home as there is room, in the segment at ``base``."""
    for hop in range(min(lines, MOST_HOPS)):
        line = base + ((home + hop) & (lines - 1)) * LINE
        gap = glance(slots, line, np.uint64(0))[1]
        if gap > 0:
            slots[np.uint64(line + gap - 1)] = entry + np.uint64(hop) * HOP
            return True
    return False


@kernel
def relieve(table: HashTable, segment: Int) -> Int:
    """Make room in a segment: free it of dead ids, or split it. Returns what is lacking, else `NOTHING`."""
    slots, _, depth, prefix, used, meta = table
    size = meta[LINES] * LINE
    base = segment * size
    alive = count_living(table, base, base + size)
    if alive < used[segment] and alive <= full_of(prefix[segment], size) - np.int64(KEPT * size):
        purge(table, segment)
        return NOTHING
    if depth[segment] >= min(MOST_DEPTH, meta[TAG_BITS]):
        return IMPOSSIBLE
    if depth[segment] == meta[DEPTH]:
        return DIRECTORY
    if meta[SEGMENTS] == depth.size:
        return ARENA
    other = meta[SEGMENTS]
    meta[SEGMENTS] += 1
    meta[SPLITS] += 1
    deeper = np.int64(depth[segment]) + 1
    depth[segment] = depth[other] = np.uint8(deeper)
    prefix[other] = np.uint32(2 * np.int64(prefix[segment]) + 1)
    prefix[segment] = np.uint32(2 * np.int64(prefix[segment]))
    used[other] = 0
    point(table, other)
    # Everything stays in the line where it is, on one side or the other; `close_gaps` then does.
    bit = np.uint64(64 - deeper)
    there = other * size
    floor, span = life_of(meta)
    for k in range(size):
        slot = slots[np.uint64(base + k)]
        if not living(slot, floor, span):
            slot = np.uint64(0)
        right = slot if (slot >> bit) & np.uint64(1) != np.uint64(0) else np.uint64(0)
        slots[np.uint64(base + k)] = slot ^ right
        slots[np.uint64(there + k)] = right
    close_gaps(table, segment)
    close_gaps(table, other)
    return NOTHING


@kernel
def purge(table: HashTable, segment: Int) -> None:
    """Free a segment of dead ids."""
    slots, meta = table.slots, table.meta
    size = meta[LINES] * LINE
    floor, span = life_of(meta)
    for k in range(segment * size, (segment + 1) * size):
        if not living(slots[np.uint64(k)], floor, span):
            slots[np.uint64(k)] = np.uint64(0)
    close_gaps(table, segment)


@kernel
def close_gaps(table: HashTable, segment: Int) -> None:
    """Bring ids nearer to their home wherever there is room now, and count them.

    Ids that lie beyond a line with an empty slot would not be found. Each is moved into the first such
    line; every move takes away a hop, so this ends, and it cannot fail: what finds no place nearer stays.
    """
    slots, used, meta = table.slots, table.used, table.meta
    lines = meta[LINES]
    base = segment * lines * LINE
    moved = True
    while moved:
        moved = False
        for at in range(base, base + lines * LINE):
            slot = slots[np.uint64(at)]
            away = np.int64((slot >> np.uint64(32)) & np.uint64(15))
            for nearer in range(away):
                line = base + (((at - base) // LINE - away + nearer) & (lines - 1)) * LINE
                gap = glance(slots, line, np.uint64(0))[1]
                if gap > 0:
                    slots[np.uint64(line + gap - 1)] = slot - np.uint64(away - nearer) * HOP
                    slots[np.uint64(at)] = np.uint64(0)
                    moved = True
                    break
    count = np.int64(0)
    for k in range(base, base + lines * LINE):
        count += np.int64(slots[np.uint64(k)] != np.uint64(0))
    meta[OCCUPIED] += count - np.int64(used[segment])
    used[segment] = np.int32(count)


@kernel
def sweep(table: HashTable, start: Int, most: Int) -> Int:
    """Free ``most`` segments of dead ids, and join small halves; returns the next segment, 0 at the end."""
    _, directory, depth, prefix, used, meta = table
    size = meta[LINES] * LINE
    segment = start
    for _ in range(most):
        if segment >= meta[SEGMENTS]:
            return np.int64(0)
        if count_living(table, segment * size, (segment + 1) * size) < used[segment]:
            purge(table, segment)
        if depth[segment] > 1 and used[segment] <= np.int64(MERGED * size):
            step = np.int64(1) << (meta[DEPTH] - np.int64(depth[segment]))
            twin = np.int64(directory[(np.int64(prefix[segment]) ^ 1) * step])
            both = np.int64(used[segment]) + np.int64(used[twin])
            if depth[twin] == depth[segment] and both <= np.int64(MERGED * size):
                merge(table, segment, twin)
        segment += 1
    return segment


@kernel
def merge(table: HashTable, kept: Int, gone: Int) -> None:
    """Put two halves together again, unless chains get too long; the last segment takes the free place."""
    slots, _, depth, prefix, used, meta = table
    lines = meta[LINES]
    size = lines * LINE
    for at in range(gone * size, (gone + 1) * size):
        slot = slots[np.uint64(at)]
        if slot == np.uint64(0):
            continue
        away = np.int64((slot >> np.uint64(32)) & np.uint64(15))
        home = (at - gone * size) // LINE - away
        if not put_near(slots, kept * size, home, lines, slot - np.uint64(away) * HOP):
            # Nothing was taken from the other half: what came from it is told by its bit, and taken out again.
            bit = np.uint64(64 - np.int64(depth[kept]))
            side = np.uint64(np.int64(prefix[gone]) & 1)
            for k in range(kept * size, (kept + 1) * size):
                entry = slots[np.uint64(k)]
                if entry != np.uint64(0) and (entry >> bit) & np.uint64(1) == side:
                    slots[np.uint64(k)] = np.uint64(0)
            close_gaps(table, kept)
            return
    used[kept] += used[gone]
    depth[kept] -= np.uint8(1)
    prefix[kept] = np.uint32(np.int64(prefix[kept]) >> 1)
    point(table, kept)
    last = meta[SEGMENTS] - 1
    if gone != last:
        slots[gone * size : (gone + 1) * size] = slots[last * size : (last + 1) * size]
        depth[gone], prefix[gone], used[gone] = depth[last], prefix[last], used[last]
        point(table, gone)
    meta[SEGMENTS] = last


@kernel
def point(table: HashTable, segment: Int) -> None:
    """Let the directory lead to a segment wherever its prefix says."""
    directory, prefix = table.directory, np.int64(table.prefix[segment])
    step = np.int64(1) << (table.meta[DEPTH] - np.int64(table.depth[segment]))
    for k in range(prefix * step, (prefix + 1) * step):
        directory[k] = np.uint32(segment)
