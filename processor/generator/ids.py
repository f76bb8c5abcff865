"""Records that carry an id of any definition, with parts in headers, key and value.

An id that the generator makes is a row of digits, cut into as many pieces as there are parts to fill::

    digits      471182461117...        others for every few originals; no 0, so that each piece is a number
    cut         471182|461117...  47118|2461117...       where there are several parts to fill
    written     "471182"  471182                         in a value: as a string, and as a number

Originals that follow each other share their digits and differ in the cut or in how they are written: they are
other ids by the contract, and a mistake in joining parts or in their types drops one of them.

Where a fingerprint counts, clicks have a `ClickContext` too, and an original that collides has another's id.

What clicks have anyway is used as it is: their members, which a pointer of one step may name, and their key,
where something else of the id tells records apart: the content does, with their ``event_id`` in it.

Invariant: two originals of a topic have different ids, or collide, or could not be judged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from typing_extensions import override

from processor.errors import ConfigError, Problem
from processor.generator.click_context import CONTEXT, TELLS_APART, ClickContext
from processor.generator.marks import Break, MarkColumns, Marks
from processor.generator.pointers import Fields
from schemas.config import AnyId, ColumnId, ContentId, HeaderId, KeyId, TextId, ValueId
from schemas.events import ClickEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from schemas.config import Fingerprint, InsertIdDedup
    from schemas.config.dedup import PlainPart

_MEMBERS = {f"/{name}": name for name in ClickEvent.model_fields}
_TELLS_APART = "/event_id"

# 9^10 originals in a topic, and as many streams as there are seeds: 18 digits are a number of 64 bits.
_COUNT_DIGITS, _STREAM_DIGITS = 10, 8
_PIECE_LEAST = 3  # with one digit fewer in the other cut there are still two

_OR_NONE = (
    ": no click has the id of another and other content for certain; change that, or write --collisions 0"
)

# What is no part of an id, by the contract; a null is apart, for it may pass unjudged.
_WRONG = (b'["17"]', b'{"id":"17"}')


class IdForm:
    """Where the parts of a definition stand in a record.

    Args:
        dedup: The definition.
        key: Where it stands in the config, for messages.

    Raises:
        ConfigError: No record can carry it, or clicks cannot be told apart by it.

    Attributes:
        filled: The parts that get a piece of the digits, in order.
        strings: The pointers to those of them that are never a number.
        fields: Where those of them stand that are in the value, then the context's, then ``excluded``.
        excluded: What the fingerprint excludes of the value and is no part of the rest, as JSON pointers.
        counted: Headers that count for the fingerprint and are no part of the id.
        members: The click's members that are parts of the id; with its key the one that is the key too.
        rewritable: Whether a copy's value may be written in another way than its original's.
        breaks: How records of this form can be made impossible to judge.
    """

    def __init__(self, dedup: InsertIdDedup, key: str) -> None:
        self.dedup = dedup
        if dedup.route is not None:
            message = (
                "streams are generated without it: which of two records in different partitions comes first is "
                "not known before they are routed"
            )
            raise ConfigError([Problem(f"{key}.route", message)])
        # Of several where the first that is there counts, it is the first.
        self.parts: list[PlainPart] = [part.any[0] if isinstance(part, AnyId) else part for part in dedup.id]
        for number, part in enumerate(self.parts):
            if (first := self.parts.index(part)) < number:
                raise ConfigError([Problem(f"{key}.id.{number}", f"is the same as id.{first}")])
            if isinstance(part, ColumnId):
                message = "is a column: generated values are clicks in JSON; a header or a field can be an id"
                raise ConfigError([Problem(f"{key}.id.{number}", message)])
        self.filled: list[PlainPart] = [
            part for part in self.parts if isinstance(part, HeaderId) or _in_field(part)
        ]
        if not self.filled and not any(map(_tells_apart, self.parts)):
            self.filled = [part for part in self.parts if isinstance(part, KeyId)]
            if not self.filled:
                message = "is the same in many clicks; add a header, the key, a field of its own or /event_id"
                raise ConfigError([Problem(f"{key}.id", message)])
        pointers = [
            (f"{key}.id.{number}.pointer", part.pointer)
            for number, part in enumerate(self.parts)
            if _in_field(part)
        ]
        # A new id takes the place of a string only.
        self.strings = {dedup.rename.to} if dedup.rename else set()
        # A number and its text are one id there.
        self.strings |= {
            part.pointer for part in self.filled if _in_field(part) and part.normalise == "integer"
        }
        self.cuts = 2 if len(self.filled) > 1 else 1
        self.spellings = 2 if {pointer for _, pointer in pointers} - self.strings else 1
        self.excluded: list[str] = []
        self.counted: list[str] = []
        self.rewritable = False
        if dedup.fingerprint is not None:
            pointers += self._count(dedup.fingerprint, key, pointers)
        self.fields = Fields(pointers)
        self.members = {_MEMBERS[part.pointer] for part in self.parts if _is_member(part)}
        if any(isinstance(part, KeyId) and part not in self.filled for part in self.parts):
            self.members.add("user_id")
        self.breaks = tuple(self._breaks())

    def _count(
        self, told: Fingerprint, key: str, taken: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """Yield the pointers that stand in values where a fingerprint counts."""
        named = {part.name for part in self.parts if isinstance(part, HeaderId)}
        self.counted = [name for name in dict.fromkeys(told.headers) if name not in named]
        self.excluded = _placeable(told.exclude, [*(pointer for _, pointer in taken), *CONTEXT])
        # Content that is an id is the same as it was written, or as its own pointers say.
        whole = any(isinstance(part, ContentId | TextId) for part in self.parts)
        self.rewritable = told.of == "value" and not whole
        yield from ((f"{key}.fingerprint", pointer) for pointer in CONTEXT)
        yield from ((f"{key}.fingerprint.exclude", pointer) for pointer in self.excluded)

    def check_collisions(self, key: str) -> None:
        """Refuse streams with collisions where clicks cannot have another's id and other content.

        Raises:
            ConfigError: By the definition, which stands at ``key``, they cannot.
        """
        ids = [
            Problem(f"{key}.id.{number}", f"is the same in no two clicks{_OR_NONE}")
            for number, part in enumerate(self.parts)
            if isinstance(part, ContentId | TextId)
            or (isinstance(part, ValueId) and part.pointer == "/occurred_at")
        ]
        excluded = [
            Problem(f"{key}.fingerprint.exclude.{number}", f"excludes what is never the same{_OR_NONE}")
            for number, pointer in enumerate(self.dedup.fingerprint.exclude if self.dedup.fingerprint else ())
            if _within(TELLS_APART, pointer)
        ]
        if ids or excluded:
            raise ConfigError([*ids, *excluded])

    def _breaks(self) -> Iterator[Break]:
        yield from self._of_id()
        yield from self._of_fingerprint()

    def _of_id(self) -> Iterator[Break]:
        slot = 0
        for given, part in zip(self.dedup.id, self.parts, strict=True):
            spare = isinstance(given, AnyId) and any(map(self._there, given.any[1:]))
            # Where another part takes the place of one that is missing nothing is at fault.
            yield from (each for each in self._of_part(part, slot) if not (spare and _is_missing(each)))
            slot += _in_field(part)

    def _there(self, part: PlainPart) -> bool:
        """Return whether a part stands in generated records that lack others."""
        return (not isinstance(part, HeaderId) and not _in_field(part)) or part in self.parts

    def _of_part(self, part: PlainPart, slot: int) -> Iterator[Break]:
        passes = self.dedup.on_missing == "pass"
        if isinstance(part, HeaderId):
            yield Break("header_missing", part.name, passes=passes)
            yield Break("header_malformed", part.name, passes=passes)
        elif isinstance(part, KeyId):
            yield Break("key_missing", passes=passes)
        elif isinstance(part, ValueId):
            member = _MEMBERS.get(part.pointer)
            yield Break("value_missing", passes=passes)
            yield Break("value_not_json")
            yield Break("field_missing", slot=slot, member=member, passes=passes)
            yield Break("field_type", slot=slot, member=member, wrong=b"null", passes=passes)
            for wrong in _WRONG:
                yield Break("field_type", slot=slot, member=member, wrong=wrong)
        else:
            yield Break("value_missing", passes=passes)
            if isinstance(part, ContentId) and part.of == "value":
                yield Break("value_not_json")

    def _of_fingerprint(self) -> Iterator[Break]:
        """Yield what is at fault for the fingerprint alone."""
        for name in self.counted:
            yield Break("header_malformed", name)
        if self.dedup.fingerprint is not None and self.dedup.fingerprint.of == "value":
            parts = self.parts
            if not any(isinstance(part, ValueId | ContentId | TextId) for part in parts):
                yield Break("value_missing")
            if not any(_is_parsed(part) for part in parts):
                yield Break("value_not_json")


class IdMarks(Marks):
    """The originals of one partition under any definition of mode ``insert-id``.

    ``place`` is the partition's number, and how many there are: no id is in two of them.

    Attributes:
        name: int32[originals], the original whose id each one has: its own, but where it collides.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        form: IdForm,
        count: int,
        place: tuple[int, int],
        broken: NDArray[np.int64],
        context: ClickContext | None = None,
    ) -> None:
        super().__init__(count, form.fields, form.breaks, broken)
        self.name = np.arange(count, dtype=np.int32)
        self._form = form
        self._context = context
        self._place = place
        self._stream = int(rng.integers(0, 9**_STREAM_DIGITS))

    @override
    def _written(self, rows: NDArray[np.int32]) -> MarkColumns:
        headers: dict[str, list[bytes]] = {}
        fields: list[list[bytes]] = []
        keys = None
        for part, shown in zip(self._form.filled, self._pieces(self.name[rows]), strict=True):
            if isinstance(part, HeaderId):
                headers[part.name] = shown
            elif isinstance(part, ValueId):
                fields.append(shown)
            else:
                keys = shown
        if self._context is not None:
            headers |= self._context.headers(rows)
            fields += self._context.fields(rows)
        return MarkColumns(headers, fields, keys)

    @override
    def _beside(self, fields: Sequence[Sequence[bytes]], at: int) -> list[bytes]:
        return [b'"1"'] * len(fields)

    def _pieces(self, rows: NDArray[np.int32]) -> list[list[bytes]]:
        """Return a column for each part to fill: what it holds, as it is written there."""
        form, pieces = self._form, len(self._form.filled)
        if not pieces:
            return []
        partition, partitions = self._place
        group, member = np.divmod(rows.astype(np.int64), form.cuts * form.spellings)
        cut, spelling = np.divmod(member, form.spellings)
        number = (group * partitions + partition) + self._stream * 9**_COUNT_DIGITS
        places = 9 ** np.arange(_COUNT_DIGITS + _STREAM_DIGITS - 1, -1, -1, dtype=np.int64)
        digits = (number[:, None] // places % 9 + ord("1")).astype(np.uint8)
        # Many parts need more digits: the same ones again.
        wide = max(digits.shape[1], _PIECE_LEAST * pieces)
        text = np.tile(digits, (1, -(-wide // digits.shape[1])))[:, :wide].tobytes()
        begin = np.arange(rows.size) * wide
        # The first edge between two pieces lies in one of two places.
        edges = [
            (begin + wide * edge // pieces - (cut if edge == 1 else 0)).tolist() for edge in range(pieces + 1)
        ]
        columns = []
        for part, (starts, stops) in zip(form.filled, pairwise(edges), strict=True):
            column = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
            if isinstance(part, ValueId):
                written = zip(column, spelling.tolist(), strict=True)
                string = part.pointer in form.strings
                column = [
                    piece if as_number and not string else b'"%b"' % piece for piece, as_number in written
                ]
            columns.append(column)
        return columns


def _is_missing(how: Break) -> bool:
    """Return whether a part is not there, or null."""
    return how.code != "value_not_json" and how.wrong in {None, b"null"}


def _tells_apart(part: PlainPart) -> bool:
    """Return whether a part has the member in which clicks differ."""
    if isinstance(part, ContentId):
        return _TELLS_APART not in part.exclude
    if isinstance(part, TextId):
        return True
    return isinstance(part, ValueId) and part.pointer == _TELLS_APART


def _is_member(part: PlainPart) -> TypeGuard[ValueId]:
    """Return whether a part is a member that clicks have."""
    return isinstance(part, ValueId) and part.pointer in _MEMBERS


def _is_parsed(part: PlainPart) -> bool:
    """Return whether the value has to be JSON for a part."""
    return isinstance(part, ValueId) or (isinstance(part, ContentId) and part.of == "value")


def _placeable(pointers: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return those of some pointers that lead neither to, into nor around anything that stands in a value."""
    found: list[str] = []
    for pointer in pointers:
        if not any(_within(each, pointer) or _within(pointer, each) for each in (*_MEMBERS, *taken, *found)):
            found.append(pointer)
    return found


def _within(pointer: str, other: str) -> bool:
    """Return whether a pointer leads to what another one leads to, or into it."""
    return f"{pointer}/".startswith(f"{other}/")


def _in_field(part: PlainPart) -> TypeGuard[ValueId]:
    """Return whether a part is a field of the value that clicks do not have."""
    return isinstance(part, ValueId) and part.pointer not in _MEMBERS
