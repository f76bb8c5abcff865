"""Finds the run of a bucket, and the page of it, that may have an id.

Of all runs of one bucket there are in memory the filters, 1.26 B per id, and of each page the fence
(`processor.engine.ids.bloom.sorted_run`), one behind the other, so that one call asks all of them. A bucket of
20 million ids has 76 runs: a call each would cost more than what is asked.

Invariant: the page that is named is the only one of its run that can have the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.arrays import grown
from processor.engine.ids.bloom.bits import is_set, position
from processor.engine.ids.bloom.sorted_run import PLACE_BITS
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.bloom.sorted_run import SortedRun

GROWTH = 8
"""What is full grows by an eighth: of a copy each id is in nine."""
FILTER, BITS, EACH, PAGES, NUMBER = range(5)
"""Columns of what there is to know of a run: its first word, the filter's size, bits of an id, its first page,
its number."""
NOWHERE = -1


class RunIndex:
    """The runs of one bucket, in the order of their numbers."""

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
        found: list[int] = self._runs[:-1, NUMBER].tolist()
        return found

    def add(self, run: SortedRun) -> None:
        """Put a run behind the others."""
        word, page = int(self._runs[-1, FILTER]), int(self._runs[-1, PAGES])
        words, pages = word + run.filter.words.size, page + run.starts.size
        self._words = grown(self._words, words, GROWTH)
        self._fences = grown(self._fences, pages, GROWTH)
        self._starts = grown(self._starts, pages, GROWTH)
        self._words[word:words] = run.filter.words
        self._fences[page:pages] = run.fences
        self._starts[page:pages] = run.starts
        self._runs[-1] = word, run.filter.bits, run.filter.each, page, run.number
        self._runs = np.vstack([self._runs, [[words, 0, 0, pages, 0]]])

    def find(
        self, hashes: NDArray[np.uint64], before: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return int64[k] runs and pages: of the runs before one, the last that may have an id, or `NOWHERE`.

        Args:
            hashes: uint64[k, 2].
            before: int64[k], places of runs on the shelf, as in what is returned.
        """
        run, page = np.empty((2, len(hashes)), np.int64)
        with np.errstate(over="ignore"):
            _find(self._words, self._fences, self._runs, hashes, before, run, page)
        return run, page

    def numbers_of(
        self, run: NDArray[np.int64], page: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return of pages int64[k]: their runs' numbers, their places there, what stands in them as number."""
        number = self._runs[run, NUMBER]
        return number, page - self._runs[run, PAGES], (number << PLACE_BITS) + self._starts[page]


@kernel
def _find(
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
