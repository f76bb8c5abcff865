"""Writes sorted runs of ids as pages; one read finds an id again.

A run is about 100,000 ids of one bucket in the order of their hashes, on pages as those of blocks are
(`processor.engine.ids.page`), each whole by itself. A page's number is ``run << 32 | place``: its run's
number, and the place in the run of its first id; so a page that stands under another's key is refused.

In memory (`RunIndex`) there is of each page the first hash, its *fence*, 16 B; and of the run a Bloom filter of
10 bits per id. So a look-up of an id that is there reads the one page that has it, and of one that is not none,
but for one run in 128.

Invariant: every byte of a page that is judged by has been checked, and every bound before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.ids.block import UnreadableBlockError, encode
from processor.engine.ids.bloom.filter import Filter, is_set, position
from processor.engine.ids.bloom.memtable import BloomLookup
from processor.engine.ids.page import HASH_BYTES, count_ids, hash_at, head_bytes, read_fingerprint, read_row
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.bloom.memtable import Memtable

FALSE_RATE = 1 / 128
"""Of a run's filter: seven bits per id, 1.26 B. A hit asks half the runs of its bucket, about 40 of
20 million ids: a third of a page that is read in vain."""
PLACE_BITS = 32
GROWTH = 8
"""What is full grows by an eighth: of a copy each id is in nine."""
FILTER, BITS, EACH, PAGES, NUMBER = range(5)
"""Columns of what there is to know of a run: its first word, the filter's size, bits of an id, its first page,
its number."""
NOWHERE = -1


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
        table: Its ids; at least one.
    """

    def __init__(self, number: int, table: Memtable) -> None:
        self.bucket = table.bucket
        self._number = number
        self._rows = table.by_hash(number << PLACE_BITS)
        self._filter = Filter.sized(table.bucket, 0, len(self._rows), FALSE_RATE)
        self._filter.words = np.zeros(-(-self._filter.bits // 64), np.uint64)
        self._begun = 0
        self._starts: list[NDArray[np.int64]] = []

    @property
    def left(self) -> int:
        """How many ids are not written yet."""
        return len(self._rows) - self._begun

    def pages(self, most: int) -> list[tuple[int, bytes]]:
        """Return the next pages by their place in the run, of ``most`` ids at most; that is at least one."""
        start, stop = self._begun, self._begun + min(most, self.left)
        block, pages = encode(self._rows.part(start, stop), 0, b"")
        self._filter.put(self._rows.hash, start, stop)
        self._begun = stop
        first = sum(each.size for each in self._starts)
        self._starts.append(pages.first - self._rows.first)
        at = pages.at.tolist()
        return [(first + k, block[at[k] : at[k + 1]]) for k in range(pages.first.size)]

    def finish(self) -> SortedRun:
        """Return the run, all of its pages having been written."""
        starts = np.concatenate(self._starts)
        return SortedRun(self._number, self._filter, self._rows.hash[starts], starts)


class RunIndex:
    """The runs of one bucket, in the order of their numbers.

    Their filters and the fences of their pages lie one behind the other, so that one call asks all of them. A
    bucket of 20 million ids has 76 runs: a call each would cost more than what is asked. The page that is named
    is the only one of its run that can have the id.
    """

    def __init__(self) -> None:
        self._words: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._fences: NDArray[np.uint64] = np.zeros((0, 2), np.uint64)
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        # One more row than there are runs: where the next one begins.
        self._runs: NDArray[np.int64] = np.zeros((1, 5), np.int64)

    def __len__(self) -> int:
        return self._runs.shape[0] - 1

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._words.nbytes + self._fences.nbytes + self._starts.nbytes + self._runs.nbytes

    @property
    def numbers(self) -> list[int]:
        """The runs' numbers."""
        return list(map(int, self._runs[:-1, NUMBER]))

    def add(self, run: SortedRun) -> None:
        """Put a run behind the others."""
        word, page = int(self._runs[-1, FILTER]), int(self._runs[-1, PAGES])
        words, pages = word + run.filter.words.size, page + run.starts.size
        grown(self._words, words, GROWTH)[word:words] = run.filter.words
        grown(self._fences, pages, GROWTH)[page:pages] = run.fences
        grown(self._starts, pages, GROWTH)[page:pages] = run.starts
        self._runs[-1] = word, run.filter.bits, run.filter.each, page, run.number
        self._runs = np.vstack([self._runs, [[words, 0, 0, pages, 0]]])

    def find(
        self, hashes: NDArray[np.uint64], before: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return int64[k] runs and pages: of the runs before one, the last that may have an id, or `NOWHERE`.

        Runs are named by their places here, as in ``before``, int64[k].
        """
        run, page = np.empty((2, len(hashes)), np.int64)
        _find_page(self._words, self._fences, self._runs, hashes, before, run, page)
        return run, page

    def numbers_of(
        self, run: NDArray[np.int64], page: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return of pages int64[k]: their runs' numbers, their places there, what stands in them as number."""
        number = self._runs[run, NUMBER]
        return number, page - self._runs[run, PAGES], (number << PLACE_BITS) + self._starts[page]


def find(
    pages: Sequence[bytes], number: NDArray[np.int64], which: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> BloomLookup:
    """Look k ids up in pages.

    Args:
        pages: Each once; their checksums are looked at.
        number: int64[p], what stands in each.
        which: int64[k], index of the page that can have an id.
        hashes: uint64[k, 2].

    Raises:
        UnreadableBlockError: A page is not whole, or another one.
    """
    at = np.cumsum([0, *map(len, pages)], dtype=np.int64)
    found = BloomLookup.nothing(which.size)
    page, wrong = _find(np.frombuffer(b"".join(pages), np.uint8), at, number, which, hashes, found)
    if wrong:
        raise UnreadableBlockError(f"page {int(number[int(page)])} of a run", wrong)
    return found


@kernel
def _find_page(
    words: NDArray[np.uint64],
    fences: NDArray[np.uint64],
    runs: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    before: NDArray[np.int64],
    run: NDArray[np.int64],
    page: NDArray[np.int64],
) -> None:
    for row in range(run.size):
        first, second = hashes[row, 0], hashes[row, 1]
        run[row] = NOWHERE
        for each in range(before[row] - 1, -1, -1):
            begun, bits = runs[each, FILTER], np.uint64(runs[each, BITS])
            maybe = True
            for index in range(runs[each, EACH]):
                at = position(first, second, index, bits) + np.uint64(np.uint64(begun) << np.uint64(6))
                if is_set(words, at) == np.uint64(0):
                    maybe = False
                    break
            if maybe:
                run[row] = each
                break
        if run[row] == NOWHERE:
            continue
        # The last page whose fence is not above the id; the first one where there is none.
        low = runs[run[row], PAGES]
        high = runs[run[row] + 1, PAGES]
        while high - low > 1:
            middle = (low + high) >> 1
            fence = fences[middle, 0]
            if first < fence or (first == fence and second < fences[middle, 1]):
                high = middle
            else:
                low = middle
        page[row] = low


@kernel
def _find(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    number: NDArray[np.int64],
    which: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    found: BloomLookup,
) -> tuple[Int, Int]:
    """Look ids up. Returns the page that is wrong, and a `PageError` code."""
    ids = np.zeros(number.size, np.int64)
    page, wrong = count_ids(data, at, number, ids)
    if wrong != 0:
        return page, wrong
    known, owner, reading, fingerprint = found
    for k in range(which.size):
        here = at[which[k]]
        body = here + head_bytes(data, here)
        low: Int = 0
        high: Int = ids[which[k]]
        while high - low > 1:
            middle = (low + high) >> 1
            first, second = hash_at(data, body + HASH_BYTES * middle)
            if hashes[k, 0] < first or (hashes[k, 0] == first and hashes[k, 1] < second):
                high = middle
            else:
                low = middle
        first, second = hash_at(data, body + HASH_BYTES * low)
        if first == hashes[k, 0] and second == hashes[k, 1]:
            known[k] = True
            owner[k], reading[k] = read_row(data, here, ids[which[k]], low)
            fingerprint[k] = read_fingerprint(data, here, ids[which[k]], low)
    return 0, 0
