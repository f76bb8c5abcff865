"""The judge of mode ``insert-id`` with the bloom backend.

With ``confirm`` a hit is looked up by its hash among the ids of the living buckets, in memory and in the local
store, so verdict, owner and expiry are those of the exact backend. Without it a hit is a duplicate, of whom and
until when nobody knows.

Invariant: with ``confirm`` a filter never decides: it only says which ids need not be looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.ids.block import UnreadableBlockError
from processor.engine.ids.bloom.filter import NOWHERE
from processor.engine.ids.bloom.memtable import BloomLookup
from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.window import BloomWindow
from processor.errors import StopError
from processor.judges.committed import in_runs
from processor.judges.ids import IdJudge, worker_clock_ms
from processor.state.ids.bloom_log import BloomLog
from processor.state.kv.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    told_apart = dedup.fingerprint is not None
    return BloomWindow(*sizes, refresh=dedup.refresh, confirm=options.confirm, fingerprints=told_apart)


class BloomIds(IdJudge):
    """Judges by Bloom filters, and with ``confirm`` by the ids too; see `IdJudge`."""

    log: BloomLog

    def __init__(self, dedup: InsertIdDedup, now_ms: Callable[[], int] = worker_clock_ms) -> None:
        self._window = window_of(dedup)
        super().__init__(dedup, BloomLog(BloomNumbering(self._window)), now_ms)

    @override
    def _decided(self, records: IdColumns, prints: Fingerprints | None) -> IdJudgement:
        hit = self._window.look_up(records)
        found = self._found(records.hash, hit) if self._window.confirm else None
        try:
            return self._window.judge(records, hit, found, prints)
        except MemoryError as error:
            raise StopError(f"the ids of one transaction do not fit: {error}") from error

    def _found(self, hashes: NDArray[np.uint64], hit: NDArray[np.int64]) -> BloomLookup:
        """Look hits up. All that is committed is in memory or in the store, see `BloomLog`.

        An id stands under the last bucket in which it was remembered, and before that under earlier ones, so
        the first that is found is the one that counts. A hit of a later bucket that has no such id is a false
        positive of it: then the earlier ones are asked.
        """
        result = BloomLookup.nothing(hit.size)
        asked = np.flatnonzero(hit != NOWHERE)
        bucket = hit[asked]
        buckets = np.array(sorted({each.bucket for each in self._window.filters}, reverse=True), np.int64)
        while asked.size:
            found = self._look_up(bucket, hashes[asked])
            result.put(asked, found)
            asked, bucket = asked[~found.known], bucket[~found.known]
            # Of what was not there: the next earlier bucket, where there is one.
            earlier = np.searchsorted(-buckets, -bucket, side="right")
            left = earlier < buckets.size
            asked, bucket = asked[left], buckets[earlier[left]]
        return result

    def _look_up(self, bucket: NDArray[np.int64], hashes: NDArray[np.uint64]) -> BloomLookup:
        try:
            return self.log.runs.look_up(bucket, hashes, self._table.store.get_many)
        except (StoreError, UnreadableBlockError) as error:
            raise self._corrupt(error) from error

    @override
    def _in_index(self, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
        return in_runs(self._window, self.log.runs, hashes, clock_ms, self._table.store.get_many)

    @override
    def size(self) -> tuple[int, int]:
        # An id that was renewed counts in each of its buckets.
        return self._window.ids, self._window.size_bytes + self.log.runs.size_bytes

    @override
    def take_clock_stats(self) -> ClockStats:
        return super().take_clock_stats()._replace(false_positive_rate=self._window.rate)
