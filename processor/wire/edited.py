"""Writes edits into copies of records, and reads the copies as columns again.

What is compared or written elsewhere may need a record as it is behind its edit, and not as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.batch.edits import SPLICES, Edits, encode_edited
from processor.engine.batch.scan import scan_run
from processor.engine.bytes.varints import as_varint, read_varint, sized

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

_SHORT_COUNT = 126
"""The zigzag varint of 63 headers: below it a count takes a byte, and so does the next one."""


def edited(columns: Columns, rows: NDArray[np.int64], edits: Edits) -> Columns:
    """Return a copy of some rows with their edits, under the offsets and timestamps that they have."""
    size = int((columns.end[rows] - columns.body[rows]).sum())
    out = np.empty(size + edits.text_bytes() + rows.size * MAX_OVERHEAD_BYTES, np.uint8)
    used = int(encode_edited(columns.data, columns.table, rows, edits, 0, out))
    made, wrong = scan_run(out, used, rows.size)
    assert not wrong  # noqa: S101 - our own kernel wrote it
    made.offset[:] = columns.offset[rows]
    return made


def one_more_header(columns: Columns, rows: NDArray[np.int64], name: bytes, value: bytes) -> Edits:
    """Return the edits that put a header behind the own ones of some records.

    Args:
        columns: The records.
        rows: int64[k], which, rising.
        name: Of the header.
        value: Its value.
    """
    header = np.frombuffer(sized(name) + sized(value), np.uint8)
    begin, end = columns.headers[rows], columns.end[rows]
    counts = columns.data[begin]
    taken = np.ones(rows.size, np.int64)
    grown = np.ones(rows.size, np.int64)
    longer = {}
    for index in np.flatnonzero(counts >= _SHORT_COUNT).tolist():
        tail = columns.data[int(begin[index]) : int(end[index])][:10].tobytes()
        count, taken[index] = read_varint(tail, 0)
        longer[index] = np.frombuffer(as_varint(count + 1), np.uint8)
        grown[index] = longer[index].size
    # Of each edit the first splice is the count, the second the header; the others change nothing.
    put = np.zeros((rows.size, SPLICES), np.int64)
    put[:, 0], put[:, 1] = grown, header.size
    cut = np.concatenate(([0], np.cumsum(put)))
    text = np.empty(int(cut[-1]), np.uint8)
    first = cut[:-1:SPLICES]
    text[first] = counts + 2
    for index, count_bytes in longer.items():
        text[first[index] : first[index] + count_bytes.size] = count_bytes
    text[(first + grown)[:, np.newaxis] + np.arange(header.size)] = header
    at = np.repeat(end[:, np.newaxis], SPLICES, axis=1)
    size = np.zeros((rows.size, SPLICES), np.int64)
    at[:, 0], size[:, 0] = begin, taken
    return Edits(rows, at.reshape(-1), size.reshape(-1), text, cut)
