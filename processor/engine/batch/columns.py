"""Where in these bytes are the records, and how are some of them written again?

Kafka's record batch, magic 2 (KIP-98), all integers big-endian::

     0        8      12          16     17    21          23               27
     | base   | batch| partition | magic| crc | attributes| last offset    |
     | offset | len  | leader ep.| = 2  | 32C |           | delta          |
    27        35        43         51         53          57      61
     | base   | max    | producer | producer | base       | record| records …
     | time-  | time-  | id       | epoch    | sequence   | count | (compressed
     | stamp  | stamp  |          |          |            |       |  as a whole)

A record, lengths and deltas as zigzag varints::

    length | attributes u8 | timestamp delta | offset delta | key length | key
           | value length | value | header count | (name length | name | value length | value)*

Invariant: every kernel here checks every bound before it reads; malformed bytes give an error code,
never a wrong read. Kernels write only into arrays that the caller sized by the bounds given below.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import (
    VARINT_BYTES,
    VARLONG_BYTES,
    put_bytes,
    put_varint,
    varint,
    varint_bytes,
)
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_BYTES = 61
CRC_FROM = 21
"""The CRC-32C covers a batch from its attributes on."""
LOG_OVERHEAD = 12
"""Bytes before the length field ends: base offset and length itself are not counted by it."""

# Columns of the batch table that `walk` fills: one int64 row a batch.
START, SIZE, BASE_OFFSET, CRC, ATTRIBUTES, LAST_DELTA, BASE_TIMESTAMP = 0, 1, 2, 3, 4, 5, 6
MAX_TIMESTAMP, PRODUCER_ID, COUNT = 7, 8, 9
BATCH_COLUMNS = 10

MOST_OFFSET = 2**63 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

MIN_RECORD_BYTES = 7
"""Length, attributes, two deltas, two lengths and a header count: the smallest record there is."""

MAX_OVERHEAD_BYTES = VARINT_BYTES + 1 + VARLONG_BYTES + VARINT_BYTES
"""What `encode` can write before a record's key length: length, attributes, both deltas."""


class Malformed(IntEnum):
    """What `walk` or `scan` found wrong; 0 is nothing."""

    NONE = 0
    LENGTH = 1
    MAGIC = 2
    RECORD_COUNT = 3
    VARINT = 4
    RECORD_LENGTH = 5
    OFFSET_DELTA = 6
    KEY = 7
    VALUE = 8
    HEADERS = 9
    TRAILING = 10
    BATCH_ORDER = 11

    @property
    def text(self) -> str:
        """Say it to a person."""
        return _TEXT[self]


_TEXT = {
    Malformed.NONE: "nothing is wrong",
    Malformed.LENGTH: "the batch length is smaller than a batch header",
    Malformed.MAGIC: "the message format is not version 2",
    Malformed.RECORD_COUNT: "the record count does not fit the bytes",
    Malformed.VARINT: "a variable-length integer is longer than allowed or cut",
    Malformed.RECORD_LENGTH: "a record's length leaves the batch",
    Malformed.OFFSET_DELTA: "offset deltas do not rise within the batch",
    Malformed.KEY: "a key's length leaves its record",
    Malformed.VALUE: "a value's length leaves its record",
    Malformed.HEADERS: "headers leave their record",
    Malformed.TRAILING: "bytes follow the last record",
    Malformed.BATCH_ORDER: "its offsets do not follow those of the batch before it",
}


