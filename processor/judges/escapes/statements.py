"""Keeps what partitions have let pass until somebody takes it in or tells it, in bounded memory.

A stream of statements of a partition has no gaps, or the statement behind a gap says so: what was known of
the partition before it is no longer all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.engine.ids.passes import Passes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROW_BYTES = 25
"""Of a pass: key, reading, partition, kind."""
_JOIN_FROM = 1_024
"""A statement takes as much as 36 rows even where it has none: so many or more are joined."""


class Covered(NamedTuple):
    """All that a partition has let pass between two readings of its clock, of the ids of a level's sample.

    Attributes:
        anew: Something was left out before it.
    """

    partition: int
    level: int
    from_ms: int
    to_ms: int
    passes: Passes
    anew: bool = False

    def parts(self, rows: int) -> Iterator[Covered]:
        """Yield the same in statements of at most so many rows."""
        size = self.passes.key.size
        for start in range(0, max(size, 1), rows):
            stop = start + rows
            to_ms = self.to_ms if stop >= size else int(self.passes.at[stop - 1])
            yield self._replace(
                passes=self.passes.part(slice(start, stop)), to_ms=to_ms, anew=self.anew and not start
            )


class Statements:
    """Statements in the order in which they came, with at most so many rows together."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._all: list[Covered] = []
        self._rows = 0
        self._join_at = _JOIN_FROM
        self._gaps: set[int] = set()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def nbytes(self) -> int:
        """What the rows take."""
        return self._rows * ROW_BYTES

    def add(self, covered: Covered) -> None:
        """Keep one; where there is no room it is left out, and the next one of its partition says so."""
        size = covered.passes.key.size
        if self._rows + size > self._most_rows:
            self.skip(covered.partition)
            return
        if covered.partition in self._gaps:
            self._gaps.discard(covered.partition)
            covered = covered._replace(anew=True)
        self._all.append(covered)
        self._rows += size
        if len(self._all) >= self._join_at:
            self._all = list(joined(self._all))
            self._rows = sum(each.passes.key.size for each in self._all)
            self._join_at = max(_JOIN_FROM, 2 * len(self._all))

    def skip(self, partition: int) -> None:
        """Note that something of a partition is not in here."""
        self._gaps.add(partition)

    def take(self) -> list[Covered]:
        """Return all, once."""
        taken, self._all, self._rows, self._join_at = self._all, [], 0, _JOIN_FROM
        return taken


def joined(said: Sequence[Covered]) -> Iterator[Covered]:
    """Join what was covered one after the other; the level is the highest, whose sample is in all.

    Not across a gap: what is before the last one is of no use to who hears of it.
    """
    by_partition: dict[int, list[Covered]] = {}
    for covered in said:
        if covered.anew:
            by_partition[covered.partition] = []
        by_partition.setdefault(covered.partition, []).append(covered)
    for partition, each in by_partition.items():
        if len(each) == 1:
            yield each[0]
            continue
        passes = Passes.joined([covered.passes for covered in each])
        # What a duplicate has renewed is told as a pass: others ask when the id was seen last.
        level = max(covered.level for covered in each)
        yield Covered(partition, level, each[0].from_ms, each[-1].to_ms, passes, each[0].anew)
