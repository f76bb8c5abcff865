"""In mode ``watermark`` with many scopes: is this record's sequence new in its scope?

The rules of the contract, a scope being a key, a header's value or the whole partition: the first record of a
scope passes; a higher epoch starts the scope anew, a lower one is late; then a sequence above the watermark
passes, an equal one is a duplicate, and of the W numbers below those seen are duplicates and the others pass;
what is lower still is late. A record that cannot be judged changes nothing.

One arena of int64 words holds the scopes one after the other, as they came, and is never reordered::

    word 0              size of the scope in bytes (bits 0 to 31) | DIRTY | UNSAVED
    word 1              watermark
    word EPOCH          the epoch; only where the definition has one
    word WINDOW         see `processor.engine.watermark.reorder_window`; only where W > 0
    words HEAD to       the scope's bytes, little-endian words, zeros behind the last
          HEAD + ceil(size / 8)

A hash table of uint64 slots (open addressing, linear probing, at most 70 % full) finds them: the upper 32
bits are of the scope's keyed hash (SipHash: keys that meet cannot be chosen), the lower 32 the word where it
stands, plus one; 0 is an empty slot. A scope is found by its bytes, the hash only says where to look. 16-byte
scopes take 32 bytes here and 11 to 23 in the slots.

Growing never stops the stream for long: the arena is moved by the kernel's page tables (realloc), and when
the slots are full a table of twice the size is begun, into which every record moves a few of the old slots.
Until all are moved, a scope is looked up in both.

Invariant: a kernel that lacks room changes nothing for the record at hand and returns its row; the caller makes
room and calls again from there. Staged and committed state are one: who cannot commit drops all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import le64, le_tail, siphash
from processor.engine.jit import Int, inlined, kernel
from processor.engine.watermark.reorder_window import advance, holds, remember, unfold

if TYPE_CHECKING:
    from numpy.typing import NDArray

# `meta`, int64[META]: what kernels count.
USED, COUNT, LIMIT, MOVED, DIRTIED, ROWS, FREED, WANT, TOUCHED, UNSAVED_COUNT = range(10)
META = 10
# `layout`, int64[4].
HEAD, EPOCH, WINDOW, W = range(4)
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


@inlined
def _hash32(data, at, size, key):  # type: ignore[no-untyped-def]  # inlined kernel
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
                    if words[here + k] != np.int64(le64(data, at + 8 * k)):
                        same = False
                        break
                if same and size & 7:
                    same = words[here + whole] == np.int64(le_tail(data, at + 8 * whole, size & 7))
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
        words[word + head + k] = np.int64(le64(data, at + 8 * k))
    if size & 7:
        words[word + head + whole] = np.int64(le_tail(data, at + 8 * whole, size & 7))
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
def row_free(pool, meta):  # type: ignore[no-untyped-def]  # inlined kernel
    """Whether the pool has a row for one more bitmap."""
    return meta[FREED] > 0 or meta[ROWS] < pool.shape[0]


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


@kernel
def judge_scopes(
    words: NDArray[np.int64],
    slots: NDArray[np.uint64],
    old: NDArray[np.uint64],
    meta: NDArray[np.int64],
    dirty: NDArray[np.uint32],
    pool: NDArray[np.uint64],
    free: NDArray[np.int64],
    key: NDArray[np.uint64],
    layout: NDArray[np.int64],
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
    sequence: NDArray[np.int64],
    epoch: NDArray[np.int64],
    fault: NDArray[np.uint8],
    start: Int,
    verdict: NDArray[np.uint8],
    known: NDArray[np.bool_],
    watermark: NDArray[np.int64],
    before_epoch: NDArray[np.int64],
) -> Int:
    """Judge rows from ``start`` on, in order.

    Args:
        words: The arena, see above.
        slots: The hash table.
        old: The one before it; ``meta[MOVED]`` of its slots are moved.
        meta: Counters, see above.
        dirty: uint32[m], words of scopes changed since the last commit; m leaves a place a row.
        pool: uint64[rows, ...], bitmaps, see `processor.engine.watermark.reorder_window`.
        free: int64[rows], pool rows that were given back.
        key: uint64[3]: the hash's key, and a mask of the 32 bits that are used.
        layout: int64[4]: HEAD, EPOCH and WINDOW (0: none), W.
        data: uint8[m], where scopes stand.
        at: int64[n], where each record's scope begins.
        size: int64[n], its bytes.
        sequence: int64[n].
        epoch: int64[n]; not read without EPOCH.
        fault: uint8[n], `Fault` codes.
        start: First row.
        verdict: uint8[n], written.
        known: bool[n], written: whether there was a watermark before the record.
        watermark: int64[n], written: as it stood before the record, else 0.
        before_epoch: int64[n], written: likewise.

    Returns:
        The row that there was no room for (``meta[WANT]`` says of what), or n.
    """
    head, epoch_at, window_at, window = layout[HEAD], layout[EPOCH], layout[WINDOW], np.uint64(layout[W])
    tags = np.empty(BLOCK, np.uint64)
    rows = sequence.size
    meta[WANT] = NOTHING
    hashed = blocked = start
    for row in range(start, rows):
        if row == hashed:
            blocked = row
            hashed = min(row + BLOCK, rows)
            for k in range(row, hashed):
                tags[k - row] = np.uint64(0) if fault[k] != 0 else _hash32(data, at[k], size[k], key)
            touch(words, slots, meta, tags, hashed - row)
        known[row] = False
        watermark[row] = 0
        before_epoch[row] = 0
        if fault[row] != 0:
            verdict[row] = 3
            continue
        tag = np.uint64(tags[row - blocked])
        word, slot = seek(words, slots, tag, data, at[row], size[row], head)
        if word < 0 and meta[MOVED] < old.size:
            word = seek(words, old, tag, data, at[row], size[row], head)[0]
        number = sequence[row]
        if word < 0:
            lacking = room(words, meta, head, size[row])
            if lacking != NOTHING:
                meta[WANT] = lacking
                return row
            word = put(words, slots, meta, slot, tag, data, at[row], size[row], head)
            words[word + 1] = number
            if epoch_at > 0:
                words[word + epoch_at] = epoch[row]
            if window_at > 0:
                words[word + window_at] = 0
            verdict[row] = 0
            stain(words, meta, dirty, word)
            continue
        mark = words[word + 1]
        known[row] = True
        watermark[row] = mark
        if epoch_at > 0:
            held = words[word + epoch_at]
            before_epoch[row] = held
            if epoch[row] != held:
                if epoch[row] < held:
                    verdict[row] = 2
                    continue
                words[word + 1] = number
                words[word + epoch_at] = epoch[row]
                if window_at > 0:
                    if words[word + window_at] < 0:
                        give_row(meta, free, words[word + window_at])
                    words[word + window_at] = 0
                verdict[row] = 0
                stain(words, meta, dirty, word)
                continue
        if number == mark:
            verdict[row] = 1
            continue
        if number > mark:
            if window_at > 0:
                distance = np.uint64(number) - np.uint64(mark)
                state = words[word + window_at]
                if distance > window:
                    if state < 0:
                        give_row(meta, free, state)
                    words[word + window_at] = 0
                elif state >= 0 and distance == np.uint64(1):
                    words[word + window_at] = min(state + 1, np.int64(window))
                else:
                    if state >= 0:
                        if not row_free(pool, meta):
                            meta[WANT] = POOL
                            return row
                        taken = take_row(meta, free)
                        unfold(pool[taken], np.uint64(mark), state)
                        state = -taken - 1
                        words[word + window_at] = state
                    if advance(pool[-state - 1], np.uint64(mark), np.int64(distance), np.int64(window)):
                        give_row(meta, free, state)
                        words[word + window_at] = np.int64(window)
            words[word + 1] = number
            verdict[row] = 0
            stain(words, meta, dirty, word)
            continue
        distance = np.uint64(mark) - np.uint64(number)
        if distance > window:
            verdict[row] = 2
            continue
        state = words[word + window_at]
        if state >= 0:
            below = np.int64(distance)
            if below <= state:
                verdict[row] = 1
                continue
            if below == state + 1:
                words[word + window_at] = below
            else:
                if not row_free(pool, meta):
                    meta[WANT] = POOL
                    return row
                taken = take_row(meta, free)
                unfold(pool[taken], np.uint64(mark), state)
                remember(pool[taken], np.uint64(mark), below)
                words[word + window_at] = -taken - 1
        else:
            if holds(pool[-state - 1], np.uint64(number)):
                verdict[row] = 1
                continue
            remember(pool[-state - 1], np.uint64(mark), np.int64(distance))
        verdict[row] = 0
        stain(words, meta, dirty, word)
    return rows


@kernel
def settle(
    words: NDArray[np.int64], meta: NDArray[np.int64], dirty: NDArray[np.uint32], unsaved: NDArray[np.uint32]
) -> None:
    """Take the dirty scopes as committed: each is once among the ``unsaved``, which have room."""
    for k in range(meta[DIRTIED]):
        word = np.int64(dirty[k])
        if words[word] & UNSAVED == 0:
            words[word] |= UNSAVED
            unsaved[meta[UNSAVED_COUNT]] = np.uint32(word)
            meta[UNSAVED_COUNT] += 1
        words[word] &= ~DIRTY
    meta[DIRTIED] = 0


@kernel
def saved(words: NDArray[np.int64], meta: NDArray[np.int64], unsaved: NDArray[np.uint32]) -> None:
    """Take the unsaved scopes as written locally."""
    for k in range(meta[UNSAVED_COUNT]):
        words[np.int64(unsaved[k])] &= ~UNSAVED
    meta[UNSAVED_COUNT] = 0


@kernel
def sweep(
    words: NDArray[np.int64], start: Int, stop: Int, head: Int, out: NDArray[np.uint32]
) -> tuple[Int, Int]:
    """List scopes from word ``start`` on, below ``stop``, until ``out`` is full.

    Returns:
        How many; the word after them.
    """
    word = start
    count = 0
    while word < stop and count < out.size:
        out[count] = np.uint32(word)
        count += 1
        word += head + (((words[word] & SIZE_MASK) + 7) >> 3)
    return count, word
