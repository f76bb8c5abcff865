"""Owns what is in memory of one partition's ids, and makes room for it.

An `ExactIndex` owns the arrays that the kernels of `processor.engine.ids.exact.kernels` and
`processor.engine.ids.exact.hash_table` work on: the slots, the ids of the open transaction, and of each page of
committed ids its first number and its highest reading. What an id is, who owns it and when it was remembered
stands in the pages (`processor.engine.ids.block`), which somebody else keeps.

A chunk is judged in two steps, and a transaction of any number of chunks is committed or dropped as one::

    wanted = index.look_up(...)            which pages are needed
    judged = index.judge(..., wanted, confirmed)
    block, pages = encode(index.staged(), ...)
    index.commit(pages, clock)  or  index.drop()

Invariant: no view of an array that is resized outlives a call: `ndarray.resize` moves pages of memory instead
of copying them. What is committed is changed by nothing that `drop` does not take back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.ids.block import IdRows, PageError, UnreadableBlockError, decode_pages
from processor.engine.ids.clock import NEVER
from processor.engine.ids.collisions import Collisions
from processor.engine.ids.exact import hash_table, kernels
from processor.engine.ids.exact.bulk_load import SHARE, WAITING, BulkLoad, insert, insert_at_home, table_for
from processor.engine.ids.exact.hash_table import DEPTH, FLOOR, LINE, NEXT, OCCUPIED, SEGMENTS, STAGED, WANT
from processor.engine.ids.exact.kernels import (
    FINGERPRINT,
    OWNER,
    READING,
    ROUTE,
    SUPERSEDES,
    Candidates,
    StagedIds,
)
from processor.engine.ids.exact.page_bounds import PageBounds
from processor.engine.ids.judgement import IdJudgement
from processor.engine.ids.page import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.judgement import IdColumns
    from processor.engine.ids.page import CandidateRows, Pages
    from processor.engine.jit import Int

LINE_BITS = 10
"""A segment of 1,024 lines is 64 KiB: split in about 30 us, and 50 million ids have 10,000 of them, whose
directory is in the second-level cache."""
TAG_BITS = 28
GROWTH = 32
GROWTH_OF_STAGED = 4
MOST_GROWTH = 128
"""Arrays grow by a 32nd, segments by at most 128: 8 MiB, which take 2 to 3 ms to be zeroed."""
SMALL, GROWTH_OF_SMALL = 512, 4
"""Up to 512 segments, 32 MiB, growing copies (glibc moves pages of memory only above that), so it is done
less."""
FEW = 65_536
"""Staged ids for which room is kept from one transaction to the next; one in a million may be large."""
MOST_LIVE = 2**32 - 2
"""Numbers that a slot tells apart."""


class ExactIndex:
    """The ids of one partition.

    Args:
        window_ms: How long an id is remembered.
        refresh: Whether a duplicate renews its id.
        fingerprints: Whether records of one id are told apart by theirs.
        line_bits: Lines of a segment, as a power of two; fewer for tests.
        tag_bits: First bits of the hash that are kept; fewer for tests: ids collide more often.
    """

    def __init__(
        self,
        window_ms: int,
        *,
        refresh: bool,
        fingerprints: bool = False,
        line_bits: int = LINE_BITS,
        tag_bits: int = TAG_BITS,
    ) -> None:
        self.window_ms, self.refresh = window_ms, refresh
        self.collisions = Collisions(window_ms) if fingerprints else None
        self._form = (1 << line_bits, tag_bits)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        lines, tag_bits = self._form
        self._meta = np.zeros(hash_table.META, np.int64)
        self._meta[[hash_table.LINES, hash_table.TAG_BITS]] = lines, tag_bits
        self._meta[[FLOOR, STAGED, NEXT]] = 1
        self._waiting = BulkLoad.empty()
        self._expected = 0
        self._table = table_for(0, *self._form, self._meta)
        self._swept: Int = 0
        self._staged = StagedIds.none()
        # Whether the route words are known of all that is staged.
        self._routed = True
        self._pages = PageBounds()
        if self.collisions is not None:
            self.collisions.clear()

    def __len__(self) -> int:
        """Ids in slots, those included that are expired and not yet swept."""
        self.insert()
        return int(self._meta[OCCUPIED])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, the room not used yet included."""
        arrays = sum(each.nbytes for each in (*self._table[:-1], *self._staged))
        variants = 0 if self.collisions is None else self.collisions.size_bytes
        return arrays + variants + self._pages.size_bytes + self._waiting.size_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are given back as soon as what has been taken over is in slots."""
        return self._waiting.size_bytes

    @property
    def next_number(self) -> int:
        """The number of the next row that is remembered, of an id or a variant."""
        return int(self._meta[NEXT]) + (0 if self.collisions is None else self.collisions.staged_count)

    @property
    def floor(self) -> int:
        """All ids below this number are expired, as of the last commit: pages below are of no use any more."""
        return int(self._meta[FLOOR])

    # ---------------------------------------------------------------- a chunk

    def look_up(self, records: IdColumns) -> Candidates:
        """List the committed ids that could be those of some records."""
        self.insert()
        rows = records.skip.size
        room = np.empty((2, rows + hash_table.MOST_HOPS * LINE), np.int64)
        found = [room[:, :0]]
        alive = self._alive(int(records.reading_ms[0]) if rows else NEVER)
        start: Int = 0
        while start < rows:
            start, count = kernels.candidates(self._table, records.hash, records.skip, alive, start, room)
            found.append(room[:, :count].copy())
        row, number = np.concatenate(found, axis=1)
        known = self._pages.first
        # In order, for a search in order finds what it needs in the cache.
        order = np.argsort(number)
        page = np.searchsorted(known, number[order], side="right") - 1
        new = np.diff(page, prepend=-2) != 0
        which = np.empty(number.size, np.int64)
        which[order] = np.cumsum(new) - 1
        first = known[page[new]]
        return Candidates(row, number, first, which, number - first[which])

    def judge(
        self,
        records: IdColumns,
        wanted: Candidates,
        confirmed: CandidateRows,
        prints: Fingerprints | None = None,
    ) -> IdJudgement:
        """Judge records in order, and stage what is remembered.

        Args:
            records: Of a chunk.
            wanted: What `look_up` returned for them, nothing having been judged since.
            confirmed: What stands in the pages of its candidates.
            prints: The records' fingerprints, see `Collisions.prints`; None: there are none.

        Raises:
            MemoryError: More ids than one partition can have.
        """
        rows = records.skip.size
        self._routed &= records.route.size == rows
        judged = IdJudgement.begun(records.fault)
        self._make_room_for(rows, more=prints is not None or bool(records.route.size))
        row: Int = 0
        cursor: Int = 0
        args = records, self.window_ms, self.refresh, wanted, confirmed
        while row < rows:
            row, cursor = kernels.judge(self._table, *args, cursor, row, self._staged, judged, prints)
            if row < rows:
                self._grow()
        return judged

    # ---------------------------------------------------------------- a transaction

    def staged(self) -> IdRows:
        """Return what the next commit remembers, in the order of the numbers: ids, then variants of some."""
        first, count = int(self._meta[STAGED]), int(self._meta[NEXT] - self._meta[STAGED])
        hashes, info = self._staged.hash[:count].copy(), self._staged.info[:count]
        owner, reading_ms, supersedes = (info[:, each].copy() for each in (OWNER, READING, SUPERSEDES))
        rows = IdRows(first, hashes, owner, reading_ms, supersedes)
        if self._routed:
            rows = replace(rows, route=self._staged.more[:count, ROUTE].astype(np.uint16))
        if self.collisions is None:
            return rows
        prints = self._staged.more[:count, FINGERPRINT].copy()
        told = replace(rows, fingerprint=prints, collision=np.zeros(count, np.bool_))
        return self.collisions.behind(told, routed=self._routed)

    def commit(self, pages: Pages | None, clock_ms: int, sweep: int = 0) -> None:
        """Take the staged ids as committed, and forget what is expired.

        Args:
            pages: Where they stand now; None where nothing was staged.
            clock_ms: The partition's clock after the commit's last record.
            sweep: How many segments to free of expired ids; one a 2,000 records goes through all of them while
                they are filled again.

        Raises:
            ValueError: Ids are staged, and no pages are given.
        """
        if pages is None and self.next_number != self._meta[STAGED]:
            raise ValueError("staged ids are committed without the pages that they stand in")
        if pages is not None:
            self._pages.add(pages.first, pages.last_ms)
        self._meta[[STAGED, NEXT]] = self.next_number
        self._routed = True
        if self.collisions is not None:
            self.collisions.commit(clock_ms)
        if len(self._staged.hash) > FEW:
            self._staged = StagedIds.none()
        self._pages.expire(clock_ms, self.window_ms)
        self._meta[FLOOR] = self._alive(clock_ms)
        if sweep:
            self.sweep(sweep)

    def drop(self) -> None:
        """Forget the staged ids, as if they had never been judged."""
        kernels.drop(self._table, self._staged)
        self._routed = True
        if self.collisions is not None:
            self.collisions.drop()

    def restore(self, rows: IdRows, pages: Pages) -> None:
        """Take over a committed block; blocks come in the order of their numbers.

        Raises:
            ValueError: Its numbers lie below those taken over before, or something is staged.
            MemoryError: More ids than one partition can have.
        """
        if self.next_number != self._meta[STAGED]:
            raise ValueError("a block cannot be taken over while ids are staged")
        if rows.first < self.next_number:
            raise ValueError(f"a block begins at number {rows.first}, expected {self.next_number} or more")
        if not len(self._pages):
            self._meta[FLOOR] = rows.first
        self._meta[[STAGED, NEXT]] = rows.first + len(rows)
        self._pages.add(pages.first, pages.last_ms)
        for run in rows.runs():
            if self.collisions is not None and run.collision[0]:
                self.collisions.restore(run)
            else:
                self._take(run)
        if self._waiting.entries > WAITING + int(self._meta[OCCUPIED]) // SHARE:
            self.insert()

    def restore_pages(self, pages: Sequence[bytes], first: NDArray[np.int64]) -> None:
        """Take over committed pages as the local state keeps them, see `restore`.

        Args:
            pages: At least one; each begins with the number after the last one of the page before it.
            first: int64[p], the number that each stands under.

        Raises:
            UnreadableBlockError: One is not whole, or not that number's.
            ValueError, MemoryError: As `restore`.
        """
        rows, found = decode_pages(pages, int(first[0]), fingerprints=self.collisions is not None)
        if not np.array_equal(found.first, first):
            raise UnreadableBlockError(f"pages from {first[0]} on", PageError.ORDER)
        self.restore(rows, found)

    def _take(self, rows: IdRows) -> None:
        """Let committed ids wait for their slots."""
        self._waiting.take(rows, self.floor)

    def expect(self, ids: int) -> None:
        """Take note how many living rows will be taken over: their slots are made at once.

        Where ids are renewed they have several rows each, and one slot: that says nothing then.
        """
        self._expected = 0 if self.refresh else ids

    def insert(self) -> None:
        """Put what `restore` has taken over into slots; all that looks at slots does so first.

        Raises:
            MemoryError: More ids than one partition can have.
        """
        if not self._waiting.entries:
            return
        if not self._meta[OCCUPIED]:
            here = min(self._waiting.entries, self.next_number - self.floor)
            # Empty segments for all of them; what there were are given back first.
            self._table = self._table._replace(slots=np.zeros(0, np.uint64))
            self._table = table_for(max(here, self._expected), *self._form, self._meta)
            self._swept = 0
            insert_at_home(self._table, self._waiting)
        at = np.array([0, NONE, 0], np.int64)
        while not insert(self._table, self._waiting, at):
            self._grow()
        self._waiting = BulkLoad.empty()

    def begin_at(self, number: int) -> None:
        """Give the next id this number, where nothing is remembered: what was, is expired."""
        self._meta[[FLOOR, STAGED, NEXT]] = number

    def sweep(self, most: int) -> None:
        """Free some segments of expired ids, join small ones, and give back what is free at the end."""
        if self._waiting.entries:
            return
        self._swept = hash_table.sweep(self._table, self._swept, most)
        count = int(self._meta[SEGMENTS])
        if count > SMALL and self._table.depth.size > count + count // 8:
            self._resize(count + count // GROWTH)

    # ---------------------------------------------------------------- room

    def _alive(self, clock_ms: int) -> int:
        """Return a number below which all ids are expired at this reading of the clock."""
        alive = self._pages.alive(clock_ms, self.window_ms)
        return int(self._meta[STAGED]) if alive is None else alive

    def _make_room_for(self, rows: int, *, more: bool) -> None:
        """Make room for as many staged ids more; ``more``: with fingerprints or route words."""
        count = int(self._meta[NEXT] - self._meta[STAGED]) + rows
        if int(self._meta[STAGED]) + count - self.floor > MOST_LIVE:
            raise MemoryError("one partition would remember more than 2^32 ids: use more partitions")
        grown(self._staged.hash, count, GROWTH_OF_STAGED)
        grown(self._staged.info, count, GROWTH_OF_STAGED)
        if more:
            grown(self._staged.more, count, GROWTH_OF_STAGED)

    def _grow(self) -> None:
        """Give a kernel what it asked for in ``meta[WANT]``."""
        match int(self._meta[WANT]):
            case hash_table.ARENA:
                count = self._table.depth.size
                more = min(count // GROWTH, MOST_GROWTH) if count > SMALL else max(2, count // GROWTH_OF_SMALL)
                self._resize(count + more)
            case hash_table.DIRECTORY:
                self._table = self._table._replace(directory=np.repeat(self._table.directory, 2))
                self._meta[DEPTH] += 1
            case other:
                raise MemoryError(f"the ids of one partition find no place (code {other}): use more partitions")

    def _resize(self, count: int) -> None:
        size = int(self._meta[hash_table.LINES]) * LINE
        table = self._table
        table.slots.resize(count * size, refcheck=False)
        for each in (table.depth, table.prefix, table.used):
            each.resize(count, refcheck=False)
