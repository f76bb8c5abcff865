"""What does a partition's clock read where nothing says how far records were believed?

That is where there is no changelog of the state: then timestamps alone say it, as long as none of them is so
far ahead that a worker may have held it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.clock import NEVER
from processor.engine.clock_trace import RecordedClock
from processor.errors import StopError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.clock import Readings


class BelievedClock(RecordedClock):
    """The partition's clock by its records' timestamps.

    Args:
        name: Of the source partition.
        max_ahead_ms: How far ahead of the worker's clock a record is believed.
    """

    def __init__(self, name: str, max_ahead_ms: int) -> None:
        super().__init__(*np.zeros((2, 0), np.int64), arrival=False)
        self._name = name
        self._max_ahead_ms = max_ahead_ms

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """See `PartitionClock.read`.

        Raises:
            StopError: A record is so far ahead of the clock before it that the worker may not have believed it.
        """
        found = super().read(clock_ms, offset, timestamp_ms, fault)
        before = np.append(np.int64(clock_ms), found.reading_ms[:-1])
        known = before != NEVER
        ahead = np.flatnonzero(known & (found.reading_ms - np.where(known, before, 0) > self._max_ahead_ms))
        if ahead.size:
            raise StopError(
                f"{self._name}: the changelog says nothing of the partition's clock, and the record at offset "
                f"{offset[ahead[0]]} is more than max_ahead ahead of those before it: whether the worker "
                "believed it is not known, so nothing can be proved from there on"
            )
        return found
