"""Makes the parts of groups' keys out of columns of events.

A part is two integers per row: a text's place and length, or a number and `NUMBER`, or anything and
`NULL_PART`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.events.reader import EventColumns

NUMBER = -2
NULL_PART = -1
Part = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""What `processor.engine.events.groups` calls the two integers of a part, int64[n] each."""


class KeyParts(NamedTuple):
    """The keys of n rows, of K parts.

    Attributes:
        data: uint8[m], where texts lie.
        extra: uint8[k], where those lie that begin at -1 or below.
        first: int64[K, n].
        second: int64[K, n].
    """

    data: NDArray[np.uint8]
    extra: NDArray[np.uint8]
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    @classmethod
    def of(cls, events: EventColumns, parts: Sequence[Part]) -> KeyParts:
        """Join parts of the same events."""
        return cls(
            events.data,
            events.extra,
            np.stack([first for first, _ in parts]),
            np.stack([second for _, second in parts]),
        )


def text_part(valid: NDArray[np.bool_], start: NDArray[np.int64], length: NDArray[np.int64]) -> Part:
    """Return the part of a text field."""
    return start, np.where(valid, length, NULL_PART)


def number_part(valid: NDArray[np.bool_], numbers: NDArray[np.int64] | NDArray[np.float64]) -> Part:
    """Return the part of a field of 64 bits; of a double its bits, those of all zeros and of all NaNs alike."""
    if numbers.dtype == np.float64:
        plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
        whole = plain.view(np.int64)
    else:
        whole = numbers.astype(np.int64, copy=False)
    return whole, np.where(valid, NUMBER, NULL_PART)


def wide_parts(valid: NDArray[np.bool_], numbers: NDArray[np.int64]) -> list[Part]:
    """Return the two parts of a field of 128 bits, low word first."""
    second = np.where(valid, NUMBER, NULL_PART)
    return [(np.ascontiguousarray(numbers[:, word]), second) for word in range(2)]
