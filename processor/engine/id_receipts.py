"""Writes the receipts of records that were dropped for their id.

As that of `processor.engine.receipts`, but for what it was judged by::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"duplicate","mode":
    "insert-id","id":|["a","1.0"]|,"owner":{"topic":"t","partition":3,"offset":|5|},"expires_at":|9|}

Bloom filters without confirmation know neither who passed nor when the id expires: where there is no owner, it
and all behind it is left out, but for the last brace.

With ``route`` records of one partition come from many: their offsets, and owners', are places then
(`processor.engine.repartition`), and the partitions are written record by record.

Ids are text of many forms, written as Python's ``json.dumps`` does, without spaces and with characters above
ASCII as they are; what is not UTF-8 stands there in base64. A part above 4 KiB is cut to a digest, in Python:
there are few in as many bytes as are judged at a time.
"""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes
from processor.engine.extract.ids import MOST_PART_BYTES, Ids, IdTextForm, texts
from processor.engine.extract.json_text import PLAIN, longer, unescape
from processor.engine.jit import Int, kernel
from processor.engine.receipts import (
    NUMBER_BYTES,
    TAIL_BYTES,
    number_bytes,
    put_head,
    put_number,
    put_tail,
    put_text,
)
from processor.engine.repartition import MOST_PARTITIONS, PARTITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

_NUMBERS = 6
_BYTES = int(IdTextForm.BYTES)
_ESCAPED = int(IdTextForm.ESCAPED)
_AROUND_BYTES = 24
"""More than stands around a part: a comma, two quotes, ``{"base64":"`` and its end, what fills up fours."""
_SHORT = np.zeros(128, np.uint8)
"""A byte -> what stands behind the backslash in its place; 0: it is written as four hexadecimal digits."""
for _meant, _written in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _SHORT[_meant] = _written
_LONG = np.frombuffer(b"u00", np.uint8).copy()
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.frombuffer(b'{"base64":"', np.uint8).copy()
_BASE64_BYTES = _BASE64.size
_DIGITS = np.frombuffer(
    (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8
).copy()
_OFFSET, _TIMESTAMP, _ID, _OWNER, _EXPIRES, _END, _BETWEEN = range(7)


class IdGrounds(NamedTuple):
    """What the records of some columns were judged by, and how.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        ids: Of the records.
        owner: int64[n], of a duplicate, the offset of the record that passed, or its place; -1: nobody knows.
        expires_ms: int64[n], of a duplicate, when its id expires.
    """

    verdict: NDArray[np.uint8]
    ids: Ids
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]


class IdReceiptText:
    """The constant parts of the receipts of one source partition, or of those of all partitions.

    Attributes:
        data: uint8[m], the parts one after the other.
        spans: int64[8], where each begins, and where the last ends.
        places: 1 where offsets are places, 0 where all stand in one partition.
        most_bytes: More than the value of a receipt ever takes beside its id.

    Args:
        place: The first fields, pipeline, topic and partition, as a JSON object.
        owner: The first fields of an owner, topic and partition, as a JSON object.
        places: Offsets are places; the first fields are without a partition.
    """

    def __init__(self, place: bytes, owner: bytes, *, places: bool = False) -> None:
        between = b',"offset":'
        first = b',"partition":' if places else between
        parts = [
            place[:-1] + first,
            b',"timestamp":',
            b',"verdict":"duplicate","mode":"insert-id","id":',
            b',"owner":' + owner[:-1] + first,
            b'},"expires_at":',
            b"}",
            between,
        ]
        self.data = np.frombuffer(b"".join(parts), np.uint8).copy()
        self.spans = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        self.places = int(places)
        self.most_bytes = self.data.size + len(between) + _NUMBERS * NUMBER_BYTES


class IdLists(NamedTuple):
    """The ids of some records as JSON.

    Attributes:
        data: uint8[m].
        at: int64[k], where each begins.
        size: int64[k], its bytes.
    """

    data: NDArray[np.uint8]
    at: NDArray[np.int64]
    size: NDArray[np.int64]

    def part(self, start: int, stop: int) -> IdLists:
        """Return those from ``start`` to ``stop``."""
        return IdLists(self.data, self.at[start:stop], self.size[start:stop])


