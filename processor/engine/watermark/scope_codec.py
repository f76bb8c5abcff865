"""Writes scopes as records of a changelog, and reads them again.

The layout is drawn in `schemas.changelog.watermark`; here the same is written and
read by the hundred thousand. Records are whole Kafka records (see `processor.engine.batch.columns`), one behind
the other: the payload of a batch, and, sealed, of a local block.

Invariant: every value is read only if its CRC-32C over key and value is right, and taken only if it has
exactly what the table keeps: no epoch is invented and none forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.crc32c import crc32c
from processor.engine.bytes.loads import get_be, put_be
from processor.engine.bytes.varints import put_bytes, put_varint, varint_bytes
from processor.engine.jit import Int, kernel
from processor.engine.verdict import Complaint
from processor.engine.watermark.left_epochs import MOST_LEFT
from processor.engine.watermark.reorder_window import ring_bits
from processor.engine.watermark.scope_arrays import (
    BLOCK,
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
    W,
    give_row,
    hash32,
    put,
    room,
    rows_free,
    seek,
    take_row,
    touch,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable
    from processor.engine.watermark.scope_arrays import ScopeArrays

KIND = 87  # "W"
WITH_EPOCH, WITH_RUN, WITH_BITMAP, WITH_LEFT = 1, 2, 4, 8
HASH_BYTES = 16
FIXED_BYTES = 10
"""Version, flags, sequence: what every value begins with."""
CRC_BYTES = 4
VERSION = 1


class Unreadable(Complaint):
    """Why `apply` stopped at a record."""

    NOTHING = 0, "nothing is wrong"
    CORRUPT = 1, "it is cut or fails its checksum"
    VERSION = 2, "it has a version or flags that this Seqmark does not know"
    FOREIGN = 3, "it was written under another epoch or reorder_window"
    TOMBSTONE = 4, "it is a tombstone, which this Seqmark never writes"


@kernel
def encode_scopes(
    words: NDArray[np.int64],
    raw: NDArray[np.uint8],
    pool: NDArray[np.uint64],
    layout: NDArray[np.int64],
    which: NDArray[np.uint32],
    start: Int,
    out: NDArray[np.uint8],
) -> tuple[Int, Int]:
    """Write scopes as records of one batch, with offset deltas 0, 1, 2 and so on and timestamp delta 0.

    Args:
        words: The arena of `processor.engine.watermark.scope_arrays`.
        raw: The same memory as bytes.
        pool: Bitmaps.
        layout: Where what stands, see there.
        which: uint32[n], words of the scopes.
        start: Index of the first one in ``which``.
        out: uint8[m]; writing ends before it overflows.

    Returns:
        Bytes written; index of the next scope in ``which`` (``start``: not even one fits).
    """
    head, epoch_at, left_at, window_at = layout[HEAD], layout[EPOCH], layout[LEFT], layout[WINDOW]
    ring = ring_bits(layout[W]) // 64
    used = np.int64(0)
    index = start
    while index < which.size:
        word = np.int64(which[index])
        size = words[word] & SIZE_MASK
        flags = 0
        length = np.int64(FIXED_BYTES + CRC_BYTES)
        left = np.int64(0)
        if left_at > 0:
            flags |= WITH_LEFT
            if words[word + left_at] > 0:
                left = np.int64(pool[words[word + left_at] - 1, 0])
            length += HASH_BYTES * (1 + left) + 1
        elif epoch_at > 0:
            flags |= WITH_EPOCH
            length += 8
        state = np.int64(0)
        if window_at > 0:
            state = words[word + window_at]
            length += 4
            if state >= 0:
                flags |= WITH_RUN
            else:
                flags |= WITH_BITMAP
                length += 8 * ring
        delta = np.int64(index - start)
        # Attributes, timestamp delta, the kind in front of the scope, header count: a byte each.
        body = 4 + varint_bytes(delta) + varint_bytes(size + 1) + size + varint_bytes(length) + length
        if used + varint_bytes(body) + body > out.size:
            break
        at = put_varint(out, used, body)
        out[at] = 0
        out[at + 1] = 0
        at = put_varint(out, at + 2, delta)
        at = put_varint(out, at, size + 1)
        named = at
        out[at] = KIND
        at += 1
        origin = (word + head) * 8
        at = put_varint(out, put_bytes(out, at, raw, origin, size), length)
        content = at
        out[at] = VERSION
        out[at + 1] = flags
        at = put_be(out, at + 2, np.uint64(words[word + 1]), 8)
        if epoch_at > 0:
            at = put_be(out, at, np.uint64(words[word + epoch_at]), 8)
        if left_at > 0:
            at = put_be(out, at, np.uint64(words[word + epoch_at + 1]), 8)
            out[at] = np.uint8(left)
            at += 1
            for k in range(2 * left):
                at = put_be(out, at, pool[words[word + left_at] - 1, 1 + k], 8)
        if window_at > 0:
            if state >= 0:
                at = put_be(out, at, np.uint64(state), 4)
            else:
                at = put_be(out, at, np.uint64(layout[W]), 4)
                for k in range(1, 1 + ring):
                    at = put_be(out, at, pool[-state - 1, k], 8)
        crc = np.uint64(crc32c(out, named, size + 1, np.uint64(0)))
        crc = np.uint64(crc32c(out, content, at - content, crc))
        at = put_be(out, at, crc, 4)
        out[at] = 0
        used = at + 1
        index += 1
    return used, index


@kernel
def check_value(
    data: NDArray[np.uint8],
    key: Int,
    key_size: Int,
    value: Int,
    length: Int,
    layout: NDArray[np.int64],
    checked: bool,
) -> Int:
    """Return an `Unreadable` code of one record of the kind; ``checked``: its checksum needs no look."""
    if length < 0:
        return 4
    if length < FIXED_BYTES + CRC_BYTES:
        return 1
    if not checked:
        crc = np.uint64(crc32c(data, key, key_size, np.uint64(0)))
        crc = np.uint64(crc32c(data, value, length - CRC_BYTES, crc))
        if crc != get_be(data, value + length - CRC_BYTES, 4):
            return 1
    version, flags = np.int64(data[value]), np.int64(data[value + 1])
    known = WITH_EPOCH | WITH_RUN | WITH_BITMAP | WITH_LEFT
    if version != VERSION or flags & ~known:
        return 2
    windowed = flags & (WITH_RUN | WITH_BITMAP)
    # Not the same as "not whole": another definition's state is as it should be, elsewhere.
    epochs = flags & (WITH_EPOCH | WITH_LEFT)
    if (windowed != 0) != (layout[WINDOW] > 0) or epochs != (
        WITH_LEFT if layout[LEFT] > 0 else WITH_EPOCH if layout[EPOCH] > 0 else 0
    ):
        return 3
    before: Int = FIXED_BYTES + (8 if flags & WITH_EPOCH else 0)
    if flags & WITH_LEFT:
        before += HASH_BYTES
        left = np.int64(data[value + before]) if length > before + CRC_BYTES else np.int64(MOST_LEFT + 1)
        if left > MOST_LEFT:
            return 1
        before += 1 + HASH_BYTES * left
    expected: Int = before + CRC_BYTES + (4 if windowed else 0)
    if windowed and length >= expected:
        number = np.int64(get_be(data, value + before, 4))
        if windowed == WITH_RUN:
            if number > layout[W]:
                return 3
        elif windowed == WITH_BITMAP:
            if number != layout[W]:
                return 3
            expected += ring_bits(number) // 8
        else:
            return 2
    return 0 if length == expected else 1


@kernel
def apply(
    scopes: ScopeArrays,
    unsaved: NDArray[np.uint32],
    data: NDArray[np.uint8],
    table: RecordTable,
    start: Int,
    track: bool,
    other: NDArray[np.bool_],
) -> tuple[Int, Int]:
    """Take scopes over from records; the last of a scope counts.

    Args:
        scopes: All of them.
        unsaved: uint32[m]; with ``track`` m leaves a place per row.
        data: uint8[m], where the records are.
        table: Their columns.
        start: First row.
        track: Whether what is taken is unsaved. If not, it comes from blocks whose checksum is right.
        other: bool[n], written: keys of another kind, which are left out.

    Returns:
        The row that it stopped at, or n; an `Unreadable` code (0 and a row below n: see ``meta[WANT]``).
    """
    words, slots, old, meta, pool, free, key, layout = scopes
    names, name_sizes, values, lengths = table.key, table.key_length, table.value, table.value_length
    head, epoch_at, left_at, window_at = layout[HEAD], layout[EPOCH], layout[LEFT], layout[WINDOW]
    ring = ring_bits(layout[W]) // 64
    tags = np.empty(BLOCK, np.uint64)
    rows = names.size
    meta[WANT] = NOTHING
    hashed = blocked = start
    for row in range(start, rows):
        if row == hashed:
            blocked = row
            hashed = min(row + BLOCK, rows)
            for k in range(row, hashed):
                other[k] = name_sizes[k] < 1 or data[names[k]] != KIND
                tags[k - row] = np.uint64(0) if other[k] else hash32(data, names[k] + 1, name_sizes[k] - 1, key)
            touch(words, slots, meta, tags, hashed - row)
        if other[row]:
            continue
        value = values[row]
        wrong = check_value(data, names[row], name_sizes[row], value, lengths[row], layout, not track)
        if wrong != 0:
            return row, wrong
        bitmap = window_at > 0 and np.int64(data[value + 1]) & WITH_BITMAP != 0
        left = np.int64(data[value + FIXED_BYTES + HASH_BYTES]) if left_at > 0 else np.int64(0)
        if rows_free(pool, meta) < np.int64(bitmap) + np.int64(left > 0):
            meta[WANT] = POOL
            return row, 0
        at, size = names[row] + 1, name_sizes[row] - 1
        tag = np.uint64(tags[row - blocked])
        word, slot = seek(words, slots, tag, data, at, size, head)
        if word < 0 and meta[MOVED] < old.size:
            word = seek(words, old, tag, data, at, size, head)[0]
        if word < 0:
            lacking = room(words, meta, head, size)
            if lacking != NOTHING:
                meta[WANT] = lacking
                return row, 0
            word = put(words, slots, meta, slot, tag, data, at, size, head)
            for k in range(2, head):
                words[word + k] = 0
        words[word + 1] = np.int64(get_be(data, value + 2, 8))
        behind = value + FIXED_BYTES
        if epoch_at > 0:
            words[word + epoch_at] = np.int64(get_be(data, behind, 8))
            behind += 8
        if left_at > 0:
            words[word + epoch_at + 1] = np.int64(get_be(data, behind, 8))
            behind += 9
            if left > 0:
                if words[word + left_at] == 0:
                    words[word + left_at] = take_row(meta, free) + 1
                taken = words[word + left_at] - 1
                pool[taken, 0] = np.uint64(left)
                for k in range(2 * left):
                    pool[taken, 1 + k] = get_be(data, behind + 8 * k, 8)
                behind += HASH_BYTES * left
        if window_at > 0:
            state = words[word + window_at]
            if state < 0:
                give_row(meta, free, state)
            if bitmap:
                taken = take_row(meta, free)
                pool[taken, 0] = np.uint64(0)
                for k in range(1, 1 + ring):
                    pool[taken, k] = get_be(data, behind + 4 + 8 * (k - 1), 8)
                words[word + window_at] = -taken - 1
            else:
                words[word + window_at] = np.int64(get_be(data, behind, 4))
        if track and words[word] & UNSAVED == 0:
            words[word] |= UNSAVED
            unsaved[meta[UNSAVED_COUNT]] = np.uint32(word)
            meta[UNSAVED_COUNT] += 1
    return rows, 0
