"""Sends equal ids to one partition; records carry where they came from.

A partition is told by the id's keyed hash (`processor.engine.extract.ids`), its first word modulo the number of
partitions. The key is `ROUTE_KEY`, the same for all partitions of the source, at all times: equal ids must go
to one partition whoever routes them. It is no secret and need not be one: who chooses ids can fill one
partition, as with any partitioner, and no more, for ids are told apart by another hash, whose key is secret.

On its way a record has one more header, behind its own::

    ... its own headers | name length 12 | "seqmark.from" | value length 8 | source ref i64, big-endian |

    source ref    | offset in the source, 47 bits | source partition, 16 bits |

All of it is 22 bytes, the last ones of the record, so it is found without looking at the others. A source ref
is one number, so that owners of ids stay one number too. The partition stands below the offset: partitions that
are filled alike have offsets that are close, and blocks of ids write differences (`processor.engine.ids.page`).

Invariant: `take_off` leaves the record that `encode` was given, to the byte but for a header count that
was written longer than it needs. Rows with a fault are routed nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes.loads import be64, put_be
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, varint, varint_bytes
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable
    from processor.engine.extract.ids import Ids

ROUTE_KEY = b"seqmark by-id v1"
"""16 bytes. Another key would send the ids of yesterday elsewhere than those of today."""
PARTITION_BITS = 16
MOST_PARTITIONS = 1 << PARTITION_BITS
MOST_OFFSET = (1 << (63 - PARTITION_BITS)) - 1
"""1.4e14: at a million records a second and partition, four years and a half."""
HEADER_NAME = b"seqmark.from"
HEADER_BYTES = 1 + len(HEADER_NAME) + 1 + 8
MORE_BYTES = HEADER_BYTES + MAX_OVERHEAD_BYTES + 1
"""What `encode` can write beside a record's body: the header, what stands before the key, and a
count of headers that grows by a byte."""
NOWHERE = -1
_NAME = np.frombuffer(HEADER_NAME, np.uint8).copy()
_NAME_BYTES = len(HEADER_NAME)
_LENGTH_OF_NAME = 2 * len(HEADER_NAME)  # zigzag
_LENGTH_OF_VALUE = 2 * 8


def source_ref_of(partition: int, offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[n]: offsets of a source partition as source refs.

    Raises:
        ValueError: The partition or an offset does not fit its bits.
    """
    if not 0 <= partition < MOST_PARTITIONS:
        raise ValueError(f"partition {partition} is not below {MOST_PARTITIONS:,}")
    if offset.size and (int(offset.max()) > MOST_OFFSET or int(offset.min()) < 0):
        raise ValueError(f"offset {int(offset.max())} is above {MOST_OFFSET:,}")
    return (offset << PARTITION_BITS) | partition


def partition_and_offset(source_ref: int) -> tuple[int, int]:
    """Return what a source ref says."""
    return source_ref & (MOST_PARTITIONS - 1), source_ref >> PARTITION_BITS


def targets(ids: Ids, fault: NDArray[np.uint8], own: int, partitions: int) -> NDArray[np.int64]:
    """Return int64[n]: the partition that each record goes to, `NOWHERE` where it has a fault.

    Args:
        ids: Of the records, hashed with `ROUTE_KEY`.
        fault: uint8[n], `Fault` codes.
        own: The source partition: where records go that pass unjudged, modulo ``partitions``.
        partitions: How many there are.
    """
    out = np.empty(fault.size, np.int64)
    _targets(ids.hash, fault, ids.unjudged, np.int64(own % partitions), np.int64(partitions), out)
    return out


