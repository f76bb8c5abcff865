"""Writes records of columns again, as the records of one batch (see `processor.engine.batch.columns`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import put_bytes, put_varint, varint_bytes
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable


@kernel
def encode(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> tuple[Int, Int]:
    """Write the records in ``rows`` one after the other, with offset deltas 0, 1, 2 and so on.

    Args:
        data: uint8[n], where the records are.
        table: Their columns, from one `scan`.
        rows: int64[k], which rows, in order.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= sum of (end - body) + k * MAX_OVERHEAD_BYTES.

    Returns:
        Bytes written; the newest timestamp among them.
    """
    body, end, timestamp = table.body, table.end, table.timestamp
    at = 0
    newest = timestamp[rows[0]] if rows.size else np.int64(-1)
    for k in range(rows.size):
        row = rows[k]
        newest = max(newest, timestamp[row])
        delta = timestamp[row] - base_timestamp
        start = body[row]
        size = end[row] - start
        length = 1 + varint_bytes(delta) + varint_bytes(np.int64(k)) + size
        at = put_varint(out, at, length)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, np.int64(k))
        at = put_bytes(out, at, data, start, size)
    return at, newest


@kernel
def summarise(
    verdict: NDArray[np.uint8],
    timestamp: NDArray[np.int64],
    first_row: NDArray[np.int64],
    kept: NDArray[np.int64],
    newest: NDArray[np.int64],
) -> None:
    """Count what passes in each batch, and the newest timestamp among it.

    Args:
        verdict: uint8[n], 0 passes.
        timestamp: int64[n], ms.
        first_row: int64[batches + 1], rows of batch b are ``first_row[b]`` to ``first_row[b + 1]``.
        kept: int64[batches], written.
        newest: int64[batches], written; undefined where nothing is kept.
    """
    for b in range(kept.size):
        count = 0
        high = np.int64(-1)
        for row in range(first_row[b], first_row[b + 1]):
            if verdict[row] == 0:
                high = timestamp[row] if count == 0 else max(high, timestamp[row])
                count += 1
        kept[b] = count
        newest[b] = high
