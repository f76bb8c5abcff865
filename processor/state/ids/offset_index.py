"""Says from which changelog offset on ids from a number on lie.

It is asked to trim what is expired from the head of a changelog, and to find that too much was deleted. There
is one entry for every so many ids, and for every so many changelog records where ids are rare: that of the
first commit in each such stretch. So two workers that have restored the same changelog have the same entries.

Invariant: every block of ids from an entry's number on lies at its offset or behind it; both rise.
"""

from __future__ import annotations

import os
from bisect import bisect_right

ENTRY_IDS = int(os.environ.get("SEQMARK_TEST_PLACE_IDS", "16384"))
"""Ids from one entry to the next: about 350 KB of changelog. Tests have fewer."""
ENTRY_RECORDS = 100_000
"""Changelog records from one entry to the next: what a commit writes without ids, 12 MB of it."""


class OffsetIndex:
    """The entries of one partition's changelog."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._offsets: list[int] = []
        self._first: int | None = None
        self._changed: dict[int, int | None] = {}

    def note(self, number: int, offset: int) -> None:
        """Take note that a commit, behind those before, says at ``offset`` that its first id has ``number``."""
        if self._numbers:
            last, at = self._numbers[-1], self._offsets[-1]
            if number // ENTRY_IDS == last // ENTRY_IDS and offset // ENTRY_RECORDS == at // ENTRY_RECORDS:
                return
            if number == last:
                self._offsets[-1] = self._changed[number] = offset
                return
        self.load(number, offset)
        self._changed[number] = offset

    def load(self, number: int, offset: int) -> None:
        """Take over an entry that was kept; they come in order."""
        self._numbers.append(number)
        self._offsets.append(offset)
        if self._first is None:
            self._first = offset

    def of(self, number: int) -> int | None:
        """Return the offset from which on all ids from ``number`` on lie; None: that is not known."""
        index = bisect_right(self._numbers, number) - 1
        return self._offsets[index] if index >= 0 else None

    def ahead(self, number: int) -> int | None:
        """Return `of` where it lies behind what the last `forget_before` has left, else None.

        While no ids come, the last entry moves on: then it is ahead of where it was, though it is the first.
        """
        offset = self.of(number)
        return offset if offset is not None and offset != self._first else None

    def forget_before(self, number: int) -> None:
        """Forget the entries that only ids below ``number`` needed."""
        index = max(0, bisect_right(self._numbers, number) - 1)
        for gone in self._numbers[:index]:
            self._changed[gone] = None
        del self._numbers[:index], self._offsets[:index]
        self._first = self._offsets[0] if self._offsets else None

    def changes(self) -> dict[int, int | None]:
        """Return what has changed since the last call: offset by number, None where it is forgotten."""
        changed, self._changed = self._changed, {}
        return changed