def share_out(
    target: NDArray[np.int64], start: int, stop: int, partitions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort the rows from ``start`` to ``stop`` by where they go; rows of one partition keep their order.

    Args:
        target: int64[n], from `targets`.
        start: The first row.
        stop: The row after the last.
        partitions: How many there are.

    Returns:
        int64[k], rows; int64[partitions + 1], where each partition's begin among them, and where the last end.
    """
    order = np.empty(stop - start, np.int64)
    first = np.zeros(partitions + 1, np.int64)
    count = int(_share_out(target, np.int64(start), np.int64(stop), order, first))
    return order[:count], first


def encode(
    columns: Columns,
    rows: NDArray[np.int64],
    source_ref: NDArray[np.int64],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> tuple[int, int]:
    """Write records one after the other, each with its source ref as one more header.

    Args:
        columns: The records.
        rows: int64[k], which, in order; at least one.
        source_ref: int64[n], of all records of ``columns``, see `source_ref_of`.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of ``end - body`` + k * `MORE_BYTES`.

    Returns:
        Bytes written; the newest timestamp among them.
    """
    used, newest = _encode(columns.data, columns.table, rows, source_ref, np.int64(base_timestamp), out)
    return int(used), int(newest)


def take_off(columns: Columns) -> tuple[NDArray[np.int64], int]:
    """Take the header with the source ref off all records, in the columns and their bytes.

    Returns:
        int64[n], source refs; the first row that has no such header as its last (n: all have), from which on
        nothing is changed.
    """
    source_ref = np.empty(len(columns), np.int64)
    good = _take_off(columns.data, columns.table, source_ref)
    return source_ref, int(good)


@kernel
def _targets(
    hashes: NDArray[np.uint64],
    fault: NDArray[np.uint8],
    unjudged: NDArray[np.bool_],
    own: Int,
    partitions: Int,
    out: NDArray[np.int64],
) -> None:
    count = np.uint64(partitions)
    for row in range(out.size):
        if fault[row] != 0:
            out[row] = -1
        elif unjudged[row]:
            out[row] = own
        else:
            out[row] = np.int64(hashes[row, 0] % count)


@kernel
def _share_out(
    target: NDArray[np.int64], start: Int, stop: Int, order: NDArray[np.int64], first: NDArray[np.int64]
) -> Int:
    """Count, add up, deal: a counting sort, which keeps the order of equal ones."""
    for row in range(start, stop):
        if target[row] >= 0:
            first[target[row] + 1] += 1
    for k in range(1, first.size):
        first[k] += first[k - 1]
    at = first.copy()
    for row in range(start, stop):
        to = target[row]
        if to >= 0:
            order[at[to]] = row
            at[to] += 1
    return first[first.size - 1]


@kernel
def _encode(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    source_ref: NDArray[np.int64],
    base_timestamp: Int,
    out: NDArray[np.uint8],
) -> tuple[Int, Int]:
    body, headers, end, timestamp = table.body, table.headers, table.end, table.timestamp
    at = 0
    newest = timestamp[rows[0]] if rows.size else np.int64(-1)
    for k in range(rows.size):
        row = rows[k]
        newest = max(newest, timestamp[row])
        delta = timestamp[row] - base_timestamp
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        before, own = headers[row] - body[row], end[row] - after
        length = 1 + varint_bytes(delta) + varint_bytes(np.int64(k)) + before + varint_bytes(count + 1) + own
        at = put_varint(out, at, length + HEADER_BYTES)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, np.int64(k))
        at = put_bytes(out, at, data, body[row], before)
        at = put_varint(out, at, count + 1)
        at = put_bytes(out, at, data, after, own)
        out[at] = _LENGTH_OF_NAME
        at = put_bytes(out, at + 1, _NAME, 0, _NAME_BYTES)
        out[at] = _LENGTH_OF_VALUE
        at = put_be(out, at + 1, source_ref[row], 8)
    return at, newest


@kernel
def _take_off(
    data: NDArray[np.uint8],
    table: RecordTable,
    source_ref: NDArray[np.int64],
) -> Int:
    body, end, key, value, headers = table.body, table.end, table.key, table.value, table.headers
    for row in range(source_ref.size):
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        tail = end[row] - HEADER_BYTES
        if count < 1 or tail < after:
            return row
        same = (data[tail] == _LENGTH_OF_NAME) & (data[tail + 1 + _NAME_BYTES] == _LENGTH_OF_VALUE)
        for j in range(_NAME_BYTES):
            same &= data[tail + 1 + j] == _NAME[j]
        if not same:
            return row
        source_ref[row] = np.int64(be64(data, end[row] - 8))
        end[row] = tail
        # One header less may be counted in a byte less: what stands before the count moves up to it.
        more = after - headers[row] - varint_bytes(count - 1)
        if more > 0:
            for j in range(headers[row] - body[row]):
                data[headers[row] + more - 1 - j] = data[headers[row] - 1 - j]
            body[row] += more
            key[row] += more
            value[row] += more
            headers[row] += more
        put_varint(data, headers[row], count - 1)
    return source_ref.size
