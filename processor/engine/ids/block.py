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
from processor.engine.ids.page import BLOCK_BYTES, HASH_BYTES, MOST_PAGE_BYTES, PAGE_HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class PageError(IntEnum):
    """Why a block or a page is refused."""

    NOTHING = 0
    CUT = 1
    VERSION = 2
    CORRUPT = 3
    ORDER = 4

    @property
    def text(self) -> str:
        """Say it to a person."""
        return _TEXT[self]


_TEXT = {
    PageError.NOTHING: "nothing is wrong",
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

    def __init__(self, what: str, reason: PageError) -> None:
        self.reason = reason
        super().__init__(f"{what}: {reason.text}")


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


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the pages of a block are.

    Attributes:
        first: int64[p], each one's first number: what it is kept under.
        last_ms: int64[p], its highest reading.
        at: int64[p + 1], where each begins in the block's bytes, and where the last ends.
    """

    first: NDArray[np.int64]
    last_ms: NDArray[np.int64]
    at: NDArray[np.int64]

    @classmethod
    def empty(cls, count: int) -> Pages:
        """Return room for so many."""
        return cls(np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count + 1, np.int64))


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """What stands in pages, of some candidates, in their order.

    Attributes:
        hash: uint64[k, 2].
        owner: int64[k].
        reading_ms: int64[k].
    """

    hash: NDArray[np.uint64]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]

    @classmethod
    def none(cls) -> CandidateRows:
        """Return what there is to say of no candidate."""
        return cls(np.zeros((0, 2), np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def encode(rows: IdRows, clock_ms: int, key: bytes) -> tuple[bytes, Pages]:
    """Write the ids of a commit; at least one.

    Args:
        rows: In the order of their numbers.
        clock_ms: After the commit's last record.
        key: Under which the block will stand.
    """
    count = len(rows)
    number = rows.first + np.arange(count, dtype=np.int64)
    back = _back(rows)
    bases = np.array([rows.owner.min(), rows.reading_ms.min()], np.int64)
    widths = _widths(rows)
    size = HASH_BYTES + int(widths.sum())
    fitting = _fitting(size)
    pages = -(-count // fitting)
    out = np.empty(BLOCK_BYTES + pages * PAGE_HEAD_BYTES + count * size, np.uint8)
    named = np.frombuffer(key, np.uint8)
    with np.errstate(over="ignore"):
        ids_page.encode(
            np.int64(rows.first),
            rows.hash,
            rows.owner,
            rows.reading_ms,
            back,
            bases,
            widths,
            fitting,
            named,
            np.int64(clock_ms),
            out,
        )
    starts = np.arange(0, count, fitting)
    at = BLOCK_BYTES + np.append(starts * size + PAGE_HEAD_BYTES * np.arange(pages), out.size - BLOCK_BYTES)
    return out.tobytes(), Pages(number[starts], np.maximum.reduceat(rows.reading_ms, starts), at)


def decode(data: bytes, key: bytes) -> tuple[IdRows, int, Pages]:
    """Read a block: its ids, the clock after it, its pages.

    Raises:
        UnreadableBlockError: It is not one, not whole, or stands under another key.
    """
    array = np.frombuffer(data, np.uint8)
    head = np.zeros(4, np.int64)
    with np.errstate(over="ignore"):
        wrong = PageError(int(ids_page.open_head(array, np.frombuffer(key, np.uint8), head)))
        pages, count, first, clock_ms = head.tolist()
        # A page needs its head, an id its hash: what says more is cut, and nothing is allocated for it.
        if not wrong and pages * PAGE_HEAD_BYTES + count * HASH_BYTES > array.size:
            wrong = PageError.CUT
        if wrong:
            raise UnreadableBlockError(f"block {key!r}", wrong)
        rows = _empty(first, count)
        found = Pages.empty(pages)
        wrong = _read(array, BLOCK_BYTES, rows, found)
    if wrong:
        raise UnreadableBlockError(f"block {key!r}", wrong)
    return rows, clock_ms, found


def decode_page(data: bytes, first: int) -> tuple[IdRows, Pages]:
    """Read one page as the local state keeps it, see `decode_pages`."""
    return decode_pages([data], first)


def decode_pages(pages: Sequence[bytes], first: int) -> tuple[IdRows, Pages]:
    """Read pages as the local state keeps them.

    Args:
        pages: At least one; each begins with the number after the last one of the page before it.
        first: The number that the first one stands under.

    Raises:
        UnreadableBlockError: One is not whole, or does not go on from the one before it.
    """
    data, count = in_one_piece(pages, first)
    rows, found = _empty(first, count), Pages.empty(len(pages))
    with np.errstate(over="ignore"):
        wrong = _read(data, 0, rows, found)
    if wrong:
        raise UnreadableBlockError(page_name(len(pages), first), wrong)
    return rows, found


def in_one_piece(pages: Sequence[bytes], first: int) -> tuple[NDArray[np.uint8], int]:
    """Return consecutive pages in one piece, and how many ids they say that they have.

    Raises:
        UnreadableBlockError: So many cannot be in so few bytes.
    """
    count = sum(int.from_bytes(page[1:3], "big") for page in pages)
    data = np.frombuffer(b"".join(pages), np.uint8)
    if len(pages) * PAGE_HEAD_BYTES + count * HASH_BYTES > data.size:
        raise UnreadableBlockError(page_name(len(pages), first), PageError.CUT)
    return data, count


def page_name(pages: int, first: int) -> str:
    """Say to a person which pages are meant."""
    return f"page {first}" if pages == 1 else f"pages from {first} on"


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
    out = CandidateRows(
        np.empty((row.size, 2), np.uint64), np.empty(row.size, np.int64), np.empty(row.size, np.int64)
    )
    with np.errstate(over="ignore"):
        page, wrong = ids_page.confirm(data, at, first, which, row, out.hash, out.owner, out.reading_ms)
    if wrong:
        raise UnreadableBlockError(f"page {first[int(page)]}", PageError(int(wrong)))
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


def _read(data: NDArray[np.uint8], at: int, rows: IdRows, pages: Pages) -> PageError:
    """Read the pages from ``at`` to the end of the data into arrays of the right sizes."""
    columns = rows.hash, rows.owner, rows.reading_ms, rows.supersedes
    return PageError(int(ids_page.decode(data, at, rows.first, *columns, pages.first, pages.last_ms, pages.at)))


def _empty(first: int, count: int) -> IdRows:
    owner, reading, supersedes = np.empty((3, count), np.int64)
    return IdRows(first, np.empty((count, 2), np.uint64), owner, reading, supersedes)
