"""Remembers the source records near the place that is compared, and their verdicts.

They explain a record that should not be where it is: a duplicate that passed is one of the records dropped
here. Memory is bounded: the rows at hand and the last ones before them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.fingerprints import FINGERPRINT_WORDS, fingerprints
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

REMEMBERED_ROWS = 4_096
"""Source rows kept from before the present ones while all is well: fingerprints take 3 % of the time."""
MOST_ROWS = 65_536
"""The same while something differs: `align` looks ahead, and what it sees has to be known. 80 B each, 5 MB."""


class SourceRecord(NamedTuple):
    """A source record by its offset, and its verdict."""

    offset: int
    verdict: Verdict


class _Rows(NamedTuple):
    offset: NDArray[np.int64]
    verdict: NDArray[np.uint8]
    marks: NDArray[np.uint64]

    def then(self, later: _Rows, most: int) -> _Rows:
        """Return the last ``most`` of these and later ones."""
        return _Rows(
            np.concatenate((self.offset, later.offset))[-most:],
            np.concatenate((self.verdict, later.verdict))[-most:],
            np.concatenate((self.marks, later.marks))[-most:],
        )


_NONE = _Rows(np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros((0, FINGERPRINT_WORDS), np.uint64))


class RecentRecords:
    """The source near the place that is compared."""

    def __init__(self) -> None:
        # New for each run, so that nobody can construct two records that look the same.
        self.secret = np.frombuffer(os.urandom(32), np.uint64).reshape(2, 2).copy()
        self._before = self._edited_before = self._edited = _NONE
        self._columns: Columns | None = None
        self._verdict = _NONE.verdict
        self._now: _Rows | None = None

    def begin(self, columns: Columns, verdict: NDArray[np.uint8], edited: Columns | None = None) -> None:
        """Take the rows at hand; they are looked at until `end`.

        Args:
            columns: The rows.
            verdict: uint8[n], of all of them.
            edited: Those that pass with edits, as they pass.
        """
        self._columns, self._verdict, self._now = columns, verdict, None
        if edited is not None:
            marks = fingerprints(edited, 0, len(edited), self.secret)
            self._edited = _Rows(edited.offset, np.full(len(edited), np.uint8(Verdict.PASS)), marks)

    def end(self, *, even: bool) -> None:
        """Keep the last of the rows at hand; ``even``: nothing differs here."""
        columns = self._columns
        if columns is None or not len(columns):
            return
        most = REMEMBERED_ROWS if even else MOST_ROWS
        start = max(0, len(columns) - most)
        marks = fingerprints(columns, start, len(columns), self.secret)
        self._before = self._before.then(_Rows(columns.offset[start:], self._verdict[start:], marks), most)
        self._edited_before = self._edited_before.then(self._edited, most)
        self._edited = _NONE
        self._columns = self._now = None

    def marks(self, columns: Columns, start: int, stop: int) -> list[bytes]:
        """Return the fingerprints of some rows of any columns, as bytes."""
        return [mark.tobytes() for mark in fingerprints(columns, start, stop, self.secret)]

    def same(self, mark: bytes) -> list[SourceRecord]:
        """Return the records near here that are the same as one with fingerprint ``mark``.

        One that passes with an edit is two: as it came, and as it passes, with verdict ``PASS``.
        """
        wanted = np.frombuffer(mark, np.uint64)
        return [
            SourceRecord(int(rows.offset[row]), Verdict(int(rows.verdict[row])))
            for rows in (*self._all(), self._edited_before, self._edited)
            for row in np.flatnonzero((rows.marks == wanted).all(axis=1)).tolist()
        ]

    def at(self, offset: int) -> SourceRecord | None:
        """Return the record with this offset, if it is near here."""
        for rows in self._all():
            row = int(np.searchsorted(rows.offset, offset))
            if row < rows.offset.size and rows.offset[row] == offset:
                return SourceRecord(offset, Verdict(int(rows.verdict[row])))
        return None

    def _all(self) -> Iterator[_Rows]:
        yield self._before
        if self._columns is None:
            return
        if self._now is None:
            marks = fingerprints(self._columns, 0, len(self._columns), self.secret)
            self._now = _Rows(self._columns.offset, self._verdict, marks)
        yield self._now