def id_lists(
    data: NDArray[np.uint8], ids: Ids, rows: NDArray[np.int64], most_bytes: int = MOST_PART_BYTES
) -> IdLists:
    """Write the ids of some records as JSON lists, see `processor.engine.extract.ids.texts`.

    Args:
        data: uint8[m], of the columns that the ids were read from.
        ids: Of them.
        rows: int64[k], records that have an id.
        most_bytes: A longer part is cut to its digest.
    """
    form = np.ascontiguousarray(ids.form[:, rows])
    begin = np.ascontiguousarray(ids.begin[:, rows])
    length = np.ascontiguousarray(ids.length[:, rows])
    # Of bytes each may be a control character; what a string has is escaped there already. With escapes text is
    # a sixth of its span at least, and is not looked at where even that is too long.
    longest = np.minimum(np.where(form == _BYTES, 6 * length, length), 6 * most_bytes)
    out = np.empty(int(longest.sum()) + (_AROUND_BYTES * len(form) + 2) * rows.size, np.uint8)
    at, size = np.zeros((2, rows.size), np.int64)
    used = int(_lists(data, form, begin, length, np.int64(most_bytes), out, at, size))
    odd = np.flatnonzero(size == 0)
    if not odd.size:
        return IdLists(out, at, size)
    written = [
        json.dumps(
            texts(data, ids, int(rows[k]), most_bytes), ensure_ascii=False, separators=(",", ":")
        ).encode()
        for k in odd
    ]
    size[odd] = [len(each) for each in written]
    at[odd] = used + np.cumsum(size[odd]) - size[odd]
    return IdLists(np.concatenate((out[:used], np.frombuffer(b"".join(written), np.uint8))), at, size)


def most_bytes(
    text: IdReceiptText, columns: Columns, rows: NDArray[np.int64], lists: IdLists
) -> NDArray[np.int64]:
    """Return int64[k]: more than the receipt of each of ``rows`` takes as a record."""
    fixed = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + TAIL_BYTES + text.most_bytes
    return np.maximum(columns.key_length[rows], 0) + lists.size + fixed


