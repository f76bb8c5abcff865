"""Finds scopes in an arena of words by a hash table, and appends new ones.

One arena of int64 words holds the scopes one after the other, as they came, and is never reordered::

    word 0              size of the scope in bytes (bits 0 to 31) | DIRTY | UNSAVED
    word 1              watermark
    word EPOCH          the epoch; only where the definition has one. Where epochs only differ, its hash,
                        in two words
    word LEFT           the pool's row, plus one, with epochs that were left, see
                        `processor.engine.watermark.left_epochs`; 0: none was
    word WINDOW         see `processor.engine.watermark.reorder_window`; only where W > 0
    words HEAD to       the scope's bytes, little-endian words, zeros behind the last
          HEAD + ceil(size / 8)

A hash table of uint64 slots (open addressing, linear probing, at most 70 % full) finds them: the upper 32
bits are of the scope's keyed hash (SipHash: nobody can choose keys that collide), the lower 32 the word where
it stands, plus one; 0 is an empty slot. A scope is found by its bytes, the hash only says where to look.
16-byte scopes take 32 bytes here and 11 to 23 in the slots.

Growing never stops the stream for long: the arena is moved by the kernel's page tables (realloc), and when
the slots are full a table of twice the size is begun, into which every record moves a few of the old slots.
Until all are moved, a scope is looked up in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.loads import get_le
from processor.engine.bytes.siphash import siphash
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# `meta`, int64[META]: what kernels count.
USED, COUNT, LIMIT, MOVED, DIRTIED, ROWS, FREED, WANT, TOUCHED, UNSAVED_COUNT = range(10)
META = 10
# `layout`, int64[6].
HEAD, EPOCH, LEFT, WINDOW, W, WRAPS = range(6)
# What `meta` says under WANT.
NOTHING, ARENA, SLOTS, POOL = range(4)

SIZE_MASK = 0xFFFFFFFF
DIRTY = 1 << 32
"""Changed since the last commit."""
UNSAVED = 1 << 33
"""Changed since it was last written locally."""

BLOCK = 256
"""Rows that are hashed and looked up ahead of being judged: loads of several rows wait for memory together, and
what they brought is still in the first-level cache when it is used (256 rows of 2 lines of 64 B: 32 KiB)."""
MOVES = 4
"""Old slots moved a record. The new table takes 0.7 * old more scopes before it is full; all old slots are
moved after old / 4 records."""


class ScopeArrays(NamedTuple):
    """What kernels work on; `processor.engine.watermark.scope_table` owns the arrays and grows them.

    Attributes:
        words: The arena, see above.
        slots: The hash table.
        old: The one before it; ``meta[MOVED]`` of its slots are moved.
        meta: Counters, see above.
        pool: uint64[rows, ...], for bitmaps, see `processor.engine.watermark.reorder_window`, and epochs that
            were left: as wide as the wider of them.
        free: int64[rows], pool rows that were given back.
        key: uint64[3]: the hash's key, and a mask of the 32 bits that are used.
        layout: int64[6]: HEAD, EPOCH, LEFT and WINDOW (0: none), W, WRAPS (0: numbers do not).
    """

    words: NDArray[np.int64]
    slots: NDArray[np.uint64]
    old: NDArray[np.uint64]
    meta: NDArray[np.int64]
    pool: NDArray[np.uint64]
    free: NDArray[np.int64]
    key: NDArray[np.uint64]
    layout: NDArray[np.int64]


@inlined
def hash32(data, at, size, key):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the 32 bits of a scope's hash that its slot keeps."""
    return siphash(data, at, size, key) & key[2]


@kernel
def move(slots: NDArray[np.uint64], old: NDArray[np.uint64], meta: NDArray[np.int64], most: Int) -> None:
    """Move up to ``most`` old slots into the new ones; the old ones stay readable until all are moved."""
    mask = slots.size - 1
    stop = min(np.int64(old.size), meta[MOVED] + most)
    for i in range(meta[MOVED], stop):
        slot = old[i]
        if slot != np.uint64(0):
            at = np.int64(slot >> np.uint64(32)) & mask
            while slots[at] != np.uint64(0):
                at = (at + 1) & mask
            slots[at] = slot
    meta[MOVED] = stop


