"""Finds the entry of a source offset where entries lie in source order: by a search, not a scan.

A partition of a duplicates topic, and of a quarantine, names source offsets that rise, as the source's
records were judged in their order. Between them lie ends of transactions, aborted entries, and entries of
others: of another pipeline, or with `route` of other source partitions. A look at one place gives all entries
of a fetch; what it has seen is kept, so that the next question begins there.

Source offsets begin again where a pipeline was reset. `processor.inspection.explain.lookup.facts` knows where
the run of now begins; where before it others begin is found by reading it all, once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.log import LogReader
    from processor.kafka.client import TopicPartition

    Own = Callable[[Columns], tuple[NDArray[np.int64], NDArray[np.int64]]]
    """Returns int64[k], rows with entries of a source partition, and int64[k], the source offsets they name."""

_MOST_LOOKS = 200
"""Far more than a search takes; beyond it what is there is not in order."""


class DisorderError(Exception):
    """Entries do not lie in source order."""


class Entry(NamedTuple):
    """An entry, over bytes that stay."""

    offset: int
    columns: Columns
    row: int

    def is_about(self, record: Columns | None) -> bool:
        """Whether it can be about a record, which an entry has the timestamp of; true where that is gone."""
        return record is None or int(self.columns.timestamp[self.row]) == int(record.timestamp[0])


@dataclass
class _Seen:
    """What a look has shown: from ``start`` to before ``stop`` entries name ``first`` to ``last``."""

    start: int
    stop: int
    first: int
    last: int
    at: int
    """Where the first of them is."""


@dataclass
class OrderedLog:
    """One run of entries of a source partition: between ``begin`` and ``end`` they lie in source order.

    Attributes:
        log: Reads them.
        tp: The partition that they are in.
        own: Finds those of the source partition.
        begin: Where the run begins.
        end: Where it ends, or what is stable of it.
        low: No entry names a lower source offset.
        high: Nor this one, nor a higher one.
    """

    log: LogReader
    tp: TopicPartition
    own: Own
    begin: int
    end: int
    low: int = 0
    high: int = 0
    _seen: list[_Seen] = field(default_factory=list)

    def grow(self, end: int, high: int) -> None:
        """Take note that there is more now."""
        self.end, self.high = max(self.end, end), max(self.high, high)

    async def find(self, wanted: int) -> Entry | None:
        """Return the entry that names a source offset; None: there is none.

        Raises:
            DisorderError: Entries do not lie in source order.
            StopError: They cannot be read.
        """
        for look in range(_MOST_LOOKS):
            at = bisect_right(self._seen, wanted, key=lambda each: each.first) - 1
            before = self._seen[at] if at >= 0 else None
            if before is not None and wanted <= before.last:
                return await self._inside(before, wanted)
            after = self._seen[at + 1] if at + 1 < len(self._seen) else None
            low = self.begin if before is None else before.stop
            high = self.end if after is None else after.start
            if low >= high:
                return None
            guess = self._guess(wanted, before, after, (low, high), halve=look % 3 == 2)
            if not await self._look(at + 1, guess, high):
                # Nothing of ours from there on: as if the run ended there.
                if after is not None:
                    after.start = guess
                else:
                    self.end = guess
        raise DisorderError

    async def place(self, wanted: int) -> int:
        """Return an offset: entries before it name source offsets below ``wanted``, others do not."""
        entry = await self.find(wanted)
        if entry is not None:
            return entry.offset
        at = bisect_right(self._seen, wanted, key=lambda each: each.first) - 1
        if at < 0:
            return self.begin
        before = self._seen[at]
        if wanted > before.last:
            return before.stop
        async for found in self.log.stretches(self.tp, before.at, before.stop):
            rows, named = self._own(found.columns, before)
            if named.size and named[-1] >= wanted:
                return int(found.columns.offset[rows[int(named.searchsorted(wanted))]])
        return before.stop

    def _guess(
        self, wanted: int, before: _Seen | None, after: _Seen | None, room: tuple[int, int], *, halve: bool
    ) -> int:
        """Return where to look next: where the offset would be if entries were spread evenly, or the middle."""
        low, high = room
        first = self.low if before is None else before.last
        last = self.high if after is None else after.first
        if halve or last <= first or high - low < 8:
            return (low + high) // 2 if high - low >= 64 else low
        share = min(max((wanted - first) / (last - first), 0.0), 1.0)
        # A little before it: a look shows what follows.
        return min(max(low, low + int(share * (high - low)) - 32), high - 1)

    async def _look(self, index: int, at: int, high: int) -> bool:
        """Note what is seen from an offset on; returns whether there was anything of ours before ``high``."""
        start = at
        while at < high:
            found = await self.log.stretch(self.tp, at, self.end)
            rows, named = self.own(found.columns)
            inside = (found.columns.offset[rows] >= at) & (found.columns.offset[rows] < high)
            named = named[inside]
            if named.size:
                if np.any(np.diff(named) <= 0):
                    raise DisorderError
                first = int(found.columns.offset[rows[inside][0]])
                seen = _Seen(start, min(found.stop, high), int(named[0]), int(named[-1]), first)
                self._put(index, seen)
                return True
            at = found.stop
        return False

    def _put(self, index: int, seen: _Seen) -> None:
        before = self._seen[index - 1] if index else None
        after = self._seen[index] if index < len(self._seen) else None
        if (before is not None and before.last >= seen.first) or (
            after is not None and after.first <= seen.last
        ):
            raise DisorderError
        self._seen.insert(index, seen)

    async def _inside(self, seen: _Seen, wanted: int) -> Entry | None:
        async for found in self.log.stretches(self.tp, seen.at, seen.stop):
            rows, named = self._own(found.columns, seen)
            hit = np.flatnonzero(named == wanted)
            if hit.size:
                row = int(rows[hit[-1]])
                return Entry(int(found.columns.offset[row]), found.columns, row)
        return None

    def _own(self, columns: Columns, seen: _Seen) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, named = self.own(columns)
        inside = (columns.offset[rows] >= seen.start) & (columns.offset[rows] < seen.stop)
        return rows[inside], named[inside]


class EntryRun(NamedTuple):
    """Where a run begins and ends, and the first and last source offset that its entries name."""

    begin: int
    end: int
    first: int
    last: int


async def scan(log: LogReader, tp: TopicPartition, own: Own, span: tuple[int, int], wanted: int) -> list[Entry]:
    """Return all entries of a source offset between two offsets, in order, by reading all of it.

    Raises:
        StopError: They cannot be read.
    """
    entries: list[Entry] = []
    async for found in log.stretches(tp, *span):
        rows, named = own(found.columns)
        offsets = found.columns.offset[rows]
        hit = rows[(named == wanted) & (offsets >= span[0]) & (offsets < span[1])]
        entries += [Entry(int(found.columns.offset[row]), found.columns, row) for row in hit.tolist()]
    return entries


async def runs_between(log: LogReader, tp: TopicPartition, own: Own, begin: int, end: int) -> list[EntryRun]:
    """Read all entries between two offsets; return their runs, in order: a run ends where offsets begin again.

    Raises:
        StopError: They cannot be read.
    """
    runs: list[EntryRun] = []
    at, first, last = begin, -1, -1
    async for found in log.stretches(tp, begin, end):
        rows, named = own(found.columns)
        inside = (found.columns.offset[rows] >= begin) & (found.columns.offset[rows] < end)
        rows, named = rows[inside], named[inside]
        if not rows.size:
            continue
        cuts = (
            np.flatnonzero(np.diff(named, prepend=last) <= 0)
            if last >= 0
            else np.flatnonzero(np.diff(named) <= 0) + 1
        )
        begun = 0
        for cut in cuts.tolist():
            if cut > begun:
                first = int(named[begun]) if first < 0 else first
                last = int(named[cut - 1])
            here = int(found.columns.offset[rows[cut]])
            runs.append(EntryRun(at, here, first, last))
            at, first, begun = here, int(named[cut]), cut
        first = int(named[begun]) if first < 0 else first
        last = int(named[-1])
    if first >= 0:
        runs.append(EntryRun(at, end, first, last))
    return runs
