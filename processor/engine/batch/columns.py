"""Records of fetched batches as columns: one row per record, all of it positions in one array of bytes.

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

`processor.engine.batch.scan` reads them, `processor.engine.batch.encode` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.varints import VARINT_BYTES, VARLONG_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_BYTES = 61
CRC_FROM = 21
"""The CRC-32C covers a batch from its attributes on."""
LOG_OVERHEAD = 12
"""Bytes before the length field ends: base offset and length itself are not counted by it."""

# Columns of the batch table that `walk` fills: one int64 row per batch.
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


class RecordTable(NamedTuple):
    """The columns, int64[n] each, as kernels take them: a tuple of arrays costs no more than the arrays would.

    A null key or value has length -1. ``body`` is where the key length stands: from there to ``end`` a record
    is copied unchanged when it is written again. ``headers`` is where the header count stands.
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    body: NDArray[np.int64]
    end: NDArray[np.int64]
    key: NDArray[np.int64]
    key_length: NDArray[np.int64]
    value: NDArray[np.int64]
    value_length: NDArray[np.int64]
    headers: NDArray[np.int64]


class Columns:
    """One row per record, and the bytes that positions in its columns point into.

    Args:
        data: uint8[m].
        table: Its arrays are attributes of this, too.
    """

    __slots__ = ("data", "table", *RecordTable._fields)

    def __init__(self, data: NDArray[np.uint8], table: RecordTable) -> None:
        self.data, self.table = data, table
        self.offset, self.timestamp, self.body, self.end = table.offset, table.timestamp, table.body, table.end
        self.key, self.key_length = table.key, table.key_length
        self.value, self.value_length, self.headers = table.value, table.value_length, table.headers

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
        return cls(data, RecordTable(*np.empty((len(RecordTable._fields), rows), np.int64)))

    def rows(self, start: int, stop: int) -> Columns:
        """Return a view of rows ``start`` to ``stop``."""
        return self.over(RecordTable(*(each[start:stop] for each in self.table)))

    def over(self, table: RecordTable) -> Columns:
        """Return other columns over the same bytes."""
        return Columns(self.data, table)
