"""Writes the ids of one commit as a block of pages, and reads them again.

The layout is drawn in `processor.engine.ids.page`. A block is what one commit adds to the changelog; its
pages are what the local state keeps, each under its first number.

Invariant: what is not whole is refused with `UnreadableBlockError`; nothing that was read of it counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids import page as ids_page
from processor.engine.ids.page import (
    BLOCK_BYTES,
    FINGERPRINT_BYTES,
    HASH_BYTES,
    MOST_PAGE_BYTES,
    NO_COLLISIONS,
    NO_FINGERPRINTS,
    NO_ROUTES,
    PAGE_HEAD_BYTES,
    ROUTE_BYTES,
    CandidateRows,
    Pages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.jit import Int


class PageError(IntEnum):
    """Why a block or a page is refused."""

    CUT = 1
    VERSION = 2
    CORRUPT = 3
    ORDER = 4


_TEXT = {
    PageError.CUT: "it is cut, or has more bytes than it says",
    PageError.VERSION: "it has a version that this Seqmark does not know",
    PageError.CORRUPT: "it fails its checksum",
    PageError.ORDER: "its pages are not those that it says",
}


class UnreadableBlockError(Exception):
    """A block or a page cannot be read; nothing of it has been.

    Attributes:
        reason: What is wrong.
    """

    def __init__(self, what: str, reason: Int) -> None:
        self.reason = PageError(int(reason))
        super().__init__(f"{what}: {_TEXT[self.reason]}")


@dataclass(frozen=True, slots=True)
class IdRows:
    """Ids as they are remembered, under consecutive numbers.

    Attributes:
        first: The first one's number.
        hash: uint64[n, 2], words of the keyed hash.
        owner: int64[n], source offsets of the records that passed.
        reading_ms: int64[n], the clock when each was last remembered.
        supersedes: int64[n], the number of the row that each takes the place of; `NONE` where there is none.
        fingerprint: uint64[n]; uint64[0] of a definition without fingerprints.
        collision: bool[n], which rows are collisions; bool[0] likewise.
        route: uint16[n], route words (`processor.engine.repartition`), which are written and not read again;
            uint16[0] without a route.
    """

    first: int
    hash: NDArray[np.uint64]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    supersedes: NDArray[np.int64]
    fingerprint: NDArray[np.uint64] = field(default_factory=lambda: NO_FINGERPRINTS)
    collision: NDArray[np.bool_] = field(default_factory=lambda: NO_COLLISIONS)
    route: NDArray[np.uint16] = field(default_factory=lambda: NO_ROUTES)

    def __len__(self) -> int:
        return int(self.owner.size)

    def part(self, start: int, stop: int) -> IdRows:
        """Return the rows from ``start`` on, below ``stop``."""
        rows = slice(start, stop)
        columns = self.hash[rows], self.owner[rows], self.reading_ms[rows], self.supersedes[rows]
        more = self.fingerprint[rows], self.collision[rows], self.route[rows]
        return IdRows(self.first + start, *columns, *more)

    def runs(self) -> Iterator[IdRows]:
        """Yield the rows of ids, and those of collisions, as they stand behind each other."""
        turns = np.flatnonzero(np.diff(self.collision)) + 1
        for start, stop in itertools.pairwise([0, *turns.tolist(), len(self)]):
            if stop > start:
                yield self.part(start, stop)


def encode(rows: IdRows, clock_ms: int, key: bytes) -> tuple[bytes, Pages]:
    """Write the ids of a commit; at least one.

    Args:
        rows: In the order of their numbers.
        clock_ms: After the commit's last record.
        key: Under which the block will stand.
    """
    bases = np.array([rows.owner.min(), rows.reading_ms.min()])
    widths = _widths(rows)
    size = _size(rows, widths)
    starts = _starts(rows, _fitting(size))
    heads = PAGE_HEAD_BYTES * np.arange(starts.size)
    out = np.empty(BLOCK_BYTES + int(heads[-1]) + len(rows) * size, np.uint8)
    columns = rows.hash, rows.owner, rows.reading_ms, _back(rows)
    more = rows.fingerprint, rows.collision, rows.route
    ids_page.encode(
        rows.first, *columns, *more, bases, widths, starts, np.frombuffer(key, np.uint8), clock_ms, out
    )
    last_ms = np.maximum.reduceat(rows.reading_ms, starts[:-1])
    collision = rows.collision[starts[:-1]] if rows.collision.size else np.zeros(starts.size - 1, np.bool_)
    pages = Pages(rows.first + starts[:-1], last_ms, BLOCK_BYTES + heads + starts * size, collision)
    return out.tobytes(), pages


def decode(data: bytes, key: bytes, *, fingerprints: bool = False) -> tuple[IdRows, int, Pages]:
    """Read a block: its ids, the clock after it, its pages.

    Args:
        data: The block.
        key: Under which it stands.
        fingerprints: Whether to read fingerprints, and which rows are collisions.

    Raises:
        UnreadableBlockError: It is not one, not whole, or stands under another key.
    """
    what, array = f"block {key!r}", np.frombuffer(data, np.uint8)
    head = np.zeros(4, np.int64)
    wrong = ids_page.open_head(array, np.frombuffer(key, np.uint8), head)
    pages, count, first, clock_ms = head.tolist()
    if wrong:
        raise UnreadableBlockError(what, wrong)
    rows, found = _read(what, array, BLOCK_BYTES, (first, count, pages), fingerprints=fingerprints)
    return rows, clock_ms, found


def decode_pages(pages: Sequence[bytes], first: int, *, fingerprints: bool = False) -> tuple[IdRows, Pages]:
    """Read pages as the local state keeps them.

    Args:
        pages: At least one; each begins with the number after the last one of the page before it.
        first: The number that the first one stands under.
        fingerprints: As for `decode`.

    Raises:
        UnreadableBlockError: One is not whole, or does not go on from the one before it.
    """
    what = f"page {first}" if len(pages) == 1 else f"pages from {first} on"
    count = sum(int.from_bytes(page[1:3], "big") for page in pages)
    array = np.frombuffer(b"".join(pages), np.uint8)
    return _read(what, array, 0, (first, count, len(pages)), fingerprints=fingerprints)


def joined(some: Sequence[Pages]) -> Pages | None:
    """Return the pages of consecutive blocks as one; None of none. Where they are is not said."""
    if not some:
        return None
    first = np.concatenate([pages.first for pages in some])
    last_ms = np.concatenate([pages.last_ms for pages in some])
    return Pages(first, last_ms, np.zeros(0, np.int64), np.concatenate([pages.collision for pages in some]))


def ids_within(rows: IdRows, most_bytes: int) -> int:
    """Return how many of these ids certainly go into a block of ``most_bytes``, whichever they are."""
    size = _size(rows, _widths(rows))
    page = PAGE_HEAD_BYTES + _fitting(size) * size
    # Collisions begin pages of their own: at most one page more for each time that they do.
    turns = int(np.count_nonzero(np.diff(rows.collision)))
    # Whole pages, and of what is left as many as have room behind a page's head.
    whole, left = divmod(max(0, most_bytes - BLOCK_BYTES - turns * PAGE_HEAD_BYTES), page)
    together = whole * _fitting(size) + max(0, left - PAGE_HEAD_BYTES) // size
    # Where there are more turns than room, each on a page of its own.
    return max(0, together, (most_bytes - BLOCK_BYTES) // (PAGE_HEAD_BYTES + size))


def confirm(
    pages: Sequence[bytes],
    first: NDArray[np.int64],
    which: NDArray[np.int64],
    row: NDArray[np.int64],
    *,
    fingerprints: bool = False,
) -> CandidateRows:
    """Read single ids from pages.

    Args:
        pages: Each once; their checksums are looked at.
        first: int64[p], the number that each stands under.
        which: int64[k], index of each candidate's page.
        row: int64[k], each one's place in its page.
        fingerprints: Whether to read them, too.

    Raises:
        UnreadableBlockError: A page is not whole, not that number's, or has no such row.
    """
    at = np.cumsum([0, *map(len, pages)], dtype=np.int64)
    data = np.frombuffer(b"".join(pages), np.uint8)
    owner, reading = np.empty((2, row.size), np.int64)
    asked = np.zeros(row.size if fingerprints else 0, np.uint64)
    out = CandidateRows(np.empty((row.size, 2), np.uint64), owner, reading, asked)
    page, wrong = ids_page.confirm(data, at, first, which, row, out)
    if wrong:
        raise UnreadableBlockError(f"page {first[int(page)]}", wrong)
    return out


def _back(rows: IdRows) -> NDArray[np.int64]:
    """Return int64[n]: how far back the row lies that each supersedes; 0: none."""
    number = rows.first + np.arange(len(rows), dtype=np.int64)
    return np.where(rows.supersedes < 0, 0, number - rows.supersedes)


def _widths(rows: IdRows) -> NDArray[np.int64]:
    """Return int64[3]: bytes of an owner, a reading and a superseded number; of fewer rows never more."""
    most = (
        int(rows.owner.max()) - int(rows.owner.min()),
        int(rows.reading_ms.max()) - int(rows.reading_ms.min()),
        int(_back(rows).max()),
    )
    return np.array([(each.bit_length() + 7) // 8 for each in most], np.int64)


def _size(rows: IdRows, widths: NDArray[np.int64]) -> int:
    """Return the bytes of a row."""
    more = FINGERPRINT_BYTES * bool(rows.fingerprint.size) + ROUTE_BYTES * bool(rows.route.size)
    return HASH_BYTES + int(widths.sum()) + more


def _fitting(size: int) -> int:
    """Return how many ids of ``size`` bytes go on a page behind its head."""
    return (MOST_PAGE_BYTES - PAGE_HEAD_BYTES) // size


def _starts(rows: IdRows, fitting: int) -> NDArray[np.int64]:
    """Return int64[p + 1]: the first row of each page, and the end; ids and collisions share none."""
    runs = [run.first - rows.first + np.arange(0, len(run), fitting) for run in rows.runs()]
    return np.concatenate([*runs, [len(rows)]])


def _read(
    what: str, data: NDArray[np.uint8], at: int, said: tuple[int, int, int], *, fingerprints: bool
) -> tuple[IdRows, Pages]:
    """Read pages from ``at`` to the end; said are their first number, their ids, how many they are."""
    first, ids, pages = said
    # A page needs its head, an id its hash: what says more is cut, and nothing is allocated for it.
    if pages * PAGE_HEAD_BYTES + ids * HASH_BYTES > data.size:
        raise UnreadableBlockError(what, PageError.CUT)
    owner, reading, supersedes = np.empty((3, ids), np.int64)
    asked = ids if fingerprints else 0
    columns = owner, reading, supersedes, np.empty(asked, np.uint64), np.empty(asked, np.bool_)
    rows = IdRows(first, np.empty((ids, 2), np.uint64), *columns)
    numbers, last_ms, ends = np.empty(pages, np.int64), np.empty(pages, np.int64), np.empty(pages + 1, np.int64)
    found = Pages(numbers, last_ms, ends, np.empty(pages, np.bool_))
    wrong = ids_page.decode(data, at, first, rows.hash, *columns, found)
    if wrong:
        raise UnreadableBlockError(what, wrong)
    return rows, found
