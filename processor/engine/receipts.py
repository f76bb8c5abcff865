"""Writes the receipts of dropped records: constant text, and between it numbers and bytes.

A receipt is a record of the duplicates topic: the dropped record's key and timestamp, no headers, and a JSON
object as its value. Where the topic does not take it so it is written without the key, and one header says
that: ``seqmark.key`` = ``left out``. In mode watermark the value is::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"late","mode":
    "watermark","sequence":|5|,"watermark":|9|,"epoch":|2|}

``epoch`` is there where the definition has one. In mode insert-id::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"duplicate","mode":
    "insert-id","id":|["a","1.0"]|,"owner":{"topic":"t","partition":3,"offset":|5|},"expires_at":|9|}

Bloom filters without confirmation know neither who passed nor when the id expires: where there is no owner, it
and all behind it is left out, but for the last brace. With ``route`` the partitions of records and owners are
numbers as well (`processor.engine.repartition`).

So there are a few kinds of receipts. A kind is a row of steps: a constant part of the text, and behind it a
number of the record, its bytes, or nothing. All numbers are signed 64-bit integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.bytes.decimals import NUMBER_BYTES, number_bytes, put_number
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, varint_bytes
from processor.engine.extract.id_lists import IdLists, id_lists
from processor.engine.jit import Int, inlined, kernel
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable
    from processor.engine.extract.ids import Ids

LEFT_OUT = (b"seqmark.key", b"left out")
"""The header of a receipt that has not the key of its record."""
_TAIL = b"\x02" + b"".join(bytes([2 * len(each)]) + each for each in LEFT_OUT)
"""Its headers: a count of one, and each with its length, as varints."""
_NO_KEY = np.frombuffer(_TAIL, np.uint8).copy()
_TAIL_BYTES = len(_TAIL)
_FIXED_BYTES = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + _TAIL_BYTES
"""More than a receipt has beside its key and its value."""
_NOTHING, _BYTES = -1, -2
"""What can stand behind a part in place of a number."""


class ReceiptText:
    """The kinds of receipts of one source partition, or of all of them.

    Attributes:
        data: uint8[m], the constant parts one after the other.
        spans: int64[parts + 1], where each begins, and where the last ends.
        steps: int64[kinds, steps, 2]: a part, and the column of the number behind it, or what else is there.
        most_bytes: More than the value of a receipt ever takes beside its bytes.
        partition_bits: How many low bits of an offset are its partition's.

    Args:
        kinds: Of each kind its steps.
        partition_bits: As the attribute.
    """

    def __init__(self, kinds: Sequence[Sequence[tuple[bytes, int]]], partition_bits: int = 0) -> None:
        parts = list(dict.fromkeys(part for kind in kinds for part, _ in kind))
        self.data = np.frombuffer(b"".join(parts), np.uint8).copy()
        self.spans = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        # A shorter kind ends with part -1.
        self.steps = np.full((len(kinds), max(map(len, kinds)), 2), _NOTHING, np.int64)
        for number, kind in enumerate(kinds):
            self.steps[number, : len(kind)] = [(parts.index(part), what) for part, what in kind]
        self.most_bytes = self.data.size + self.steps.shape[1] * NUMBER_BYTES
        self.partition_bits = partition_bits


def watermark_text(place: bytes) -> ReceiptText:
    """Return the receipts of mode watermark, as `Grounds` has their kinds and numbers.

    Args:
        place: The first fields, pipeline, topic and partition, as a JSON object.
    """
    kinds = [
        [
            (place[:-1] + b',"offset":', 0),
            (b',"timestamp":', 1),
            (b',"verdict":"%b","mode":"watermark","sequence":' % verdict.label.encode(), 2),
            (b',"watermark":', 3),
            *epoch,
            (b"}", _NOTHING),
        ]
        for epoch in ([], [(b',"epoch":', 4)])
        for verdict in (Verdict.DUPLICATE, Verdict.LATE)
    ]
    return ReceiptText(kinds)


def id_text(place: bytes, owner: bytes, partition_bits: int = 0) -> ReceiptText:
    """Return the receipts of mode insert-id, as `IdGrounds` has their kinds and numbers.

    Args:
        place: The first fields, pipeline, topic and partition, as a JSON object; without the partition where
            offsets hold it.
        owner: The first fields of an owner, topic and partition, likewise.
        partition_bits: How many low bits of an offset are its partition's.
    """

    def where(fields: bytes, column: int) -> list[tuple[bytes, int]]:
        if not partition_bits:
            return [(fields[:-1] + b',"offset":', column + 1)]
        return [(fields[:-1] + b',"partition":', column), (b',"offset":', column + 1)]

    record = [
        *where(place, 0),
        (b',"timestamp":', 2),
        (b',"verdict":"duplicate","mode":"insert-id","id":', _BYTES),
    ]
    owned = [*where(b',"owner":' + owner, 3), (b'},"expires_at":', 5)]
    return ReceiptText([[*record, *more, (b"}", _NOTHING)] for more in ([], owned)], partition_bits)


class ReceiptGrounds(Protocol):
    """What the records of some columns were judged by, in terms of their receipts."""

    @staticmethod
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        """Return the receipts that `kinds` and `numbers` are of; the arguments are those of `id_text`."""
        ...

    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return uint8[k], the kinds of the receipts of some rows."""
        ...

    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        """Return int64[k, numbers] of the receipts of some rows."""
        ...

    def lists(self, data: NDArray[np.uint8], rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        """Return the bytes of the receipts of some rows; a longer part of an id is cut to its digest."""
        ...


class Grounds(NamedTuple):
    """What records were judged by in mode watermark.

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

    @staticmethod
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        """Return `watermark_text`: nobody owns a sequence, and no route is by one."""
        del owner, partition_bits
        return watermark_text(place)

    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return uint8[k], see `watermark_text`."""
        late = (self.verdict[rows] != Verdict.DUPLICATE).view(np.uint8)
        return late if self.epoch is None else late + np.uint8(2)

    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        """Return int64[k, 5], see `watermark_text`."""
        del partition_bits
        out = np.zeros((rows.size, 5), np.int64)
        given = (columns.offset, columns.timestamp, self.sequence, self.watermark, self.epoch)
        for k, column in enumerate(given):
            if column is not None:
                out[:, k] = column[rows]
        return out

    def lists(self, data: NDArray[np.uint8], rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        """Return that there are no bytes."""
        del most_part_bytes
        return IdLists(data[:0], *np.zeros((2, rows.size), np.int64))


class IdGrounds(NamedTuple):
    """What records were judged by in mode insert-id.

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

    @staticmethod
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        """Return `id_text`."""
        return id_text(place, owner, partition_bits)

    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return uint8[k], see `id_text`."""
        return (self.owner[rows] >= 0).view(np.uint8)

    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        """Return int64[k, 6], see `id_text`."""
        out = np.empty((rows.size, 6), np.int64)
        for k, where in ((0, columns.offset[rows]), (3, self.owner[rows])):
            out[:, k], out[:, k + 1] = where & ((1 << partition_bits) - 1), where >> partition_bits
        out[:, 2], out[:, 5] = columns.timestamp[rows], self.expires_ms[rows]
        return out

    def lists(self, data: NDArray[np.uint8], rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        """Return the ids."""
        return id_lists(data, self.ids, rows, most_part_bytes)


class Receipts(NamedTuple):
    """Receipts that are still to be written.

    Attributes:
        text: Of the partition that the records stand in.
        columns: The records.
        rows: int64[k], the dropped ones, in order.
        kinds: uint8[k].
        numbers: int64[k, numbers].
        lists: Their bytes.
        keyed: Whether they have the records' keys.
    """

    text: ReceiptText
    columns: Columns
    rows: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    lists: IdLists
    keyed: bool = True

    def part(self, start: int, stop: int) -> Receipts:
        """Return those from ``start`` to ``stop``."""
        cut = slice(start, stop)
        return self._replace(
            rows=self.rows[cut],
            kinds=self.kinds[cut],
            numbers=self.numbers[cut],
            lists=self.lists.part(start, stop),
        )

    def most_bytes(self) -> NDArray[np.int64]:
        """Return int64[k]: more than each takes as a record."""
        fixed = _FIXED_BYTES + self.text.most_bytes
        return np.maximum(self.columns.key_length[self.rows], 0) + self.lists.size + fixed

    def encode(self, base_timestamp: int, out: NDArray[np.uint8]) -> int:
        """Write them one after the other, as the records of one batch; return the bytes.

        Args:
            base_timestamp: ms; what the batch header will say.
            out: uint8[m], m >= the sum of `most_bytes`.
        """
        return int(
            _encode(
                self.text.data,
                self.text.spans,
                self.text.steps,
                self.columns.data,
                self.columns.table,
                self.rows,
                self.kinds,
                self.numbers,
                self.lists,
                self.keyed,
                np.int64(base_timestamp),
                out,
            )
        )


def says_left_out(columns: Columns, row: int) -> bool:
    """Whether a receipt is written without its record's key, and says so."""
    tail = columns.data[columns.headers[row] : columns.end[row]]
    return bool(columns.key_length[row] < 0 and tail.size == _TAIL_BYTES and np.array_equal(tail, _NO_KEY))


@inlined
def _put_text(out, at, text, spans, part):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write a constant part; returns the place behind it."""
    return put_bytes(out, at, text, spans[part], spans[part + 1] - spans[part])


@inlined
def _put_head(out, at, k, delta, data, key, key_length, keyed, value):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write record ``k`` of a batch up to its value, which takes ``value`` bytes; returns where that begins."""
    if not keyed:
        key_length = np.int64(-1)
    size = max(key_length, 0)
    length = 1 + varint_bytes(delta) + varint_bytes(k)
    length += varint_bytes(key_length) + size + varint_bytes(value) + value + (1 if keyed else _TAIL_BYTES)
    at = put_varint(out, at, length)
    out[at] = 0
    at = put_varint(out, at + 1, delta)
    at = put_varint(out, at, k)
    at = put_varint(out, at, key_length)
    return put_varint(out, put_bytes(out, at, data, key, size), value)


@inlined
def _put_tail(out, at, keyed):  # type: ignore[no-untyped-def]  # inlined kernel
    """Write what stands behind a receipt's value; returns the place behind it."""
    if keyed:
        out[at] = 0  # no headers
        after = at + 1
    else:
        after = put_bytes(out, at, _NO_KEY, 0, _TAIL_BYTES)
    return after


@kernel
def _encode(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    steps: NDArray[np.int64],
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    lists: IdLists,
    keyed: bool,
    base_timestamp: Int,
    out: NDArray[np.uint8],
) -> Int:
    key, key_length, timestamp = table.key, table.key_length, table.timestamp
    list_data, list_at, list_size = lists
    at: Int = np.int64(0)
    sizes = np.zeros(steps.shape[1], np.int64)
    for k in range(rows.size):
        row, kind = rows[k], np.int64(kinds[k])
        value = np.int64(0)
        for step in range(sizes.size):
            part, what = steps[kind, step, 0], steps[kind, step, 1]
            if part < 0:
                break
            sizes[step] = number_bytes(numbers[k, what]) if what >= 0 else 0
            value += spans[part + 1] - spans[part] + sizes[step]
            if what == _BYTES:
                value += list_size[k]
        delta = timestamp[row] - base_timestamp
        at = _put_head(out, at, np.int64(k), delta, data, key[row], key_length[row], keyed, value)
        for step in range(sizes.size):
            part, what = steps[kind, step, 0], steps[kind, step, 1]
            if part < 0:
                break
            at = _put_text(out, at, text, spans, part)
            if what >= 0:
                at = put_number(out, at, sizes[step], numbers[k, what])
            elif what == _BYTES:
                at = put_bytes(out, at, list_data, list_at[k], list_size[k])
        at = _put_tail(out, at, keyed)
    return at