def encode(
    text: IdReceiptText,
    columns: Columns,
    rows: NDArray[np.int64],
    grounds: IdGrounds,
    lists: IdLists,
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
        lists: The ids of ``rows``.
        base_timestamp: ms; what the batch header will say.
        out: uint8[m], m >= the sum of `most_bytes`.
        keyed: Whether they have the records' keys.

    Returns:
        Bytes written.
    """
    return int(
        _encode(
            text.data,
            text.spans,
            text.places,
            columns.data,
            columns.key,
            columns.key_length,
            columns.offset,
            columns.timestamp,
            rows,
            lists.data,
            lists.at,
            lists.size,
            grounds.owner,
            grounds.expires_ms,
            keyed,
            base_timestamp,
            out,
        )
    )


@kernel
def _lists(
    data: NDArray[np.uint8],
    form: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    most: Int,
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> Int:
    """Write the ids of which no part is to be cut; the size of others stays 0. Returns the bytes written."""
    used: Int = 0
    scratch = np.empty(6 * most, np.uint8)
    for row in range(at.size):
        to = used
        for k in range(form.shape[0]):
            start, count = begin[k, row], length[k, row]
            escaped = form[k, row] == _ESCAPED
            if escaped and count <= 6 * most:
                count = np.int64(unescape(data, start, count, scratch))
            if count > most:
                to = np.int64(-1)
                break
            out[to] = np.uint8(91) if k == 0 else np.uint8(44)
            if escaped:
                to = _put_part(out, to + 1, scratch, np.int64(0), count)
            else:
                to = _put_part(out, to + 1, data, start, count)
        if to >= 0:
            out[to] = np.uint8(93)
            at[row] = used
            size[row] = to + 1 - used
            used = to + 1
    return used


@kernel
def _put_part(out: NDArray[np.uint8], begin: Int, data: NDArray[np.uint8], start: Int, count: Int) -> Int:
    """Write a part as a JSON string, or as an object with its base64; returns the place behind it."""
    stop = start + count
    out[begin] = np.uint8(34)
    to = begin + 1
    at = start
    while at < stop:
        byte = np.int64(data[at])
        if PLAIN[data[at]] != 0:
            out[to] = data[at]
            to += 1
            at += 1
        elif byte >= 0x80:
            more = longer(data, at, stop)
            if more == 0:
                return _put_base64(out, begin, data, start, count)
            to = put_bytes(out, to, data, at, more + 1)
            at += more + 1
        else:
            out[to] = np.uint8(92)
            if _SHORT[byte] != 0:
                out[to + 1] = _SHORT[byte]
                to += 2
            else:
                to = put_bytes(out, to + 1, _LONG, 0, 3)
                out[to] = _HEX[byte >> 4]
                out[to + 1] = _HEX[byte & 15]
                to += 2
            at += 1
    out[to] = np.uint8(34)
    return to + 1


@kernel
def _put_base64(out: NDArray[np.uint8], begin: Int, data: NDArray[np.uint8], start: Int, count: Int) -> Int:
    """Write bytes as ``{"base64":"..."}``; returns the place behind it."""
    to = put_bytes(out, begin, _BASE64, 0, _BASE64_BYTES)
    for j in range(0, count, 3):
        left = count - j
        word = np.int64(data[start + j]) << 16
        if left > 1:
            word |= np.int64(data[start + j + 1]) << 8
        if left > 2:
            word |= np.int64(data[start + j + 2])
        out[to] = _DIGITS[word >> 18]
        out[to + 1] = _DIGITS[(word >> 12) & 63]
        out[to + 2] = _DIGITS[(word >> 6) & 63] if left > 1 else np.uint8(61)
        out[to + 3] = _DIGITS[word & 63] if left > 2 else np.uint8(61)
        to += 4
    out[to] = np.uint8(34)
    out[to + 1] = np.uint8(125)
    return to + 2


@kernel
def _encode(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    places: Int,
    data: NDArray[np.uint8],
    key: NDArray[np.int64],
    key_length: NDArray[np.int64],
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    rows: NDArray[np.int64],
    lists: NDArray[np.uint8],
    list_at: NDArray[np.int64],
    list_size: NDArray[np.int64],
    owner: NDArray[np.int64],
    expires: NDArray[np.int64],
    keyed: bool,
    base_timestamp: Int,
    out: NDArray[np.uint8],
) -> Int:
    at: Int = 0
    sizes = np.empty(4, np.int64)
    for k in range(rows.size):
        row = rows[k]
        sizes[0] = _place_bytes(offset[row], places, spans)
        sizes[1] = number_bytes(timestamp[row])
        owned = owner[row] >= 0
        sizes[2] = _place_bytes(owner[row], places, spans) if owned else 0
        sizes[3] = number_bytes(expires[row]) if owned else 0
        value = sizes.sum() + spans[_END + 1] + list_size[k]
        if not owned:
            value -= spans[_END] - spans[_OWNER]
        delta = timestamp[row] - base_timestamp
        at = put_head(out, at, np.int64(k), delta, data, key[row], key_length[row], keyed, value)
        at = _put_place(out, put_text(out, at, text, spans, _OFFSET), offset[row], places, text, spans)
        at = put_number(out, put_text(out, at, text, spans, _TIMESTAMP), sizes[1], timestamp[row])
        at = put_bytes(out, put_text(out, at, text, spans, _ID), lists, list_at[k], list_size[k])
        if owned:
            at = _put_place(out, put_text(out, at, text, spans, _OWNER), owner[row], places, text, spans)
            at = put_number(out, put_text(out, at, text, spans, _EXPIRES), sizes[3], expires[row])
        at = put_tail(out, put_text(out, at, text, spans, _END), keyed)
    return at


@kernel
def _place_bytes(place: Int, places: Int, spans: NDArray[np.int64]) -> Int:
    """Return how many bytes `_put_place` writes."""
    if places == 0:
        return number_bytes(place)
    between = spans[_BETWEEN + 1] - spans[_BETWEEN]
    return number_bytes(place & (MOST_PARTITIONS - 1)) + between + number_bytes(place >> PARTITION_BITS)


@kernel
def _put_place(
    out: NDArray[np.uint8], at: Int, place: Int, places: Int, text: NDArray[np.uint8], spans: NDArray[np.int64]
) -> Int:
    """Write an offset, or a place's partition and offset; return the position after it."""
    offset = place
    if places != 0:
        partition = place & (MOST_PARTITIONS - 1)
        offset = place >> PARTITION_BITS
        at = put_text(out, put_number(out, at, number_bytes(partition), partition), text, spans, _BETWEEN)
    return put_number(out, at, number_bytes(offset), offset)
