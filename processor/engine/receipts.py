"""Writes the receipts of dropped records: constant text, and between it numbers and bytes.

A receipt is a record of the duplicates topic: the dropped record's key and timestamp, no headers, and a JSON
object as its value. Where the topic does not take it so it is written without the key, and one header says
that: ``seqmark.key`` = ``left out``. In mode watermark the value is::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"late","mode":
    "watermark","sequence":|5|,"watermark":|9|,"epoch":|2|}

``epoch`` is there where the definition has one; without an order it is written as a part of an id. In mode
insert-id::

    {"pipeline":"p","topic":"t","partition":3,"offset":|17|,"timestamp":|1|,"verdict":"duplicate","mode":
    "insert-id","id":|["a","1.0"]|,"owner":{"topic":"t","partition":3,"offset":|5|},"expires_at":|9|}

A collision leaves a note, which is written likewise, and says more behind its id::

    ... "verdict":"collision","mode":"insert-id","id":|["a"],"fingerprint":"0123456789abcdef",
    "owner_fingerprint":"fedcba9876543210","action":"rename","new_id":"..."|,"owner":{...},"expires_at":|9|}

Bloom filters know neither who passed nor when the id expires: where there is no owner, it
and all behind it is left out, but for the last brace; where a collision is not remembered, ``expires_at`` is.
The owner of an id that a backfill has brought is ``{"backfill":"RUN"}``, which stands among the bytes.
With ``route`` the partitions of records and owners are numbers as well (`processor.engine.repartition`).

So there are a few kinds of receipts. A kind is a row of steps: a constant part of the text, and behind it a
number of the record, its bytes, or nothing. All numbers are signed 64-bit integers.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import MAX_OVERHEAD_BYTES
from processor.engine.batch.encode import put_head
from processor.engine.bytes.decimals import NUMBER_BYTES, number_bytes, put_number
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, sized, varint_bytes
from processor.engine.extract.id_lists import IdLists, id_lists
from processor.engine.ids.page import BACKFILLED
from processor.engine.jit import Int, kernel
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable
    from processor.engine.extract.ids import Ids

LEFT_OUT = (b"seqmark.key", b"left out")
"""The header of a receipt that has not the key of its record."""
_NO_HEADERS = np.zeros(1, np.uint8)
_NO_KEY = np.frombuffer(b"\x02" + b"".join(map(sized, LEFT_OUT)), np.uint8).copy()
"""What stands behind a receipt's value: a count of headers, none or one, as a varint, and that one."""
_FIXED_BYTES = MAX_OVERHEAD_BYTES + 2 * VARINT_BYTES + _NO_KEY.size
"""More than a receipt has beside its key and its value."""
_NOTHING, _BYTES = -1, -2
"""What can stand behind a part in place of a number."""


class ReceiptText(NamedTuple):
    """The kinds of receipts of one source partition, or of all of them.

    Attributes:
        data: uint8[m], the constant parts one after the other.
        spans: int64[parts + 1], where each begins, and where the last ends.
        steps: int64[kinds, steps, 2]: a part, and the column of the number behind it, or what else is there.
        most_bytes: More than the value of a receipt ever takes beside its bytes.
        partition_bits: How many low bits of an offset are its partition's.
    """

    data: NDArray[np.uint8]
    spans: NDArray[np.int64]
    steps: NDArray[np.int64]
    most_bytes: int
    partition_bits: int

    @classmethod
    def of(cls, kinds: Sequence[Sequence[tuple[bytes, int]]], partition_bits: int = 0) -> ReceiptText:
        """Return them by the steps of each kind: a part, and what stands behind it."""
        # With the empty part a shorter kind is filled up.
        parts = list(dict.fromkeys([*(part for kind in kinds for part, _ in kind), b""]))
        data = np.frombuffer(b"".join(parts), np.uint8).copy()
        steps = np.full((len(kinds), max(map(len, kinds)), 2), (parts.index(b""), _NOTHING), np.int64)
        for number, kind in enumerate(kinds):
            steps[number, : len(kind)] = [(parts.index(part), what) for part, what in kind]
        spans = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(data, spans, steps, data.size + steps.shape[1] * NUMBER_BYTES, partition_bits)


