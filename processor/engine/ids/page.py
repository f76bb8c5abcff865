"""Lays out blocks and pages of ids; the kernels that write and read them.

A block is what one commit adds to the changelog, at most 24 bytes per id. It is a head and pages, and each page
is whole by itself: the local state keeps pages, so that looking one id up reads 4 KB. All integers are
big-endian::

    block | version u8 = 1 | pages u32 | ids u32 | first number u64 | clock i64 | crc u32 | page | page | ...

    page  | version u8 = 1 | ids u16 | width of owners u8 | of readings u8 | of supersedes u8
          | first number u64 | base of owners i64 | base of readings i64 | more u8 | crc u32
          | hash 16 B per id | owner - base, each of its width | reading - base, likewise
          | number - supersedes, likewise; 0: it supersedes none
          | fingerprint u64 per id, if it has them | route word u16 per id, if it has them |

    more  | 1: it has fingerprints | 2: its rows are collisions | 4: it has route words |

An id's number is its page's first number plus its place in it. ``owner`` is the source offset of the record
that passed, ``reading`` the partition's clock when the id was last remembered, ``clock`` that after the
commit's last record. ``supersedes`` is the number of the earlier row that this one takes the place of; a column
of width 0, which is all of it without ``refresh``, takes no room and is all zeros. Bases are the least of the
whole block, so that all its pages have the same widths. A row of a collision is no id's: it says of an id that
is remembered elsewhere what else came under it (`processor.engine.ids.collisions`).

A page's CRC-32C is over all of it but itself. The head's is over the key that the block stands under and the
head; the pages behind it say by their numbers whether one is missing.

Kernels return codes, see `processor.engine.ids.block.PageError`: 0 good, 1 cut, 2 version, 3 corrupt, 4 order.

Invariant: every kernel here checks every bound before it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.crc32c import crc32c
from processor.engine.bytes.loads import get_be, put_be
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
BLOCK_BYTES = 29
PAGE_HEAD_BYTES = 35
FINGERPRINTS, COLLISIONS, ROUTES = 1, 2, 4
"""Bits of what a page has beside ids."""
FINGERPRINT_BYTES, ROUTE_BYTES = 8, 2
MOST_PAGE_BYTES = 4096
"""A page: RocksDB reads 4 KB in 8 us and 120 KB in 60."""
HASH_BYTES = 16
NONE = -1
"""No number, no owner."""
BACKFILLED = -2
"""The owner of an id that a backfill has brought: the record that passed stands in no source."""
NO_COLLISIONS = np.zeros(0, np.bool_)
NO_FINGERPRINTS = np.zeros(0, np.uint64)
NO_ROUTES = np.zeros(0, np.uint16)


class Pages(NamedTuple):
    """Where the pages of a block are.

    Attributes:
        first: int64[p], each one's first number: what it is kept under.
        last_ms: int64[p], its highest reading.
        at: int64[p + 1], where each begins in the block's bytes, and where the last ends.
        collision: bool[p], which are of collisions.
    """

    first: NDArray[np.int64]
    last_ms: NDArray[np.int64]
    at: NDArray[np.int64]
    collision: NDArray[np.bool_] = NO_COLLISIONS


class CandidateRows(NamedTuple):
    """What stands in pages, of some candidates, in their order.

    Attributes:
        hash: uint64[k, 2].
        owner: int64[k].
        reading_ms: int64[k].
        fingerprint: uint64[k]; uint64[0] where nobody asks for them.
    """

    hash: NDArray[np.uint64]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    fingerprint: NDArray[np.uint64] = NO_FINGERPRINTS


@inlined
def mask_of(width):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return which bits of 8 bytes are those of an integer of ``width`` bytes, 0 to 8."""
    return np.uint64(0) if width == 0 else np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * width)


@inlined
def ending(data, stop, mask):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read the big-endian integer that ends before ``stop``; in a page there are always 8 bytes before that."""
    return get_be(data, stop - 8, 8) & mask


@inlined
def hash_at(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read both words of a hash."""
    return get_be(data, at, 8), get_be(data, at + 8, 8)


