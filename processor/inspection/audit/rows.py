"""Keeps rows of records by the hash of what they say, or of their id; finds what came again among them. Pure.

Two records say the same where their hashes are equal. Beyond a bound of rows those of half of all hashes are
kept, then of a quarter, each with all its records: what is counted of them is multiplied. Gaps between a record
and its copies are exact for any number of windows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.engine.ids.window_grid import SUMS, judge_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_ROWS = 1_500_000
"""Rows of 48 bytes: 72 MB, and half as much again while copies are looked for."""


class KeptRows:
    """Columns of rows, of which the first is a hash; of each hash all rows are kept or none.

    Attributes:
        level: Rows are kept of one hash in 2 to this.
        rows: How many there are.

    Args:
        types: Of the columns.
        most_rows: The bound.
    """

    def __init__(self, types: Sequence[type[np.generic]], most_rows: int) -> None:
        self.level = self.rows = 0
        self._most = most_rows
        self._columns: list[list[NDArray[Any]]] = [[np.zeros(0, each)] for each in types]

    @property
    def rate(self) -> float:
        """The chance of a hash to be kept."""
        return float(2.0**-self.level)

    def add(self, *columns: NDArray[Any]) -> None:
        """Take more rows, in arrays of their own."""
        drawn = [self._drawn(columns[0])] if self.level else []
        for kept, new in zip(self._columns, columns, strict=True):
            kept.append(new[drawn[0]] if drawn else new)
        self.rows += self._columns[0][-1].size
        while self.rows > self._most:
            self.level += 1
            drawn = [self._drawn(each) for each in self._columns[0]]
            for kept in self._columns:
                kept[:] = [part[rows] for part, rows in zip(kept, drawn, strict=True)]
            self.rows = sum(each.size for each in drawn)

    def _drawn(self, hashes: NDArray[Any]) -> NDArray[np.int64]:
        # A hash is spread evenly: its highest bits draw as well as any.
        return np.flatnonzero(hashes.view(np.uint64) >> np.uint64(64 - self.level) == 0)

    def column(self, number: int) -> NDArray[Any]:
        """Return a column, in the order in which its rows came."""
        parts = self._columns[number]
        parts[:] = [np.concatenate(parts)]
        return parts[0]


class Occurrences(NamedTuple):
    """Occurrences, hash by hash, as `processor.engine.ids.window_grid.judge_grid` takes them.

    Attributes:
        first: int64[u + 1], where each hash begins.
        partition: int32[n]; equal where records meet.
        reading_ms: int64[n].
        variant: int64[n], contents by number.
    """

    first: NDArray[np.int64]
    partition: NDArray[np.int32]
    reading_ms: NDArray[np.int64]
    variant: NDArray[np.int64]

    def judged(
        self,
        windows: NDArray[np.int64],
        buckets: NDArray[np.int64] | None = None,
        *,
        refresh: bool = False,
        kept: bool = True,
        end_ms: int = 2**61,
        steps: int = 1,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return what windows do: sums, float64[w, SUMS], and how many hashes are remembered at once at most.

        Args:
            windows: int64[w], ms.
            buckets: int64[w], see `judge_grid`; None: hashes are remembered as such.
            refresh: Whether a duplicate renews what it is one of.
            kept: Whether a collision is remembered.
            end_ms: The last reading.
            steps: In so many of time it is looked how many are remembered.
        """
        sums, held = np.zeros((windows.size, SUMS)), np.zeros((windows.size, steps + 1), np.int64)
        begin = int(self.reading_ms.min()) if self.reading_ms.size else 0
        buckets = np.ones_like(windows) if buckets is None else buckets
        judge_grid(*self, windows, buckets, refresh, kept, begin, (end_ms - begin) // steps + 1, sums, held)
        return sums, held[:, :-1].cumsum(axis=1).max(axis=1, initial=0)


def occurrences(
    hashes: NDArray[Any],
    partition: NDArray[Any],
    reading_ms: NDArray[np.int64],
    prints: NDArray[np.uint64] | None = None,
    clock_ms: NDArray[np.int64] | None = None,
) -> Occurrences:
    """Return rows hash by hash, and partition by partition by what they read.

    Args:
        hashes: Of n rows.
        partition: Equal where they meet.
        reading_ms: In which order they meet.
        prints: Fingerprints of their contents; None: they have none.
        clock_ms: What their clocks read where they meet; None: as ``reading_ms``.
    """
    order = np.lexsort((reading_ms, partition, hashes))
    hashes = hashes[order]
    first = np.append(np.flatnonzero(begins(hashes)), hashes.size)
    variant = np.zeros(hashes.size, np.int64)
    if prints is not None and hashes.size:
        prints = prints[order]
        by_print = np.lexsort((prints, hashes))
        running = np.cumsum(begins(prints[by_print]) | begins(hashes[by_print])) - 1
        variant[by_print] = running - np.repeat(running[first[:-1]], np.diff(first))
    clock = reading_ms if clock_ms is None else clock_ms
    return Occurrences(first, partition[order].astype(np.int32), clock[order], variant)


class RecordRows(NamedTuple):
    """Records, int64[n] each.

    Attributes:
        near: What it says but for what names the sending: equal in a record and its copies; 0: it has no value.
        exact: All that it says.
        partition: Where it stands.
        offset: There.
        reading_ms: The highest timestamp of its stretch so far.
        size: Bytes of key and value.
    """

    near: NDArray[np.int64]
    exact: NDArray[np.int64]
    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    reading_ms: NDArray[np.int64]
    size: NDArray[np.int64]

    def at(self, rows: NDArray[Any]) -> RecordRows:
        """Return some of them."""
        return RecordRows(*(each[rows] for each in self))


@dataclass(frozen=True)
class Copies:
    """The records that say what another one says, and those.

    Attributes:
        rate: The share of contents that was kept: what is counted stands for so many times as much.
        rows: All of them, content by content, of each the first one first.
        owner: int64[n], for each the row of the first one; its own for that.
        is_exact: bool[n], whether all of it came before, and not only what counts.
    """

    rate: float
    rows: RecordRows
    owner: NDArray[np.int64]
    is_exact: NDArray[np.bool_]

    @property
    def places(self) -> NDArray[np.int64]:
        """Which rows are copies."""
        return np.flatnonzero(self.owner != np.arange(self.owner.size))

    @property
    def count(self) -> int:
        """How many copies there are, in all that was read."""
        return round(self.places.size / self.rate)

    def caught(self, windows_ms: Sequence[int], *, route: bool) -> list[int]:
        """Return how many of them each window would drop: per partition, or with ``route`` in all together."""
        rows = self.rows
        meets = np.zeros_like(rows.partition) if route else rows.partition
        sums, _ = occurrences(rows.near, meets, rows.reading_ms).judged(np.array(windows_ms, np.int64))
        return [round((rows.near.size - passing) / self.rate) for passing in sums[:, 0].tolist()]


class RowKeeper:
    """Takes records, and keeps as many as its bound allows.

    Attributes:
        records: How many it was given.
        kept: Those that have a value.
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self.records = 0
        self.kept = KeptRows([np.int64] * len(RecordRows._fields), most_rows)

    def add(self, rows: RecordRows) -> None:
        """Take the next records."""
        self.records += rows.near.size
        self.kept.add(*rows.at(np.flatnonzero(rows.near)))

    @property
    def distinct(self) -> int:
        """How many different contents there are."""
        return round(np.unique(self.kept.column(0)).size / self.kept.rate)

    def copies(self) -> Copies:
        """Return what came more than once."""
        near = self.kept.column(0)
        order = np.argsort(near)
        new = begins(near[order])
        repeated = np.zeros(near.size, np.bool_)
        repeated[order] = ~new | np.append(~new[1:], False)
        wanted = np.flatnonzero(repeated)
        rows = RecordRows(*(self.kept.column(number)[wanted] for number in range(len(RecordRows._fields))))
        rows = rows.at(np.lexsort((rows.offset, rows.partition, rows.reading_ms, rows.near)))
        new = begins(rows.near)
        owner = np.flatnonzero(new)[np.cumsum(new) - 1]
        by_all = np.lexsort((np.arange(owner.size), rows.exact, rows.near))
        is_exact = np.zeros(owner.size, np.bool_)
        is_exact[by_all] = ~(begins(rows.near[by_all]) | begins(rows.exact[by_all]))
        return Copies(self.kept.rate, rows, owner, is_exact)


def begins(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return bool[n]: whether another value stands before."""
    new = np.ones(values.size, np.bool_)
    new[1:] = values[1:] != values[:-1]
    return new
