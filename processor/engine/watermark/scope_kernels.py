"""Judges sequences in many scopes (mode ``watermark``), and notes which scopes have changed.

The rules of the contract, a scope being a key, a header's value or the whole partition: the first record of a
scope passes; a higher epoch starts the scope again, a lower one is late (where epochs only differ, another one
starts it, of those that it left the last are late); then a sequence above the watermark passes, an equal one
is a duplicate, and of the W numbers below those seen are duplicates and the others pass; what is lower still is
late. A record that cannot be judged changes nothing. Where numbers wrap, "above" is what
`processor.engine.watermark.serial_numbers` says.

The scopes lie in `processor.engine.watermark.scope_arrays`.

Invariant: a kernel that lacks room changes nothing for the record at hand and returns its row; the caller makes
room and calls again from there. Staged and committed state are one: who cannot commit drops all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel
from processor.engine.watermark.left_epochs import leave, was_left
from processor.engine.watermark.reorder_window import (
    advance,
    holds,
    remember,
    ring_bits,
    turn,
    unfold,
)
from processor.engine.watermark.scope_arrays import (
    BLOCK,
    DIRTIED,
    DIRTY,
    EPOCH,
    HEAD,
    LEFT,
    MOVED,
    NOTHING,
    POOL,
    SIZE_MASK,
    UNSAVED,
    UNSAVED_COUNT,
    WANT,
    WINDOW,
    WRAPS,
    ScopeArrays,
    W,
    give_row,
    hash32,
    put,
    room,
    rows_free,
    seek,
    stain,
    take_row,
    touch,
)
from processor.engine.watermark.serial_numbers import is_later

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def judge_scopes(
    scopes: ScopeArrays,
    dirty: NDArray[np.uint32],
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
    tag_of: NDArray[np.uint32],
) -> Int:
    """Judge rows from ``start`` on, in order.

    Args:
        scopes: All of them.
        dirty: uint32[m], words of scopes changed since the last commit; m leaves a place per row.
        data: uint8[m], where scopes stand.
        at: int64[n], where each record's scope begins.
        size: int64[n], its bytes.
        sequence: int64[n].
        epoch: int64[n, 1]; with LEFT int64[n, 2], hashes; not read without EPOCH.
        fault: uint8[n], `Fault` codes.
        start: First row.
        verdict: uint8[n], written.
        known: bool[n], written: whether there was a watermark before the record.
        watermark: int64[n], written: as it stood before the record, else 0.
        before_epoch: int64[n], written: likewise; of a hash the first word.
        tag_of: uint32[n], written: the hash of the record's scope, 0 where it is not judged.

    Returns:
        The row that there was no room for (``meta[WANT]`` says of what), or n.
    """
    words, slots, old, meta, pool, free, key, layout = scopes
    head, epoch_at, left_at, window_at = layout[HEAD], layout[EPOCH], layout[LEFT], layout[WINDOW]
    window, wraps, ring = np.uint64(layout[W]), layout[WRAPS], 1 + ring_bits(layout[W]) // 64
    tags = np.empty(BLOCK, np.uint64)
    rows = sequence.size
    meta[WANT] = NOTHING
    hashed = blocked = start
    for row in range(start, rows):
        if row == hashed:
            blocked = row
            hashed = min(row + BLOCK, rows)
            for k in range(row, hashed):
                tags[k - row] = np.uint64(0) if fault[k] != 0 else hash32(data, at[k], size[k], key)
            touch(words, slots, meta, tags, hashed - row)
        known[row] = False
        watermark[row] = 0
        before_epoch[row] = 0
        tag_of[row] = 0
        if fault[row] != 0:
            verdict[row] = 3
            continue
        tag = np.uint64(tags[row - blocked])
        tag_of[row] = np.uint32(tag)
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
                words[word + epoch_at] = epoch[row, 0]
            if left_at > 0:
                words[word + epoch_at + 1] = epoch[row, 1]
                words[word + left_at] = 0
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
            own = epoch[row, 0]
            if own != held or (left_at > 0 and epoch[row, 1] != words[word + epoch_at + 1]):
                if left_at == 0:
                    late = own < held
                else:
                    taken = words[word + left_at] - 1
                    late = taken >= 0 and was_left(pool[taken], own, epoch[row, 1])
                if late:
                    verdict[row] = 2
                    continue
                if left_at > 0:
                    if taken < 0:
                        if rows_free(pool, meta) == 0:
                            meta[WANT] = POOL
                            return row
                        taken = take_row(meta, free)
                        pool[taken, 0] = np.uint64(0)
                        words[word + left_at] = taken + 1
                    leave(pool[taken], held, words[word + epoch_at + 1])
                    words[word + epoch_at + 1] = epoch[row, 1]
                words[word + 1] = number
                words[word + epoch_at] = own
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
        later = is_later(number, mark, wraps)
        distance = np.uint64(number) - np.uint64(mark) if later else np.uint64(mark) - np.uint64(number)
        if later != (number > mark):
            distance += np.uint64(wraps)
        if later:
            if window_at > 0:
                state = words[word + window_at]
                if distance > window:
                    if state < 0:
                        give_row(meta, free, state)
                    words[word + window_at] = 0
                elif state >= 0 and distance == np.uint64(1):
                    words[word + window_at] = min(state + 1, np.int64(window))
                else:
                    if state >= 0:
                        if rows_free(pool, meta) == 0:
                            meta[WANT] = POOL
                            return row
                        taken = take_row(meta, free)
                        unfold(pool[taken, :ring], np.uint64(mark), state)
                        state = -taken - 1
                        words[word + window_at] = state
                    if advance(pool[-state - 1, :ring], np.uint64(mark), np.int64(distance), np.int64(window)):
                        give_row(meta, free, state)
                        words[word + window_at] = np.int64(window)
                    elif number < mark:
                        turn(pool[-state - 1, :ring], wraps)
            words[word + 1] = number
            verdict[row] = 0
            stain(words, meta, dirty, word)
            continue
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
                if rows_free(pool, meta) == 0:
                    meta[WANT] = POOL
                    return row
                taken = take_row(meta, free)
                unfold(pool[taken, :ring], np.uint64(mark), state)
                remember(pool[taken, :ring], np.uint64(mark), below)
                words[word + window_at] = -taken - 1
        else:
            if holds(pool[-state - 1, :ring], np.uint64(mark) - distance):
                verdict[row] = 1
                continue
            remember(pool[-state - 1, :ring], np.uint64(mark), np.int64(distance))
        verdict[row] = 0
        stain(words, meta, dirty, word)
    return rows


@kernel
def commit(
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
