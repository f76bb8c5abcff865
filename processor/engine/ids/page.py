"""Lays out blocks and pages of ids; the kernels that write and read them.

A block is what one commit adds to the changelog, at most 24 bytes per id. It is a head and pages, and each page
is whole by itself: the local state keeps pages, so that looking one id up reads 4 KB. All integers are
big-endian::

    block | version u8 = 1 | pages u32 | ids u32 | first number u64 | clock i64 | crc u32 | page | page | ...

    page  | version u8 = 1 | ids u16 | width of owners u8 | of readings u8 | of supersedes u8
          | first number u64 | base of owners i64 | base of readings i64 | crc u32
          | hash 16 B per id | owner - base, each of its width | reading - base, likewise
          | number - supersedes, likewise; 0: it supersedes none |

An id's number is its page's first number plus its place in it. ``owner`` is the source offset of the record
that passed, ``reading`` the partition's clock when the id was last remembered, ``clock`` that after the
commit's last record. ``supersedes`` is the number of the earlier row that this one takes the place of; a column
of width 0, which is all of it without ``refresh``, takes no room and is all zeros. Bases are the least of the
whole block, so that all its pages have the same widths and all but the last the same number of ids.

A page's CRC-32C is over all of it but itself. The head's is over the key that the block stands under and the
head; the pages behind it say by their numbers whether one is missing.

Kernels return codes, see `processor.engine.ids.block.PageError`: 0 good, 1 cut, 2 version, 3 corrupt, 4 order.

Invariant: every kernel here checks every bound before it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.crc32c import crc32c
from processor.engine.bytes.loads import be64, get_be, put_be
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
BLOCK_BYTES = 29
PAGE_HEAD_BYTES = 34
MOST_PAGE_BYTES = 4096
"""A page: RocksDB reads 4 KB in 8 us and 120 KB in 60."""
HASH_BYTES = 16
NONE = -1


@inlined
def mask_of(width):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return which bits of 8 bytes are those of an integer of ``width`` bytes, 0 to 8."""
    return np.uint64(0) if width == 0 else np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * width)


@inlined
def ending(data, stop, mask):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read the big-endian integer that ends before ``stop``; in a page there are always 8 bytes before that."""
    return be64(data, stop - 8) & mask


@kernel
def _page_crc(data: NDArray[np.uint8], at: Int, stop: Int) -> Int:
    """The CRC stands last in the page's head."""
    crc = crc32c(data, at, PAGE_HEAD_BYTES - 4, np.uint64(0))
    return np.uint64(crc32c(data, at + PAGE_HEAD_BYTES, stop - at - PAGE_HEAD_BYTES, np.uint64(crc)))


