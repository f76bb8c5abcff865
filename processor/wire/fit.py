"""Cuts records into batches that a topic takes: by their bytes, then into halves until each keeps the limit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

RUN_BYTES = 256 * 1024
"""Inflated bytes that are written into one batch at most: what a well-set producer makes."""


class LimitedBatch(Protocol):
    """What can be too large for its topic."""

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        ...


B = TypeVar("B", bound=LimitedBatch)


class TooLargeError(Exception):
    """One record alone exceeds the topic's limit; ``row`` is its index in the columns."""

    def __init__(self, row: int, size_bytes: int) -> None:
        self.row = row
        self.size_bytes = size_bytes
        super().__init__(f"record {row} makes a batch of {size_bytes:,} bytes")


class RunBuffer:
    """The bytes that the records of one batch are written into; grows with the largest batch."""

    def __init__(self) -> None:
        self._bytes = np.empty(RUN_BYTES, np.uint8)

    def of(self, most_bytes: int) -> NDArray[np.uint8]:
        """Return at least so many bytes; what the last call returned is overwritten."""
        if self._bytes.size < most_bytes:
            self._bytes = np.empty(most_bytes, np.uint8)
        return self._bytes


def equal_runs(values: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive equal values."""
    if values.size:
        yield from itertools.pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), values.size])


def cut(size_bytes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive records that take at most `RUN_BYTES`, or are one record."""
    after = np.cumsum(size_bytes)
    start = 0
    while start < size_bytes.size:
        before = int(after[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(after, before + RUN_BYTES, side="right")))
        yield start, stop
        start = stop


def _nothing(_index: int) -> tuple[()]:
    return ()


def fit(
    rows: NDArray[np.int64],
    limit_bytes: int,
    write: Callable[[int, int], B],
    smaller: Callable[[int], Iterable[B]] = _nothing,
) -> Iterator[B]:
    """Yield batches with ``rows``, in order, each within the limit.

    Args:
        rows: int64[k], at least one.
        limit_bytes: The topic's ``max.message.bytes``.
        write: Returns a batch with the rows from one index to another.
        smaller: Yields ever smaller batches with the row at an index, for one that is too large alone.

    Raises:
        TooLargeError: One record alone exceeds the limit, made as small as it can be.
    """
    pending = [(0, int(rows.size))]
    while pending:
        start, stop = pending.pop()
        whole = write(start, stop)
        if whole.size > limit_bytes and stop - start > 1:
            half = start + (stop - start) // 2
            pending += [(half, stop), (start, half)]
            continue
        for batch in itertools.chain([whole], smaller(start) if whole.size > limit_bytes else ()):
            if batch.size <= limit_bytes:
                yield batch
                break
        else:
            raise TooLargeError(int(rows[start]), batch.size)
