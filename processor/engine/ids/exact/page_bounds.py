"""Knows of each page of committed ids its first number and when all of it is expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROWTH = 32
FEW_PAGES = 1024


class PageBounds:
    """The pages of one partition, in the order of their numbers; those in front expire first."""

    def __init__(self) -> None:
        # Of pages from `_front` to `_after`; those before are expired, and have been since the last commit.
        self._first: NDArray[np.int64] = np.zeros(0, np.int64)
        self._last_ms: NDArray[np.int64] = np.zeros(0, np.int64)
        self._front = self._after = 0

    def __len__(self) -> int:
        return self._after - self._front

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._first.nbytes + self._last_ms.nbytes

    @property
    def first(self) -> NDArray[np.int64]:
        """int64[p], each page's first number; good until pages are added."""
        return self._first[self._front : self._after]

    def add(self, first: NDArray[np.int64], last_ms: NDArray[np.int64]) -> None:
        """Put pages behind the others."""
        begin, self._after = self._after, self._after + first.size
        grown(self._first, self._after, GROWTH)[begin : self._after] = first
        grown(self._last_ms, self._after, GROWTH)[begin : self._after] = last_ms

    def alive(self, clock_ms: int, window_ms: int) -> int | None:
        """Return the first number of the first page that is not expired; None: all are."""
        page = int(_first_alive(self._last_ms, self._front, self._after, clock_ms, window_ms))
        return int(self._first[page]) if page < self._after else None

    def expire(self, clock_ms: int, window_ms: int) -> None:
        """Leave out the pages in front that are expired."""
        self._front = int(_first_alive(self._last_ms, self._front, self._after, clock_ms, window_ms))
        # What is expired is moved out when it is half of all: each page is moved once, on average.
        if self._front > max(FEW_PAGES, self._after // 2):
            self._first = self.first.copy()
            self._last_ms = self._last_ms[self._front : self._after].copy()
            self._front, self._after = 0, len(self)


@kernel
def _first_alive(last: NDArray[np.int64], start: Int, stop: Int, clock: Int, window: Int) -> Int:
    """Return the first page from ``start`` on, below ``stop``, that has an id that is not expired."""
    page = start
    while page < stop and last[page] + window <= clock:
        page += 1
    return page
