"""Writes the receipts of records that were dropped for their sequence.

A receipt is a record of the duplicates topic: the dropped record's key and timestamp, no headers, and a JSON
object as its value. Where the topic does not take it so it is written without the key, and one header says
that: ``seqmark.key`` = ``left out``. Its text is the same for all records of a partition but for numbers and
verdict, so the constant parts are given once, and the kernel copies them and prints the numbers in between::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"|late|","mode":
    "watermark","sequence":|5|,"watermark":|9|,"epoch":|2|}

``epoch`` is there where the definition has one. All numbers are signed 64-bit integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, varint_bytes
from processor.engine.jit import Int, inlined, kernel
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

LEFT_OUT = (b"seqmark.key", b"left out")
"""The header of a receipt that has not the key of its record."""
_TAIL = b"\x02" + b"".join(bytes([2 * len(each)]) + each for each in LEFT_OUT)
"""Its headers: a count of one, and each with its length, as varints."""
_NO_KEY = np.frombuffer(_TAIL, np.uint8).copy()
TAIL_BYTES = len(_TAIL)
NUMBER_BYTES = 20
"""A sign and 19 digits."""
_NUMBERS = 5
_POWERS = np.array([10**power for power in range(20)], np.uint64)
"""uint64[20]: counting digits by comparing is several times cheaper than by dividing."""
_PAIRS = np.frombuffer(b"".join(b"%02d" % pair for pair in range(100)), np.uint8)
"""uint8[200]: two digits are printed with one division."""
_OFFSET, _TIMESTAMP, _DUPLICATE, _LATE, _WATERMARK, _EPOCH, _END = range(7)


class Grounds(NamedTuple):
    """What the records of some columns were judged by, and how.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        sequence: int64[n].
        watermark: int64[n], as it stood before each record in its scope.
        epoch: int64[n], the records' own; None where the definition has none.
    """

    verdict: NDArray[np.uint8]
    sequence: NDArray[np.int64]
    watermark: NDArray[np.int64]
    epoch: NDArray[np.int64] | None = None


class ReceiptText:
    """The constant parts of the receipts of one source partition.

    Attributes:
        data: uint8[m], the parts one after the other.
        spans: int64[8], where each begins, and where the last ends.
        most_bytes: More than the value of a receipt ever takes.

    Args:
        place: The first fields, pipeline, topic and partition, as a JSON object.
    """

    def __init__(self, place: bytes) -> None:
        parts = [place[:-1] + b',"offset":', b',"timestamp":']
        parts += [
            b',"verdict":"%b","mode":"watermark","sequence":' % verdict.label.encode()
            for verdict in (Verdict.DUPLICATE, Verdict.LATE)
        ]
        parts += [b',"watermark":', b',"epoch":', b"}"]
        self.data = np.frombuffer(b"".join(parts), np.uint8).copy()
        self.spans = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        self.most_bytes = self.data.size + _NUMBERS * NUMBER_BYTES


def most_bytes(text: ReceiptText, columns: Columns, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[k]: more than the receipt of each of ``rows`` takes as a record."""
    fixed = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + TAIL_BYTES + text.most_bytes
    return np.maximum(columns.key_length[rows], 0) + fixed


def says_left_out(columns: Columns, row: int) -> bool:
    """Whether a receipt is written without its record's key, and says so."""
    tail = columns.data[columns.headers[row] : columns.end[row]]
    return bool(columns.key_length[row] < 0 and tail.size == TAIL_BYTES and np.array_equal(tail, _NO_KEY))


def encode(
    text: ReceiptText,
    columns: Columns,
    rows: NDArray[np.int64],
    grounds: Grounds,
    base_timestamp: int,
    out: NDArray[np.uint8],
    *,
    keyed: bool = True,
) -> int:
    """Write the receipts of ``rows`` one after the other, as the records of one batch.

    Args:
        text: Of the partition that the records stand in.
        columns: The records.
        rows: int64[k], dropped records, in order.
        grounds: Of all records of ``columns``.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of `most_bytes`.
        keyed: Whether they have the records' keys.

    Returns:
        Bytes written.
    """
    with_epoch = grounds.epoch is not None
    return int(
        _encode(
            text.data,
            text.spans,
            columns.data,
            columns.key,
            columns.key_length,
            columns.offset,
            columns.timestamp,
            rows,
            grounds.verdict,
            grounds.sequence,
            grounds.watermark,
            grounds.sequence if grounds.epoch is None else grounds.epoch,
            with_epoch,
            keyed,
            base_timestamp,
            out,
        )
    )


