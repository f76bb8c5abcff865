"""Keeps all occurrences of a sample of ids, within a bound of rows, so that gaps between copies are exact.

An id is in the sample when its keyed hash is below a threshold, for all its records alike. When the rows reach
the bound the threshold is halved, and what is above it falls out. Before it falls for the first time all ids
are there: those that have many rows by then are pinned, they stay whatever their hash is and stand for
themselves alone. Rows of an id with many that are close together in time become one row that counts them, where
rows are short: what is merged is `merged_ms` apart at most.

Of every record, in the sample or not, one of 65,536 counters counts where its hash lies: they tell whether ids
that are not in the sample can have very many records (see `processor.inspection.simulate.windows`).

With a route the clocks are those of the sink's partitions (`processor.engine.ids.sink_clocks`). Then each row
has its timestamp too, as how far it lies below its source partition's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.sink_clocks import SinkClocks

MOST_ROWS = 2**21
"""Rows of 32 bytes: 64 MiB, and about as much again while they are sorted."""
COUNTERS = 2**16
_MERGE = 64
"""Rows are merged that are closer than this part of the shortest window."""
_WIDEST = 8
"""Half of this part of it is the most that merged ones are apart: the rest is left to the threshold."""
_MANY = 16
"""Rows of an id from which on they are merged, and it is pinned."""
_MOST_BEHIND_MS = 2**31 - 1
"""25 days: what is later than that moves no clock."""
_PINNED = 4_096
"""The bound's part that an id has to have to be pinned: so many are pinned at most."""


class Occurrences(NamedTuple):
    """Occurrences, id by id, as `processor.engine.ids.window_grid.judge_grid` takes them.

    Attributes:
        first: int64[u + 1], where each id begins.
        partition: int32[n]; 0 where all partitions meet.
        reading_ms: int64[n].
        records: int64[n], how many each stands for.
        variant: int64[n].
    """

    first: NDArray[np.int64]
    partition: NDArray[np.int32]
    reading_ms: NDArray[np.int64]
    records: NDArray[np.int64]
    variant: NDArray[np.int64]


