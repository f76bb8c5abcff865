"""What does the receipt of a record look like that was dropped for its id?

As that of `processor.engine.receipts`, but for what it was judged by::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"duplicate","mode":
    "insert-id","id":|["a","1.0"]|,"owner":{"topic":"t","partition":3,"offset":|5|},"expires_at":|9|}

Bloom filters without confirmation know neither who passed nor when the id expires: where there is no owner, it
and all behind it is left out, but for the last brace.

With ``route`` records of one partition come from many: their offsets, and owners', are places then
(`processor.engine.route`), and the partitions are written record by record.

Ids are text of many forms. What is plain, printable ASCII without quotes and backslashes, is written by a
kernel; where a part is not, the id is written in Python, which knows UTF-8 and JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids import Form, Ids, texts
from processor.engine.jit import Int, kernel
from processor.engine.receipts import NUMBER_BYTES, number_bytes, put_head, put_number, put_text
from processor.engine.records import MAX_OVERHEAD_BYTES
from processor.engine.route import MOST_PARTITIONS, PARTITION_BITS
from processor.engine.varints import VARINT_BYTES, put_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.records import Columns

_NUMBERS = 6
_ESCAPED = int(Form.ESCAPED)
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


def id_lists(data: NDArray[np.uint8], ids: Ids, rows: NDArray[np.int64]) -> IdLists:
    """Write the ids of some records as JSON lists of strings.

    Args:
        data: uint8[m], of the columns that the ids were read from.
        ids: Of them.
        rows: int64[k], records that have an id.
    """
    form = np.ascontiguousarray(ids.form[:, rows])
    begin = np.ascontiguousarray(ids.begin[:, rows])
    length = np.ascontiguousarray(ids.length[:, rows])
    out = np.empty(int(length.sum()) + (3 * len(form) + 2) * rows.size, np.uint8)
    at, size = np.zeros((2, rows.size), np.int64)
    used = int(_plain_lists(data, form, begin, length, out, at, size))
    odd = np.flatnonzero(size == 0)
    if not odd.size:
        return IdLists(out, at, size)
    written = [
        json.dumps(texts(data, ids, int(rows[k])), ensure_ascii=False, separators=(",", ":")).encode()
        for k in odd
    ]
    size[odd] = [len(each) for each in written]
    at[odd] = used + np.cumsum(size[odd]) - size[odd]
    return IdLists(np.concatenate((out[:used], np.frombuffer(b"".join(written), np.uint8))), at, size)


def most_bytes(
    text: IdReceiptText, columns: Columns, rows: NDArray[np.int64], lists: IdLists
) -> NDArray[np.int64]:
    """Return int64[k]: more than the receipt of each of ``rows`` takes as a record."""
    fixed = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + 1 + text.most_bytes
    return np.maximum(columns.key_length[rows], 0) + lists.size + fixed


def encode(
    text: IdReceiptText,
    columns: Columns,
    rows: NDArray[np.int64],
    grounds: IdGrounds,
    lists: IdLists,
    base_timestamp: int,
    out: NDArray[np.uint8],
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
            base_timestamp,
            out,
        )
    )


@kernel
def _plain_lists(
    data: NDArray[np.uint8],
    form: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> Int:
    """Write the ids that are plain text; the size of the others stays 0. Returns the bytes written."""
    used: Int = 0
    for row in range(at.size):
        to = used
        plain = True
        for k in range(form.shape[0]):
            plain &= form[k, row] != _ESCAPED
            out[to] = np.uint8(91) if k == 0 else np.uint8(44)
            out[to + 1] = np.uint8(34)
            to += 2
            for j in range(begin[k, row], begin[k, row] + length[k, row]):
                byte = data[j]
                plain &= (byte >= 32) & (byte < 127) & (byte != 34) & (byte != 92)
                out[to] = byte
                to += 1
            out[to] = np.uint8(34)
            to += 1
        out[to] = np.uint8(93)
        to += 1
        if plain:
            at[row] = used
            size[row] = to - used
            used = to
    return used


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
        at = put_head(out, at, np.int64(k), delta, data, key[row], key_length[row], value)
        at = _put_place(out, put_text(out, at, text, spans, _OFFSET), offset[row], places, text, spans)
        at = put_number(out, put_text(out, at, text, spans, _TIMESTAMP), sizes[1], timestamp[row])
        at = put_bytes(out, put_text(out, at, text, spans, _ID), lists, list_at[k], list_size[k])
        if owned:
            at = _put_place(out, put_text(out, at, text, spans, _OWNER), owner[row], places, text, spans)
            at = put_number(out, put_text(out, at, text, spans, _EXPIRES), sizes[3], expires[row])
        at = put_text(out, at, text, spans, _END)
        out[at] = 0  # no headers
        at += 1
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