@dataclass(frozen=True, slots=True)
class ReceiptGrounds(ABC):
    """What the records of some columns were judged by, in terms of their receipts.

    Attributes:
        verdict: uint8[n], `Verdict` values.
    """

    verdict: NDArray[np.uint8]

    @property
    def stays(self) -> NDArray[np.uint8]:
        """uint8[n], 0: the record goes into the sink."""
        return self.verdict

    @staticmethod
    @abstractmethod
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        """Return the receipts that `kinds` and `numbers` are of.

        Args:
            place: The first fields, pipeline, topic and partition, as a JSON object; without the partition
                where offsets hold it.
            owner: The first fields of an owner, topic and partition, likewise.
            partition_bits: How many low bits of an offset are its partition's.
        """

    @abstractmethod
    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return uint8[k], the kinds of the receipts of some rows."""

    @abstractmethod
    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        """Return int64[k, numbers] of the receipts of some rows."""

    def lists(self, rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        """Return the bytes of the receipts of some rows; a longer part of an id is cut to its digest."""
        del most_part_bytes
        return IdLists(np.zeros(0, np.uint8), *np.zeros((2, rows.size), np.int64))


@dataclass(frozen=True, slots=True)
class Grounds(ReceiptGrounds):
    """What records were judged by in mode watermark: nobody owns a sequence, and no route is by one.

    Attributes:
        sequence: int64[n].
        watermark: int64[n], as it stood before each record in its scope.
        epoch: int64[n], the records' own; None where the definition has none.
        epoch_id: In its place where epochs have no order: each as an id of one part.
    """

    sequence: NDArray[np.int64]
    watermark: NDArray[np.int64]
    epoch: NDArray[np.int64] | None = None
    epoch_id: Ids | None = None

    @staticmethod
    @override
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        kinds = [
            [
                (place[:-1] + b',"offset":', 0),
                (b',"timestamp":', 1),
                (b',"verdict":"%b","mode":"watermark","sequence":' % verdict.label.encode(), 2),
                (b',"watermark":', 3),
                *epoch,
                (b"}", _NOTHING),
            ]
            for epoch in ([], [(b',"epoch":', 4)], [(b',"epoch":', _BYTES)])
            for verdict in (Verdict.DUPLICATE, Verdict.LATE)
        ]
        return ReceiptText.of(kinds)

    @override
    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        late = (self.verdict[rows] != Verdict.DUPLICATE).view(np.uint8)
        return late + np.uint8(4 if self.epoch_id is not None else 2 if self.epoch is not None else 0)

    @override
    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        epoch = () if self.epoch is None else (self.epoch,)
        given = columns.offset, columns.timestamp, self.sequence, self.watermark, *epoch
        return np.stack([column[rows] for column in given], axis=1)

    @override
    def lists(self, rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        if self.epoch_id is None:
            return ReceiptGrounds.lists(self, rows, most_part_bytes)
        listed = id_lists(self.epoch_id, rows, most_part_bytes)
        return listed._replace(at=listed.at + 1, size=listed.size - 2)


PASSING = frozenset({"pass", "tag", "rename"})
"""What is done with collisions that go into the sink, and are remembered."""


class CollisionNotes(NamedTuple):
    """What notes say of collisions beside what receipts say.

    Attributes:
        action: What is done with them: ``on_collision``.
        owner: uint64[n], the fingerprint of the record that owns each one's id; of no other records it is one.
        row: int64[c], the collisions that have a new id, rising.
        new_id: uint8[c, 36].
    """

    action: str
    owner: NDArray[np.uint64]
    row: NDArray[np.int64]
    new_id: NDArray[np.uint8]

    def written(self, own: NDArray[np.uint64], rows: NDArray[np.int64]) -> list[bytes]:
        """Return what notes of some collisions say behind the id; ``own`` are the records' fingerprints."""
        said = b',"fingerprint":"%%016x","owner_fingerprint":"%%016x","action":"%b"' % self.action.encode()
        pairs = zip(own[rows].tolist(), self.owner[rows].tolist(), strict=True)
        texts = [said % pair for pair in pairs]
        if not self.row.size:
            return texts
        new = self.new_id[np.searchsorted(self.row, rows)]
        return [text + b',"new_id":"%b"' % each.tobytes() for text, each in zip(texts, new, strict=True)]