@dataclass(slots=True)
class Columns:
    """One row a record; all arrays have the same length n. Positions point into ``data``.

    A null key or value has length -1. ``body`` is where the key length stands: from there to ``end``
    a record is copied unchanged when it is written again. ``headers`` is where the header count stands.
    """

    data: NDArray[np.uint8]
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    body: NDArray[np.int64]
    end: NDArray[np.int64]
    key: NDArray[np.int64]
    key_length: NDArray[np.int64]
    value: NDArray[np.int64]
    value_length: NDArray[np.int64]
    headers: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.offset.size)

    def items(self, rows: NDArray[np.int64]) -> list[tuple[bytes, bytes | None]]:
        """Return key and value of some rows as bytes, a null key as an empty one."""
        found: list[tuple[bytes, bytes | None]] = []
        for row in rows.tolist():
            key, value = int(self.key[row]), int(self.value[row])
            size, length = int(self.key_length[row]), int(self.value_length[row])
            name = self.data[key : key + max(size, 0)].tobytes()
            found.append((name, None if length < 0 else self.data[value : value + length].tobytes()))
        return found

    @classmethod
    def empty(cls, rows: int, data: NDArray[np.uint8]) -> Columns:
        """Make uninitialised columns of ``rows`` rows over ``data``."""
        block = np.empty((9, rows), np.int64)
        return cls(data, *block)

    def rows(self, start: int, stop: int) -> Columns:
        """Return a view of rows ``start`` to ``stop``."""
        cut = slice(start, stop)
        return Columns(
            self.data,
            self.offset[cut],
            self.timestamp[cut],
            self.body[cut],
            self.end[cut],
            self.key[cut],
            self.key_length[cut],
            self.value[cut],
            self.value_length[cut],
            self.headers[cut],
        )


