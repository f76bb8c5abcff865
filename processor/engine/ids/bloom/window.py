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
until `commit`.

Invariant: an id is remembered until its bucket is dropped, at most one bucket too long; which ids are
committed, and when, does not show in any verdict.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.block import IdRows
from processor.engine.ids.bloom.filter import NOWHERE, Filter, mixed_bits
from processor.engine.ids.clock import NEVER
from processor.engine.ids.judgement import IdJudgement
from processor.engine.ids.page import NO_ROUTES, NONE
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.judgement import IdColumns

# They are in a table: open addressing by the id's hash, at most half full, 16 B per slot, and per id 24, 32
# where its route word is kept.
#
# Invariant: an id stands in the table once, as it was last remembered.

FIRST_SLOTS = 1024
READING, ROUTE = 0, 1
"""Columns of what is kept of an id: the clock when it was last remembered, its route word."""


class HashedColumns(NamedTuple):
    """Ids in the order in which they came, each once, and a hash table that finds them.

    Attributes:
        slots: int64[2^s], at most half full: an id's row plus one, 0 empty.
        hash: uint64[m, 2].
        info: int64[m, columns], what is known of each.
    """

    slots: NDArray[np.int64]
    hash: NDArray[np.uint64]
    info: NDArray[np.int64]


class HashedIds:
    """A table that grows.

    Attributes:
        count: How many ids there are.
        routed: Whether their route words are kept.
        table: With room for them and more.
    """

    def __init__(self, *, routed: bool = False) -> None:
        hashes = np.zeros((FIRST_SLOTS // 2, 2), np.uint64)
        self.count = 0
        self.routed = routed
        self.table = HashedColumns(
            np.zeros(FIRST_SLOTS, np.int64), hashes, np.zeros((FIRST_SLOTS // 2, 1 + routed), np.int64)
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.nbytes for each in self.table)

    def reserve(self, rows: int) -> None:
        """Make room for as many more; the table stays half empty."""
        count = self.count + rows
        _, hashes, info = self.table
        if count <= len(hashes):
            return
        size = 1 << (2 * count - 1).bit_length()
        hashes.resize((size // 2, 2), refcheck=False)
        info.resize((size // 2, info.shape[1]), refcheck=False)
        self.table = HashedColumns(np.zeros(size, np.int64), hashes, info)
        _reindex(self.table, self.count)


@inlined
def find_slot(slots, hashes, first, second):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the slot where an id is, or would be put, and its row; -1: it is not there."""
    slot_mask = slots.size - 1
    slot_at = np.int64(first & np.uint64(slot_mask))
    slot_row = np.int64(-1)
    while slots[slot_at] != 0:
        slot_other = slots[slot_at] - 1
        if hashes[slot_other, 0] == first and hashes[slot_other, 1] == second:
            slot_row = slot_other
            break
        slot_at = (slot_at + 1) & slot_mask
    return slot_at, slot_row


@kernel
def _reindex(table: HashedColumns, count: Int) -> None:
    """Put the first ``count`` ids, all different, into empty slots."""
    slots, hashes, _ = table
    mask = slots.size - 1
    for row in range(count):
        at = np.int64(hashes[row, 0] & np.uint64(mask))
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = row + 1


FIRST_SHARE = 0.75
"""Of a bucket's rate, to its first filter: 0.6 bits per id more than all of it would need; a half would be
1.44."""
FIRST_FURTHER = 4
"""The first further filter is for a quarter of the expected ids: being wrong by little costs little."""
FEWEST_IDS = 64
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
    """

    def __init__(
        self,
        window_ms: int,
        bucket_ms: int,
        expected_per_bucket: int,
        false_positive_rate: float,
        *,
        refresh: bool = False,
    ) -> None:
        self.window_ms = window_ms
        self.bucket_ms = bucket_ms
        self.expected = max(expected_per_bucket, FEWEST_IDS)
        self.most_live = -(-window_ms // bucket_ms) + 1
        self.bucket_rate = false_positive_rate / self.most_live
        self.refresh = refresh
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

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        sizes = [each.words.nbytes for each in self.filters]
        return sum(sizes) + self._spare.nbytes + self.staged.size_bytes

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

    # ---------------------------------------------------------------- a chunk

    def look_up(self, records: IdColumns) -> NDArray[np.int64]:
        """Return int64[n]: the latest live bucket that a record's id may be in, or `NOWHERE`."""
        hit = np.full(records.skip.size, NOWHERE, np.int64)
        mixed = mixed_bits(records.hash)
        for each in sorted(self.filters, key=lambda each: -each.bucket):
            # Readings never fall: from some row on all records are past the bucket's end.
            stop = int(np.searchsorted(records.reading_ms, self.ends_ms(each.bucket)))
            each.find(records.hash, mixed, records.skip, stop, hit)
        return hit

    def judge(self, records: IdColumns, hit: NDArray[np.int64]) -> IdJudgement:
        """Judge records in order, and stage what is remembered.

        Args:
            records: Of a chunk.
            hit: What `look_up` returned for them, nothing having been committed since.
        """
        self._routed &= records.route.size == records.skip.size
        if records.route.size and not self.staged.count:
            self.staged = HashedIds(routed=True)
        elif not self.staged.routed:
            records = records._replace(route=NO_ROUTES)
        judged = IdJudgement.begun(records.fault)
        staged = self.staged
        staged.reserve(records.skip.size)
        given = records, self.window_ms, self.bucket_ms, self.refresh, hit
        staged.count = int(_judge(*given, staged.table, staged.count, judged.verdict))
        return judged

    # ---------------------------------------------------------------- a transaction

    def staged_rows(self, first: int) -> IdRows:
        """Return what the next commit remembers, from a number on; nobody asks for owners, which are 0."""
        count = self.staged.count
        info = self.staged.table.info[:count]
        hashes, none = self.staged.table.hash[:count].copy(), np.full(count, NONE, np.int64)
        rows = IdRows(first, hashes, np.zeros(count, np.int64), info[:, READING].copy(), none)
        if self._routed and self.staged.routed:
            rows = replace(rows, route=info[:, ROUTE].astype(np.uint16))
        return rows

    def commit(self, clock_ms: int) -> None:
        """Put the staged ids into their buckets' filters, and drop the buckets that are outside the window."""
        _, hashes, info = self.staged.table
        count = self.staged.count
        self.restore(hashes[:count], info[:count, READING], clock_ms)
        self._prepare()
        self._stage_nothing()

    def drop(self) -> None:
        """Forget the staged ids, as if they had never been judged."""
        self._stage_nothing()

    def _stage_nothing(self) -> None:
        self.staged = HashedIds()
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
    hit: NDArray[np.int64],
    staged: HashedColumns,
    count: Int,
    verdict: NDArray[np.uint8],
) -> Int:
    """Judge rows in order, and stage what is remembered, ``count`` being staged; returns how many are then.

    What is staged its reading's bucket lacks. What is skipped stays as it is.
    """
    hashes, _, skip, _, reading, route = records
    slots, ours, info = staged
    for row in range(hashes.shape[0]):
        if skip[row]:
            continue
        first, second = hashes[row, 0], hashes[row, 1]
        now = reading[row]
        there = hit[row]
        known = there != NOWHERE
        at, place = find_slot(slots, ours, first, second)
        if place >= 0:
            # An id lives as long as its bucket, committed or not.
            there = info[place, READING] // bucket
            known = (there + 1) * bucket - 1 + window > now
        if not known or (refresh and there != now // bucket):
            if place < 0:
                place = np.int64(count)
                count += 1
                slots[at] = place + 1
                ours[place, 0], ours[place, 1] = first, second
                if route.size > 0:
                    info[place, ROUTE] = route[row]
            info[place, READING] = now
        verdict[row] = 1 if known else 0
    return count
