"""Reads a partition's clock at each of its records.

The rules of the contract: the clock is the highest record timestamp so far, this record's included, and never
further ahead of the worker's clock than ``max_ahead_ms``; or, by arrival, the worker's clock. It never goes
back, whatever the worker's clock does. A record that cannot be judged does not move it, one that passes
unjudged does.

Invariant: pure. The worker's clock is handed in; readings never fall, and do not depend on verdicts, so that
all of a chunk are known before anything is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = -(2**63)
"""What the clock reads before the first record: earlier than any timestamp."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The clock at consecutive records.

    Attributes:
        reading_ms: int64[n], the clock at each record, its own timestamp taken in; where the record does not
        move
            the clock, what it read before (`NEVER` at the very beginning).
        clock_ms: After the last of them.
        late: How many that move the clock have a timestamp below it.
        future: How many have one further ahead of the worker's clock than is believed.
    """

    reading_ms: NDArray[np.int64]
    clock_ms: int
    late: int
    future: int


def by_records(
    clock_ms: int,
    timestamp_ms: NDArray[np.int64],
    fault: NDArray[np.uint8],
    now_ms: int,
    max_ahead_ms: int,
) -> Readings:
    """Read the clock that runs by the records' timestamps.

    Args:
        clock_ms: As the records before left it; `NEVER` before the first.
        timestamp_ms: int64[n], in offset order.
        fault: uint8[n], `Fault` codes; a record with one does not move the clock.
        now_ms: The worker's clock.
        max_ahead_ms: How far ahead of it a record is believed.
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
    return Readings(reading, clock_ms, 0, 0)


@kernel
def _by_records(
    clock: Int,
    timestamp: NDArray[np.int64],
    fault: NDArray[np.uint8],
    most: Int,
    reading: NDArray[np.int64],
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
