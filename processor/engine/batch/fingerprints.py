"""Compares records, and tells in which part two of them differ.

Two questions for the certificate. `equal_run` compares bytes and is all that a clean topic needs.
`fingerprints` serves where something differs: records are then looked for ahead, told apart by 128 keyed bits a
part instead of by copies of them.

A fingerprint is a row of uint64[`FINGERPRINT_WORDS`]::

    timestamp | key length, hash, hash | value length, hash, hash | headers size, hash, hash

A null key or value has length -1, so that it differs from an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import get_le
from processor.engine.bytes.siphash import siphash
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable

FINGERPRINT_WORDS = 10
PARTS = {"timestamp": slice(0, 8), "key": slice(8, 32), "value": slice(32, 56), "headers": slice(56, 80)}
"""Where each part of a record stands in the bytes of its fingerprint."""


def equal_run(columns: Columns, rows: NDArray[np.int64], other: Columns, first: int) -> int:
    """Return how many of ``rows``, from the first on, are the same records as ``other`` has from ``first`` on.

    The same are key, value, headers and timestamp, byte for byte. Ends where either side ends.
    """
    return int(_equal_run(columns.data, columns.table, rows, other.data, other.table, first))


@kernel
def _equal_run(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    other: NDArray[np.uint8],
    peers: RecordTable,
    first: Int,
) -> Int:
    body, end, timestamp = table.body, table.end, table.timestamp
    other_body, other_end, other_timestamp = peers.body, peers.end, peers.timestamp
    count = min(rows.size, peers.body.size - first)
    for k in range(count):
        row = rows[k]
        peer = first + k
        size = end[row] - body[row]
        if size != other_end[peer] - other_body[peer] or timestamp[row] != other_timestamp[peer]:
            return k
        here, there = body[row], other_body[peer]
        whole = size & ~7
        for j in range(0, whole, 8):
            if get_le(data, here + j, 8) != get_le(other, there + j, 8):
                return k
        for j in range(whole, size):
            if data[here + j] != other[there + j]:
                return k
    return count


def fingerprints(columns: Columns, start: int, stop: int, secret: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return uint64[n, FINGERPRINT_WORDS] for the rows from ``start`` to ``stop``.

    Args:
        columns: The records.
        start: The first row.
        stop: The row after the last.
        secret: uint64[2, 2], random: who does not know it cannot make records that collide.
    """
    out = np.empty((stop - start, FINGERPRINT_WORDS), np.uint64)
    _fingerprints(columns.data, columns.table, start, secret, out)
    return out


@kernel
def _fingerprints(
    data: NDArray[np.uint8], table: RecordTable, start: int, secret: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    for row in range(out.shape[0]):
        at = start + row
        begin = table.key[at], table.value[at], table.headers[at]
        size = table.key_length[at], table.value_length[at], table.end[at] - table.headers[at]
        out[row, 0] = np.uint64(table.timestamp[at])
        for part in range(3):
            out[row, 1 + 3 * part] = np.uint64(size[part])
            for k in range(2):
                out[row, 2 + 3 * part + k] = siphash(data, begin[part], max(size[part], 0), secret[k])
