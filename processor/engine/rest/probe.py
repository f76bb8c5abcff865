"""Finds the rows of a table whose ids are among the new ones, in memory that goes by the new ones.

The low words of the new ids, sorted, are looked up by their upper bits: each 64-bit word of a bitmap covers a
stretch of them, and beside it stands where that stretch begins::

    low word | c bits: which stretch | 6 bits: which bit of its bitmap | 58 - c bits |

There are at least 16 bits per id: of the rows of a table that are not among the new ids one in 16 or fewer is
looked for in the sorted words at all. About 8 to 16 B per new id, and no more than twice that.

Low words are even, being of a keyed hash; where they are not, a stretch is long and the search in it is by
halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel
from processor.engine.rest.owned import owned

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS_PER_ID = 16
_MOST_BITS = 36
"""8 GiB of bitmap, of four billion new ids; shifts stay far below a word's size."""


class LowProbe:
    """Knows which low words are new.

    Args:
        lows: uint64[k], sorted, each once.

    Raises:
        ValueError: They are not.
    """

    def __init__(self, lows: NDArray[np.uint64]) -> None:
        self._lows = owned(lows, np.uint64)
        if (self._lows[1:] <= self._lows[:-1]).any():
            raise ValueError("low words are sorted, and each stands there once")
        bits = min(max((self._lows.size * _BITS_PER_ID - 1).bit_length(), 6), _MOST_BITS)
        self._shift = 64 - bits
        self._map = np.zeros(1 << (bits - 6), np.uint64)
        self._first = np.zeros(self._map.size + 1, np.int64)
        _fill(self._lows, self._shift, self._map, self._first)

    def __len__(self) -> int:
        return int(self._lows.size)

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._lows.nbytes + self._map.nbytes + self._first.nbytes

    def matches(self, lows: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return int64, the rows of a table's low words, in any order, that are among the new ones.

        A row may match by its low word alone: `processor.engine.rest.judge` compares both words.
        """
        words = owned(lows, lows.dtype.type).view(np.uint64)
        found = np.zeros(words.size, np.bool_)
        if len(self):
            _match(words, self._lows, self._shift, self._map, self._first, found)
        return np.flatnonzero(found)


@kernel
def _fill(lows: NDArray[np.uint64], shift: Int, bitmap: NDArray[np.uint64], first: NDArray[np.int64]) -> None:
    for row in range(lows.size):
        bit = lows[row] >> np.uint64(shift)
        stretch = np.int64(bit >> np.uint64(6))
        bitmap[stretch] |= np.uint64(1) << (bit & np.uint64(63))
        first[stretch + 1] += 1
    for k in range(bitmap.size):
        first[k + 1] += first[k]


@kernel
def _match(
    words: NDArray[np.uint64],
    lows: NDArray[np.uint64],
    shift: Int,
    bitmap: NDArray[np.uint64],
    first: NDArray[np.int64],
    found: NDArray[np.bool_],
) -> None:
    for row in range(words.size):
        word = words[row]
        bit = word >> np.uint64(shift)
        stretch = np.int64(bit >> np.uint64(6))
        if (bitmap[stretch] >> (bit & np.uint64(63))) & np.uint64(1) == np.uint64(0):
            continue
        low: Int = first[stretch]
        high: Int = first[stretch + 1]
        while low < high:
            middle = (low + high) >> 1
            if lows[middle] < word:
                low = middle + 1
            else:
                high = middle
        found[row] = low < first[stretch + 1] and lows[low] == word