@kernel
def encode(
    first: Int,
    hashes: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
    back: NDArray[np.int64],
    bases: NDArray[np.int64],
    widths: NDArray[np.int64],
    fitting: Int,
    key: NDArray[np.uint8],
    clock: Int,
    out: NDArray[np.uint8],
) -> None:
    """Write a block; ``back`` is the column supersedes, ``fitting`` how many ids go on a page."""
    rows = owner.size
    out[0] = 1
    at = put_be(out, 1, (rows + fitting - 1) // fitting, 4)
    at = put_be(out, at, rows, 4)
    at = put_be(out, at, first, 8)
    at = put_be(out, at, clock, 8)
    crc = crc32c(out, 0, at, np.uint64(crc32c(key, 0, key.size, np.uint64(0))))
    at = put_be(out, at, crc, 4)
    for start in range(0, rows, fitting):
        stop = min(start + fitting, rows)
        page = at
        out[at] = 1
        at = put_be(out, at + 1, stop - start, 2)
        for k in range(3):
            out[at + k] = np.uint8(widths[k])
        at = put_be(out, at + 3, first + start, 8)
        at = put_be(out, at, bases[0], 8)
        at = put_be(out, at, bases[1], 8)
        at += 4
        for row in range(start, stop):
            at = put_be(out, at, hashes[row, 0], 8)
            at = put_be(out, at, hashes[row, 1], 8)
        for row in range(start, stop):
            at = put_be(out, at, owner[row] - bases[0], widths[0])
        for row in range(start, stop):
            at = put_be(out, at, reading[row] - bases[1], widths[1])
        for row in range(start, stop):
            at = put_be(out, at, back[row], widths[2])
        put_be(out, page + PAGE_HEAD_BYTES - 4, _page_crc(out, page, at), 4)


@kernel
def open_head(data: NDArray[np.uint8], key: NDArray[np.uint8], head: NDArray[np.int64]) -> Int:
    """Read a block's head: pages, ids, first number, clock. Returns a `Wrong` code."""
    if data.size < BLOCK_BYTES:
        return 1
    if data[0] != VERSION:
        return 2
    crc = crc32c(data, 0, BLOCK_BYTES - 4, np.uint64(crc32c(key, 0, key.size, np.uint64(0))))
    if np.uint64(crc) != get_be(data, BLOCK_BYTES - 4, 4):
        return 3
    head[0] = np.int64(get_be(data, 1, 4))
    head[1] = np.int64(get_be(data, 5, 4))
    head[2] = np.int64(get_be(data, 9, 8))
    head[3] = np.int64(get_be(data, 17, 8))
    return 0


@kernel
def look_at(data: NDArray[np.uint8], at: Int, limit: Int, number: Int) -> tuple[Int, Int, Int]:
    """Look at the page at ``at``: its ids, the bytes of one, a `Wrong` code."""
    if limit - at < PAGE_HEAD_BYTES:
        return 0, 0, 1
    if data[at] != VERSION:
        return 0, 0, 2
    ids = np.int64(get_be(data, at + 1, 2))
    size = np.int64(HASH_BYTES)
    for k in range(3):
        if data[at + 3 + k] > 8:
            return 0, 0, 3
        size += np.int64(data[at + 3 + k])
    stop = at + PAGE_HEAD_BYTES + ids * size
    if stop > limit:
        return 0, 0, 1
    if np.uint64(_page_crc(data, at, stop)) != get_be(data, at + PAGE_HEAD_BYTES - 4, 4):
        return 0, 0, 3
    if np.int64(get_be(data, at + 6, 8)) != number or ids == 0:
        return 0, 0, 4
    return ids, size, 0


@inlined
def last_reading(data, at, ids):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the highest reading of a page that has been looked at."""
    reading_width = np.int64(data[at + 4])
    reading_mask = mask_of(reading_width)
    reading_at = at + PAGE_HEAD_BYTES + ids * (HASH_BYTES + np.int64(data[at + 3]))
    reading_most = np.uint64(0)
    for reading_k in range(ids):
        reading_most = max(
            reading_most, ending(data, reading_at + reading_width * (reading_k + 1), reading_mask)
        )
    return np.int64(get_be(data, at + 22, 8)) + np.int64(reading_most)


@kernel
def decode(
    data: NDArray[np.uint8],
    at: Int,
    first: Int,
    hashes: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
    supersedes: NDArray[np.int64],
    page_first: NDArray[np.int64],
    page_last: NDArray[np.int64],
    page_at: NDArray[np.int64],
) -> Int:
    """Read as many pages as ``page_first`` has places, to the end of the data. Returns a `Wrong` code."""
    rows = owner.size
    row: Int = 0
    for page in range(page_first.size):
        ids, size, wrong = look_at(data, at, data.size, first + row)
        if wrong != 0:
            return wrong
        if row + ids > rows:
            return 4
        page_first[page] = first + row
        page_at[page] = at
        widths = (np.int64(data[at + 3]), np.int64(data[at + 4]), np.int64(data[at + 5]))
        bases = (np.int64(get_be(data, at + 14, 8)), np.int64(get_be(data, at + 22, 8)))
        body = at + PAGE_HEAD_BYTES
        page_last[page] = last_reading(data, at, ids)
        masks = (mask_of(widths[0]), mask_of(widths[1]), mask_of(widths[2]))
        for k in range(ids):
            hashes[row + k, 0] = be64(data, body + 16 * k)
            hashes[row + k, 1] = be64(data, body + 16 * k + 8)
        body += 16 * ids
        for k in range(ids):
            owner[row + k] = bases[0] + np.int64(ending(data, body + widths[0] * (k + 1), masks[0]))
        body += widths[0] * ids
        for k in range(ids):
            reading[row + k] = bases[1] + np.int64(ending(data, body + widths[1] * (k + 1), masks[1]))
        body += widths[1] * ids
        for k in range(ids):
            back = np.int64(ending(data, body + widths[2] * (k + 1), masks[2]))
            supersedes[row + k] = NONE if back == 0 else first + row + k - back
        at += PAGE_HEAD_BYTES + ids * size
        row += ids
    page_at[page_first.size] = at
    if row != rows:
        return 4
    return 0 if at == data.size else 1


@kernel
def count_ids(
    data: NDArray[np.uint8], at: NDArray[np.int64], number: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[Int, Int]:
    """Write how many ids each page has. Returns the one that is not whole, and a `Wrong` code."""
    for page in range(number.size):
        count, size, wrong = look_at(data, at[page], at[page + 1], number[page])
        if wrong == 0 and at[page] + PAGE_HEAD_BYTES + count * size != at[page + 1]:
            wrong = 1
        if wrong != 0:
            return page, wrong
        ids[page] = count
    return 0, 0


@kernel
def confirm(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    first: NDArray[np.int64],
    which: NDArray[np.int64],
    row: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
) -> tuple[Int, Int]:
    """Read single rows. Returns the page that is wrong, and a `Wrong` code."""
    ids = np.zeros(first.size, np.int64)
    page, wrong = count_ids(data, at, first, ids)
    if wrong != 0:
        return page, wrong
    for k in range(row.size):
        page = which[k]
        here = at[page]
        if row[k] < 0 or row[k] >= ids[page]:
            return page, 4
        body = here + PAGE_HEAD_BYTES
        hashes[k, 0] = get_be(data, body + 16 * row[k], 8)
        hashes[k, 1] = get_be(data, body + 16 * row[k] + 8, 8)
        body += 16 * ids[page]
        width = np.int64(data[here + 3])
        owner[k] = np.int64(get_be(data, here + 14, 8)) + np.int64(get_be(data, body + width * row[k], width))
        body += width * ids[page]
        width = np.int64(data[here + 4])
        reading[k] = np.int64(get_be(data, here + 22, 8)) + np.int64(get_be(data, body + width * row[k], width))
    return 0, 0
