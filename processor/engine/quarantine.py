"""Writes quarantined records with the headers that say why.

The headers are the same for all records of a partition and a fault but for the offset, so the constant parts
are given once, by fault, and the kernel copies them and prints the offset behind::

    ... its own headers | seqmark.error, code | seqmark.detail, text | seqmark.source, length | source:|offset|

All integers are zigzag varints; the layout of a record is drawn in `processor.engine.batch.columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes.decimals import NUMBER_BYTES, number_bytes, put_number
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, sized, varint, varint_bytes
from processor.engine.jit import Int, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable

ERROR, DETAIL, SOURCE = b"seqmark.error", b"seqmark.detail", b"seqmark.source"
MORE_HEADERS = 3


class QuarantineText:
    """The constant parts of the headers of one source partition.

    Attributes:
        data: uint8[m], by fault the headers up to the length of the source, all in a row; then the source.
        spans: int64[f + 2], where each begins, and where the last ends.
        most_bytes: More than the headers of any record take, with what stands before its key.

    Args:
        details: By fault, what is said to people.
        source: ``topic:partition:``, to which the offset is added.
    """

    def __init__(self, details: Mapping[Fault, str], source: bytes) -> None:
        parts = [
            _header(ERROR, fault.code.encode())
            + _header(DETAIL, details.get(fault, "").encode())
            + sized(SOURCE)
            for fault in Fault
        ]
        self.most_bytes = (
            MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + max(map(len, parts)) + len(source) + NUMBER_BYTES
        )
        parts.append(source)
        self.data = np.frombuffer(b"".join(parts), np.uint8).copy()
        self.spans = np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _header(name: bytes, value: bytes) -> bytes:
    return sized(name) + sized(value)


def encode(
    text: QuarantineText,
    columns: Columns,
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> int:
    """Write the records in ``rows`` one after the other, as the records of one batch.

    Args:
        text: Of the partition that they stand in.
        columns: The records.
        rows: int64[k], which, in order.
        fault: uint8[n], `Fault` codes of all records of ``columns``.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of ``end - body`` and of k times `QuarantineText.most_bytes`.

    Returns:
        Bytes written.
    """
    return int(
        _encode(
            text.data,
            text.spans,
            columns.data,
            columns.table,
            rows,
            fault,
            np.int64(base_timestamp),
            out,
        )
    )


@kernel
def _encode(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    base_timestamp: Int,
    out: NDArray[np.uint8],
) -> Int:
    body, headers, end = table.body, table.headers, table.end
    offset, timestamp = table.offset, table.timestamp
    at = np.int64(0)
    last = spans.size - 2
    named = spans[last + 1] - spans[last]
    for k in range(rows.size):
        row = rows[k]
        why = np.int64(fault[row])
        delta = timestamp[row] - base_timestamp
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        before, own = headers[row] - body[row], end[row] - after
        said = spans[why + 1] - spans[why]
        digits = number_bytes(offset[row])
        length = 1 + varint_bytes(delta) + varint_bytes(np.int64(k)) + before
        length += (
            varint_bytes(count + MORE_HEADERS) + own + said + varint_bytes(named + digits) + named + digits
        )
        at = put_varint(out, at, length)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, np.int64(k))
        at = put_bytes(out, at, data, body[row], before)
        at = put_varint(out, at, count + MORE_HEADERS)
        at = put_bytes(out, at, data, after, own)
        at = put_bytes(out, at, text, spans[why], said)
        at = put_varint(out, at, named + digits)
        at = put_bytes(out, at, text, spans[last], named)
        at = put_number(out, at, digits, offset[row])
    return at
