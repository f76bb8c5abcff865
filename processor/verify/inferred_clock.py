"""What does a partition's clock read where nothing says how far records were believed?

That is where there is no changelog of the state: then timestamps alone say it. A record that lies far ahead of
those before it is one of the future, which a worker held back, or the first after a quiet spell. Which of the
two is told by those behind it: after a quiet spell none lies far behind it. Where some do, it is not known. A
clock that creeps ahead, by less than `max_ahead` a record, is not noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.clock import NEVER
from processor.engine.ids.recorded_clock import RecordedClock
from processor.errors import StopError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.clock import Readings


class InferredClock(RecordedClock):
    """The partition's clock by its records' timestamps.

    Args:
        name: Of the source partition.
        max_ahead_ms: How far ahead of the worker's clock a record is believed.
    """

    def __init__(self, name: str, max_ahead_ms: int) -> None:
        super().__init__(*np.zeros((2, 0), np.int64), arrival=False)
        self._name = name
        self._max_ahead_ms = max_ahead_ms
        # The highest reading that a record has led far ahead to.
        self._led_ms = NEVER

    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """See `PartitionClock.read`.

        Raises:
            StopError: A record lies far behind one that lay far ahead.
        """
        found = super().read(clock_ms, offset, timestamp_ms, fault)
        before = np.append(np.int64(clock_ms), found.reading_ms[:-1])
        far = (before == NEVER) | (found.reading_ms - np.maximum(before, 0) > self._max_ahead_ms)
        leads = np.where(far, found.reading_ms, np.int64(NEVER))
        led = np.maximum(np.maximum.accumulate(leads), self._led_ms)
        behind = np.flatnonzero((fault == 0) & (timestamp_ms < np.maximum(led, 0) - self._max_ahead_ms))
        if behind.size:
            raise StopError(
                f"{self._name}: the changelog says nothing of the partition's clock, and the record at offset "
                f"{offset[behind[0]]} lies more than max_ahead behind one before it, which lay as far ahead: "
                "whether the worker believed that one is not known, so nothing can be proved from there on"
            )
        self._led_ms = int(led[-1]) if led.size else self._led_ms
        return found
