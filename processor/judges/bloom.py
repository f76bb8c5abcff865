"""The judge of mode ``insert-id`` with the bloom backend.

 With ``confirm`` a hit is looked up by its hash among the ids
of the living buckets, in memory and in the local store, so verdict, owner and expiry are those of the exact
backend. Without it a hit is a duplicate, of whom and until when nobody knows.

Invariant: with ``confirm`` a filter never decides: it only says which ids need not be looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.ids.block import UnreadableBlockError
from processor.engine.ids.bloom.bits import NOWHERE
from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.window import BloomLookup, BloomWindow
from processor.errors import StopError
from processor.judges.ids import IdJudge, worker_clock_ms
from processor.state.ids.bloom_log import BloomLog
from processor.state.kv.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.engine.ids.block import IdRows
    from processor.engine.ids.judgement import IdJudgement
    from processor.judges.judge import ClockStats
    from schemas.config import InsertIdDedup


def window_of(dedup: InsertIdDedup) -> BloomWindow:
    """Return the filters of one partition, none of them begun."""
    options = dedup.bloom_options
    return BloomWindow(
        dedup.window,
        options.bucket,
        options.expected_per_bucket,
        options.false_positive_rate,
        refresh=dedup.refresh,
        confirm=options.confirm,
    )


class BloomIds(IdJudge):
    """Judges by Bloom filters, and with ``confirm`` by the ids too.

    Args:
        dedup: What the records are judged by.
        now_ms: The worker's clock.
    """

    def __init__(self, dedup: InsertIdDedup, now_ms: Callable[[], int] = worker_clock_ms) -> None:
        self._window = window_of(dedup)
        self._index = BloomNumbering(self._window)
        self._kept = BloomLog(self._index)
        super().__init__(dedup, self._kept, now_ms)

    @override
    def _decided(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        hit = self._window.look_up(ids, reading_ms)
        found = self._found(ids, hit) if self._window.confirm else None
        try:
            return self._window.judge(ids, offset, reading_ms, hit, found)
        except MemoryError as error:
            raise StopError(f"the ids of one transaction do not fit: {error}") from error

    def _found(self, ids: Ids, hit: NDArray[np.int64]) -> BloomLookup:
        """Look hits up. All that is committed is in memory or in the store, see `BloomLog`.

        An id stands under the last bucket in which it was remembered, and before that under earlier ones, so
        the first that is found is the one that counts. A hit of a later bucket that has no such id is a false
        positive of it: then the earlier ones are asked.
        """
        owner, reading = np.zeros((2, hit.size), np.int64)
        known = np.zeros(hit.size, np.bool_)
        asked = np.flatnonzero(hit != NOWHERE)
        bucket = hit[asked]
        buckets = np.array(sorted({each.bucket for each in self._window.filters}, reverse=True), np.int64)
        while asked.size:
            found = self._look_up(bucket, ids.hash[asked])
            there = found.known
            known[asked], owner[asked], reading[asked] = there, found.owner, found.reading_ms
            asked, bucket = asked[~there], bucket[~there]
            # Of what was not there: the next earlier bucket, where there is one.
            earlier = np.searchsorted(-buckets, -bucket, side="right")
            left = earlier < buckets.size
            asked, bucket = asked[left], buckets[earlier[left]]
        return BloomLookup(known, owner, reading)

    def _look_up(self, bucket: NDArray[np.int64], hashes: NDArray[np.uint64]) -> BloomLookup:
        """Return what is known of some ids, each in one bucket.

        Raises:
            RebuildError: A page cannot be read; the local state has been thrown away.
        """
        assert self._table is not None  # noqa: S101 - `load` has given it
        try:
            return self._kept.runs.look_up(bucket, hashes, self._table.get_many)
        except (StoreError, UnreadableBlockError) as error:
            raise self._corrupt(error) from error

    @override
    def _staged(self) -> IdRows:
        return self._index.staged()

    @override
    def size(self) -> tuple[int, int]:
        # An id that was renewed counts in each of its buckets.
        return self._window.ids, self._window.size_bytes + self._kept.runs.size_bytes

    @override
    def take_clock_stats(self) -> ClockStats:
        return super().take_clock_stats()._replace(false_positive_rate=self._window.rate)
