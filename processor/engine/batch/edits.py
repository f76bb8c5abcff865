"""Writes records of columns again with edits, as the records of one batch.

An edit is up to `SPLICES` splices of one record, in order: some of its bytes, or none, give way to others, or
to none::

    body | ... | size bytes taken out | ... | size taken out | ... | end       positions in the columns' data
               | text put in          |     | text put in    |

A splice knows nothing of what it stands in: whoever makes an edit also puts in the lengths and counts that it
changes. What lies between splices keeps its bytes; a record without an edit is written as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.encode import put_head
from processor.engine.bytes.varints import put_bytes
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable

SPLICES = 4
"""A field's length and its text, the count of headers, and a header behind the last."""


class Edits(NamedTuple):
    """The edits of k records; splice s of edit e is ``SPLICES * e + s``.

    Attributes:
        row: int64[k], which records, rising.
        at: int64[SPLICES * k], where in the columns' data each splice begins: between the record's body and its
            end, and not before the end of the one before it.
        size: int64[SPLICES * k], how many bytes it takes out.
        text: uint8[m], what is put in.
        cut: int64[SPLICES * k + 1], splice i puts in ``text[cut[i]:cut[i + 1]]``.
    """

    row: NDArray[np.int64]
    at: NDArray[np.int64]
    size: NDArray[np.int64]
    text: NDArray[np.uint8]
    cut: NDArray[np.int64]

    @classmethod
    def begun(cls, row: NDArray[np.int64], most_bytes: int) -> Edits:
        """Return edits of some rows that nothing is known of yet, with room for so much text."""
        at, size = np.zeros((2, SPLICES * row.size), np.int64)
        return cls(row, at, size, np.empty(most_bytes, np.uint8), np.zeros(SPLICES * row.size + 1, np.int64))

    def between(self, first: int, last: int) -> Edits:
        """Return those of the rows from ``first`` to ``last``, both included."""
        start, stop = np.searchsorted(self.row, (first, last + 1)).tolist()
        splices = slice(SPLICES * start, SPLICES * stop)
        cut = self.cut[SPLICES * start : SPLICES * stop + 1]
        return Edits(self.row[start:stop], self.at[splices], self.size[splices], self.text, cut)

    def text_bytes(self) -> int:
        """Return how many bytes all of them put in."""
        return int(self.cut[-1] - self.cut[0])

    def growth(self) -> NDArray[np.int64]:
        """Return int64[k]: how many bytes each record grows by, but for the length before it; below 0: less."""
        grown: NDArray[np.int64] = np.diff(self.cut[::SPLICES]) - self.size.reshape(-1, SPLICES).sum(axis=1)
        return grown


@kernel
def encode_edited(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    edits: Edits,
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> Int:
    """Write the records in ``rows`` one after the other, each with its edit; return the bytes written.

    Args:
        data: uint8[n], where the records are.
        table: Their columns, from one `scan`.
        rows: int64[k], which, rising.
        edits: Of some of them; those of others count for nothing.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= sum of (end - body) + `Edits.text_bytes` + k * MAX_OVERHEAD_BYTES.
    """
    body, end, timestamp = table.body, table.end, table.timestamp
    edited, splice_at, splice_size, text, cut = edits
    at: Int = 0
    edit = 0
    for k in range(rows.size):
        row = rows[k]
        while edit < edited.size and edited[edit] < row:
            edit += 1
        first = SPLICES * edit
        after = first + SPLICES if edit < edited.size and edited[edit] == row else first
        size = end[row] - body[row]
        for splice in range(first, after):
            size += cut[splice + 1] - cut[splice] - splice_size[splice]
        at = put_head(out, at, np.int64(k), timestamp[row] - base_timestamp, size)
        begin = body[row]
        for splice in range(first, after):
            at = put_bytes(out, at, data, begin, splice_at[splice] - begin)
            at = put_bytes(out, at, text, cut[splice], cut[splice + 1] - cut[splice])
            begin = splice_at[splice] + splice_size[splice]
        at = put_bytes(out, at, data, begin, end[row] - begin)
    return at