@inlined
def _be32(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    return (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@inlined
def _be64(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    return (_be32(data, at) << 32) | _be32(data, at + 4)


@inlined
def _sbe32(data, at):  # type: ignore[no-untyped-def]  # inlined kernel
    return np.int64(np.int32(np.uint32(_be32(data, at))))


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
        base = _be64(data, at)
        delta = _sbe32(data, at + 23)
        # The base offset is not under the CRC: that offsets rise, and stay below 2^63, is checked here.
        if delta < 0 or base <= last or base >= MOST_OFFSET - delta:
            return rows, at, 11
        last = base + delta
        row = table[rows]
        row[START] = at
        row[SIZE] = LOG_OVERHEAD + length
        row[BASE_OFFSET] = base
        row[CRC] = _be32(data, at + 17)
        row[ATTRIBUTES] = (np.int64(data[at + 21]) << 8) | np.int64(data[at + 22])
        row[LAST_DELTA] = delta
        row[BASE_TIMESTAMP] = _be64(data, at + 27)
        row[MAX_TIMESTAMP] = _be64(data, at + 35)
        row[PRODUCER_ID] = _be64(data, at + 43)
        row[COUNT] = _sbe32(data, at + 57)
        at += LOG_OVERHEAD + length
        rows += 1
    return rows, at, 0


@kernel
def scan(
    data: NDArray[np.uint8],
    start: int,
    stop: int,
    batch: NDArray[np.int64],
    first_row: Int,
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    body: NDArray[np.int64],
    end: NDArray[np.int64],
    key: NDArray[np.int64],
    key_length: NDArray[np.int64],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    headers: NDArray[np.int64],
) -> tuple[int, int]:
    """Read one batch's inflated records ``data[start:stop]`` into columns from ``first_row``.

    Args:
        data: uint8[n], inflated records.
        start: Where the batch's first record begins.
        stop: Where its last record ends.
        batch: int64[BATCH_COLUMNS], its row of the batch table.
        first_row: The row of the first record; all columns need ``batch[COUNT]`` rows from there.
        offset: Column as in `Columns`, written.
        timestamp: Column as in `Columns`, written.
        body: Column as in `Columns`, written.
        end: Column as in `Columns`, written.
        key: Column as in `Columns`, written.
        key_length: Column as in `Columns`, written.
        value: Column as in `Columns`, written.
        value_length: Column as in `Columns`, written.
        headers: Column as in `Columns`, written.

    Returns:
        A `Malformed` code (0: all is well) and the index of the record in the batch where it is.
    """
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
    table: NDArray[np.int64],
    position: int,
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    body: NDArray[np.int64],
    end: NDArray[np.int64],
    key: NDArray[np.int64],
    key_length: NDArray[np.int64],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    headers: NDArray[np.int64],
    opened: NDArray[np.int64],
    first_row: NDArray[np.int64],
    skipped: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Read several inflated batches into columns from row 0, without the records below a position.

    Args:
        data: uint8[n], inflated records.
        spans: int64[k, 3]: a batch's row of the table, where its records begin and end in ``data``.
        table: int64[b, BATCH_COLUMNS].
        position: The first offset wanted: a fetch can begin inside a batch.
        offset: Column as in `Columns`, written.
        timestamp: Column as in `Columns`, written.
        body: Column as in `Columns`, written.
        end: Column as in `Columns`, written.
        key: Column as in `Columns`, written.
        key_length: Column as in `Columns`, written.
        value: Column as in `Columns`, written.
        value_length: Column as in `Columns`, written.
        headers: Column as in `Columns`, written.
        opened: int64[k], written: rows of the table that have a wanted record.
        first_row: int64[k + 1], written: rows of the i-th of them are ``first_row[i]`` to ``first_row[i + 1]``.
        skipped: int64[k], written: how many of its records lay below the position.

    Returns:
        Batches in ``opened``; the span that is malformed (k: none), its `Malformed` code and the index of the
        record in it.
    """
    row = np.int64(0)
    kept = 0
    first_row[0] = 0
    for k in range(spans.shape[0]):
        batch = table[spans[k, 0]]
        wrong, record = scan(
            data,
            spans[k, 1],
            spans[k, 2],
            batch,
            row,
            offset,
            timestamp,
            body,
            end,
            key,
            key_length,
            value,
            value_length,
            headers,
        )
        if wrong != 0:
            return kept, k, wrong, record
        after = row + batch[COUNT]
        skip = np.int64(0)
        while row + skip < after and offset[row + skip] < position:
            skip += 1
        if skip > 0:
            after -= skip
            for r in range(row, after):
                offset[r] = offset[r + skip]
                timestamp[r] = timestamp[r + skip]
                body[r] = body[r + skip]
                end[r] = end[r + skip]
                key[r] = key[r + skip]
                key_length[r] = key_length[r + skip]
                value[r] = value[r + skip]
                value_length[r] = value_length[r + skip]
                headers[r] = headers[r + skip]
        if after > row:
            opened[kept] = spans[k, 0]
            skipped[kept] = skip
            kept += 1
            row = after
            first_row[kept] = row
    return kept, spans.shape[0], 0, 0


def scan_into(columns: Columns, start: int, stop: int, batch: NDArray[np.int64], row: int) -> tuple[int, int]:
    """Read ``columns.data[start:stop]`` into ``columns`` from ``row`` on; arguments and result are `scan`'s."""
    wrong, record = scan(
        columns.data,
        start,
        stop,
        batch,
        row,
        columns.offset,
        columns.timestamp,
        columns.body,
        columns.end,
        columns.key,
        columns.key_length,
        columns.value,
        columns.value_length,
        columns.headers,
    )
    return int(wrong), int(record)


def scan_columns(
    columns: Columns,
    spans: NDArray[np.int64],
    table: NDArray[np.int64],
    position: int,
    opened: NDArray[np.int64],
    first_row: NDArray[np.int64],
    skipped: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Read several batches into ``columns``; arguments and result are `scan_spans`'s."""
    return scan_spans(
        columns.data,
        spans,
        table,
        position,
        columns.offset,
        columns.timestamp,
        columns.body,
        columns.end,
        columns.key,
        columns.key_length,
        columns.value,
        columns.value_length,
        columns.headers,
        opened,
        first_row,
        skipped,
    )


def scan_run(data: NDArray[np.uint8], stop: int, count: int) -> tuple[Columns, int]:
    """Read ``count`` records that stand one after the other in ``data[:stop]``, as `encode` writes them.

    Returns:
        Their columns, offsets from 0 and times from the epoch on, and a `Malformed` code (0: all is well).
    """
    columns = Columns.empty(count, data)
    batch = np.zeros(BATCH_COLUMNS, np.int64)
    batch[COUNT], batch[LAST_DELTA] = count, count - 1
    return columns, scan_into(columns, 0, stop, batch, 0)[0]


@kernel
def encode(
    data: NDArray[np.uint8],
    body: NDArray[np.int64],
    end: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    rows: NDArray[np.int64],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> tuple[Int, Int]:
    """Write the records in ``rows`` one after the other, with offset deltas 0, 1, 2 and so on.

    Args:
        data: uint8[n], where the records are.
        body: Column as in `Columns`, from one `scan`.
        end: Column as in `Columns`, from one `scan`.
        timestamp: Column as in `Columns`, from one `scan`.
        rows: int64[k], which rows, in order.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= sum of (end - body) + k * MAX_OVERHEAD_BYTES.

    Returns:
        Bytes written; the newest timestamp among them.
    """
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
