"""Writes records of columns again, as the records of one batch (see `processor.engine.batch.columns`).

Their offset deltas are 0, 1, 2 and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import put_bytes, put_varint, varint_bytes
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable


@inlined
def put_head(out, at, k, delta, rest):  # type: ignore[no-untyped-def]  # inlined kernel
    """Begin record ``k`` of a batch, up to its key's length; returns the place behind it.

    ``delta`` is its timestamp's, ``rest`` the bytes of all that follows.
    """
    at = put_varint(out, at, 1 + varint_bytes(delta) + varint_bytes(k) + rest)
    out[at] = 0  # attributes
    return put_varint(out, put_varint(out, at + 1, delta), k)


@kernel
def encode(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> Int:
    """Write the records in ``rows`` one after the other; return the bytes written.

    Args:
        data: uint8[n], where the records are.
        table: Their columns, from one `scan`.
        rows: int64[k], which, in order.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= sum of (end - body) + k * MAX_OVERHEAD_BYTES.
    """
    body, end, timestamp = table.body, table.end, table.timestamp
    at: Int = 0
    for k in range(rows.size):
        row = rows[k]
        size = end[row] - body[row]
        at = put_head(out, at, np.int64(k), timestamp[row] - base_timestamp, size)
        at = put_bytes(out, at, data, body[row], size)
    return at


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
