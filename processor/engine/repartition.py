"""Sends equal ids to one partition; records carry where they came from.

A partition is told by the id's keyed hash, its first word modulo the number of partitions
(`processor.engine.extract.routing`).

On its way a record has one more header, behind its own::

    ... its own headers | name length 12 | "seqmark.from" | value length 10 | source ref i64 | route word u16 |

    source ref    | offset in the source, 47 bits | source partition, 16 bits |

All of it is 24 bytes, the last ones of the record, so it is found without looking at the others.
The route word is what is left of the hash's first word when it is divided by the number of
partitions, its low 16 bits: it says where the id would go in twice as many of them, or 2^16 times, which its
row in the state is kept for. Integers are big-endian. A source ref
is one number, so that owners of ids stay one number too. The partition stands below the offset: partitions that
are filled alike have offsets that are close, and blocks of ids write differences (`processor.engine.ids.page`).

Invariant: `take_off` leaves the record that `encode` was given, to the byte but for a header count that
was written longer than it needs. Rows with a fault are routed nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.batch.encode import put_head
from processor.engine.bytes.loads import get_be, put_be
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, sized, varint, varint_bytes
from processor.engine.extract.routing import partition_and_word
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable
    from processor.engine.extract.ids import Ids

PARTITION_BITS = 16
MOST_PARTITIONS = 1 << PARTITION_BITS
MOST_OFFSET = (1 << (63 - PARTITION_BITS)) - 1
"""1.4e14: at a million records a second and partition, four years and a half."""
HEADER_NAME = b"seqmark.from"
_NAME = np.frombuffer(sized(HEADER_NAME), np.uint8).copy()
_NAME_BYTES = _NAME.size
_VALUE_BYTES = 10
HEADER_BYTES = _NAME_BYTES + 1 + _VALUE_BYTES
MORE_BYTES = HEADER_BYTES + MAX_OVERHEAD_BYTES + 1
"""What `encode` can write beside a record's body: the header, what stands before the key, and a
count of headers that grows by a byte."""
NOWHERE = -1


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


def targets(
    ids: Ids, fault: NDArray[np.uint8], own: int, partitions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Return int64[n], where each record goes (`NOWHERE` with a fault), and uint16[n], its route word.

    Args:
        ids: Of the records, hashed with `processor.engine.extract.routing.ROUTE_KEY`.
        fault: uint8[n], `Fault` codes.
        own: The source partition: where records go that pass unjudged, modulo ``partitions``.
        partitions: How many there are.
    """
    target, word = partition_and_word(ids.hash, partitions)
    target[ids.unjudged] = own % partitions
    target[fault != 0] = NOWHERE
    return target, word.astype(np.uint16)


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
    count = int(_share_out(target, start, stop, order, first))
    return order[:count], first


@kernel
def _share_out(
    target: NDArray[np.int64], start: int, stop: int, order: NDArray[np.int64], first: NDArray[np.int64]
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
def encode(
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    source_ref: NDArray[np.int64],
    word: NDArray[np.uint16],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> Int:
    """Write records one after the other, each with its source ref as one more header; return the bytes written.

    Args:
        data: uint8[n], where they are.
        table: Their columns.
        rows: int64[k], which, in order.
        source_ref: int64[n], of all records of ``table``, see `source_ref_of`.
        word: uint16[n], likewise.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of ``end - body`` + k * `MORE_BYTES`.
    """
    body, headers, end, timestamp = table.body, table.headers, table.end, table.timestamp
    at: Int = 0
    for k in range(rows.size):
        row = rows[k]
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        before, own = headers[row] - body[row], end[row] - after
        rest = before + varint_bytes(count + 1) + own + HEADER_BYTES
        at = put_head(out, at, np.int64(k), timestamp[row] - base_timestamp, rest)
        at = put_bytes(out, at, data, body[row], before)
        at = put_varint(out, at, count + 1)
        at = put_bytes(out, at, data, after, own)
        at = put_bytes(out, at, _NAME, 0, _NAME_BYTES)
        at = put_varint(out, at, _VALUE_BYTES)
        at = put_be(out, at, source_ref[row], 8)
        at = put_be(out, at, np.uint64(word[row]), 2)
    return at


@inlined
def _bears(data, tail):  # type: ignore[no-untyped-def]  # inlined kernel
    """Say whether our header begins at ``tail``."""
    bears_name = data[tail + _NAME_BYTES] == 2 * _VALUE_BYTES  # a varint
    for bears_j in range(_NAME_BYTES):
        bears_name &= data[tail + bears_j] == _NAME[bears_j]
    return bears_name


@kernel
def take_off(data: NDArray[np.uint8], table: RecordTable) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Take the header with the source ref off records, in their columns and bytes.

    Returns:
        int64[k], source refs, up to the first record that has no such header as its last (k = n: all have),
            from which on nothing is changed; uint16[k], route words.
    """
    body, end, key, value, headers = table.body, table.end, table.key, table.value, table.headers
    source_ref, word = np.empty(body.size, np.int64), np.empty(body.size, np.uint16)
    for row in range(body.size):
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        tail = end[row] - HEADER_BYTES
        if count < 1 or tail < after or not _bears(data, tail):
            return source_ref[:row], word[:row]
        source_ref[row] = np.int64(get_be(data, tail + _NAME_BYTES + 1, 8))
        word[row] = np.uint16(get_be(data, tail + _NAME_BYTES + 9, 2))
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
    return source_ref, word
