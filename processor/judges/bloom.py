"""The judge of mode ``insert-id`` with the bloom backend.

A hit is a duplicate, of whom and until when nobody knows: no id is kept. So new records are dropped too, at the
rate that is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.window import BloomWindow
from processor.errors import StopError
from processor.judges.committed import in_filters
from processor.judges.ids import IdJudge, worker_clock_ms
from processor.state.ids.bloom_log import BloomLog

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.judgement import IdColumns, IdJudgement
    from processor.judges.committed import RememberedRecord
    from processor.judges.judge import ClockStats
    from schemas.config import InsertIdDedup


def window_of(dedup: InsertIdDedup) -> BloomWindow:
    """Return the filters of one partition, none of them begun."""
    options = dedup.bloom_options
    sizes = dedup.window, options.bucket, options.expected_per_bucket, options.false_positive_rate
    return BloomWindow(*sizes, refresh=dedup.refresh)


class BloomIds(IdJudge):
    """Judges by Bloom filters; see `IdJudge`."""

    def __init__(self, dedup: InsertIdDedup, now_ms: Callable[[], int] = worker_clock_ms) -> None:
        self._window = window_of(dedup)
        super().__init__(dedup, BloomLog(BloomNumbering(self._window)), now_ms)

    @override
    def _decided(self, records: IdColumns, prints: Fingerprints | None) -> IdJudgement:
        del prints  # with a fingerprint ids are exact
        try:
            return self._window.judge(records, self._window.look_up(records))
        except MemoryError as error:
            raise StopError(f"the ids of one transaction do not fit: {error}") from error

    @override
    def _in_index(self, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
        return in_filters(self._window, hashes, clock_ms)

    @override
    def size(self) -> tuple[int, int]:
        # An id that was renewed counts in each of its buckets.
        return self._window.ids, self._window.size_bytes

    @override
    def take_clock_stats(self) -> ClockStats:
        return super().take_clock_stats()._replace(false_positive_rate=self._window.rate)
