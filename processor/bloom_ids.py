"""How is one partition judged by Bloom filters, with and without confirmation?

The judge of mode ``insert-id``, bloom backend. With ``confirm`` a hit is looked up by its hash among the ids
of the living buckets in the local store, so verdict, owner and expiry are those of the exact backend. Without
it a hit is a duplicate, of whom and until when nobody knows.

Invariant: with ``confirm`` a filter never decides: it only says which ids need not be looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine import id_entries
from processor.engine.bloom import BloomWindow, Found
from processor.engine.bloom_bits import NOWHERE
from processor.engine.bloom_index import BloomIndex
from processor.engine.id_entries import UnreadableEntryError
from processor.errors import StopError
from processor.insert_id import IdJudge, worker_clock_ms
from processor.state.bloom_log import BloomLog
from processor.state.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.blocks import Rows
    from processor.engine.id_judgement import IdJudgement
    from processor.engine.ids import Ids
    from processor.judge import Times
    from schemas.config import InsertIdDedup


class BloomIds(IdJudge):
    """Mode ``insert-id`` with the bloom backend: see `processor.judge.Judge`.

    Args:
        dedup: What the records are judged by.
        now_ms: The worker's clock.
    """

    def __init__(self, dedup: InsertIdDedup, now_ms: Callable[[], int] = worker_clock_ms) -> None:
        options = dedup.bloom_options
        self._window = BloomWindow(
            dedup.window,
            options.bucket,
            options.expected_per_bucket,
            options.false_positive_rate,
            refresh=dedup.refresh,
            confirm=options.confirm,
        )
        self._index = BloomIndex(self._window)
        super().__init__(dedup, BloomLog(self._index), now_ms)

    def _decided(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        hit = self._window.look_up(ids, reading_ms)
        found = self._found(ids, hit) if self._window.confirm else None
        try:
            return self._window.judge(ids, offset, reading_ms, hit, found)
        except MemoryError as error:
            raise StopError(f"the ids of one transaction do not fit: {error}") from error

    def _found(self, ids: Ids, hit: NDArray[np.int64]) -> Found:
        """Look hits up. All that is committed is in the store, see `BloomLog`.

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
            there = self._look_up(bucket, ids.hash[asked], asked, owner, reading)
            known[asked[there]] = True
            asked, bucket = asked[~there], bucket[~there]
            # Of what was not there: the next earlier bucket, where there is one.
            earlier = np.searchsorted(-buckets, -bucket, side="right")
            left = earlier < buckets.size
            asked, bucket = asked[left], buckets[earlier[left]]
        return Found(known, owner, reading)

    def _look_up(
        self,
        bucket: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        rows: NDArray[np.int64],
        owner: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return bool[k], which of some ids stand under these buckets; write what is known of them.

        Args:
            bucket: int64[k].
            hashes: uint64[k, 2].
            rows: int64[k], where in ``owner`` and ``reading_ms`` what is found is written.
            owner: int64[n], written.
            reading_ms: int64[n], written.

        Raises:
            RebuildError: An entry cannot be read; the local state has been thrown away.
        """
        assert self._table is not None  # noqa: S101 - `load` has given it
        keys = id_entries.keys(bucket, hashes)
        try:
            values = self._table.get_many(keys)
            some = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
            found = id_entries.decode([key for key, _ in some], [value for _, value in some])
        except (StoreError, UnreadableEntryError) as error:
            raise self._corrupt(error) from error
        there = np.array([value is not None for value in values], np.bool_)
        owner[rows[there]], reading_ms[rows[there]] = found
        return there

    def _staged(self) -> Rows:
        return self._index.staged()

    def size(self) -> tuple[int, int]:
        """See `Judge.size`: ids in the filters, one that was renewed counts in each of its buckets."""
        return self._window.ids, self._window.size_bytes

    def times(self) -> Times:
        """See `Judge.times`."""
        return super().times()._replace(false_positive_rate=self._window.rate)
