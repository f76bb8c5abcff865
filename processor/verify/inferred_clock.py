"""Infers a partition's clock from timestamps alone, where there is no changelog that says what it read.

A record that lies far ahead of those before it is one of the future, which a worker held back, or the first
after a quiet spell. The records behind it decide: after a quiet spell none lies far behind it. Where some do,
it is not known. A clock that creeps ahead, by less than `max_ahead` per record, is not noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

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
        max_ahead_ms: How far ahead of the worker's clock a record may move the partition's.
    """

    def __init__(self, name: str, max_ahead_ms: int) -> None:
        super().__init__(*np.zeros((2, 0), np.int64), arrival=False)
        self._name = name
        self._max_ahead_ms = max_ahead_ms
        # The highest reading that one record has moved the clock far ahead to.
        self._led_to_ms = NEVER

    @override
    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """Return what the clock reads at each record.

        Raises:
            StopError: A record lies far behind one that lay far ahead.
        """
        found = super().read(clock_ms, offset, timestamp_ms, fault)
        before = np.append(np.int64(clock_ms), found.reading_ms[:-1])
        far = (before == NEVER) | (found.reading_ms - np.maximum(before, 0) > self._max_ahead_ms)
        leads = np.where(far, found.reading_ms, np.int64(NEVER))
        led = np.maximum(np.maximum.accumulate(leads), self._led_to_ms)
        behind = np.flatnonzero((fault == 0) & (timestamp_ms < np.maximum(led, 0) - self._max_ahead_ms))
        if behind.size:
            raise StopError(
                f"{self._name}: the changelog says nothing of the partition's clock, and the record at offset "
                f"{offset[behind[0]]} lies more than max_ahead behind one before it, which lay as far ahead: "
                "whether the worker's clock followed that one is not known, so nothing can be proved from there"
            )
        self._led_to_ms = int(led[-1]) if led.size else self._led_to_ms
        return found
