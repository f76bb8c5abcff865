"""Notes where the worker's clock moved a partition's, and reads it again from the notes.

A `WorkerClock` reads the partition's clock for a worker, and notes where the worker's own clock came in. A
`RecordedClock` reads it again from those notes. Both give the same readings for the same records, however they
are cut into pieces: a note holds from a source offset on.

Invariant: what is noted is bounded by the pieces of a commit, and nothing is noted where timestamps alone have
moved the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from processor.engine.ids import clock
from processor.engine.ids.clock import NEVER, Readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NO_LIMIT = 2**63 - 1
"""Timestamps alone."""
NOT_KNOWN = -1


class PartitionClock(Protocol):
    """Reads the clock of one partition."""

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """Read the clock at the next records.

        Args:
            clock_ms: As the records before left it; `NEVER` before the first.
            offset: int64[n], in the source, rising.
            timestamp_ms: int64[n].
            fault: uint8[n], `Fault` codes; a record with one does not move the clock.
        """
        ...


class WorkerClock:
    """The partition's clock as a worker reads it.

    Attributes:
        since: From this source offset on timestamps alone have moved it; `NOT_KNOWN` where nobody knows.
        before_ms: What it read there.
        limits: Since `forget`: from which source offset on which limit (ms) held.

    Args:
        now_ms: The worker's clock.
        max_ahead_ms: How far ahead of it a timestamp is believed; None: the partition's clock is the worker's.
    """

    def __init__(self, now_ms: Callable[[], int], max_ahead_ms: int | None) -> None:
        self._now_ms = now_ms
        self._max_ahead_ms = max_ahead_ms
        self.begin(0, NEVER)

    def begin(self, since: int, before_ms: int) -> None:
        """Go on from what a state says of the clock; 0 and `NEVER`: from nothing."""
        self.since, self.before_ms = since, before_ms
        self.limits: list[tuple[int, int]] = []

    def forget(self) -> None:
        """Take what is noted as told."""
        self.limits = []

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """See `PartitionClock.read`."""
        now_ms = self._now_ms()
        if not offset.size:
            return Readings(offset, clock_ms, 0, 0)
        if self.since == NOT_KNOWN:
            self.since, self.before_ms = int(offset[0]), clock_ms
        if self._max_ahead_ms is None:
            readings = clock.by_arrival(clock_ms, fault, now_ms)
            if readings.clock_ms != clock_ms:
                first = int(offset[np.flatnonzero(fault == 0)[0]])
                self._note(first, readings.clock_ms, int(offset[-1]) + 1, readings.clock_ms)
            return readings
        readings = clock.by_records(clock_ms, timestamp_ms, fault, now_ms, self._max_ahead_ms)
        if readings.future:
            limit_ms = now_ms + self._max_ahead_ms
            after = int(offset[-1]) + 1
            self._note(int(offset[0]), limit_ms, after, readings.clock_ms)
            self.limits.append((after, NO_LIMIT))
        return readings

    def _note(self, first: int, limit_ms: int, after: int, clock_ms: int) -> None:
        if self.limits and self.limits[-1] == (first, NO_LIMIT):
            self.limits.pop()
        self.limits.append((first, limit_ms))
        self.since, self.before_ms = after, clock_ms


class RecordedClock:
    """The partition's clock as it was read once.

    Args:
        offset: int64[k], rising: from which source offset on each limit held.
        limit_ms: int64[k], ms; `NO_LIMIT` where there is none from there on.
        arrival: Whether the limits are what the clock read, whatever the timestamps say.
    """

    def __init__(self, offset: NDArray[np.int64], limit_ms: NDArray[np.int64], *, arrival: bool) -> None:
        self._arrival = arrival
        self.say(offset, limit_ms)

    def say(self, offset: NDArray[np.int64], limit_ms: NDArray[np.int64]) -> None:
        """Say all limits again, with more of them at the end."""
        before = NEVER if self._arrival else NO_LIMIT
        self._offset = np.append(np.int64(NEVER), offset)
        self._limit_ms = np.append(np.int64(before), limit_ms)

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """See `PartitionClock.read`; nobody asks again how many were late or ahead."""
        limit = self._limit_ms[np.searchsorted(self._offset, offset, side="right") - 1]
        said = limit if self._arrival else np.minimum(timestamp_ms, limit)
        moving = np.where(fault == 0, said, np.int64(NEVER))
        reading = np.maximum.accumulate(np.append(np.int64(clock_ms), moving))[1:]
        return Readings(reading, int(reading[-1]) if reading.size else clock_ms, 0, 0)
