"""Finds the rows of a table whose ids are among the new ones, in memory that goes by the new ones.

The low words of the new ids, sorted, are looked up by their upper bits: each 64-bit word of a bitmap covers a
stretch of them, and beside it stands where that stretch begins::

    low word | c bits: which stretch | 6 bits: which bit of its bitmap | 58 - c bits |

There are at least 16 bits per id: of the rows of a table that are not among the new ids one in 16 or fewer goes
on to a second bitmap, by other bits of the word, and one in 256 is looked for in the sorted words: a search
waits for memory several times, one after the other. About 16 B per new id, and no more than twice that.

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
_OTHER_BITS = 24
"""How far into the word the bits of the second bitmap are."""
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
        self._other = np.zeros_like(self._map)
        self._first = np.zeros(self._map.size + 1, np.int64)
        _fill(self._lows, self._shift, self._map, self._other, self._first)

    def __len__(self) -> int:
        return int(self._lows.size)

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._lows.nbytes + self._map.nbytes + self._other.nbytes + self._first.nbytes

    def matches(self, lows: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return int64, the rows of a table's low words, in any order, that are among the new ones.

        A row may match by its low word alone: `processor.engine.rest.judge` compares both words.
        """
        rows = np.empty(lows.size, np.int64)
        found = 0
        if len(self):
            words = owned(lows, lows.dtype.type).view(np.uint64)
            found = _match(words, self._lows, self._shift, self._map, self._other, self._first, rows)
        return rows[:found].copy()


@kernel
def _fill(
    lows: NDArray[np.uint64],
    shift: Int,
    bitmap: NDArray[np.uint64],
    other: NDArray[np.uint64],
    first: NDArray[np.int64],
) -> None:
    for row in range(lows.size):
        bit = (lows[row] << np.uint64(_OTHER_BITS)) >> np.uint64(shift)
        other[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
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
    other: NDArray[np.uint64],
    first: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> int:
    """Write the rows that match; returns how many they are."""
    # Three loops, as short as can be: what one of them waits for keeps none of the others waiting.
    some, found = 0, 0
    for row in range(rows.size):
        bit = words[row] >> np.uint64(shift)
        if (bitmap[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
            rows[some] = row
            some += 1
    few = 0
    for k in range(some):
        row = rows[k]
        bit = (words[row] << np.uint64(_OTHER_BITS)) >> np.uint64(shift)
        if (other[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
            rows[few] = row
            few += 1
    for k in range(few):
        row = rows[k]
        word = words[row]
        stretch = np.int64((word >> np.uint64(shift)) >> np.uint64(6))
        low: Int = first[stretch]
        high: Int = first[stretch + 1]
        while low < high:
            middle = (low + high) >> 1
            if lows[middle] < word:
                low = middle + 1
            else:
                high = middle
        if low < first[stretch + 1] and lows[low] == word:
            rows[found] = row
            found += 1
    return found