class IdSample:
    """Occurrences of sampled ids.

    Attributes:
        judged: Records that were looked at, in the sample or not.
        level: An id is in the sample with a chance of 2 to the minus this.
        merged_ms: Rows may stand for records that are so far apart; 0: each stands for one record.
        counters: int64[COUNTERS], records by hash.
        begin_ms: The lowest reading of any; 0 before the first.
        end_ms: The highest.

    Args:
        shortest_ms: The shortest window of interest.
        prints: Whether records have fingerprints.
        most_rows: The bound; at least twice as many as are added at once.
        clocks: Of the sink's partitions, with a route; they take records beside this. None: all of them read
            what the source partitions' do.
    """

    def __init__(
        self,
        shortest_ms: int,
        *,
        prints: bool = False,
        most_rows: int = MOST_ROWS,
        clocks: SinkClocks | None = None,
    ) -> None:
        self.judged = 0
        self.level = 0
        self.merged_ms = 0
        self.counters = np.zeros(COUNTERS, np.int64)
        self.begin_ms = self.end_ms = 0
        self._shortest_ms = shortest_ms
        self._most = most_rows
        self._partitions: set[int] = set()
        self._rows = 0
        self._pinned = np.zeros(0, np.uint64)
        self._near_pinned = np.zeros(COUNTERS, np.bool_)
        self._crowded = np.zeros(0, np.bool_)
        self._hash = np.empty(most_rows, np.uint64)
        self._reading = np.empty(most_rows, np.int64)
        self._partition = np.empty(most_rows, np.int32)
        self._count = np.empty(most_rows, np.int32)
        self._print = np.empty(most_rows, np.uint64) if prints else None
        self._clocks = clocks
        self._behind = None if clocks is None else np.empty(most_rows, np.int32)
        self._routed_reading: NDArray[np.int64] | None = None

    @property
    def rate(self) -> float:
        """The chance of an id to be in the sample."""
        return float(2.0**-self.level)

    @property
    def exact(self) -> bool:
        """Whether all ids are in it, each record by itself."""
        return self.level == 0 and not self.merged_ms

    @property
    def unpinned_counters(self) -> NDArray[np.int64]:
        """The counters in which no pinned id lies."""
        return self.counters[~self._near_pinned]

    @property
    def has_prints(self) -> bool:
        """Whether records have fingerprints."""
        return self._print is not None

    @property
    def partitions(self) -> int:
        """How many partitions records came from."""
        return max(1, len(self._partitions))

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays: the same however many records there are, once ids are pinned a little more."""
        arrays = self._hash, self._reading, self._partition, self._count, self._print, self._behind
        rows = sum(each.nbytes for each in arrays if each is not None)
        return rows + self.counters.nbytes + self._pinned.nbytes + self._near_pinned.nbytes

    def begin_of(self, *, route: bool) -> int:
        """Return the lowest reading of any record; with ``route`` by the clocks of the sink's partitions."""
        return min(self.begin_ms, self._clocks.earliest_ms) if route and self._clocks else self.begin_ms

    def __len__(self) -> int:
        return self._rows

    def add(
        self,
        partition: int,
        hashes: NDArray[np.uint64],
        reading_ms: NDArray[np.int64],
        prints: NDArray[np.uint64],
        timestamp_ms: NDArray[np.int64] | None = None,
    ) -> None:
        """Take the next records of a partition.

        Args:
            partition: Its number.
            hashes: uint64[n], a word of the ids' keyed hash.
            reading_ms: int64[n], the partition's clock at each.
            prints: uint64[n], fingerprints; uint64[0] where there are none.
            timestamp_ms: int64[n], the records' own, as far as they are believed; None: as the clock.
        """
        if not hashes.size:
            return
        self._routed_reading = None
        low, high = int(reading_ms[0]), int(reading_ms[-1])
        self.begin_ms = min(self.begin_ms, low) if self.judged else low
        self.end_ms = max(self.end_ms, high) if self.judged else high
        self.judged += hashes.size
        self._partitions.add(partition)
        self.counters += np.bincount(_counter(hashes), minlength=COUNTERS)
        step = max(1, self._most // 4)
        for start in range(0, hashes.size, step):
            part = slice(start, start + step)
            stamps = reading_ms[part] if timestamp_ms is None else timestamp_ms[part]
            columns = hashes[part], reading_ms[part], prints[part] if prints.size else prints
            self._add(partition, *columns, reading_ms[part] - stamps)

    def _add(
        self,
        partition: int,
        hashes: NDArray[np.uint64],
        reading_ms: NDArray[np.int64],
        prints: NDArray[np.uint64],
        behind_ms: NDArray[np.int64],
    ) -> None:
        rows = self._sampled(hashes)
        while self._rows + rows.size > self._most:
            self._thin()
            rows = self._sampled(hashes)
        place = slice(self._rows, self._rows + rows.size)
        self._hash[place] = hashes[rows]
        self._reading[place] = reading_ms[rows]
        self._partition[place] = partition
        self._count[place] = 1
        if self._print is not None:
            self._print[place] = prints[rows]
        if self._behind is not None:
            self._behind[place] = np.minimum(behind_ms[rows], _MOST_BEHIND_MS)
        self._rows += rows.size

    def _sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not self.level:
            return np.arange(hashes.size)
        return np.flatnonzero((hashes >> np.uint64(64 - self.level) == 0) | self.is_pinned(hashes))

    def is_pinned(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return bool[n], which ids stay in the sample whatever their hash is."""
        pinned = self._near_pinned[_counter(hashes)]
        near = np.flatnonzero(pinned)
        pinned[near] = np.isin(hashes[near], self._pinned)
        return pinned

    def _pin(self, hashes: NDArray[np.uint64]) -> None:
        self._pinned = hashes
        self._near_pinned[:] = False
        self._near_pinned[_counter(hashes)] = True

    def _thin(self) -> None:
        """Make room: in the end, or after some more calls, a quarter of the rows is free."""
        names, number, records = np.unique(self._hash[: self._rows], return_inverse=True, return_counts=True)
        if not self.level:
            self._pin(names[records >= max(_MANY, self._most // _PINNED)])
        crowded = (records >= _MANY)[number]
        room = self._most - self._most // 4
        if np.count_nonzero(crowded) > self._most // 4:
            apart = max(self.merged_ms, self._shortest_ms // _MERGE, 1)
            while self._merge(crowded, apart) > room and apart <= self._shortest_ms // _WIDEST:
                crowded = self._crowded
                apart *= 2
        if self._rows > room:
            if self.level and np.count_nonzero(self.is_pinned(self._hash[: self._rows])) > self._most // 2:
                self._pin(names[:0])  # nothing of them can be merged: they are sampled like all others
            self.level += 1
            self._keep(self._sampled(self._hash[: self._rows]))

    def _merge(self, crowded: NDArray[np.bool_], apart_ms: int) -> int:
        """Make one row of ``crowded`` ones of an id, partition and content in the same stretch of ``apart_ms``.

        Returns:
            How many rows are left.
        """
        self.merged_ms = max(self.merged_ms, apart_ms)
        rows = np.flatnonzero(crowded)
        keys: list[NDArray[Any]] = [self._reading[rows] // apart_ms, self._partition[rows], self._hash[rows]]
        if self._print is not None:
            keys.insert(1, self._print[rows])
        order = np.lexsort(keys)
        new = np.zeros(rows.size, np.bool_)
        new[0] = True
        for key in keys:
            in_order = key[order]
            new[1:] |= in_order[1:] != in_order[:-1]
        begins = np.flatnonzero(new)
        counts = np.add.reduceat(self._count[rows][order], begins)
        first = np.minimum.reduceat(self._reading[rows][order], begins)
        kept = rows[order[begins]]
        self._count[kept], self._reading[kept] = counts, first
        stays = ~crowded
        stays[kept] = True
        self._keep(np.flatnonzero(stays))  # in the order in which they came: of one partition, by time
        self._crowded = crowded[stays]
        return self._rows

    def _keep(self, rows: NDArray[np.int64]) -> None:
        for each in (self._hash, self._reading, self._partition, self._count, self._print, self._behind):
            if each is not None:
                each[: rows.size] = each[rows]
        self._rows = rows.size

    def ordered(self, *, route: bool, pinned: bool) -> Occurrences:
        """Return the rows of pinned ids, or of all others, id by id; ``route``: all partitions meet."""
        at_the_sink = self._readings_at_the_sink() if route else None  # before anything is copied
        rows = np.flatnonzero(self.is_pinned(self._hash[: self._rows]) == pinned)
        hashes, reading, partition = self._hash[rows], self._reading[rows], self._partition[rows]
        # With a route in the order in which they meet, which is that of the source partitions' clocks.
        order = np.lexsort((reading, hashes) if route else (reading, partition, hashes))
        if at_the_sink is not None:
            reading = at_the_sink[rows]
        hashes = hashes[order]
        new = np.flatnonzero(hashes[1:] != hashes[:-1]) + 1
        first = np.concatenate(([0], new, [rows.size])) if rows.size else np.zeros(1, np.int64)
        meets = np.zeros(rows.size, np.int32) if route else partition[order]
        variant = np.zeros(rows.size, np.int64)
        if self._print is not None and rows.size:
            variant = _numbered(hashes, self._print[rows][order], first)
        return Occurrences(first, meets, reading[order], self._count[rows][order].astype(np.int64), variant)

    def _readings_at_the_sink(self) -> NDArray[np.int64]:
        reading = self._reading[: self._rows]
        if self._clocks is None or self._behind is None:
            return reading
        if self._routed_reading is None:
            target = self._clocks.targets(self._hash[: self._rows])
            stamps = reading - self._behind[: self._rows]
            self._routed_reading = self._clocks.readings(target, reading, stamps)
        return self._routed_reading


def _counter(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (hashes & np.uint64(COUNTERS - 1)).astype(np.int64)


def _numbered(
    hashes: NDArray[np.uint64], prints: NDArray[np.uint64], first: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number the fingerprints of each id from 0 on; rows stand id by id."""
    order = np.lexsort((prints, hashes))
    sorted_ = prints[order]
    differs = np.ones(prints.size, np.bool_)
    differs[1:] = sorted_[1:] != sorted_[:-1]
    differs[first[:-1]] = True
    running = np.cumsum(differs) - 1
    begins = np.repeat(running[first[:-1]], np.diff(first))
    number = np.empty(prints.size, np.int64)
    number[order] = running - begins
    return number
