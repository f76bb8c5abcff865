"""Keeps the ids of Bloom filters in sorted runs, in which hits are looked up.

They are in tables in memory first (`processor.engine.ids.bloom.memtable`). When one has as many ids as a run
should have, or ids of the next bucket come, it is closed and written as a run, a portion with each commit, and
found in memory until the run's last page is written, and the run itself with it: before that its pages say
nothing. Runs are never merged. They go with their bucket.

What is in no run is read from the changelog again at a start. So that each id comes into one run, once, a run
says below which number those of its bucket are in runs.

Invariant: every committed id of a bucket that lives is in a table, or in a run all of whose pages are in the
store when what `Runs.changes` returns is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.bloom import sorted_run
from processor.engine.ids.bloom.filter import Filter
from processor.engine.ids.bloom.memtable import BloomLookup, Memtable
from processor.engine.ids.bloom.sorted_run import NOWHERE, RunIndex, RunWriter, SortedRun
from schemas.changelog.bloom import KeptRun, run_key, run_name, run_page_key, run_page_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.block import IdRows

    Read = Callable[[Sequence[bytes]], list[bytes | None]]

RUNS_A_BUCKET = 32
"""A bucket's runs, if it has the expected ids: a hit asks their filters one after the other."""
LEAST_IDS = int(os.environ.get("SEQMARK_TEST_RUN_IDS", "16384"))
"""Of a run: its table takes 0.8 MB, 50 MB with 64 partitions."""
MOST_IDS = max(LEAST_IDS, 262_144)
"""Of a run: its table takes 12 MB, and sorting it 20 ms."""
PORTIONS = 8
"""Commits that a run is written with at most: 32,768 ids, about 4 ms each."""


