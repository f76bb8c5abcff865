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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.bloom import bits as bloom_bits
from processor.engine.ids.bloom.filter import Filter, mixed_bits
from processor.engine.ids.bloom.memtable import HashedIds
from processor.engine.ids.clock import NEVER
from processor.engine.ids.judgement import IdJudgement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids

FIRST_SHARE = 0.75
"""Of a bucket's rate, to its first filter: 0.6 bits per id more than all of it would need; a half would be
1.44."""
FIRST_FURTHER = 4
"""The first further filter is for a quarter of the expected ids: being wrong by little costs little."""
FEWEST_IDS = 64
CLEANED = 262_144
"""Words of the next filter that are zeroed with each commit: 2 MiB, below 5 ms even as new memory."""


@dataclass(frozen=True, slots=True)
class StagedIds:
    """Ids of an open transaction, in the order in which they were first remembered in it.

    Attributes:
        hash: uint64[n, 2].
        owner: int64[n], offset of the record that passed; -1 where nobody knows (renewed without ``confirm``).
        reading_ms: int64[n].
    """

    hash: NDArray[np.uint64]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BloomLookup:
    """What a look-up of hits says; rows that are no hits are not read.

    Attributes:
        known: bool[n], whether the id is remembered at all.
        owner: int64[n].
        reading_ms: int64[n], the clock when it was last remembered.
    """

    known: NDArray[np.bool_]
    owner: NDArray[np.int64]
    reading_ms: NDArray[np.int64]


