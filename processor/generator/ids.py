"""Records that carry an id of any definition, with parts in headers, key and value.

An id that the generator makes is a row of digits, cut into as many pieces as there are parts to fill::

    digits      471182461117...        others for every few originals; no 0, so that each piece is a number
    cut         471182|461117...  47118|2461117...       where there are several parts to fill
    written     "471182"  471182                         in a value: as a string, and as a number

Originals that follow each other share their digits and differ in the cut or in how they are written: they are
other ids by the contract, and a mistake in joining parts or in their types drops one of them.

What clicks have anyway is used as it is: their members, which a pointer of one step may name, and their key,
where something else of the id tells records apart: the content does, with their ``event_id`` in it.

Invariant: two originals of a topic have different ids, or could not be judged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from typing_extensions import override

from processor.errors import ConfigError, Problem
from processor.generator.marks import Break, MarkColumns, Marks
from processor.generator.pointers import Fields
from schemas.config import ContentId, HeaderId, KeyId, ValueId
from schemas.events import ClickEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from schemas.config import InsertIdDedup
    from schemas.config.dedup import IdPart

_MEMBERS = {f"/{name}": name for name in ClickEvent.model_fields}
_TELLS_APART = "/event_id"

# 9^10 originals in a topic, and as many streams as there are seeds: 18 digits are a number of 64 bits.
_COUNT_DIGITS, _STREAM_DIGITS = 10, 8
_PIECE_LEAST = 3  # with one digit fewer in the other cut there are still two

# What a string or a number is not, by the contract; a null is apart, for it may pass unjudged.
_WRONG = (b"true", b'["17"]', b'{"id":"17"}')


class IdForm:
    """Where the parts of a definition stand in a record.

    Args:
        dedup: The definition.
        key: Where it stands in the config, for messages.

    Raises:
        ConfigError: No record can carry it, or clicks cannot be told apart by it.

    Attributes:
        filled: The parts that get a piece of the digits, in order.
        fields: Where those of them stand that are in the value.
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
        for number, part in enumerate(dedup.id):
            if (first := dedup.id.index(part)) < number:
                raise ConfigError([Problem(f"{key}.id.{number}", f"is the same as id.{first}")])
        self.filled: list[IdPart] = [part for part in dedup.id if isinstance(part, HeaderId) or _in_field(part)]
        if not self.filled and not any(map(_tells_apart, dedup.id)):
            self.filled = [part for part in dedup.id if isinstance(part, KeyId)]
            if not self.filled:
                message = "is the same in many clicks; add a header, the key, a field of its own or /event_id"
                raise ConfigError([Problem(f"{key}.id", message)])
        pointers = [
            (f"{key}.id.{number}.pointer", part.pointer)
            for number, part in enumerate(dedup.id)
            if _in_field(part)
        ]
        self.fields = Fields(pointers)
        self.cuts = 2 if len(self.filled) > 1 else 1
        self.spellings = 2 if pointers else 1
        self.breaks = tuple(self._breaks())

    def _breaks(self) -> Iterator[Break]:
        passes = self.dedup.on_missing == "pass"
        slot = 0
        for part in self.dedup.id:
            if isinstance(part, HeaderId):
                yield Break("header_missing", part.name, passes=passes)
                yield Break("header_malformed", part.name, passes=passes)
            elif isinstance(part, KeyId):
                yield Break("key_missing", passes=passes)
            elif isinstance(part, ContentId):
                yield Break("value_missing", passes=passes)
                if part.of == "value":
                    yield Break("value_not_json")
            else:
                member = _MEMBERS.get(part.pointer)
                yield Break("value_missing", passes=passes)
                yield Break("value_not_json")
                yield Break("field_missing", slot=slot, member=member, passes=passes)
                yield Break("field_type", slot=slot, member=member, wrong=b"null", passes=passes)
                for wrong in _WRONG:
                    yield Break("field_type", slot=slot, member=member, wrong=wrong)
                if member is None:
                    slot += 1


class IdMarks(Marks):
    """The originals of one partition under any definition of mode ``insert-id``.

    ``place`` is the partition's number, and how many there are: no id is in two of them.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        form: IdForm,
        count: int,
        place: tuple[int, int],
        broken: NDArray[np.int64],
    ) -> None:
        super().__init__(count, form.fields, form.breaks, broken)
        self._form = form
        self._place = place
        self._stream = int(rng.integers(0, 9**_STREAM_DIGITS))

    @override
    def _written(self, rows: NDArray[np.int32]) -> MarkColumns:
        headers: dict[str, list[bytes]] = {}
        fields: list[list[bytes]] = []
        keys = None
        for part, shown in zip(self._form.filled, self._pieces(rows), strict=True):
            if isinstance(part, HeaderId):
                headers[part.name] = shown
            elif isinstance(part, ValueId):
                fields.append(shown)
            else:
                keys = shown
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
                column = [piece if as_number else b'"%b"' % piece for piece, as_number in written]
            columns.append(column)
        return columns


def _tells_apart(part: IdPart) -> bool:
    """Return whether a part has the member in which clicks differ."""
    if isinstance(part, ContentId):
        return _TELLS_APART not in part.exclude
    return isinstance(part, ValueId) and part.pointer == _TELLS_APART


def _in_field(part: IdPart) -> TypeGuard[ValueId]:
    """Return whether a part is a field of the value that clicks do not have."""
    return isinstance(part, ValueId) and part.pointer not in _MEMBERS
