"""Records that carry an id of any definition, with parts in headers, key and value.

An id that the generator makes is a row of digits, cut into as many pieces as there are parts to fill::

    digits      471182461117...        others for every few originals; no 0, so that each piece is a number
    cut         471182|461117...  47118|2461117...       where there are several parts to fill
    written     "471182"  471182                         in a value: as a string, and as a number

Originals that follow each other share their digits and differ in the cut or in how they are written: they are
other ids by the contract, and a mistake in joining parts or in their types drops one of them.

What clicks have anyway is used as it is: their members, which a pointer of one step may name, and their key,
where something else of the id tells records apart.

Invariant: two originals of a topic have different ids, or could not be judged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from processor.errors import ConfigError, Problem
from processor.generator.content import FAULTS, Record, with_parts
from processor.generator.pointers import Fields
from schemas.config import HeaderId, KeyId, ValueId
from schemas.events import ClickEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.generator.content import Rendered
    from schemas.config import InsertIdDedup
    from schemas.config.dedup import IdPart

_MEMBERS = {f"/{name}": name for name in ClickEvent.model_fields}
_TELLS_APART = "/event_id"

# 9^10 originals in a topic, and as many streams as there are seeds: 18 digits are a number of 64 bits.
_COUNT_DIGITS, _STREAM_DIGITS = 10, 8
_PIECE_LEAST = 3  # with one digit fewer in the other cut there are still two

# What a string or a number is not, by the contract; a null is apart, for it may pass unjudged.
_WRONG: tuple[object, ...] = (True, ["17"], {"id": "17"})


class _Break(NamedTuple):
    """A way in which a part cannot be judged.

    Attributes:
        code: Of the quarantine.
        part: Its number in the definition.
        wrong: What stands in the field instead, where the code is ``field_type``.
        missing: Whether the part is missing or null, so that ``on_missing`` decides.
    """

    code: str
    part: int
    wrong: object = None
    missing: bool = True


class IdForm:
    """Where the parts of a definition stand in a record.

    Args:
        dedup: The definition.
        key: Where it stands in the config, for messages.

    Raises:
        ConfigError: No record can carry it, or clicks cannot be told apart by it.

    Attributes:
        dedup: The definition.
        filled: The numbers of the parts that get a piece of the digits, in order.
        breaks: How records of this form can be made impossible to judge.
    """

    def __init__(self, dedup: InsertIdDedup, key: str) -> None:
        self.dedup = dedup
        if dedup.route is not None:
            message = (
                "which of two records in different partitions comes first is not known before they are routed"
            )
            raise ConfigError([Problem(f"{key}.route", f"streams are generated without it: {message}")])
        self._require_once(key)
        free = [part for part in dedup.id if isinstance(part, HeaderId) or _is_free(part)]
        apart = bool(free) or any(_pointer(part) == _TELLS_APART for part in dedup.id)
        self.key_filled = not apart and any(isinstance(part, KeyId) for part in dedup.id)
        if not apart and not self.key_filled:
            message = "is the same in many clicks; add a header, the key, a field of its own or /event_id"
            raise ConfigError([Problem(f"{key}.id", message)])
        self.filled = [
            number
            for number, part in enumerate(dedup.id)
            if part in free or (self.key_filled and isinstance(part, KeyId))
        ]
        fields = [number for number in self.filled if isinstance(dedup.id[number], ValueId)]
        self.slots = {number: slot for slot, number in enumerate(fields)}
        self.fields = Fields([(f"{key}.id.{number}.pointer", _pointer(dedup.id[number])) for number in fields])
        self.cuts = 2 if len(self.filled) > 1 else 1
        self.spellings = 2 if fields else 1
        self.breaks = tuple(self._breaks())

    def _require_once(self, key: str) -> None:
        seen: list[IdPart] = []
        for number, part in enumerate(self.dedup.id):
            if part in seen:
                raise ConfigError([Problem(f"{key}.id.{number}", f"is the same as id.{seen.index(part)}")])
            seen.append(part)

    def _breaks(self) -> list[_Break]:
        found = []
        for number, part in enumerate(self.dedup.id):
            if isinstance(part, HeaderId):
                found += [_Break("header_missing", number), _Break("header_malformed", number)]
            elif isinstance(part, KeyId):
                found.append(_Break("key_missing", number))
            else:
                found += [_Break("value_missing", number), _Break("value_not_json", number, missing=False)]
                found += [_Break("field_missing", number), _Break("field_type", number)]
                found += [_Break("field_type", number, wrong, missing=False) for wrong in _WRONG]
        return found


class IdMarks:
    """The originals of one partition under any definition of mode ``insert-id``; see `Marks`.

    Args:
        rng: Drawn from.
        form: Where the parts stand.
        count: Originals.
        place: The partition's number, and how many there are: no id is in two of them.
        broken: Which originals cannot be judged.

    Attributes:
        faults: See `Marks`. Where ``on_missing`` is ``"pass"`` none is at fault whose part is missing or null.
        unjudged: bool[originals], those of them.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        form: IdForm,
        count: int,
        place: tuple[int, int],
        broken: NDArray[np.int64],
    ) -> None:
        self._form = form
        self._place = place
        self._stream = int(rng.integers(0, 9**_STREAM_DIGITS))
        # Index into the form's breaks, from 1.
        self._broken = np.zeros(count, np.uint16)
        self._broken[broken] = 1 + np.arange(broken.size) % len(form.breaks)
        passing = form.dedup.on_missing == "pass"
        codes = [0 if passing and each.missing else FAULTS.index(each.code) for each in form.breaks]
        self.faults: NDArray[np.uint8] = np.array([0, *codes], np.uint8)[self._broken]
        self.unjudged: NDArray[np.bool_] = (self._broken > 0) & (self.faults == 0)

    def records(self, rows: NDArray[np.int32], rendered: Sequence[Rendered]) -> list[Record]:
        """Return the records of these originals, each with the parts of its id."""
        form = self._form
        headers: dict[str, list[bytes]] = {}
        slots: list[list[bytes]] = []
        for number, shown in zip(form.filled, self._shown(rows), strict=True):
            part = form.dedup.id[number]
            if isinstance(part, HeaderId):
                headers[part.name] = shown
            elif isinstance(part, ValueId):
                slots.append(shown)
            else:
                rendered = [(key, value, time) for key, (_, value, time) in zip(shown, rendered, strict=True)]
        records = with_parts(rendered, headers, form.fields, slots)
        for at in np.flatnonzero(self._broken[rows]).tolist():
            which = form.breaks[self._broken[rows[at]] - 1]
            records[at] = self._break(records[at], which, rendered[at][1])
        return records

    def _shown(self, rows: NDArray[np.int32]) -> list[list[bytes]]:
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
            if isinstance(form.dedup.id[part], ValueId):
                written = zip(column, spelling.tolist(), strict=True)
                column = [piece if as_number else b'"%b"' % piece for piece, as_number in written]
            columns.append(column)
        return columns

    def _break(self, record: Record, which: _Break, click: bytes) -> Record:
        """Return the record with one part at fault; ``click`` is its value without the fields."""
        part = self._form.dedup.id[which.part]
        if isinstance(part, KeyId):
            return record._replace(key=None)
        if isinstance(part, HeaderId):
            headers = [header for header in record.headers if header[0] != part.name]
            if which.code == "header_malformed":
                headers.append((part.name, None))
            return record._replace(headers=tuple(headers))
        if which.code == "value_missing":
            return record._replace(value=None)
        value = record.value or b""
        if which.code == "value_not_json":
            return record._replace(value=value[:-1])
        return record._replace(value=self._bad_value(which, part, value, click))

    def _bad_value(self, which: _Break, part: ValueId, value: bytes, click: bytes) -> bytes:
        form = self._form
        name = _MEMBERS.get(part.pointer)
        if name is not None:
            event = orjson.loads(value)
            if which.code == "field_missing":
                del event[name]
            else:
                event[name] = which.wrong
            return orjson.dumps(event)
        if which.code == "field_missing":
            return click
        shown = [b'"1"'] * len(form.slots)
        shown[form.slots[which.part]] = orjson.dumps(which.wrong)
        return form.fields.put(click, shown)


def _pointer(part: IdPart) -> str:
    return part.pointer if isinstance(part, ValueId) else ""


def _is_free(part: IdPart) -> bool:
    return isinstance(part, ValueId) and part.pointer not in _MEMBERS
