"""Writes sorted runs of ids as pages; one read finds an id again.

A run is about 100,000 ids of one bucket in the order of their hashes, on pages as those of blocks are
(`processor.engine.ids.page`), each whole by itself. A page's number is ``run << 32 | place``: its run's
number, and the place in the run of its first id; so a page that stands under another's key is refused.

In memory (`processor.engine.ids.bloom.run_index`) there is of each page the first hash, its *fence*, 16 B; and
of the run a Bloom filter of 10 bits per id. So a look-up of an id that is there reads the one page that has it,
and of one that is not none, but for one run in 128.

Invariant: every byte of a page that is judged by has been checked, and every bound before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import get_be
from processor.engine.ids.block import IdRows, PageError, UnreadableBlockError, encode
from processor.engine.ids.bloom.filter import Filter
from processor.engine.ids.page import PAGE_HEAD_BYTES, count_ids
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FALSE_RATE = 1 / 128
"""Of a run's filter: seven bits per id, 1.26 B. A hit asks half the runs of its bucket, about 40 of
20 million ids: a third of a page that is read in vain."""
PLACE_BITS = 32
_NONE = -1


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A run, but for its pages.

    Attributes:
        number: Its own, which no other run of the partition has.
        filter: Of its ids.
        fences: uint64[p, 2], the first hash of each page.
        starts: int64[p], the place of that id in the run.
    """

    number: int
    filter: Filter
    fences: NDArray[np.uint64]
    starts: NDArray[np.int64]


class RunWriter:
    """Writes one run, a portion at a time.

    Args:
        number: The run's.
        bucket: Of its ids.
        hashes: uint64[n, 2], rising; at least one.
        owner: int64[n].
        reading_ms: int64[n].
    """

    def __init__(
        self,
        number: int,
        bucket: int,
        hashes: NDArray[np.uint64],
        owner: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
    ) -> None:
        self.bucket = bucket
        self._number = number
        self._hash, self._owner, self._reading_ms = hashes, owner, reading_ms
        self._filter = Filter.sized(bucket, 0, owner.size, FALSE_RATE)
        self._filter.words = np.zeros(-(-self._filter.bits // 64), np.uint64)
        self._begun = 0
        self._starts: list[NDArray[np.int64]] = []

    @property
    def left(self) -> int:
        """How many ids are not written yet."""
        return int(self._owner.size) - self._begun

    def pages(self, most: int) -> list[tuple[int, bytes]]:
        """Return the next pages, by their place in the run.

        Args:
            most: Ids of them at most; at least one.
        """
        start, stop = self._begun, self._begun + min(most, self.left)
        part = slice(start, stop)
        none = np.full(stop - start, _NONE, np.int64)
        number = (self._number << PLACE_BITS) + start
        rows = IdRows(number, self._hash[part], self._owner[part], self._reading_ms[part], none)
        block, pages = encode(rows, 0, b"")
        self._filter.put(self._hash, start, stop)
        self._begun = stop
        first = sum(each.size for each in self._starts)
        self._starts.append(pages.first - (self._number << PLACE_BITS))
        at = pages.at.tolist()
        return [(first + k, block[at[k] : at[k + 1]]) for k in range(pages.first.size)]

    def finish(self) -> SortedRun:
        """Return the run, all of its pages having been written."""
        starts = np.concatenate(self._starts)
        return SortedRun(self._number, self._filter, self._hash[starts], starts)


def find(
    pages: Sequence[bytes],
    number: NDArray[np.int64],
    which: NDArray[np.int64],
    hashes: NDArray[np.uint64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Look ids up in pages: bool[k] whether they are there, int64[k] owners and readings.

    Args:
        pages: Each once; their checksums are looked at.
        number: int64[p], what stands in each.
        which: int64[k], index of the page that can have an id.
        hashes: uint64[k, 2].

    Raises:
        UnreadableBlockError: A page is not whole, or another one.
    """
    at = np.cumsum([0, *map(len, pages)], dtype=np.int64)
    data = np.frombuffer(b"".join(pages), np.uint8)
    known = np.zeros(which.size, np.bool_)
    owner, reading = np.zeros((2, which.size), np.int64)
    with np.errstate(over="ignore"):
        page, wrong = _find(data, at, number, which, hashes, known, owner, reading)
    if wrong:
        raise UnreadableBlockError(f"page {int(number[int(page)])} of a run", PageError(int(wrong)))
    return known, owner, reading


@inlined
def _lower(first, second, other_first, other_second):  # type: ignore[no-untyped-def]  # inlined kernel
    return first < other_first or (first == other_first and second < other_second)


@kernel
def _find(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    number: NDArray[np.int64],
    which: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    known: NDArray[np.bool_],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
) -> tuple[Int, Int]:
    """Look ids up. Returns the page that is wrong, and a `PageError` code."""
    ids = np.zeros(number.size, np.int64)
    page, wrong = count_ids(data, at, number, ids)
    if wrong != 0:
        return page, wrong
    for k in range(which.size):
        here = at[which[k]]
        count = ids[which[k]]
        body = here + PAGE_HEAD_BYTES
        low: Int = 0
        high: Int = count
        while high - low > 1:
            middle = (low + high) >> 1
            first = get_be(data, body + 16 * middle, 8)
            second = get_be(data, body + 16 * middle + 8, 8)
            if _lower(hashes[k, 0], hashes[k, 1], first, second):
                high = middle
            else:
                low = middle
        first = get_be(data, body + 16 * low, 8)
        second = get_be(data, body + 16 * low + 8, 8)
        if first != hashes[k, 0] or second != hashes[k, 1]:
            continue
        known[k] = True
        body += 16 * count
        width = np.int64(data[here + 3])
        owner[k] = np.int64(get_be(data, here + 14, 8)) + np.int64(get_be(data, body + width * low, width))
        body += width * count
        width = np.int64(data[here + 4])
        reading[k] = np.int64(get_be(data, here + 22, 8)) + np.int64(get_be(data, body + width * low, width))
    return 0, 0
