"""Judges ids by one Bloom filter per bucket of time, with a few bits per id.

A `BloomWindow` has one filter per bucket of the partition's time, and drops it whole when all of its bucket is
outside the window. A window of W buckets lies in W + 1 of them: the present one and the oldest are partial.

**How the promised rate is divided.** A new id is taken for an old one if any live filter says so, so the
promise P for a look-up over the whole window is shared among all filters that can be live:

    a bucket             P / (ceil(window / bucket) + 1)
    its first filter     3/4 of that, sized for `expected_per_bucket`
    its k-th further one 3/4 * (1/4)^k of that: 3/4 + 3/16 + 3/64 + ... = 1, however many there are

A filter is full at the ids that it is sized for, and then one more is begun: the first further one for a
quarter of the expected ids, each next one for twice as many as the one before. With n ids and a rate p a filter
has k = log2(1/p) bits of an id, m = n k / -ln(1 - p^(1/k)) = n ln(1/p) / (ln 2)^2 in all. For P = 1e-9 and
eight live filters p = 9.4e-11: 48.1 bits, 6.01 bytes per id, of which the division takes 0.6.

An id of the open transaction is in no filter yet, for a bit cannot be taken back: it is kept beside, as it is,
until `commit`. With ``confirm`` somebody looks hits up, and the verdict is exact; without it a hit is a
duplicate.

Invariant: without ``confirm`` an id is remembered until its bucket is dropped, at most one bucket too long;
which ids are committed, and when, does not show in any verdict.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids import collisions
from processor.engine.ids.block import IdRows
from processor.engine.ids.bloom.filter import NOWHERE, Filter, mixed_bits
from processor.engine.ids.bloom.memtable import BloomLookup, HashedIds, find_slot
from processor.engine.ids.clock import NEVER
from processor.engine.ids.collisions import Collisions
from processor.engine.ids.judgement import IdJudgement
from processor.engine.ids.page import NO_ROUTES, NONE
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.bloom.memtable import HashedColumns
    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.judgement import IdColumns

FIRST_SHARE = 0.75
"""Of a bucket's rate, to its first filter: 0.6 bits per id more than all of it would need; a half would be
1.44."""
FIRST_FURTHER = 4
"""The first further filter is for a quarter of the expected ids: being wrong by little costs little."""
FEWEST_IDS = 64
FEW, MANY = 3, 5
"""Columns of what is kept of a staged id, without and with fingerprints and route words."""
CLEANED = 262_144
"""Words of the next filter that are zeroed with each commit: 2 MiB, below 5 ms even as new memory."""


class BloomWindow:
    """The filters of one partition, and the ids of the open transaction.

    Args:
        window_ms: How long an id is remembered.
        bucket_ms: Time that one bucket covers.
        expected_per_bucket: Ids that a bucket's first filter is sized for.
        false_positive_rate: Promised of a look-up over the whole window.
        refresh: Whether a duplicate renews its id.
        confirm: Whether hits are looked up.
        fingerprints: Whether records of one id are told apart by theirs, which takes ``confirm``.
    """

    def __init__(
        self,
        window_ms: int,
        bucket_ms: int,
        expected_per_bucket: int,
        false_positive_rate: float,
        *,
        refresh: bool = False,
        confirm: bool = True,
        fingerprints: bool = False,
    ) -> None:
        if fingerprints and not confirm:
            raise ValueError("without confirmation nobody knows the fingerprint of an id")
        self.window_ms = window_ms
        self.bucket_ms = bucket_ms
        self.expected = max(expected_per_bucket, FEWEST_IDS)
        self.most_live = -(-window_ms // bucket_ms) + 1
        self.bucket_rate = false_positive_rate / self.most_live
        self.refresh = refresh
        self.confirm = confirm
        self.collisions = Collisions(window_ms) if fingerprints else None
        self.staged: HashedIds
        self._routed: bool
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.filters: list[Filter] = []
        # The words of a bucket to come, of which those before `_clean` are zeros.
        self._spare: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._clean = 0
        self._stage_nothing()
        if self.collisions is not None:
            self.collisions.clear()

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        sizes = [each.words.nbytes for each in self.filters]
        variants = 0 if self.collisions is None else self.collisions.size_bytes
        return sum(sizes) + variants + self._spare.nbytes + self.staged.size_bytes

    @property
    def staged_count(self) -> int:
        """How many rows the next commit writes, of ids and of variants."""
        return self.staged.count + (0 if self.collisions is None else self.collisions.staged_count)

    @property
    def ids(self) -> int:
        """How many ids the live filters have; one that was renewed counts in each of its buckets."""
        return sum(each.ids for each in self.filters)

    @property
    def rate(self) -> float:
        """The rate at which a new id is now taken for an old one, by the bits that are set."""
        return -math.expm1(sum(math.log1p(-each.rate) for each in self.filters if each.rate < 1))

    def ends_ms(self, bucket: int) -> int:
        """Return the first reading at which no id of a bucket is inside the window."""
        return (bucket + 1) * self.bucket_ms - 1 + self.window_ms

    def first_live(self, clock_ms: int) -> int:
        """Return the lowest bucket of which an id can be inside the window at this reading."""
        return (clock_ms - self.window_ms + 1) // self.bucket_ms

    # ---------------------------------------------------------------- a chunk

    def look_up(self, records: IdColumns) -> NDArray[np.int64]:
        """Return int64[n]: the latest live bucket that a record's id may be in, or `NOWHERE`.

        With ``confirm`` those that are somewhere have to be looked up.
        """
        hit = np.full(records.skip.size, NOWHERE, np.int64)
        mixed = mixed_bits(records.hash)
        for each in sorted(self.filters, key=lambda each: -each.bucket):
            # Readings never fall: from some row on all records are past the bucket's end.
            stop = int(np.searchsorted(records.reading_ms, self.ends_ms(each.bucket)))
            each.find(records.hash, mixed, records.skip, stop, hit)
        return hit

    def judge(
        self,
        records: IdColumns,
        hit: NDArray[np.int64],
        found: BloomLookup | None = None,
        prints: Fingerprints | None = None,
    ) -> IdJudgement:
        """Judge records in order, and stage what is remembered.

        Args:
            records: Of a chunk.
            hit: What `look_up` returned for them, nothing having been committed since.
            found: With ``confirm``: what is known of the hits; rows that are none are not read.
            prints: The records' fingerprints, see `Collisions.prints`; None: there are none.

        Raises:
            ValueError: With ``confirm`` and without ``found``, or the other way round.
        """
        if self.confirm != (found is not None):
            raise ValueError("hits are looked up with confirm, and only then")
        self._routed &= records.route.size == records.skip.size
        if records.route.size and not self.staged.count:
            self.staged = HashedIds(MANY)
        elif self.staged.table.info.shape[1] == FEW:
            records = records._replace(route=NO_ROUTES)
        judged = IdJudgement.begun(records.fault)
        known = BloomLookup.nothing(0) if found is None else found
        rules = self.window_ms, self.bucket_ms, self.refresh, self.confirm
        staged = self.staged
        staged.reserve(records.skip.size)
        given = records, *rules, hit, known
        staged.count = int(_judge(*given, staged.table, staged.count, judged, prints))
        return judged

    # ---------------------------------------------------------------- a transaction

    def staged_rows(self, first: int) -> IdRows:
        """Return what the next commit remembers, from a number on: ids, then variants of some.

        Owners count with ``confirm``.
        """
        count = self.staged.count
        info = self.staged.table.info[:count]
        owner, reading_ms = info[:, :2].T.copy()
        hashes, none = self.staged.table.hash[:count].copy(), np.full(count, NONE, np.int64)
        rows = IdRows(first, hashes, owner, reading_ms, none)
        if self._routed and info.shape[1] > FEW:
            rows = replace(rows, route=info[:, 4].astype(np.uint16))
        if self.collisions is None:
            return rows
        told = replace(rows, fingerprint=info[:, 3].astype(np.uint64), collision=np.zeros(count, np.bool_))
        return self.collisions.behind(told, routed=self._routed)

    def commit(self, clock_ms: int) -> None:
        """Put the staged ids into their buckets' filters, and drop the buckets that are outside the window."""
        _, hashes, info = self.staged.table
        lacking = np.flatnonzero(info[: self.staged.count, 2])
        self.restore(hashes[lacking], info[lacking, 1], clock_ms)
        self._prepare()
        self._stage_nothing()
        if self.collisions is not None:
            self.collisions.commit(clock_ms)

    def drop(self) -> None:
        """Forget the staged ids, as if they had never been judged."""
        self._stage_nothing()
        if self.collisions is not None:
            self.collisions.drop()

    def _stage_nothing(self) -> None:
        self.staged = HashedIds(FEW if self.collisions is None else MANY)
        # Whether the route words are known of all that is staged.
        self._routed = True

    def expire(self, clock_ms: int) -> None:
        """Drop the buckets that are outside the window at a reading."""
        gone = [each for each in self.filters if self.ends_ms(each.bucket) <= clock_ms]
        self.filters = [each for each in self.filters if self.ends_ms(each.bucket) > clock_ms]
        for each in gone:
            if each.order == 0:
                self._spare, self._clean = each.words, 0

    def restore(self, hashes: NDArray[np.uint64], reading_ms: NDArray[np.int64], clock_ms: int = NEVER) -> None:
        """Put n committed ids into filters, in any order; ids that are there already only count once more.

        Buckets that are outside the window when the clock reads ``clock_ms`` are dropped.
        """
        self.expire(clock_ms)  # first, so that what is dropped can be used again
        bucket = reading_ms // self.bucket_ms
        for number in np.unique(bucket).tolist():
            if self.ends_ms(number) > clock_ms:
                self._add(number, hashes[bucket == number])

    def lacking(self, hashes: NDArray[np.uint64], reading_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return bool[n]: which of n ids are in no filter of their reading's bucket."""
        bucket = reading_ms // self.bucket_ms
        lacking = np.ones(bucket.size, np.bool_)
        for each in self.filters:
            rows = np.flatnonzero(lacking & (bucket == each.bucket))
            hit = np.full(rows.size, NOWHERE, np.int64)
            wanted = np.ascontiguousarray(hashes[rows])
            each.find(wanted, mixed_bits(wanted), np.zeros(rows.size, np.bool_), rows.size, hit)
            lacking[rows] = hit == NOWHERE
        return lacking

    def _add(self, bucket: int, hashes: NDArray[np.uint64]) -> None:
        begun = 0
        hashes = np.ascontiguousarray(hashes)
        while begun < len(hashes):
            mine = [each for each in self.filters if each.bucket == bucket]
            last = max(mine, key=lambda each: each.order, default=None)
            if last is None or last.ids >= last.capacity:
                last = self._begin(bucket, 0 if last is None else last.order + 1)
            stop = min(len(hashes), begun + last.capacity - last.ids)
            last.put(hashes, begun, stop)
            begun = stop

    def sized(self, bucket: int, order: int) -> Filter:
        """Return one that begins, without its words: see above how it is sized."""
        capacity = self.expected if order == 0 else (self.expected << (order - 1)) // FIRST_FURTHER
        rate = self.bucket_rate * FIRST_SHARE * (1 - FIRST_SHARE) ** order
        return Filter.sized(bucket, order, max(capacity, FEWEST_IDS), rate)

    def _begin(self, bucket: int, order: int) -> Filter:
        begun = self.sized(bucket, order)
        size = -(-begun.bits // 64)
        if order == 0 and self._spare.size == size:
            self._spare[self._clean :] = 0
            begun.words, self._spare = self._spare, self._spare[:0]
        else:
            begun.words = np.zeros(size, np.uint64)
        self.filters.append(begun)
        return begun

    def _prepare(self) -> None:
        """Do a share of what beginning the next bucket takes.

        New memory costs a fault per page, and the first ids of a bucket touch all pages: for 120 MB about
        300 ms. So while the window fills the next filter is touched ahead; later it is one that was dropped.
        """
        firsts = [each for each in self.filters if each.order == 0]
        if not self._spare.size and 0 < len(firsts) < self.most_live:
            self._spare, self._clean = np.empty_like(firsts[-1].words), 0
        self._spare[self._clean : self._clean + CLEANED] = 0
        self._clean += CLEANED


@kernel
def _judge(
    records: IdColumns,
    window: Int,
    bucket: Int,
    refresh: bool,
    confirm: bool,
    hit: NDArray[np.int64],
    found: BloomLookup,
    staged: HashedColumns,
    count: Int,
    judged: IdJudgement,
    prints: Fingerprints | None,
) -> Int:
    """Judge rows in order, and stage what is remembered, ``count`` being staged; returns how many are then.

    The info of a staged id: owner, reading, 1 where the reading's bucket lacks it, its fingerprint and its
    route word where there are any. Compiled with and without fingerprints. What is skipped stays as it is, and
    without ``confirm`` owner and expiry of all.
    """
    hashes, _, skip, offset, reading, route = records
    slots, ours, info = staged
    verdict, owner, expires = judged
    remembered, owners, readings, printed = found
    for row in range(hashes.shape[0]):
        if skip[row]:
            continue
        first, second = hashes[row, 0], hashes[row, 1]
        now = reading[row]
        if (
            prints is not None
            and collisions.may_have(prints.variants, first)
            and collisions.judge(prints, row, first, second, window, now, offset[row], refresh, judged)
        ):
            continue
        at, place = find_slot(slots, ours, first, second)
        known = False
        whose = np.int64(-1)
        when = np.int64(0)
        what = np.uint64(0)
        there = hit[row]
        if place >= 0:
            whose, when = info[place, 0], info[place, 1]
            if prints is not None:
                what = np.uint64(info[place, 3])
            there = when // bucket
            # Without confirmation an id lives as long as its bucket, committed or not.
            known = when + window > now if confirm else (there + 1) * bucket - 1 + window > now
        elif there != NOWHERE:
            if not confirm:
                known = True
            elif remembered[row]:
                whose, when, what = owners[row], readings[row], printed[row]
                known = when + window > now
        if prints is not None and known and what != prints.own[row]:
            collisions.collide(prints, row, first, second, window, now, offset[row], whose, when, what, judged)
            continue
        lacking = there != now // bucket
        if not known or (refresh and (now > when if confirm else lacking)):
            if not known:
                whose = offset[row]
            if place < 0:
                place = np.int64(count)
                count += 1
                slots[at] = place + 1
                ours[place, 0], ours[place, 1] = first, second
                info[place, 2] = 0
                if route.size > 0:
                    info[place, 4] = route[row]
            if lacking:
                info[place, 2] = 1
            info[place, 0], info[place, 1] = whose, now
            if prints is not None:
                info[place, 3] = np.int64(prints.own[row])
            when = now
        verdict[row] = 1 if known else 0
        if known and confirm:
            owner[row], expires[row] = whose, when + window
    return count