@dataclass(frozen=True, slots=True)
class IdGrounds(ReceiptGrounds):
    """What records were judged by in mode insert-id.

    Attributes:
        ids: Of the records.
        owner: int64[n], of a duplicate, the offset of the record that passed, or its place; -1: nobody knows;
            `BACKFILLED`: a backfill has brought the id.
        expires_ms: int64[n], of a duplicate, when its id expires; of a collision its own, 0 where it is not
            remembered.
        notes: Of collisions; None where there are none.
        backfill: The name of the backfill that the state began with; empty where there was none.
    """

    ids: Ids
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]
    notes: CollisionNotes | None = None
    backfill: str = ""

    @property
    @override
    def stays(self) -> NDArray[np.uint8]:
        if self.notes is None or self.notes.action not in PASSING:
            return self.verdict
        return np.where(self.verdict == Verdict.COLLISION, np.uint8(Verdict.PASS), self.verdict)

    @staticmethod
    @override
    def text(place: bytes, owner: bytes, partition_bits: int) -> ReceiptText:
        def where(fields: bytes, column: int) -> list[tuple[bytes, int]]:
            if not partition_bits:
                return [(fields[:-1] + b',"offset":', column + 1)]
            return [(fields[:-1] + b',"partition":', column), (b',"offset":', column + 1)]

        def record(verdict: Verdict) -> list[tuple[bytes, int]]:
            said = b',"verdict":"%b","mode":"insert-id","id":' % verdict.label.encode()
            return [*where(place, 0), (b',"timestamp":', 2), (said, _BYTES)]

        dropped, collided = record(Verdict.DUPLICATE), record(Verdict.COLLISION)
        owned = where(b',"owner":' + owner, 3)
        ended, expiring = [(b"}", _NOTHING)], [(b'},"expires_at":', 5), (b"}", _NOTHING)]
        # Behind an owner that stands among the bytes.
        expiring_alone = [(b',"expires_at":', 5), (b"}", _NOTHING)]
        kinds = [
            [*dropped, *ended],
            [*dropped, *owned, *expiring],
            [*collided, *owned, (b"}}", _NOTHING)],
            [*collided, *owned, *expiring],
            [*dropped, *expiring_alone],
            [*collided, (b"}", _NOTHING)],
            [*collided, *expiring_alone],
        ]
        return ReceiptText.of(kinds, partition_bits)

    @override
    def kinds(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        owner = self.owner[rows]
        if self.notes is None and not self.backfill:
            return (owner >= 0).view(np.uint8)
        collided = self.verdict[rows] == Verdict.COLLISION
        kinds = np.where(collided, 2 + (self.expires_ms[rows] > 0), owner >= 0)
        return np.where(owner == BACKFILLED, np.where(collided, kinds + 3, 4), kinds).astype(np.uint8)

    @override
    def numbers(self, columns: Columns, rows: NDArray[np.int64], partition_bits: int) -> NDArray[np.int64]:
        def split(offset: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            return offset & ((1 << partition_bits) - 1), offset >> partition_bits

        own, owner = split(columns.offset[rows]), split(self.owner[rows])
        return np.stack((*own, columns.timestamp[rows], *owner, self.expires_ms[rows]), axis=1)

    @override
    def lists(self, rows: NDArray[np.int64], most_part_bytes: int) -> IdLists:
        lists = id_lists(self.ids, rows, most_part_bytes)
        collided = np.flatnonzero(self.verdict[rows] == Verdict.COLLISION)
        if self.notes is not None and collided.size:
            lists = lists.longer(collided, self.notes.written(self.ids.fingerprint, rows[collided]))
        brought = np.flatnonzero(self.owner[rows] == BACKFILLED) if self.backfill else collided[:0]
        if not brought.size:
            return lists
        owner = b',"owner":' + json.dumps({"backfill": self.backfill}, separators=(",", ":")).encode()
        return lists.longer(brought, [owner] * brought.size)


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
        data, table = self.columns.data, self.columns.table
        given = self.rows, self.kinds, self.numbers, self.lists, self.keyed
        return int(_encode(self.text, data, table, *given, base_timestamp, out))


def says_left_out(columns: Columns, row: int) -> bool:
    """Whether a receipt is written without its record's key, and says so."""
    tail = columns.data[columns.headers[row] : columns.end[row]]
    return bool(columns.key_length[row] < 0 and np.array_equal(tail, _NO_KEY))


@kernel
def _encode(
    text: ReceiptText,
    data: NDArray[np.uint8],
    table: RecordTable,
    rows: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    lists: IdLists,
    keyed: bool,
    base_timestamp: int,
    out: NDArray[np.uint8],
) -> Int:
    constant, spans, steps = text.data, text.spans, text.steps
    list_data, list_at, list_size = lists
    key, key_length, timestamp = table.key, table.key_length, table.timestamp
    tail = _NO_HEADERS if keyed else _NO_KEY
    at: Int = 0
    sizes = np.zeros(steps.shape[1], np.int64)
    for k in range(rows.size):
        row, kind = rows[k], np.int64(kinds[k])
        value = np.int64(0)
        for step in range(sizes.size):
            part, what = steps[kind, step, 0], steps[kind, step, 1]
            sizes[step] = number_bytes(numbers[k, what]) if what >= 0 else 0
            value += spans[part + 1] - spans[part] + sizes[step]
            if what == _BYTES:
                value += list_size[k]
        named = key_length[row] if keyed else np.int64(-1)
        key_bytes = max(named, np.int64(0))
        rest = varint_bytes(named) + key_bytes + varint_bytes(value) + value + tail.size
        at = put_head(out, at, np.int64(k), timestamp[row] - base_timestamp, rest)
        at = put_bytes(out, put_varint(out, at, named), data, key[row], key_bytes)
        at = put_varint(out, at, value)
        for step in range(sizes.size):
            part, what = steps[kind, step, 0], steps[kind, step, 1]
            at = put_bytes(out, at, constant, spans[part], spans[part + 1] - spans[part])
            if what >= 0:
                at = put_number(out, at, sizes[step], numbers[k, what])
            elif what == _BYTES:
                at = put_bytes(out, at, list_data, list_at[k], list_size[k])
        at = put_bytes(out, at, tail, 0, tail.size)
    return at
