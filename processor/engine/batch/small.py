"""Checks and opens batches of a few records, many in one call.

A producer that does not wait sends a batch a record. What is done once a batch then costs more than all that is
done once a record: so nothing of it is done in Python.

Invariant: as in `processor.engine.batch.columns`: every bound is checked before it is read, nothing is written
beyond the space given. What a kernel does not open is left to the codec library, and with it what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import (
    ATTRIBUTES,
    CODEC_MASK,
    COUNT,
    CRC,
    CRC_FROM,
    HEADER_BYTES,
    MIN_RECORD_BYTES,
    SIZE,
    START,
)
from processor.engine.bytes.crc32c import crc32c
from processor.engine.bytes.lz4_block import inflate_frame
from processor.engine.bytes.varints import put_bytes
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def check_small(
    raw: NDArray[np.uint8], table: NDArray[np.int64], most_bytes: int, intact: NDArray[np.uint8]
) -> None:
    """Check the CRC-32C of small batches, for which a call each would cost more than the checking.

    Args:
        raw: uint8[n], the fetched bytes.
        table: int64[b, BATCH_COLUMNS], from `walk`.
        most_bytes: Batches up to this size are looked at.
        intact: uint8[b], written: 1 where the checksum is right, 0 where it is wrong or was not looked at.
    """
    for b in range(table.shape[0]):
        size = table[b, SIZE]
        intact[b] = 0
        if size <= most_bytes:
            found = crc32c(raw, table[b, START] + CRC_FROM, size - CRC_FROM, np.uint64(0))
            intact[b] = np.int64(found) == table[b, CRC]


@kernel
def open_small(
    raw: NDArray[np.uint8],
    table: NDArray[np.int64],
    small: NDArray[np.uint8],
    first: int,
    space: NDArray[np.uint8],
    used: int,
    most_bytes: int,
    most_rows: int,
    spans: NDArray[np.int64],
    filled: int,
) -> tuple[Int, Int, Int, Int]:
    """Inflate consecutive small batches until there are enough.

    Args:
        raw: uint8[n], the fetched bytes.
        table: int64[b, BATCH_COLUMNS], from `walk`.
        small: uint8[b], 1 for batches that may be opened: not compressed, or by LZ4.
        first: The first of them.
        space: uint8[m], written from ``used`` on.
        used: Bytes in it.
        most_bytes: It ends once there are as many.
        most_rows: It ends once the batches opened here claim to hold as many.
        spans: int64[b, 3], written from row ``filled`` on, see `scan_spans`.
        filled: Rows in it.

    Returns:
        The first batch that was not opened, bytes in ``space``, rows in ``spans``; how many records the batches
        claim to hold, as far as their bytes can.
    """
    at = first
    rows = np.int64(0)
    while at < table.shape[0] and small[at] != 0 and used < most_bytes and rows < most_rows:
        begin, stop = table[at, START] + HEADER_BYTES, table[at, START] + table[at, SIZE]
        if table[at, ATTRIBUTES] & CODEC_MASK == 0:
            if stop - begin > space.size - used:
                break
            after = put_bytes(space, used, raw, begin, stop - begin)
        else:
            after = inflate_frame(raw, begin, stop, space, used)
            if after < 0:
                break
        spans[filled, 0] = at
        spans[filled, 1] = used
        spans[filled, 2] = after
        filled += 1
        rows += max(np.int64(0), min(table[at, COUNT], (after - used) // MIN_RECORD_BYTES))
        used = after
        at += 1
    return at, used, filled, rows
