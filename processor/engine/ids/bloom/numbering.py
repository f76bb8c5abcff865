"""Numbers the ids of Bloom filters as they stand in the changelog.

Ids are numbered as they are remembered, as those of the exact backend are (`processor.engine.ids.exact.index`):
the changelog holds the same blocks, and is deleted in front by the same numbers. Filters know no numbers; it
is enough to know with which one each bucket began. An id is not forgotten before all of its bucket is, so the
floor is the first number of the first bucket that lives.

Invariant: numbers have no gaps, and none below the floor is of a living bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.clock import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.engine.ids.block import IdRows
    from processor.engine.ids.bloom.filter import Filter
    from processor.engine.ids.bloom.window import BloomWindow
    from processor.engine.ids.page import Pages


class BloomNumbering:
    """The numbers of one partition's ids, over its filters.

    Attributes:
        window: The filters.
        begun: By living bucket, a number below which none of its ids is.
        collisions: None: filters keep no fingerprints, so nobody tells the records of an id apart.
        floor: All ids below this number are of buckets that are dropped, as of the last commit.

    Args:
        window: Empty.
    """

    collisions = None

    def __init__(self, window: BloomWindow) -> None:
        self.window = window
        self._forget()

    def _forget(self) -> None:
        self.begun: dict[int, int] = {}
        self._next = self.floor = 1
        self._clock_ms = NEVER

    def clear(self) -> None:
        """Forget everything."""
        self.window.clear()
        self._forget()

    @property
    def next_number(self) -> int:
        """The number of the next id that is remembered, those that are staged counted."""
        return self._next + self.window.staged.count

    def staged(self) -> IdRows:
        """Return the ids that the next commit remembers."""
        return self.window.staged_rows(self._next)

    def commit(self, pages: Pages | None, clock_ms: int, sweep: int = 0) -> None:
        """Take the staged ids as committed, and drop the buckets that are outside the window.

        After the commit's last record the clock reads ``clock_ms``. There is nothing to sweep.

        Raises:
            ValueError: Ids are staged, and no pages are given.
        """
        del sweep
        if pages is None and self.window.staged.count:
            raise ValueError("staged ids are committed without a block that they stand in")
        if pages is None:
            self.window.expire(clock_ms)
        else:
            self._note(self.staged())
            self._next = self.next_number
            self.window.commit(clock_ms)
        self._expire(clock_ms)

    def restore(self, rows: IdRows, pages: Pages) -> None:
        """Take over a committed block; blocks come in the order of their numbers.

        Raises:
            ValueError: Its numbers lie below those taken over before, or something is staged.
        """
        del pages
        if self.window.staged.count:
            raise ValueError("a block cannot be taken over while ids are staged")
        if rows.first < self._next:
            raise ValueError(f"a block begins at number {rows.first}, expected {self._next} or more")
        if not self.begun:
            self.floor = rows.first
        self._note(rows)
        self._next = rows.first + len(rows)
        hashes, reading_ms = rows.hash, rows.reading_ms
        if self.window.refresh:
            # An id that was renewed in its bucket a hundred times has a hundred rows, and needs room for one.
            lacking = self.window.lacking(hashes, reading_ms)
            hashes, reading_ms = hashes[lacking], reading_ms[lacking]
        self.window.restore(hashes, reading_ms, self._clock_ms)

    def begin_at(self, number: int) -> None:
        """Give the next id this number, where nothing is remembered."""
        self._next = self.floor = number

    def adopt(self, filters: Iterable[Filter], begun: dict[int, int], number: int, clock_ms: int) -> None:
        """Take filters over that live at a reading of the clock and hold all ids below ``number``.

        Those of a bucket come in the order in which they were begun; ``begun`` is as the attribute.
        """
        self._clock_ms = clock_ms
        self.window.filters = list(filters)
        self.begun = dict(begun)
        self._next = number
        self.floor = min(self.begun.values(), default=number)

    def _note(self, rows: IdRows) -> None:
        """Note in which buckets committed rows are."""
        for bucket in np.unique(rows.reading_ms // self.window.bucket_ms).tolist():
            self.begun.setdefault(bucket, rows.first)

    def _expire(self, clock_ms: int) -> None:
        self._clock_ms = clock_ms
        self.begun = {
            bucket: number for bucket, number in self.begun.items() if self.window.ends_ms(bucket) > clock_ms
        }
        self.floor = min(self.begun.values(), default=self._next)
