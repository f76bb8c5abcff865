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

from processor.engine.bytes.loads import le64
from processor.engine.bytes.siphash import siphash
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

FINGERPRINT_WORDS = 10
PARTS = {"timestamp": slice(0, 8), "key": slice(8, 32), "value": slice(32, 56), "headers": slice(56, 80)}
"""Where each part of a record stands in the bytes of its fingerprint."""


def equal_run(columns: Columns, rows: NDArray[np.int64], other: Columns, first: int) -> int:
    """Return how many of ``rows``, from the first on, are the same records as ``other`` has from ``first`` on.

    The same are key, value, headers and timestamp, byte for byte. Ends where either side ends.
    """
    return int(
        _equal_run(
            columns.data,
            columns.body,
            columns.end,
            columns.timestamp,
            rows,
            other.data,
            other.body,
            other.end,
            other.timestamp,
            first,
        )
    )


@kernel
def _equal_run(
    data: NDArray[np.uint8],
    body: NDArray[np.int64],
    end: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    rows: NDArray[np.int64],
    other: NDArray[np.uint8],
    other_body: NDArray[np.int64],
    other_end: NDArray[np.int64],
    other_timestamp: NDArray[np.int64],
    first: Int,
) -> Int:
    count = min(rows.size, other_body.size - first)
    for k in range(count):
        row = rows[k]
        peer = first + k
        size = end[row] - body[row]
        if size != other_end[peer] - other_body[peer] or timestamp[row] != other_timestamp[peer]:
            return k
        here = body[row]
        there = other_body[peer]
        whole = size & ~7
        for j in range(0, whole, 8):
            if le64(data, here + j) != le64(other, there + j):
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
    rows = columns.rows(start, stop)
    _fingerprints(
        rows.data,
        rows.timestamp,
        rows.key,
        rows.key_length,
        rows.value,
        rows.value_length,
        rows.headers,
        rows.end,
        secret,
        out,
    )
    return out


@kernel
def _fingerprints(
    data: NDArray[np.uint8],
    timestamp: NDArray[np.int64],
    key: NDArray[np.int64],
    key_length: NDArray[np.int64],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    headers: NDArray[np.int64],
    end: NDArray[np.int64],
    secret: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    for row in range(timestamp.size):
        out[row, 0] = np.uint64(timestamp[row])
        out[row, 1] = np.uint64(key_length[row])
        out[row, 4] = np.uint64(value_length[row])
        out[row, 7] = np.uint64(end[row] - headers[row])
        for k in range(2):
            out[row, 2 + k] = siphash(data, key[row], max(key_length[row], 0), secret[k])
            out[row, 5 + k] = siphash(data, value[row], max(value_length[row], 0), secret[k])
            out[row, 8 + k] = siphash(data, headers[row], end[row] - headers[row], secret[k])
