"""Reads a partition's clock at each of its records, notes where a worker's moved it, and reads it again.

The rules of the contract: the clock is the highest record timestamp so far, this record's included, and never
further ahead of the worker's clock than ``max_ahead_ms``; or, by arrival, the worker's clock. It never goes
back, whatever the worker's clock does. A record that cannot be judged does not move it, one that passes
unjudged does.

A `WorkerClock` reads the partition's clock for a worker, and notes where the worker's own clock came in. A
`RecordedClock` reads it again from those notes. Both give the same readings for the same records, however they
are cut into pieces: a note holds from a source offset on.

Invariant: readings never fall, and do not depend on verdicts, so that all of a chunk are known before anything
is judged. What is noted is bounded by the pieces of a commit, and nothing is noted where timestamps alone have
moved the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NEVER = -(2**63)
"""What the clock reads before the first record: earlier than any timestamp."""
NO_LIMIT = 2**63 - 1
"""Timestamps alone."""
NOT_KNOWN = -1


class Readings(NamedTuple):
    """The clock at consecutive records.

    Attributes:
        reading_ms: int64[n], the clock at each record, its own timestamp taken in; where the record does not
            move the clock, what it read before (`NEVER` at the very beginning).
        clock_ms: After the last of them.
        late: How many that move the clock have a timestamp below it.
        future: How many have one further ahead of the worker's clock than is believed.
    """

    reading_ms: NDArray[np.int64]
    clock_ms: int
    late: int = 0
    future: int = 0


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


def by_records(
    clock_ms: int, timestamp_ms: NDArray[np.int64], fault: NDArray[np.uint8], now_ms: int, max_ahead_ms: int
) -> Readings:
    """Read the clock that runs by the records' timestamps, see `PartitionClock.read`.

    They are believed up to ``max_ahead_ms`` ahead of the worker's clock, which reads ``now_ms``.
    """
    reading = np.empty(timestamp_ms.size, np.int64)
    clock, late, future = _by_records(clock_ms, timestamp_ms, fault, now_ms + max_ahead_ms, reading)
    return Readings(reading, int(clock), int(late), int(future))


def by_arrival(clock_ms: int, fault: NDArray[np.uint8], now_ms: int) -> Readings:
    """Read the clock that is the worker's; see `by_records`. None is late or ahead."""
    moving = np.flatnonzero(fault == 0)
    reading = np.full(fault.size, clock_ms, np.int64)
    if moving.size:
        clock_ms = max(clock_ms, now_ms)
        reading[moving[0] :] = clock_ms
    return Readings(reading, clock_ms)


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

    @property
    def limit_ms(self) -> int:
        """What a record could move the clock to now; by arrival what it would read."""
        return self._now_ms() + (self._max_ahead_ms or 0)

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
            return Readings(offset, clock_ms)
        if self.since == NOT_KNOWN:
            self.since, self.before_ms = int(offset[0]), clock_ms
        after = int(offset[-1]) + 1
        if self._max_ahead_ms is None:
            readings = by_arrival(clock_ms, fault, now_ms)
            if readings.clock_ms != clock_ms:
                first = int(offset[np.flatnonzero(fault == 0)[0]])
                self._note(first, readings.clock_ms, after, readings.clock_ms)
            return readings
        readings = by_records(clock_ms, timestamp_ms, fault, now_ms, self._max_ahead_ms)
        if readings.future:
            self._note(int(offset[0]), now_ms + self._max_ahead_ms, after, readings.clock_ms)
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
        self._offset = np.append(np.int64(NEVER), offset)
        self._limit_ms = np.append(np.int64(NEVER if self._arrival else NO_LIMIT), limit_ms)

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
        return Readings(reading, int(reading[-1]) if reading.size else clock_ms)


@kernel
def _by_records(
    clock: Int, timestamp: NDArray[np.int64], fault: NDArray[np.uint8], most: Int, reading: NDArray[np.int64]
) -> tuple[Int, Int, Int]:
    now = np.int64(clock)
    late = 0
    future = 0
    for row in range(timestamp.size):
        if fault[row] == 0:
            if timestamp[row] < now:
                late += 1
            if timestamp[row] > most:
                future += 1
            now = max(now, min(timestamp[row], np.int64(most)))
        reading[row] = now
    return now, late, future
