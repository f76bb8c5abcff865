"""Writes quarantined records with the headers that say why.

The headers are the same for all records of a partition and a fault but for the offset, so the constant parts
are given once, by fault, and the kernel copies them and prints the offset behind::

    ... its own headers | seqmark.error, code | seqmark.detail, text | seqmark.source, length | source:|offset|

All integers are zigzag varints; the layout of a record is drawn in `processor.engine.batch.columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.batch.encode import put_head
from processor.engine.bytes.decimals import NUMBER_BYTES, number_bytes, put_number
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, sized, varint, varint_bytes
from processor.engine.jit import Int, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable

ERROR, DETAIL, SOURCE = b"seqmark.error", b"seqmark.detail", b"seqmark.source"
MORE_HEADERS = 3


class QuarantineText(NamedTuple):
    """The constant parts of the headers of one source partition.

    Attributes:
        data: uint8[m], by fault the headers up to the length of the source, all in a row; then the source.
        spans: int64[f + 2], where each begins, and where the last ends.
        most_bytes: More than the headers of any record take, with what stands before its key.
    """

    data: NDArray[np.uint8]
    spans: NDArray[np.int64]
    most_bytes: int

    @classmethod
    def of(cls, details: Mapping[Fault, str], source: bytes) -> QuarantineText:
        """Return the parts.

        Args:
            details: By fault, what is said to people.
            source: ``topic:partition:``, to which the offset is added.
        """
        parts = []
        for fault in Fault:
            named = ERROR, fault.code.encode(), DETAIL, details.get(fault, "").encode(), SOURCE
            parts.append(b"".join(map(sized, named)))
        most = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + max(map(len, parts)) + len(source) + NUMBER_BYTES
        parts.append(source)
        data = np.frombuffer(b"".join(parts), np.uint8).copy()
        return cls(data, np.cumsum([0, *map(len, parts)], dtype=np.int64), most)


@kernel
def encode(
    text: QuarantineText,
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    fault: NDArray[np.uint8],
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> Int:
    """Write records one after the other, as the records of one batch; return the bytes written.

    Args:
        text: Of the partition that they stand in.
        data: uint8[n], where they are.
        table: Their columns.
        rows: int64[k], which, in order.
        fault: uint8[n], `Fault` codes of all records of ``table``.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of ``end - body`` and of k times `QuarantineText.most_bytes`.
    """
    said_of, spans = text.data, text.spans
    body, headers, end = table.body, table.headers, table.end
    offsets, timestamp = table.offset, table.timestamp
    last = spans.size - 2
    named = spans[last + 1] - spans[last]
    at: Int = 0
    for k in range(rows.size):
        row = rows[k]
        why = np.int64(fault[row])
        offset, delta = offsets[row], timestamp[row] - base_timestamp
        said, digits = spans[why + 1] - spans[why], number_bytes(offset)
        more = said + varint_bytes(named + digits) + named + digits
        count, after = varint(data, headers[row], end[row], VARINT_BYTES)
        before, own = headers[row] - body[row], end[row] - after
        rest = before + varint_bytes(count + MORE_HEADERS) + own + more
        at = put_head(out, at, np.int64(k), delta, rest)
        at = put_bytes(out, at, data, body[row], before)
        at = put_varint(out, at, count + MORE_HEADERS)
        at = put_bytes(out, at, data, after, own)
        at = put_bytes(out, at, said_of, spans[why], said)
        at = put_varint(out, at, named + digits)
        at = put_bytes(out, at, said_of, spans[last], named)
        at = put_number(out, at, digits, offset)
    return at