@kernel
def seek(
    words: NDArray[np.int64],
    slots: NDArray[np.uint64],
    tag: Int,
    data: NDArray[np.uint8],
    at: Int,
    size: Int,
    head: Int,
) -> tuple[Int, Int]:
    """Look for the scope ``data[at:at + size]`` whose hash is ``tag``.

    Returns:
        Its word, or -1; the slot where it is, or would be put.
    """
    mask = slots.size - 1
    i = np.int64(tag) & mask
    while True:
        slot = slots[i]
        if slot == np.uint64(0):
            return -1, i
        if slot >> np.uint64(32) == np.uint64(tag):
            word = np.int64(slot & np.uint64(0xFFFFFFFF)) - 1
            if words[word] & SIZE_MASK == size:
                here = word + head
                whole = size >> 3
                same = True
                for k in range(whole):
                    if words[here + k] != np.int64(get_le(data, at + 8 * k, 8)):
                        same = False
                        break
                if same and size & 7:
                    same = words[here + whole] == np.int64(get_le(data, at + 8 * whole, size & 7))
                if same:
                    return word, i
        i = (i + 1) & mask


@kernel
def put(
    words: NDArray[np.int64],
    slots: NDArray[np.uint64],
    meta: NDArray[np.int64],
    slot: Int,
    tag: Int,
    data: NDArray[np.uint8],
    at: Int,
    size: Int,
    head: Int,
) -> Int:
    """Append a new scope; there is room (see `room`). Returns its word; word 1 to HEAD are the caller's."""
    word = meta[USED]
    words[word] = size
    whole = size >> 3
    for k in range(whole):
        words[word + head + k] = np.int64(get_le(data, at + 8 * k, 8))
    if size & 7:
        words[word + head + whole] = np.int64(get_le(data, at + 8 * whole, size & 7))
    slots[slot] = (np.uint64(tag) << np.uint64(32)) | np.uint64(word + 1)
    meta[USED] = word + head + ((size + 7) >> 3)
    meta[COUNT] += 1
    return word


@inlined
def room(words, meta, head, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """What is lacking for one more scope: `NOTHING`, `ARENA` or `SLOTS`."""
    if meta[COUNT] >= meta[LIMIT]:
        lacking = SLOTS
    elif meta[USED] + head + ((size + 7) >> 3) > words.size:
        lacking = ARENA
    else:
        lacking = NOTHING
    return lacking


@inlined
def rows_free(pool, meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many more rows can be taken of the pool."""
    return meta[FREED] + pool.shape[0] - meta[ROWS]


@inlined
def take_row(meta, free):  # type: ignore[no-untyped-def]  # inlined kernel
    """Take one; there is one."""
    if meta[FREED] > 0:
        meta[FREED] -= 1
        taken = np.int64(free[meta[FREED]])
    else:
        taken = meta[ROWS]
        meta[ROWS] += 1
    return taken


@inlined
def give_row(meta, free, state):  # type: ignore[no-untyped-def]  # inlined kernel
    """Give back the row that a window's `state` names."""
    free[meta[FREED]] = -state - 1
    meta[FREED] += 1


@inlined
def stain(words, meta, dirty, word):  # type: ignore[no-untyped-def]  # inlined kernel
    """Note once that a scope has changed since the last commit."""
    if words[word] & DIRTY == 0:
        words[word] |= DIRTY
        dirty[meta[DIRTIED]] = np.uint32(word)
        meta[DIRTIED] += 1


@kernel
def touch(
    words: NDArray[np.int64],
    slots: NDArray[np.uint64],
    meta: NDArray[np.int64],
    tags: NDArray[np.uint64],
    count: Int,
) -> None:
    """Bring the slots and scopes that ``tags`` point to into the cache, many at a time."""
    mask = slots.size - 1
    brought = np.int64(0)
    for k in range(count):
        brought ^= np.int64(slots[np.int64(tags[k]) & mask])
    for k in range(count):
        slot = slots[np.int64(tags[k]) & mask]
        if slot != np.uint64(0):
            brought ^= words[np.int64(slot & np.uint64(0xFFFFFFFF)) - 1]
    meta[TOUCHED] ^= brought  # used for something, or the compiler leaves the loads out