class Runs:
    """The ids of one partition that lie in runs, and those that do not yet.

    Attributes:
        since: All ids below this number that live are in runs that are written.

    Args:
        expected_per_bucket: How many ids a bucket should have.
        fingerprints: Whether ids have fingerprints.
    """

    def __init__(self, expected_per_bucket: int, *, fingerprints: bool = False) -> None:
        self._fingerprints = fingerprints
        self._most = min(max(expected_per_bucket // RUNS_A_BUCKET, LEAST_IDS), MOST_IDS)
        self._tables: list[Memtable] = []
        self._writer: RunWriter | None = None
        self._shelves: dict[int, RunIndex] = {}
        # By bucket: the number below which all of its ids are in runs.
        self._below: dict[int, int] = {}
        self.since = 0
        self._next = 1
        self._entered = 0
        self._gone: list[bytes] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of all tables, filters and fences."""
        shelves = sum(shelf.size_bytes for shelf in self._shelves.values())
        return shelves + sum(table.size_bytes for table in self._tables)

    def take(self, rows: IdRows, bucket: NDArray[np.int64], live: int) -> None:
        """Take committed ids over that are in no run yet, behind those taken over before; pass over the others.

        Args:
            rows: In the order of their numbers; of collisions none.
            bucket: int64[n], each one's.
            live: The first bucket that lives.
        """
        number = rows.first + np.arange(len(rows))
        for each in np.unique(bucket[bucket >= live]).tolist():
            mine = np.flatnonzero((bucket == each) & (number >= self._below.get(each, 0)))
            at = 0
            while at < mine.size:
                table = self._open(each)
                some = mine[at : at + self._most - len(table)]
                prints = rows.fingerprint[some] if self._fingerprints else rows.fingerprint
                table.put(rows.hash[some], rows.owner[some], rows.reading_ms[some], prints)
                table.below, table.since = rows.first + int(some[-1]) + 1, rows.first
                at += some.size
            self._entered += mine.size

    def _open(self, bucket: int) -> Memtable:
        """Return the table that takes ids of a bucket."""
        last = self._tables[-1] if self._tables else None
        if last is None or last.closed or last.bucket != bucket or len(last) >= self._most:
            last = Memtable(bucket, fingerprints=self._fingerprints)
            self._tables.append(last)
        return last

    def drop(self, live: int) -> None:
        """Forget all buckets below ``live``."""
        if self._writer is not None and self._writer.bucket < live:
            self._writer = None
        self._tables = [table for table in self._tables if table.bucket >= live]
        for bucket in [bucket for bucket in self._shelves if bucket < live]:
            self._gone += [run_key(bucket, number) for number in self._shelves.pop(bucket).numbers]
        self._below = {bucket: number for bucket, number in self._below.items() if bucket >= live}

    # ---------------------------------------------------------------- what is written locally

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what is to be written now."""
        changes: dict[bytes, bytes | None] = dict.fromkeys(self._gone)
        self._gone = []
        # Twice as much as has come: there is never more than one run that waits for long.
        left = max(self._most // PORTIONS, 2 * self._entered, 1)
        self._entered = 0
        while left > 0 and self._closed():
            table = self._tables[0]
            if self._writer is None:
                table.closed = True
                self._writer = RunWriter(self._next, table)
            writer, before = self._writer, self._writer.left
            for page, data in writer.pages(left):
                changes[run_page_key(table.bucket, self._next, page)] = data
            left -= before
            if not writer.left:
                run = writer.finish()
                changes[run_key(table.bucket, run.number)] = _kept(run, table)
                self._add(table.bucket, run, table.below, table.since)
                self._tables.pop(0)
                self._writer = None
        return changes

    def _closed(self) -> bool:
        """Whether there is a table that takes no more ids: the first."""
        if len(self._tables) != 1:
            return bool(self._tables)
        return self._tables[0].closed or len(self._tables[0]) >= self._most

    def _add(self, bucket: int, run: SortedRun, below: int, since: int) -> None:
        self._shelves.setdefault(bucket, RunIndex()).add(run)
        self._below[bucket] = max(below, self._below.get(bucket, 0))
        self.since = max(since, self.since)
        self._next = max(run.number + 1, self._next)

    def load(self, key: bytes, value: bytes) -> None:
        """Take over a run that was written; those of a bucket come in the order of their numbers.

        Raises:
            CorruptStateError: It is not whole.
        """
        bucket, number = run_name(key)
        kept = KeptRun.decode(key, value)
        words = np.frombuffer(kept.words, ">u8").astype(np.uint64)
        filled = Filter(bucket, 0, kept.ids, kept.bits, kept.each, kept.ids, 0, words)
        fences = np.frombuffer(kept.fences, ">u8").astype(np.uint64).reshape(-1, 2)
        starts = np.frombuffer(kept.starts, ">u4").astype(np.int64)
        self._add(bucket, SortedRun(number, filled, fences, starts), kept.below, kept.since)

    # ---------------------------------------------------------------- what is looked up

    def look_up(self, bucket: NDArray[np.int64], hashes: NDArray[np.uint64], read: Read) -> BloomLookup:
        """Look ids up, uint64[k, 2], each in one bucket, int64[k]; what was remembered last counts.

        Raises:
            UnreadableBlockError: A page is missing, or not whole.
        """
        found = BloomLookup.nothing(bucket.size)
        for table in reversed(self._tables):
            rows = np.flatnonzero((bucket == table.bucket) & ~found.known)
            if rows.size:
                table.find(hashes, rows, found)
        left = np.flatnonzero(~found.known)
        asked = np.full(left.size, 2**62)
        while left.size:
            maybe, asked, keys, number, which = self._wanted(bucket[left], hashes[left], asked)
            left = left[maybe]
            if keys:
                # A page that is missing is an empty one, which is cut.
                pages = [page or b"" for page in read(keys)]
                some = sorted_run.find(pages, number, which, hashes[left])
                here = some.known
                found.put(left[here], some.at(here))
                left, asked = left[~here], asked[~here]
        return found

    def _wanted(
        self, bucket: NDArray[np.int64], hashes: NDArray[np.uint64], asked: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[bytes], NDArray[np.int64], NDArray[np.int64]]:
        """Find the pages that ids may be on: of the latest run before the one that was asked.

        Returns:
            Of the k ids that may be in a run, int64[k] which they are, and their runs' places on their shelves;
            the keys of p pages, each once, and int64[p] what stands in each; int64[k] the page of each id.
        """
        order = np.argsort(bucket, kind="stable")
        ranked, before = bucket[order], asked[order]
        sought = hashes[order]
        run = np.full(order.size, NOWHERE, np.int64)
        number, place, stands = np.empty((3, order.size), np.int64)
        ends = [*np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, order.size]
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            shelf = self._shelves.get(int(ranked[start]))
            if shelf is None:
                continue
            here = slice(start, stop)
            run[here], page = shelf.find(sought[here], np.minimum(before[here], len(shelf)))
            there = start + np.flatnonzero(run[here] != NOWHERE)
            number[there], place[there], stands[there] = shelf.numbers_of(run[there], page[there - start])
        maybe = np.flatnonzero(run != NOWHERE)
        # What stands in a page is said of no other one, in no bucket.
        stands, first, which = np.unique(stands[maybe], return_index=True, return_inverse=True)
        pages = maybe[first]
        keys = run_page_keys(ranked[pages], number[pages], place[pages])
        return order[maybe], run[maybe], keys, stands, which


def _kept(run: SortedRun, table: Memtable) -> bytes:
    """Return a run as it is written down."""
    one = run.filter
    fences, starts = run.fences.astype(">u8").tobytes(), run.starts.astype(">u4").tobytes()
    words = one.words.astype(">u8").tobytes()
    kept = KeptRun(table.below, table.since, len(table), one.each, one.bits, fences, starts, words)
    return kept.encode(run_key(table.bucket, run.number))