class BloomWindow:
    """The filters of one partition, and the ids of the open transaction.

    Args:
        window_ms: How long an id is remembered.
        bucket_ms: Time that one bucket covers.
        expected_per_bucket: Ids that a bucket's first filter is sized for.
        false_positive_rate: Promised of a look-up over the whole window.
        refresh: Whether a duplicate renews its id.
        confirm: Whether hits are looked up.
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
    ) -> None:
        self.window_ms = window_ms
        self.bucket_ms = bucket_ms
        self.expected = max(expected_per_bucket, FEWEST_IDS)
        self.most_live = -(-window_ms // bucket_ms) + 1
        self.bucket_rate = false_positive_rate / self.most_live
        self.refresh = refresh
        self.confirm = confirm
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.filters: list[Filter] = []
        # The words of a bucket to come, of which those before `_clean` are zeros.
        self._spare: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._clean = 0
        self._forget_staged()

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        sizes = [each.words.nbytes for each in self.filters]
        return sum(sizes) + self._spare.nbytes + self._staged.size_bytes

    @property
    def ids(self) -> int:
        """How many ids the live filters have; one that was renewed counts in each of its buckets."""
        return sum(each.ids for each in self.filters)

    @property
    def staged_count(self) -> int:
        """How many ids are staged."""
        return self._staged.count

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

    def look_up(self, ids: Ids, reading_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64[n]: the latest live bucket that a record's id may be in, or `NOWHERE`.

        With ``confirm`` those that are somewhere have to be looked up.

        Args:
            ids: Of n records.
            reading_ms: int64[n], the partition's clock at each.
        """
        hit = np.full(ids.fault.size, bloom_bits.NOWHERE, np.int64)
        skip = (ids.fault != 0) | ids.unjudged
        mixed = mixed_bits(ids.hash)
        for each in sorted(self.filters, key=lambda each: -each.bucket):
            # Readings never fall: from some row on all records are past the bucket's end.
            stop = int(np.searchsorted(reading_ms, self.ends_ms(each.bucket)))
            each.find(ids.hash, mixed, skip, stop, hit)
        return hit

    def judge(
        self,
        ids: Ids,
        offset: NDArray[np.int64],
        reading_ms: NDArray[np.int64],
        hit: NDArray[np.int64],
        found: BloomLookup | None = None,
    ) -> IdJudgement:
        """Judge a chunk's records in order, and stage what is remembered.

        Args:
            ids: Of n records.
            offset: int64[n].
            reading_ms: int64[n], the partition's clock at each.
            hit: What `look_up` returned for the same records, nothing having been committed since.
            found: With ``confirm``: what is known of the hits.

        Raises:
            ValueError: With ``confirm`` and without ``found``, or the other way round.
        """
        if self.confirm != (found is not None):
            raise ValueError("hits are looked up with confirm, and only then")
        rows = ids.fault.size
        judged = IdJudgement.begun(ids)
        none = np.zeros(0, np.int64)
        known = BloomLookup(np.zeros(0, np.bool_), none, none) if found is None else found
        self.reserve(rows)
        with np.errstate(over="ignore"):
            self._staged.count = int(
                bloom_bits.finish(
                    ids.hash,
                    (ids.fault != 0) | ids.unjudged,
                    offset,
                    reading_ms,
                    self.window_ms,
                    self.bucket_ms,
                    self.refresh,
                    self.confirm,
                    hit,
                    known.known,
                    known.owner,
                    known.reading_ms,
                    self._staged.slots,
                    self._staged.hash,
                    self._staged.info,
                    self._staged.count,
                    judged.verdict,
                    judged.owner,
                    judged.expires_ms,
                )
            )
        return judged

    # ---------------------------------------------------------------- a transaction

    def staged(self) -> StagedIds:
        """Return the ids that the next commit remembers."""
        count = self._staged.count
        info = self._staged.info[:count]
        return StagedIds(self._staged.hash[:count].copy(), info[:, 0].copy(), info[:, 1].copy())

    def commit(self, clock_ms: int) -> None:
        """Put the staged ids into their buckets' filters, and drop the buckets that are outside the window."""
        lacking = np.flatnonzero(self._staged.info[: self._staged.count, 2])
        self.restore(self._staged.hash[lacking], self._staged.info[lacking, 1], clock_ms)
        self._prepare()
        self._forget_staged()

    def drop(self) -> None:
        """Forget the staged ids, as if they had never been judged."""
        self._forget_staged()

    def restore(self, hashes: NDArray[np.uint64], reading_ms: NDArray[np.int64], clock_ms: int = NEVER) -> None:
        """Put committed ids into filters; ids that are there already only count once more.

        Args:
            hashes: uint64[n, 2].
            reading_ms: int64[n], in any order.
            clock_ms: Buckets that are outside the window at this reading are dropped.
        """
        # First, so that what is dropped can be used again.
        gone = [each for each in self.filters if self.ends_ms(each.bucket) <= clock_ms]
        self.filters = [each for each in self.filters if self.ends_ms(each.bucket) > clock_ms]
        for each in gone:
            if each.order == 0:
                self._spare, self._clean = each.words, 0
        bucket = reading_ms // self.bucket_ms
        for number in np.unique(bucket).tolist():
            if self.ends_ms(number) > clock_ms:
                self._add(number, hashes[bucket == number])

    def lacking(self, hashes: NDArray[np.uint64], reading_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return bool[n]: which ids are in no filter of their reading's bucket.

        Args:
            hashes: uint64[n, 2].
            reading_ms: int64[n].
        """
        bucket = reading_ms // self.bucket_ms
        lacking = np.ones(bucket.size, np.bool_)
        for each in self.filters:
            rows = np.flatnonzero(lacking & (bucket == each.bucket))
            hit = np.full(rows.size, bloom_bits.NOWHERE, np.int64)
            wanted = np.ascontiguousarray(hashes[rows])
            each.find(wanted, mixed_bits(wanted), np.zeros(rows.size, np.bool_), rows.size, hit)
            lacking[rows] = hit == bloom_bits.NOWHERE
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
        """Begin a filter."""
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

    # ---------------------------------------------------------------- staged ids

    def _forget_staged(self) -> None:
        self._staged = HashedIds(columns=3)

    def reserve(self, rows: int) -> None:
        """Make room for as many more staged ids."""
        self._staged.reserve(rows)
