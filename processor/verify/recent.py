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
    """A source record by its offset, its verdict, and whether it passes whatever that is, observed."""

    offset: int
    verdict: Verdict
    observed: bool = False


class _Rows(NamedTuple):
    offset: NDArray[np.int64]
    verdict: NDArray[np.uint8]
    marks: NDArray[np.uint64]
    observed: NDArray[np.bool_]

    def then(self, later: _Rows, most: int) -> _Rows:
        """Return the last ``most`` of these and later ones."""
        return _Rows(
            np.concatenate((self.offset, later.offset))[-most:],
            np.concatenate((self.verdict, later.verdict))[-most:],
            np.concatenate((self.marks, later.marks))[-most:],
            np.concatenate((self.observed, later.observed))[-most:],
        )

    def record(self, row: int) -> SourceRecord:
        """Return one of them."""
        return SourceRecord(int(self.offset[row]), Verdict(int(self.verdict[row])), bool(self.observed[row]))


_NONE = _Rows(
    np.zeros(0, np.int64),
    np.zeros(0, np.uint8),
    np.zeros((0, FINGERPRINT_WORDS), np.uint64),
    np.zeros(0, np.bool_),
)


class RecentRecords:
    """The source near the place that is compared."""

    def __init__(self) -> None:
        # New for each run, so that nobody can construct two records that look the same.
        self.secret = np.frombuffer(os.urandom(32), np.uint64).reshape(2, 2).copy()
        self._before = self._edited_before = self._edited = self._redriven = _NONE
        self._columns: Columns | None = None
        self._verdict, self._observed = _NONE.verdict, _NONE.observed
        self._now: _Rows | None = None

    def begin(self, columns: Columns, verdict: NDArray[np.uint8]) -> None:
        """Take the rows at hand, with uint8[n] of their verdicts; they are looked at until `end`."""
        self._columns, self._verdict, self._now = columns, verdict, None
        self._observed = np.zeros(len(columns), np.bool_)

    def pass_on(self, observed: NDArray[np.bool_], edited: Columns | None = None) -> None:
        """Take note of what passes of the rows at hand beside what the verdicts say.

        Args:
            observed: bool[n], which pass whatever is judged.
            edited: Those that pass with edits, as they pass.
        """
        self._observed, self._now = observed, None
        if edited is not None:
            marks = fingerprints(edited, 0, len(edited), self.secret)
            passed = np.full(len(edited), np.uint8(Verdict.PASS))
            self._edited = _Rows(edited.offset, passed, marks, np.zeros(len(edited), np.bool_))

    def end(self, *, even: bool, redriven: bool = False) -> None:
        """Keep the last of the rows at hand; ``even``: nothing differs, ``redriven``: they are judged again."""
        columns = self._columns
        if columns is None or not len(columns):
            return
        most = REMEMBERED_ROWS if even else MOST_ROWS
        start = max(0, len(columns) - most)
        marks = fingerprints(columns, start, len(columns), self.secret)
        last = _Rows(columns.offset[start:], self._verdict[start:], marks, self._observed[start:])
        if redriven:
            self._redriven = self._redriven.then(last, most)
        else:
            self._before = self._before.then(last, most)
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
            rows.record(row)
            for rows in (*self._all(), self._redriven, self._edited_before, self._edited)
            for row in np.flatnonzero((rows.marks == wanted).all(axis=1)).tolist()
        ]

    def at(self, offset: int) -> SourceRecord | None:
        """Return the record with this offset, if it is near here."""
        for rows in self._all():
            row = int(np.searchsorted(rows.offset, offset))
            if row < rows.offset.size and rows.offset[row] == offset:
                return rows.record(row)
        # These stand in the order in which they were judged.
        found = np.flatnonzero(self._redriven.offset == offset).tolist()
        return self._redriven.record(found[-1]) if found else None

    def _all(self) -> Iterator[_Rows]:
        yield self._before
        if self._columns is None:
            return
        if self._now is None:
            marks = fingerprints(self._columns, 0, len(self._columns), self.secret)
            self._now = _Rows(self._columns.offset, self._verdict, marks, self._observed)
        yield self._now