@inlined
def _magnitude(value):  # type: ignore[no-untyped-def]  # inlined kernel
    return np.uint64(value) if value >= 0 else np.uint64(0) - np.uint64(value)


@inlined
def number_bytes(value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how many bytes a number takes as text."""
    left = _magnitude(value)
    digits = 1
    while digits < 20 and left >= _POWERS[digits]:
        digits += 1
    return digits if value >= 0 else digits + 1


@inlined
def put_number(out, at, size, value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a number of ``size`` bytes as text; returns the place behind it."""
    left = _magnitude(value)
    position = np.uint64(at + size)
    while left >= np.uint64(100):
        pair = np.uint64(2) * (left % np.uint64(100))
        left //= np.uint64(100)
        position -= np.uint64(2)
        out[position] = _PAIRS[pair]
        out[position + np.uint64(1)] = _PAIRS[pair + np.uint64(1)]
    if left >= np.uint64(10):
        out[position - np.uint64(2)] = np.uint8(np.uint64(48) + left // np.uint64(10))
    out[position - np.uint64(1)] = np.uint8(np.uint64(48) + left % np.uint64(10))
    if value < 0:
        out[at] = np.uint8(45)
    return at + size


@inlined
def put_text(out, at, text, spans, part):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a constant part; returns the place behind it."""
    return put_bytes(out, at, text, spans[part], spans[part + 1] - spans[part])


@inlined
def put_head(out, at, k, delta, data, key, key_length, keyed, value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write record ``k`` of a batch up to its value, which takes ``value`` bytes; returns where that begins."""
    if not keyed:
        key_length = np.int64(-1)
    size = max(key_length, 0)
    length = 1 + varint_bytes(delta) + varint_bytes(k)
    length += varint_bytes(key_length) + size + varint_bytes(value) + value + (1 if keyed else TAIL_BYTES)
    at = put_varint(out, at, length)
    out[at] = 0
    at = put_varint(out, at + 1, delta)
    at = put_varint(out, at, k)
    at = put_varint(out, at, key_length)
    return put_varint(out, put_bytes(out, at, data, key, size), value)


@inlined
def put_tail(out, at, keyed):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write what stands behind a receipt's value; returns the place behind it."""
    if keyed:
        out[at] = 0  # no headers
        after = at + 1
    else:
        after = put_bytes(out, at, _NO_KEY, 0, TAIL_BYTES)
    return after


@kernel
def _encode(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    data: NDArray[np.uint8],
    key: NDArray[np.int64],
    key_length: NDArray[np.int64],
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    rows: NDArray[np.int64],
    verdict: NDArray[np.uint8],
    sequence: NDArray[np.int64],
    watermark: NDArray[np.int64],
    epoch: NDArray[np.int64],
    with_epoch: bool,
    keyed: bool,
    base_timestamp: Int,
    out: NDArray[np.uint8],
) -> Int:
    at = 0
    sizes = np.empty(_NUMBERS, np.int64)
    for k in range(rows.size):
        row = rows[k]
        what = _DUPLICATE if verdict[row] == 1 else _LATE
        sizes[0] = number_bytes(offset[row])
        sizes[1] = number_bytes(timestamp[row])
        sizes[2] = number_bytes(sequence[row])
        sizes[3] = number_bytes(watermark[row])
        sizes[4] = number_bytes(epoch[row]) if with_epoch else 0
        value = sizes.sum() + spans[_TIMESTAMP + 1] + (spans[what + 1] - spans[what])
        value += spans[_WATERMARK + 1] - spans[_WATERMARK] + 1
        if with_epoch:
            value += spans[_EPOCH + 1] - spans[_EPOCH]
        delta = timestamp[row] - base_timestamp
        at = put_head(out, at, np.int64(k), delta, data, key[row], key_length[row], keyed, value)
        at = put_number(out, put_text(out, at, text, spans, _OFFSET), sizes[0], offset[row])
        at = put_number(out, put_text(out, at, text, spans, _TIMESTAMP), sizes[1], timestamp[row])
        at = put_number(out, put_text(out, at, text, spans, what), sizes[2], sequence[row])
        at = put_number(out, put_text(out, at, text, spans, _WATERMARK), sizes[3], watermark[row])
        if with_epoch:
            at = put_number(out, put_text(out, at, text, spans, _EPOCH), sizes[4], epoch[row])
        at = put_tail(out, put_text(out, at, text, spans, _END), keyed)
    return at
