"""Writes the ids of one commit as a block of pages, and reads them again.

The layout is drawn in `processor.engine.ids.page`. A block is what one commit adds to the changelog; its
pages are what the local state keeps, each under its first number.

Invariant: what is not whole is refused with `UnreadableBlockError`; nothing that was read of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids import page as ids_page
from processor.engine.ids.page import (
    BLOCK_BYTES,
    HASH_BYTES,
    MOST_PAGE_BYTES,
    PAGE_HEAD_BYTES,
    CandidateRows,
    Pages,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """

    first: int
    hash: NDArray[np.uint64]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    supersedes: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.owner.size)

    def part(self, start: int, stop: int) -> IdRows:
        """Return the rows from ``start`` on, below ``stop``."""
        columns = (each[start:stop] for each in (self.owner, self.reading_ms, self.supersedes))
        return IdRows(self.first + start, self.hash[start:stop], *columns)


def encode(rows: IdRows, clock_ms: int, key: bytes) -> tuple[bytes, Pages]:
    """Write the ids of a commit; at least one.

    Args:
        rows: In the order of their numbers.
        clock_ms: After the commit's last record.
        key: Under which the block will stand.
    """
    bases = np.array([rows.owner.min(), rows.reading_ms.min()])
    widths = _widths(rows)
    size = HASH_BYTES + int(widths.sum())
    fitting = _fitting(size)
    starts = np.arange(0, len(rows), fitting)
    heads = PAGE_HEAD_BYTES * np.arange(starts.size + 1)
    out = np.empty(BLOCK_BYTES + int(heads[-1]) + len(rows) * size, np.uint8)
    columns = rows.hash, rows.owner, rows.reading_ms, _back(rows)
    ids_page.encode(rows.first, *columns, bases, widths, fitting, np.frombuffer(key, np.uint8), clock_ms, out)
    at = BLOCK_BYTES + heads + np.append(starts, len(rows)) * size
    return out.tobytes(), Pages(rows.first + starts, np.maximum.reduceat(rows.reading_ms, starts), at)


def decode(data: bytes, key: bytes) -> tuple[IdRows, int, Pages]:
    """Read a block: its ids, the clock after it, its pages.

    Raises:
        UnreadableBlockError: It is not one, not whole, or stands under another key.
    """
    what, array = f"block {key!r}", np.frombuffer(data, np.uint8)
    head = np.zeros(4, np.int64)
    wrong = ids_page.open_head(array, np.frombuffer(key, np.uint8), head)
    pages, count, first, clock_ms = head.tolist()
    if wrong:
        raise UnreadableBlockError(what, wrong)
    rows, found = _read(what, array, BLOCK_BYTES, first, count, pages)
    return rows, clock_ms, found


def decode_pages(pages: Sequence[bytes], first: int) -> tuple[IdRows, Pages]:
    """Read pages as the local state keeps them.

    Args:
        pages: At least one; each begins with the number after the last one of the page before it.
        first: The number that the first one stands under.

    Raises:
        UnreadableBlockError: One is not whole, or does not go on from the one before it.
    """
    what = f"page {first}" if len(pages) == 1 else f"pages from {first} on"
    count = sum(int.from_bytes(page[1:3], "big") for page in pages)
    return _read(what, np.frombuffer(b"".join(pages), np.uint8), 0, first, count, len(pages))


def joined(some: Sequence[Pages]) -> Pages | None:
    """Return the pages of consecutive blocks as one; None of none. Where they are is not said."""
    if not some:
        return None
    first = np.concatenate([pages.first for pages in some])
    return Pages(first, np.concatenate([pages.last_ms for pages in some]), np.zeros(0, np.int64))


def ids_within(rows: IdRows, most_bytes: int) -> int:
    """Return how many of these ids certainly go into a block of ``most_bytes``, whichever they are."""
    size = HASH_BYTES + int(_widths(rows).sum())
    page = PAGE_HEAD_BYTES + _fitting(size) * size
    # Whole pages, and of what is left as many as have room behind a page's head.
    whole, left = divmod(most_bytes - BLOCK_BYTES, page)
    return max(0, whole * _fitting(size) + max(0, left - PAGE_HEAD_BYTES) // size)


def confirm(
    pages: Sequence[bytes], first: NDArray[np.int64], which: NDArray[np.int64], row: NDArray[np.int64]
) -> CandidateRows:
    """Read single ids from pages.

    Args:
        pages: Each once; their checksums are looked at.
        first: int64[p], the number that each stands under.
        which: int64[k], index of each candidate's page.
        row: int64[k], each one's place in its page.

    Raises:
        UnreadableBlockError: A page is not whole, not that number's, or has no such row.
    """
    at = np.cumsum([0, *map(len, pages)], dtype=np.int64)
    data = np.frombuffer(b"".join(pages), np.uint8)
    out = CandidateRows(np.empty((row.size, 2), np.uint64), *np.empty((2, row.size), np.int64))
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


def _fitting(size: int) -> int:
    """Return how many ids of ``size`` bytes go on a page."""
    return (MOST_PAGE_BYTES - PAGE_HEAD_BYTES) // size


def _read(
    what: str, data: NDArray[np.uint8], at: int, first: int, ids: int, pages: int
) -> tuple[IdRows, Pages]:
    """Read so many pages, which say that they have so many ids, from ``at`` to the end of the data."""
    # A page needs its head, an id its hash: what says more is cut, and nothing is allocated for it.
    if pages * PAGE_HEAD_BYTES + ids * HASH_BYTES > data.size:
        raise UnreadableBlockError(what, PageError.CUT)
    owner, reading, supersedes = np.empty((3, ids), np.int64)
    rows = IdRows(first, np.empty((ids, 2), np.uint64), owner, reading, supersedes)
    found = Pages(np.empty(pages, np.int64), np.empty(pages, np.int64), np.empty(pages + 1, np.int64))
    wrong = ids_page.decode(data, at, first, rows.hash, owner, reading, supersedes, found)
    if wrong:
        raise UnreadableBlockError(what, wrong)
    return rows, found
