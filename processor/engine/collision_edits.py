"""Makes the edits of records whose id came before with other content: a tag, or a new id.

A tag is a header more, behind the record's own, which names the first record of the id::

    ... its own headers | seqmark.collision | topic:partition:offset |

A new id (`processor.engine.ids.new_ids`) stands where the old one stood, in a JSON string or in the last header
of a name. The old text goes into a header behind the record's own, unescaped, or becomes the last member of an
object of the value, as written::

    {"id":"NEW", ...}  ... its own headers | seqmark.original_id | old text |
    {"id":"NEW", ..., "keep":"old text"}

It is kept in the header where there is no such object, or it has a member of that name, and where the old id is
no text: a header's bytes that are not UTF-8.

Invariant: all that is not named here keeps its bytes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import RecordTable
from processor.engine.batch.edits import SPLICES, Edits
from processor.engine.bytes.decimals import NUMBER_BYTES, number_bytes, put_number
from processor.engine.bytes.siphash import words_of_key
from processor.engine.bytes.varints import VARINT_BYTES, put_bytes, put_varint, sized, varint
from processor.engine.extract.json_matches import BARE, JsonKind, JsonRules
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import put_text, unescape
from processor.engine.extract.normalise import IdTextForm
from processor.engine.extract.parts import HeaderPart, ValuePart, pointers_of, read_parts
from processor.engine.extract.pointers import Pointers, parent_and_name
from processor.engine.extract.value_walk import ValueWalk
from processor.engine.ids.new_ids import UUID_BYTES, new_ids
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import Ids
    from processor.engine.extract.parts import Part

COLLISION, ORIGINAL_ID = b"seqmark.collision", b"seqmark.original_id"
_COLLISION, _ORIGINAL_ID = (np.frombuffer(sized(each), np.uint8).copy() for each in (COLLISION, ORIGINAL_ID))
_BYTES = int(IdTextForm.BYTES)
_ESCAPE_BYTES = 6
"""A control character, escaped."""


class CollisionRows(NamedTuple):
    """Records whose id came before with other content.

    Attributes:
        row: int64[k], which of the columns', rising; each has an id.
        owner_partition: int64[k], where the first record of the id stands in the source.
        owner_offset: int64[k].
    """

    row: NDArray[np.int64]
    owner_partition: NDArray[np.int64]
    owner_offset: NDArray[np.int64]

    @classmethod
    def unowned(cls, row: NDArray[np.int64]) -> Self:
        """Return records that are not judged yet: in place of each owner one that takes as much as any."""
        return cls(row, np.full(row.size, 2**31 - 1), np.full(row.size, 2**63 - 1))


class CollisionEditor(ABC):
    """Makes the edits of one source partition.

    Attributes:
        needs_owner: Whether the edits depend on whose id came first, which only judging tells.
    """

    needs_owner = False

    @abstractmethod
    def most_growth(self, ids: Ids) -> NDArray[np.int64]:
        """Return int64[n]: more than a record grows by its edit, where it has an id."""

    @abstractmethod
    def edits(self, columns: Columns, ids: Ids, collisions: CollisionRows) -> Edits:
        """Return the edits of some records; ``ids`` are those of all, with their fingerprints."""


@dataclass(frozen=True, slots=True)
class Tagger(CollisionEditor):
    """Tags records with the position of the first one.

    Args:
        topic: The source.
    """

    topic: bytes
    needs_owner = True

    @override
    def most_growth(self, ids: Ids) -> NDArray[np.int64]:
        return np.full(ids.fault.size, self._most_bytes())

    @override
    def edits(self, columns: Columns, ids: Ids, collisions: CollisionRows) -> Edits:
        made = Edits.begun(collisions.row, collisions.row.size * self._most_bytes())
        topic = np.frombuffer(self.topic + b":", np.uint8).copy()
        owner = collisions.owner_partition, collisions.owner_offset
        _tag(columns.data, columns.table, topic, *owner, made)
        return made

    def _most_bytes(self) -> int:
        return 2 * VARINT_BYTES + _COLLISION.size + len(self.topic) + 2 + 2 * NUMBER_BYTES


@dataclass(frozen=True, slots=True)
class Renamer(CollisionEditor):
    """Gives records a new id.

    Args:
        parts: Of the id.
        to: The one of them that gives way; a string where it stands in the value.
        keep: JSON pointer to the object's member that the old text becomes; None: it goes into the header.
        secret: 16 bytes, the partition's.
        rules: How values are read.

    Raises:
        ValueError: ``to`` is none of the parts, ``keep`` no JSON pointer to a member, or the secret of another
            size.
    """

    parts: Sequence[Part]
    to: HeaderPart | ValuePart
    keep: str | None
    secret: bytes = field(repr=False)
    rules: JsonRules = BARE
    _part: int = field(init=False, repr=False, compare=False)
    _member: NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _pointers: Pointers | None = field(init=False, repr=False, compare=False)
    _walk: ValueWalk = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        walk = ValueWalk(pointers_of([self.to]), [], words_of_key(self.secret), self.rules)
        object.__setattr__(self, "_walk", walk)
        object.__setattr__(self, "_part", list(self.parts).index(self.to))
        member, pointers = b"", None
        if self.keep is not None:
            parent, name = parent_and_name(self.keep)
            member = json.dumps(name, ensure_ascii=False).encode() + b":"
            pointers = Pointers.of([parent, self.keep])
        object.__setattr__(self, "_member", np.frombuffer(member, np.uint8).copy())
        object.__setattr__(self, "_pointers", pointers)

    @override
    def most_growth(self, ids: Ids) -> NDArray[np.int64]:
        # Of a part of the value the text may be known without its escapes alone, and is kept as it was written.
        escapes = _ESCAPE_BYTES if self.keep is not None else 1
        around = max(_ORIGINAL_ID.size + VARINT_BYTES, 1 + self._member.size + 2)
        return escapes * ids.length[self._part] + around + UUID_BYTES + 3 * VARINT_BYTES

    @override
    def edits(self, columns: Columns, ids: Ids, collisions: CollisionRows) -> Edits:
        rows = collisions.row
        made = Edits.begun(rows, int(self.most_growth(ids)[rows].sum()))
        # Where they stand in the records: that of ids may be elsewhere.
        some = columns.over(RecordTable(*(each[rows] for each in columns.table)))
        walked = self._walk.read(some)
        (column,) = read_parts([self.to], some, walked)
        old = OldIds(column.texts.form, column.texts.at, column.texts.length)
        new = new_ids(self.secret, ids.hash[rows], ids.fingerprint[rows])
        _rename(columns.data, columns.table, old, new, self._keeping(columns, rows), made)
        return made

    def _keeping(self, columns: Columns, rows: NDArray[np.int64]) -> Keeping:
        if self._pointers is None:
            none = np.full(rows.size, -1)
            return Keeping(none, none, self._member)
        # A value in which nothing else of the id stands need not be JSON: nothing is found in it then.
        values = columns.value[rows], columns.value_length[rows]
        found = look_up(columns.data, *values, self._pointers, rules=self.rules)
        (parent, member), start, length = found.kind, found.start[0], found.length[0]
        takes = (parent == JsonKind.OBJECT) & (member == JsonKind.MISSING)
        return Keeping(np.where(takes, start, -1), np.where(takes, start + length - 1, -1), self._member)


class OldIds(NamedTuple):
    """The texts that give way.

    Attributes:
        form: uint8[k], `IdTextForm` values.
        begin: int64[k], where each stands in the columns' data, a string's without its quotes.
        length: int64[k].
    """

    form: NDArray[np.uint8]
    begin: NDArray[np.int64]
    length: NDArray[np.int64]


class Keeping(NamedTuple):
    """Where they are kept.

    Attributes:
        opened: int64[k], where the brace stands that opens the object of the new member; -1: in the header.
        closed: int64[k], where the one that closes it.
        member: uint8[m], the member's name in its quotes, and the colon.
    """

    opened: NDArray[np.int64]
    closed: NDArray[np.int64]
    member: NDArray[np.uint8]


@kernel
def _tag(
    data: NDArray[np.uint8],
    table: RecordTable,
    topic: NDArray[np.uint8],
    partition: NDArray[np.int64],
    offset: NDArray[np.int64],
    made: Edits,
) -> None:
    text = made.text
    to: Int = 0
    for k in range(made.row.size):
        row = made.row[k]
        headers, stop = table.headers[row], table.end[row]
        count, after = varint(data, headers, stop, VARINT_BYTES)
        to = put_varint(text, to, count + 1)
        splice = _spliced(made, SPLICES * k, headers, after - headers, to)
        first, second = number_bytes(partition[k]), number_bytes(offset[k])
        to = put_bytes(text, to, _COLLISION, 0, _COLLISION.size)
        to = put_varint(text, to, topic.size + first + 1 + second)
        to = put_bytes(text, to, topic, 0, topic.size)
        to = put_number(text, to, first, partition[k])
        text[to] = np.uint8(58)
        to = put_number(text, to + 1, second, offset[k])
        splice = _spliced(made, splice, stop, 0, to)
        _leave_rest(made, splice, SPLICES * (k + 1), stop, to)


@kernel
def _rename(
    data: NDArray[np.uint8],
    table: RecordTable,
    old: OldIds,
    new: NDArray[np.uint8],
    place: Keeping,
    made: Edits,
) -> None:
    text, member = made.text, place.member
    to: Int = 0
    # An old text as it is kept; grows with the longest one.
    scratch = np.empty(0, np.uint8)
    for k in range(made.row.size):
        row = made.row[k]
        splice: Int = SPLICES * k
        begin, size, closed = old.begin[k], old.length[k], place.closed[k]
        in_value = old.form[k] != _BYTES
        headers, stop = table.headers[row], table.end[row]
        count, after = varint(data, headers, stop, VARINT_BYTES)

        # 1. What is kept: a string in its quotes as it is a member, a text in a header.
        if 6 * size + 2 > scratch.size:
            scratch = np.empty(2 * (6 * size + 2), np.uint8)
        kept = np.int64(-1)
        if closed >= 0 and in_value:
            kept = np.int64(put_bytes(scratch, 0, data, begin - 1, size + 2))
        elif closed >= 0:
            kept = np.int64(put_text(scratch, 0, data, begin, size))
        if kept < 0:
            closed = np.int64(-1)
            if in_value:
                kept = np.int64(unescape(data, begin, size, scratch))
            else:
                kept = np.int64(put_bytes(scratch, 0, data, begin, size))

        # 2. The value: its length, and in the order in which they stand there, the new id and the old one.
        if in_value or closed >= 0:
            grown = np.int64(0)
            comma = closed >= 0 and _has_members(data, place.opened[k], closed)
            if closed >= 0:
                grown += comma + member.size + kept
            if in_value:
                grown += UUID_BYTES - size
            length_at = table.key[row] + max(table.key_length[row], np.int64(0))
            to = put_varint(text, to, table.value_length[row] + grown)
            splice = _spliced(made, splice, length_at, table.value[row] - length_at, to)
            if 0 <= closed < begin:
                to = _put_member(text, to, comma, member, scratch, kept)
                splice = _spliced(made, splice, closed, 0, to)
            if in_value:
                to = put_bytes(text, to, new[k], 0, UUID_BYTES)
                splice = _spliced(made, splice, begin, size, to)
            if closed > begin:
                to = _put_member(text, to, comma, member, scratch, kept)
                splice = _spliced(made, splice, closed, 0, to)

        # 3. The headers: their count, the one that has the id with its length, the one that keeps the old id.
        if closed < 0:
            to = put_varint(text, to, count + 1)
            splice = _spliced(made, splice, headers, after - headers, to)
        if not in_value:
            length_at = _length_at(data, after, count, stop, begin)
            to = put_varint(text, to, UUID_BYTES)
            to = put_bytes(text, to, new[k], 0, UUID_BYTES)
            splice = _spliced(made, splice, length_at, begin + size - length_at, to)
        if closed < 0:
            to = put_bytes(text, to, _ORIGINAL_ID, 0, _ORIGINAL_ID.size)
            to = put_varint(text, to, kept)
            to = put_bytes(text, to, scratch, 0, kept)
            splice = _spliced(made, splice, stop, 0, to)
        _leave_rest(made, splice, SPLICES * (k + 1), stop, to)


@kernel
def _spliced(made: Edits, splice: Int, at: Int, size: Int, to: Int) -> Int:
    """Note a splice whose text ends at ``to``; return the next one."""
    made.at[splice] = at
    made.size[splice] = size
    made.cut[splice + 1] = to
    return splice + 1


@kernel
def _leave_rest(made: Edits, splice: Int, after: Int, stop: Int, to: Int) -> None:
    """Let the splices of an edit that it has no use for change nothing."""
    while splice < after:
        splice = _spliced(made, splice, stop, 0, to)


@kernel
def _put_member(
    text: NDArray[np.uint8],
    to: Int,
    comma: bool | np.bool,
    member: NDArray[np.uint8],
    kept: NDArray[np.uint8],
    size: Int,
) -> Int:
    """Write an object's last member; return the place behind it."""
    if comma:
        text[to] = np.uint8(44)
        to += 1
    return put_bytes(text, put_bytes(text, to, member, 0, member.size), kept, 0, size)


@kernel
def _has_members(data: NDArray[np.uint8], opened: Int, closed: Int) -> bool | np.bool:
    """Whether there is more than whitespace between an object's braces."""
    at = opened + 1
    while at < closed and data[at] <= 0x20:
        at += 1
    return at < closed


@kernel
def _length_at(data: NDArray[np.uint8], at: Int, count: Int, stop: Int, value: Int) -> Int:
    """Return where the length stands of the header with its value at ``value``; ``at``: the first header."""
    for _ in range(count):
        size, at = varint(data, at, stop, VARINT_BYTES)
        length_at = at + size
        size, at = varint(data, length_at, stop, VARINT_BYTES)
        if at == value:
            return length_at
        at += max(size, np.int64(0))
    return value
