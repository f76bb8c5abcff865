"""Estimates the clocks of sink partitions in which the records of several source partitions meet.

For `seqmark simulate` with ``route = "by-id"``. The source partitions are read one after the other, a worker
reads them side by side: records are taken to meet in the order of their source partitions' clocks. The clock of
a sink partition is then the highest timestamp of what has met there. Of all records only the highest timestamp
per sink partition and step of time is kept::

    highest int64[partitions, steps]    in step s the source's clock reads (first + s) * step_ms and more

When the time that is covered becomes too long, steps are made twice as long, and two become one.

Invariant: what is kept does not grow with the records. A reading is never above the truth of that order. It is
below it only for a record with a timestamp below the clock, by what came in its own step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.clock import NEVER
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CELLS = 2**20
"""8 MiB."""
_MOST_STEPS, _FEWEST_STEPS = 4_096, 16
"""Of a week 4,096 steps are two and a half minutes each; 65,536 partitions have 16."""


class SinkClocks:
    """What the records of each sink partition say of its clock.

    Attributes:
        step_ms: How long a step is.
        earliest_ms: The lowest timestamp of any; 0 before the first.

    Args:
        partitions: Of the sink.
        most_cells: The bound, where there are no more partitions than a 16th of it.
    """

    def __init__(self, partitions: int, most_cells: int = MOST_CELLS) -> None:
        self.step_ms = 1
        self.earliest_ms = 0
        self._steps = min(max(most_cells // partitions, _FEWEST_STEPS), _MOST_STEPS)
        self._highest = np.full((partitions, self._steps), NEVER, np.int64)
        self._first: int | None = None
        self._last = 0

    @property
    def partitions(self) -> int:
        """How many there are."""
        return int(self._highest.shape[0])

    @property
    def size_bytes(self) -> int:
        """Bytes of what is kept."""
        return int(self._highest.nbytes)

    def targets(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return int64[n], where ids go (as `processor.engine.repartition.targets` has it)."""
        return (hashes % np.uint64(self.partitions)).astype(np.int64)

    def add(
        self, target: NDArray[np.int64], reading_ms: NDArray[np.int64], timestamp_ms: NDArray[np.int64]
    ) -> None:
        """Take the next records of a source partition.

        Args:
            target: int64[n], the sink partition of each.
            reading_ms: int64[n], the source partition's clock, rising.
            timestamp_ms: int64[n], the records' own, as far as they are believed.
        """
        if not target.size:
            return
        earliest = int(timestamp_ms.min())
        self.earliest_ms = earliest if self._first is None else min(self.earliest_ms, earliest)
        self._cover(int(reading_ms[0]), int(reading_ms[-1]))
        _note(self._highest, target, reading_ms, timestamp_ms, self.step_ms, self._first or 0)

    def _cover(self, low_ms: int, high_ms: int) -> None:
        """Move and widen the steps until both times lie in one."""
        first, last = low_ms // self.step_ms, high_ms // self.step_ms
        if self._first is None:
            self._first = self._last = first
        while max(last, self._last) - min(first, self._first) >= self._steps:
            self._widen()
            first, last = low_ms // self.step_ms, high_ms // self.step_ms
        if first < self._first:
            moved = np.full_like(self._highest, NEVER)
            by = self._first - first
            moved[:, by:] = self._highest[:, : self._steps - by]
            self._highest, self._first = moved, first
        self._last = max(self._last, last)

    def _widen(self) -> None:
        assert self._first is not None  # noqa: S101 - they cover something
        wider = np.full_like(self._highest, NEVER)
        begin = self._first % 2
        halves = (np.arange(self._steps) + begin) // 2
        for parity in (0, 1):
            of = np.flatnonzero((np.arange(self._steps) + begin) % 2 == parity)
            wider[:, halves[of]] = np.maximum(wider[:, halves[of]], self._highest[:, of])
        self._highest = wider
        self._first //= 2
        self._last //= 2
        self.step_ms *= 2

    def readings(
        self, target: NDArray[np.int64], reading_ms: NDArray[np.int64], timestamp_ms: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return int64[n], the sink partition's clock at some of the records that were taken.

        Args:
            target: int64[n], as `add` has it.
            reading_ms: int64[n], source partition by source partition, rising within each.
            timestamp_ms: int64[n].
        """
        order = np.argsort(reading_ms, kind="stable")
        before = np.maximum.accumulate(self._highest, axis=1)
        found = np.empty(target.size, np.int64)
        _read(before, order, target, reading_ms, timestamp_ms, self.step_ms, self._first or 0, found)
        return found


@kernel
def _note(
    highest: NDArray[np.int64],
    target: NDArray[np.int64],
    reading: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    step_ms: Int,
    first: Int,
) -> None:
    step = np.int64(0)
    ends = reading[0]  # divided once per step, for readings rise
    for row in range(target.size):
        if reading[row] >= ends:
            step = reading[row] // step_ms - first
            ends = (step + first + 1) * step_ms
        highest[target[row], step] = max(highest[target[row], step], timestamp[row])


@kernel
def _read(
    before: NDArray[np.int64],
    order: NDArray[np.int64],
    target: NDArray[np.int64],
    reading: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    step_ms: Int,
    first: Int,
    found: NDArray[np.int64],
) -> None:
    """Go through the rows in the order in which they meet; ``before`` has the highest up to each step."""
    clock = np.full(before.shape[0], NEVER, np.int64)
    for row in order:
        to = target[row]
        step = reading[row] // step_ms - first
        now = max(clock[to], timestamp[row])
        if step > 0:
            now = max(now, before[to, step - 1])
        clock[to] = now
        found[row] = now
