"""Keeps of each record what it says, by its hash, and where it stands; and finds the copies among them. Pure.

Two records say the same where their hashes are equal. Beyond a bound of rows those of half of all contents are
kept, then of a quarter: what is counted of them is multiplied.
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
        rows, sums = self.rows, np.zeros((len(windows_ms), SUMS))
        if not rows.near.size:
            return [0] * len(windows_ms)
        partition = np.zeros_like(rows.partition) if route else rows.partition
        rows = rows.at(np.lexsort((rows.reading_ms, partition, rows.near)))
        first = np.append(np.flatnonzero(_begins(rows.near)), rows.near.size)
        ones, none = np.ones_like(rows.near), np.zeros_like(rows.near)
        meets = (none if route else rows.partition).astype(np.int32)
        windows = np.array(windows_ms, np.int64)
        held = np.zeros((windows.size, 2), np.int64)
        judge_grid(
            first, meets, rows.reading_ms, ones, none, windows, np.ones_like(windows), False, True,
            int(rows.reading_ms.min()), 2**61, sums, held,
        )  # fmt: skip
        return [round((rows.near.size - passing) / self.rate) for passing in sums[:, 0].tolist()]


class RowKeeper:
    """Takes records, and keeps as many as its bound allows.

    Attributes:
        records: How many it was given.
        level: It keeps the contents of one in 2 to this.
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self.records = 0
        self.level = 0
        self._most = most_rows
        self._parts: list[RecordRows] = []
        self._rows = 0

    def add(self, rows: RecordRows) -> None:
        """Take the next records."""
        self.records += rows.near.size
        self._keep(rows)
        while self._rows > self._most:
            self.level += 1
            parts, self._parts, self._rows = self._parts, [], 0
            while parts:  # each goes as soon as what is kept of it is copied
                self._keep(parts.pop())

    def _keep(self, rows: RecordRows) -> None:
        # The hash is spread evenly: its highest bits draw as well as any.
        drawn = rows.near.view(np.uint64) >> np.uint64(64 - self.level) == 0 if self.level else True
        kept = rows.at(np.flatnonzero((rows.near != 0) & drawn))
        self._parts.append(kept)
        self._rows += kept.near.size

    @property
    def distinct(self) -> int:
        """How many different contents there are."""
        return round(np.unique(self._column(0)).size * 2**self.level) if self._parts else 0

    def _column(self, number: int) -> NDArray[np.int64]:
        return np.concatenate([each[number] for each in self._parts])

    def copies(self) -> Copies:
        """Return what came more than once."""
        if not self._parts:
            self._parts = [RecordRows(*(np.zeros(0, np.int64) for _ in RecordRows._fields))]
        near = self._column(0)
        order = np.argsort(near)
        new = _begins(near[order])
        repeated = np.zeros(near.size, np.bool_)
        repeated[order] = ~new | np.append(~new[1:], False)
        wanted = np.flatnonzero(repeated)
        rows = RecordRows(*(self._column(number)[wanted] for number in range(len(RecordRows._fields))))
        rows = rows.at(np.lexsort((rows.offset, rows.partition, rows.reading_ms, rows.near)))
        begins = _begins(rows.near)
        owner = np.flatnonzero(begins)[np.cumsum(begins) - 1] if begins.size else np.zeros(0, np.int64)
        by_all = np.lexsort((np.arange(owner.size), rows.exact, rows.near))
        is_exact = np.zeros(owner.size, np.bool_)
        is_exact[by_all] = ~(_begins(rows.near[by_all]) | _begins(rows.exact[by_all]))
        return Copies(2.0**-self.level, rows, owner, is_exact)


def _begins(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return bool[n]: whether another value stands before."""
    new = np.ones(values.size, np.bool_)
    new[1:] = values[1:] != values[:-1]
    return new