@inlined
def more_of(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return what a page has beside ids: `FINGERPRINTS`, `COLLISIONS`, `ROUTES`."""
    return np.int64(data[at + PAGE_HEAD_BYTES - 5])


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
    fingerprint: NDArray[np.uint64],
    collision: NDArray[np.bool_],
    route: NDArray[np.uint16],
    bases: NDArray[np.int64],
    widths: NDArray[np.int64],
    starts: NDArray[np.int64],
    key: NDArray[np.uint8],
    clock: Int,
    out: NDArray[np.uint8],
) -> None:
    """Write a block; ``back`` is the column supersedes, ``starts`` the first row of each page and the end."""
    rows = owner.size
    more = (FINGERPRINTS if fingerprint.size > 0 else 0) | (ROUTES if route.size > 0 else 0)
    out[0] = VERSION
    at = put_be(out, 1, starts.size - 1, 4)
    at = put_be(out, at, rows, 4)
    at = put_be(out, at, first, 8)
    at = put_be(out, at, np.int64(clock), 8)
    crc = crc32c(out, 0, at, np.uint64(crc32c(key, 0, key.size, np.uint64(0))))
    at = put_be(out, at, crc, 4)
    for k in range(starts.size - 1):
        start, stop = starts[k], starts[k + 1]
        page = at
        out[at] = VERSION
        at = put_be(out, at + 1, stop - start, 2)
        for width in widths:
            out[at] = np.uint8(width)
            at += 1
        at = put_be(out, at, first + start, 8)
        at = put_be(out, at, bases[0], 8)
        at = put_be(out, at, bases[1], 8)
        out[at] = more | (COLLISIONS if collision.size > 0 and collision[start] else 0)
        at += 5
        for row in range(start, stop):
            at = put_be(out, at, hashes[row, 0], 8)
            at = put_be(out, at, hashes[row, 1], 8)
        for row in range(start, stop):
            at = put_be(out, at, owner[row] - bases[0], widths[0])
        for row in range(start, stop):
            at = put_be(out, at, reading[row] - bases[1], widths[1])
        for row in range(start, stop):
            at = put_be(out, at, back[row], widths[2])
        if fingerprint.size > 0:
            for row in range(start, stop):
                at = put_be(out, at, fingerprint[row], 8)
        if route.size > 0:
            for row in range(start, stop):
                at = put_be(out, at, np.uint64(route[row]), 2)
        put_be(out, page + PAGE_HEAD_BYTES - 4, _page_crc(out, page, at), 4)


@kernel
def open_head(data: NDArray[np.uint8], key: NDArray[np.uint8], head: NDArray[np.int64]) -> Int:
    """Read a block's head: pages, ids, first number, clock. Returns a `PageError` code."""
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
    """Look at the page at ``at``: its ids, the bytes of one, a `PageError` code."""
    if limit - at < PAGE_HEAD_BYTES:
        return 0, 0, 1
    if data[at] != VERSION:
        return 0, 0, 2
    ids = np.int64(get_be(data, at + 1, 2))
    size = np.int64(HASH_BYTES)
    more = more_of(data, at)
    if more > FINGERPRINTS | COLLISIONS | ROUTES:
        return 0, 0, 2
    size += (FINGERPRINT_BYTES if more & FINGERPRINTS else 0) + (ROUTE_BYTES if more & ROUTES else 0)
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


@kernel
def _read_column(data: NDArray[np.uint8], at: Int, width: Int, base: Int, out: NDArray[np.int64]) -> Int:
    """Read a column of a page; returns where it ends."""
    mask = mask_of(width)
    for k in range(out.size):
        out[k] = base + np.int64(ending(data, at + width * (k + 1), mask))
    return at + width * out.size


@kernel
def decode(
    data: NDArray[np.uint8],
    at: Int,
    first: Int,
    hashes: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
    supersedes: NDArray[np.int64],
    fingerprint: NDArray[np.uint64],
    collision: NDArray[np.bool_],
    pages: Pages,
) -> Int:
    """Read as many pages as ``pages`` has places, to the end of the data. Returns a `PageError` code.

    Fingerprints are 0 where a page has none, and not read where their array is empty, as ``collision`` is then.
    """
    row: Int = 0
    for page in range(pages.first.size):
        ids, size, wrong = look_at(data, at, data.size, first + row)
        if wrong != 0:
            return wrong
        stop = row + ids
        if stop > owner.size:
            return 4
        pages.first[page] = first + row
        pages.at[page] = at
        pages.collision[page] = more_of(data, at) & COLLISIONS != 0
        body = at + PAGE_HEAD_BYTES
        for k in range(ids):
            hashes[row + k, 0], hashes[row + k, 1] = hash_at(data, body + HASH_BYTES * k)
        body += HASH_BYTES * ids
        base = np.int64(get_be(data, at + 14, 8))
        body = _read_column(data, body, np.int64(data[at + 3]), base, owner[row:stop])
        base = np.int64(get_be(data, at + 22, 8))
        body = _read_column(data, body, np.int64(data[at + 4]), base, reading[row:stop])
        pages.last_ms[page] = reading[row:stop].max()
        body = _read_column(data, body, np.int64(data[at + 5]), 0, supersedes[row:stop])
        for k in range(row, stop):
            supersedes[k] = NONE if supersedes[k] == 0 else first + k - supersedes[k]
        if fingerprint.size > 0:
            more = more_of(data, at)
            for k in range(ids):
                collision[row + k] = more & COLLISIONS != 0
                fingerprint[row + k] = get_be(data, body + 8 * k, 8) if more & FINGERPRINTS else np.uint64(0)
        at += PAGE_HEAD_BYTES + ids * size
        row = stop
    pages.at[pages.first.size] = at
    if row != owner.size:
        return 4
    return 0 if at == data.size else 1


@kernel
def count_ids(
    data: NDArray[np.uint8], at: NDArray[np.int64], number: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[Int, Int]:
    """Write how many ids each page has. Returns the one that is not whole, and a `PageError` code."""
    for page in range(number.size):
        count, size, wrong = look_at(data, at[page], at[page + 1], number[page])
        if wrong == 0 and at[page] + PAGE_HEAD_BYTES + count * size != at[page + 1]:
            wrong = 1
        if wrong != 0:
            return page, wrong
        ids[page] = count
    return 0, 0


@kernel
def read_row(data: NDArray[np.uint8], at: Int, ids: Int, row: Int) -> tuple[Int, Int]:
    """Read owner and reading of a row of the page at ``at``, which has been looked at."""
    body = at + PAGE_HEAD_BYTES + HASH_BYTES * ids
    width = np.int64(data[at + 3])
    owner = np.int64(get_be(data, at + 14, 8)) + np.int64(get_be(data, body + width * row, width))
    body += width * ids
    width = np.int64(data[at + 4])
    return owner, np.int64(get_be(data, at + 22, 8)) + np.int64(get_be(data, body + width * row, width))


@kernel
def read_fingerprint(data: NDArray[np.uint8], at: Int, ids: Int, row: Int) -> Int:
    """Read the fingerprint of a row of the page at ``at``, which has been looked at; 0 where it has none."""
    if more_of(data, at) & FINGERPRINTS == 0:
        return np.uint64(0)
    widths = np.int64(data[at + 3]) + np.int64(data[at + 4]) + np.int64(data[at + 5])
    return get_be(data, at + PAGE_HEAD_BYTES + ids * (HASH_BYTES + widths) + FINGERPRINT_BYTES * row, 8)


@kernel
def confirm(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    first: NDArray[np.int64],
    which: NDArray[np.int64],
    row: NDArray[np.int64],
    out: CandidateRows,
) -> tuple[Int, Int]:
    """Read single rows. Returns the page that is wrong, and a `PageError` code."""
    ids = np.zeros(first.size, np.int64)
    page, wrong = count_ids(data, at, first, ids)
    if wrong != 0:
        return page, wrong
    hashes, owner, reading, fingerprint = out  # before the loop: of a tuple's array numba counts each reference
    for k in range(row.size):
        page = which[k]
        if row[k] < 0 or row[k] >= ids[page]:
            return page, 4
        body = at[page] + PAGE_HEAD_BYTES
        hashes[k, 0], hashes[k, 1] = hash_at(data, body + HASH_BYTES * row[k])
        owner[k], reading[k] = read_row(data, at[page], ids[page], row[k])
        if fingerprint.size > 0:
            fingerprint[k] = read_fingerprint(data, at[page], ids[page], row[k])
    return 0, 0
