"""Reads record batches into columns (see `processor.engine.batch.columns`).

Invariant: every kernel checks every bound before it reads. Malformed bytes give an error code, never a wrong
read. Kernels write only into arrays that the caller has sized by the bounds given below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_COLUMNS,
    COUNT,
    CRC,
    HEADER_BYTES,
    LAST_DELTA,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    MIN_RECORD_BYTES,
    MOST_OFFSET,
    PRODUCER_ID,
    SIZE,
    START,
    Columns,
    RecordTable,
)
from processor.engine.bytes.loads import get_be
from processor.engine.bytes.varints import VARINT_BYTES, VARLONG_BYTES, varint
from processor.engine.jit import Int, inlined, kernel
from processor.engine.verdict import Complaint

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Malformed(Complaint):
    """What `walk` or `scan` found wrong; 0 is nothing."""

    NONE = 0, "nothing is wrong"
    LENGTH = 1, "the batch length is smaller than a batch header"
    MAGIC = 2, "the message format is not version 2"
    RECORD_COUNT = 3, "the record count does not fit the bytes"
    VARINT = 4, "a variable-length integer is longer than allowed or cut"
    RECORD_LENGTH = 5, "a record's length leaves the batch"
    OFFSET_DELTA = 6, "offset deltas do not rise within the batch"
    KEY = 7, "a key's length leaves its record"
    VALUE = 8, "a value's length leaves its record"
    HEADERS = 9, "headers leave their record"
    TRAILING = 10, "bytes follow the last record"
    BATCH_ORDER = 11, "its offsets do not follow those of the batch before it"


@inlined
def _sbe32(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    return np.int64(np.int32(np.uint32(get_be(data, at, 4))))


@kernel
def walk(data: NDArray[np.uint8], table: NDArray[np.int64]) -> tuple[int, int, int]:
    """List the whole batches of a fetch response; a cut one at the end is left for the next fetch.

    Args:
        data: uint8[n], consecutive batches.
        table: int64[rows, BATCH_COLUMNS], filled from row 0; rows >= n // HEADER_BYTES is always enough.

    Returns:
        Batches listed; bytes they take; a `Malformed` code of the batch after them (0: none).
    """
    at = 0
    rows = 0
    size = data.size
    last = np.int64(-1)
    while size - at >= 17 and rows < table.shape[0]:
        length = _sbe32(data, at + 8)
        if length < HEADER_BYTES - LOG_OVERHEAD:
            return rows, at, 1
        if data[at + 16] != 2:
            return rows, at, 2
        if size - at < LOG_OVERHEAD + length:
            break
        base = np.int64(get_be(data, at, 8))
        delta = _sbe32(data, at + 23)
        # The base offset is not under the CRC: that offsets rise, and stay below 2^63, is checked here.
        if delta < 0 or base <= last or base >= MOST_OFFSET - delta:
            return rows, at, 11
        last = base + delta
        row = table[rows]
        row[START] = at
        row[SIZE] = LOG_OVERHEAD + length
        row[BASE_OFFSET] = base
        row[CRC] = np.int64(get_be(data, at + 17, 4))
        row[ATTRIBUTES] = (np.int64(data[at + 21]) << 8) | np.int64(data[at + 22])
        row[LAST_DELTA] = delta
        row[BASE_TIMESTAMP] = np.int64(get_be(data, at + 27, 8))
        row[MAX_TIMESTAMP] = np.int64(get_be(data, at + 35, 8))
        row[PRODUCER_ID] = np.int64(get_be(data, at + 43, 8))
        row[COUNT] = _sbe32(data, at + 57)
        at += LOG_OVERHEAD + length
        rows += 1
    return rows, at, 0


@kernel
def scan(
    data: NDArray[np.uint8], start: int, stop: int, batch: NDArray[np.int64], first_row: Int, table: RecordTable
) -> tuple[int, int]:
    """Read one batch's inflated records ``data[start:stop]`` into columns from ``first_row``.

    Args:
        data: uint8[n], inflated records.
        start: Where the batch's first record begins.
        stop: Where its last record ends.
        batch: int64[BATCH_COLUMNS], its row of the batch table.
        first_row: The row of the first record; all columns need ``batch[COUNT]`` rows from there.
        table: Written.

    Returns:
        A `Malformed` code (0: all is well) and the index of the record in the batch where it is.
    """
    offset, timestamp, body, end, key, key_length, value, value_length, headers = table
    count = batch[COUNT]
    if count < 0 or count > (stop - start) // MIN_RECORD_BYTES or first_row + count > offset.size:
        return 3, 0
    append_time = (batch[ATTRIBUTES] & LOG_APPEND_TIME) != 0
    at = start
    previous = np.int64(-1)
    for i in range(count):
        length, at = varint(data, at, stop, VARINT_BYTES)
        if at < 0:
            return 4, i
        if length < 0 or length > stop - at:
            return 5, i
        limit = at + length
        at += 1  # attributes, unused by Kafka so far
        delta, at = varint(data, at, limit, VARLONG_BYTES)
        if at < 0:
            return 4, i
        offset_delta, at = varint(data, at, limit, VARINT_BYTES)
        if at < 0:
            return 4, i
        if offset_delta <= previous or offset_delta > batch[LAST_DELTA]:
            return 6, i
        previous = offset_delta
        row = first_row + i
        offset[row] = batch[BASE_OFFSET] + offset_delta
        # With LogAppendTime the broker's time is the batch's maximum, whatever the deltas say.
        timestamp[row] = batch[MAX_TIMESTAMP] if append_time else batch[BASE_TIMESTAMP] + delta
        body[row] = at
        size, at = varint(data, at, limit, VARINT_BYTES)
        if at < 0:
            return 4, i
        if size < -1 or size > limit - at:
            return 7, i
        key[row] = at
        key_length[row] = size
        at += max(size, 0)
        size, at = varint(data, at, limit, VARINT_BYTES)
        if at < 0:
            return 4, i
        if size < -1 or size > limit - at:
            return 8, i
        value[row] = at
        value_length[row] = size
        at += max(size, 0)
        headers[row] = at
        fields, at = varint(data, at, limit, VARINT_BYTES)
        if at < 0:
            return 4, i
        if fields < 0 or fields > limit - at:
            return 9, i
        for _ in range(fields):
            size, at = varint(data, at, limit, VARINT_BYTES)
            if at < 0:
                return 4, i
            if size < 0 or size > limit - at:
                return 9, i
            at += size
            size, at = varint(data, at, limit, VARINT_BYTES)
            if at < 0:
                return 4, i
            if size < -1 or size > limit - at:
                return 9, i
            at += max(size, 0)
        if at != limit:
            return 10, i
        end[row] = limit
    if at != stop:
        return 10, count
    return 0, 0


@kernel
def cut_records(
    data: NDArray[np.uint8], start: int, stop: int, count: int, most: int, ends: NDArray[np.int64]
) -> Int:
    """Find where every ``most``-th record of a run ends, by the records' lengths alone.

    Args:
        data: uint8[n], inflated records.
        start: Where the first begins.
        stop: Where the last one ends.
        count: Records.
        most: Of a part.
        ends: int64[m], written; m >= count / most, rounded up.

    Returns:
        How many parts there are; -1 where the lengths do not fit ``stop`` or ``count``.
    """
    at = np.int64(start)
    parts = np.int64(0)
    for i in range(count):
        length, at = varint(data, at, stop, VARINT_BYTES)
        if at < 0 or length < 0 or length > stop - at:
            return np.int64(-1)
        at += length
        if (i + 1) % most == 0 or i + 1 == count:
            ends[parts] = at
            parts += 1
    return parts if at == stop else np.int64(-1)


@kernel
def scan_spans(
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    batches: NDArray[np.int64],
    position: int,
    table: RecordTable,
    opened: NDArray[np.int64],
    first_row: NDArray[np.int64],
    skipped: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Read several inflated batches into columns from row 0, without the records below a position.

    Args:
        data: uint8[n], inflated records.
        spans: int64[k, 3]: a batch's row of the table, where its records begin and end in ``data``.
        batches: int64[b, BATCH_COLUMNS], the table that `walk` filled.
        position: The first offset wanted: a fetch can begin inside a batch.
        table: Written.
        opened: int64[k], written: rows of the table that have a wanted record.
        first_row: int64[k + 1], written: rows of the i-th of them are ``first_row[i]`` to ``first_row[i + 1]``.
        skipped: int64[k], written: how many of its records lay below the position.

    Returns:
        Batches in ``opened``; the span that is malformed (k: none), its `Malformed` code and the index of the
        record in it.
    """
    row = np.int64(0)
    kept = 0
    offset = table.offset
    first_row[0] = 0
    for k in range(spans.shape[0]):
        batch = batches[spans[k, 0]]
        wrong, record = scan(data, spans[k, 1], spans[k, 2], batch, row, table)
        if wrong != 0:
            return kept, k, wrong, record
        after = row + batch[COUNT]
        skip = np.int64(0)
        while row + skip < after and offset[row + skip] < position:
            skip += 1
        if skip > 0:
            after -= skip
            for column in table:
                for r in range(row, after):
                    column[r] = column[r + skip]
        if after > row:
            opened[kept] = spans[k, 0]
            skipped[kept] = skip
            kept += 1
            row = after
            first_row[kept] = row
    return kept, spans.shape[0], 0, 0


def scan_run(data: NDArray[np.uint8], stop: int, count: int) -> tuple[Columns, int]:
    """Read ``count`` records that stand one after the other in ``data[:stop]``, as `encode` writes them.

    Returns:
        Their columns, offsets from 0 and times from the epoch on, and a `Malformed` code (0: all is well).
    """
    columns = Columns.empty(count, data)
    batch = np.zeros(BATCH_COLUMNS, np.int64)
    batch[COUNT], batch[LAST_DELTA] = count, count - 1
    return columns, int(scan(data, 0, stop, batch, 0, columns.table)[0])
