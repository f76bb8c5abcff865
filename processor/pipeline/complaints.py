"""Says what is wrong with a record that cannot be judged: which header or field, what it is, what is wanted.

Each quarantined record says so in ``seqmark.detail``, and so do warnings. Invariant: no value of a record is
ever in what is said, only names, lengths and types; and what is said is bounded, whatever the record holds.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import orjson

from processor.config.visible import visible
from processor.engine.bytes.varints import read_varint
from processor.engine.extract.json_matches import BYTE_ORDER_MARK, NONE, PREFIX_BYTES
from processor.engine.extract.pointers import Pointers, through_strings
from processor.engine.verdict import Fault
from processor.judges.ids import json_rules_of
from schemas.config import AnyId, ColumnId, ColumnNumber, HeaderId, HeaderNumber, ValueId
from schemas.config.dedup import plain_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_matches import JsonRules
    from schemas.config import IdPart, InsertIdDedup, Pipeline, ValueNumber, WatermarkDedup
    from schemas.config.dedup import NumberSource

MOST_NAMES = 20
"""As many names are said: more than most records have, and no more than fit a few lines."""
_NAME_CHARACTERS = 60
_PARSED_BYTES = 64 * 1024
"""Longer values are not opened to be described."""
MOST_AT_ONCE = 200
"""Of one piece, each in words of its own: the kernel that writes them tells 256 texts apart."""
RECORDS_PER_S = 1_000
"""So many are looked into, 15 us each and as much for each KiB: 1.5 % of a core, however many are faulty."""

_FORMS = {
    "int64": ("8 bytes (int64) are wanted", 8),
    "int32": ("4 bytes (int32) are wanted", 4),
    "text": ("decimal digits are wanted", 0),
}
_KINDS: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}


class NotFinite(NamedTuple):
    """NaN, Infinity or -Infinity, as a parser of Python's meets it: it equals itself."""

    word: str


_KINDS[NotFinite] = "NaN or Infinity"
_HEADERS, _FIELDS = (
    {Fault.HEADER_MISSING, Fault.HEADER_MALFORMED},
    {Fault.FIELD_MISSING, Fault.FIELD_TYPE},
)


class _Place(NamedTuple):
    """A header or a field that records are judged by."""

    name: str
    """Of the header, or the field's pointer."""
    wanted: str
    fits: Callable[[Any], bool]
    column: ColumnId | ColumnNumber | None = None
    """Where it is one of delimited text."""


class Complaints:
    """What is wrong with records of one pipeline.

    Args:
        pipeline: Whose ``dedup`` says what they are judged by.
        clock: Monotonic seconds.
    """

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] = time.monotonic) -> None:
        dedup = pipeline.id_dedup
        if dedup is not None:
            self._headers, self._fields, self._key_is = *_of_ids(dedup), "a part of the id"
        else:
            self._headers, self._fields = _of_sequences(cast("WatermarkDedup", pipeline.dedup))
            self._key_is = "the scope"
        self._beyond = _beyond(pipeline)
        self._rules = json_rules_of(pipeline.dedup)
        self._clock = clock
        self._at_s, self._left = clock(), float(RECORDS_PER_S)

    def of_some(self, columns: Columns, rows: NDArray[Any], fault: NDArray[Any]) -> dict[int, str]:
        """Return by row what is wrong with the first of some records, as far as there is time for it.

        ``rows`` are faulty, ``fault`` is uint8[n], `Fault` codes of all records.
        """
        now_s = self._clock()
        self._left = min(RECORDS_PER_S, self._left + (now_s - self._at_s) * RECORDS_PER_S)
        self._at_s = now_s
        some = rows[:MOST_AT_ONCE]
        # To be parsed a long value takes as many times what a short one does.
        spent = np.cumsum(1 + np.maximum(columns.value_length[some], 0) // 1024)
        some = some[: np.searchsorted(spent, self._left, side="right")].tolist()
        self._left -= int(spent[len(some) - 1]) if some else 0
        found = {row: self.of(columns, row, Fault(int(fault[row]))) for row in some}
        return {row: text for row, text in found.items() if text}

    def of_any(self, code: Fault) -> str:
        """Name what may be wrong with a record that has not been looked into; empty: the code says it."""
        if code is Fault.OUT_OF_RANGE:
            return self._beyond
        places = self._headers if code in _HEADERS else self._fields if code in _FIELDS else []
        what = "header " if code in _HEADERS else ""
        return ", ".join(f"{what}{_shown(each.name)} ({each.wanted})" for each in places)

    def of(self, columns: Columns, row: int, code: Fault) -> str:
        """Say what is wrong with a record; empty: the code says it."""
        match code:
            case Fault.HEADER_MISSING | Fault.HEADER_MALFORMED:
                return self._of_header(dict(_headers(columns, row)), code)
            case Fault.FIELD_MISSING | Fault.FIELD_TYPE:
                return self._of_field(_value(columns, row), code)
            case Fault.VALUE_NOT_JSON | Fault.VALUE_MALFORMED:
                return self._of_value(_value(columns, row), code)
            case Fault.VALUE_MISSING:
                return "the record has no value (a tombstone); one is wanted"
            case Fault.KEY_MISSING:
                return f"the record has no key; one is wanted, as {self._key_is}"
            case _:
                return self._beyond if code is Fault.OUT_OF_RANGE else ""

    def names(self, columns: Columns, row: int, code: Fault) -> str:
        """Name what a record has where something is missing; empty: nothing is to be said."""
        if code is Fault.HEADER_MISSING:
            there = dict(_headers(columns, row))
            return f"its headers: {_listed(there)}" if there else "it has no headers"
        if code is Fault.FIELD_MISSING:
            for _, where, found in self._missing(_value(columns, row)):
                if isinstance(found, dict):
                    return f"members{f' of {where}' if where else ''}: {_listed(map(str, found))}"
        return ""

    def _of_header(self, there: dict[str, bytes | None], code: Fault) -> str:
        for name, wanted, fits, _ in self._headers:
            if code is Fault.HEADER_MISSING and name not in there:
                return f"header {_shown(name)} is missing; {wanted}"
            if code is Fault.HEADER_MALFORMED and name in there and not fits(there[name]):
                return f"header {_shown(name)} has {_form(there[name])}; {wanted}"
        return ""

    def _of_field(self, value: bytes, code: Fault) -> str:
        if code is Fault.FIELD_MISSING:
            for (name, wanted, *_), where, found in self._missing(value):
                why = "" if isinstance(found, dict | list) else f"{where or 'the value'} is {_kind(found)}, so "
                return f"{why}{_shown(name)} is missing; {wanted}"
        for place in self._fields if code is Fault.FIELD_TYPE else ():
            where, found, missing = _found(value, place, self._rules)
            if isinstance(found, _NoJson):
                return f"{_shown(where) or 'the value'} is {found.what}; JSON in a string is wanted"
            if not missing and found is not _UNREAD and not place.fits(found):
                return f"{_shown(where) or 'the value'} is {_kind(found)}; {place.wanted}"
        return ""

    def _of_value(self, value: bytes, code: Fault) -> str:
        if code is Fault.VALUE_MALFORMED:
            return (
                'the value does not begin with byte 0 and the four bytes of a schema id; framing = "registry"'
            )
        return f"the value {self._not_judged(value) or _beginning(value)}; JSON is wanted"

    def forgiven(self, columns: Columns, row: int) -> bool:
        """Whether a value that is no JSON is some for json = "lenient"."""
        return not self._rules.lenient and bool(self._not_judged(_value(columns, row)))

    def _not_judged(self, value: bytes) -> str:
        """Say why a value that is JSON, read leniently, cannot be judged; empty: it is none."""
        constants: list[str] = []
        try:
            text = self._rules._replace(lenient=True).text(value) if len(value) <= _PARSED_BYTES else ""
            json.loads(text, parse_constant=constants.append)
        except (ValueError, RecursionError):
            return ""
        plain = text.isascii() or text.encode(errors="ignore").decode() == text
        if self._rules.lenient:
            return "" if plain else "has bytes that are not UTF-8 in what it is judged by"
        found = {
            "a byte order mark": BYTE_ORDER_MARK in value[: PREFIX_BYTES + len(BYTE_ORDER_MARK)],
            "NUL behind its end": value.endswith(b"\0") or value.rstrip().endswith(b"\0"),
            "NaN or Infinity": bool(constants),
            "bytes that are not UTF-8": not plain,
        }
        what = " and ".join(name for name, there in found.items() if there)
        return what and f'has {what}, which json = "lenient" takes outside of what is judged'

    def _missing(self, value: bytes) -> Iterator[tuple[_Place, str, Any]]:
        """Yield each field that a value lacks, how far its pointer leads, and what is there."""
        for place in self._fields:
            where, found, missing = _found(value, place, self._rules)
            if missing:
                yield place, where, found


def _of_sequences(dedup: WatermarkDedup) -> tuple[list[_Place], list[_Place]]:
    """Return the headers and the fields of scope, sequence and epoch, in the order in which they are read."""
    headers, fields = _of_parts(dedup.scope_parts)
    sources: list[NumberSource] = [each for each in (dedup.sequence, dedup.epoch) if each is not None]
    headers += [_header(each) for each in sources if isinstance(each, HeaderNumber)]
    return headers, fields + [_field(each) for each in sources if not isinstance(each, HeaderNumber)]


def _differs(source: NumberSource) -> bool:
    """Whether it is an epoch that has no order: any bytes, or a string or number of a value."""
    return getattr(source, "order", "rising") == "change"


def _beyond(pipeline: Pipeline) -> str:
    """Say what numbers are wanted where not all of 64 bits are; empty: they are."""
    dedup = pipeline.sequence_dedup
    if dedup is None or not dedup.wraps:
        return ""
    source = dedup.sequence
    where = _header(source) if isinstance(source, HeaderNumber) else _field(source)
    place = f"{'header ' if isinstance(source, HeaderNumber) else ''}{_shown(where.name)}"
    epoch = "" if dedup.epoch is None or dedup.changes else ", or the epoch does not fit 64 bits"
    return f"{place} is negative or too large{epoch}; a number from 0 to {dedup.wraps - 1:,} is wanted (wraps)"


def _header(source: HeaderNumber) -> _Place:
    if _differs(source):
        return _Place(source.name, "a value is wanted", _is_there)
    wanted, width = _FORMS[source.format]
    return _Place(source.name, wanted, lambda value: value is not None and _has_form(value, width))


def _field(source: ValueNumber | ColumnNumber) -> _Place:
    if isinstance(source, ColumnNumber):
        if _differs(source):
            return _column(source, "a column is wanted", _is_there)
        return _column(source, "decimal digits are wanted", _is_digits)
    if _differs(source):
        return _Place(source.pointer, "a string, number or boolean is wanted", _is_id)
    if source.format:
        return _Place(source.pointer, "a string of digits is wanted", _is_digits)
    return _Place(source.pointer, "an integer is wanted", lambda value: type(value) is int)


def _of_ids(dedup: InsertIdDedup) -> tuple[list[_Place], list[_Place]]:
    renamed = None if dedup.rename is None else dedup.rename.to
    headers, fields = _of_parts(dedup.id, renamed)
    counted = [] if dedup.fingerprint is None else dedup.fingerprint.headers
    headers += [_Place(name, "a value is wanted", _is_there) for name in counted]
    return headers, fields


def _of_parts(parts: Iterable[IdPart], renamed: str | None = None) -> tuple[list[_Place], list[_Place]]:
    headers: list[_Place] = []
    fields: list[_Place] = []
    # Of several where the first counts any may be missing: what has to be there is named before them.
    for part in plain_parts(sorted(parts, key=lambda part: isinstance(part, AnyId))):
        if isinstance(part, HeaderId):
            headers.append(_Place(part.name, "a value is wanted", _is_there))
        elif isinstance(part, ColumnId):
            fields.append(_column(part, "a column is wanted", _is_there))
        elif isinstance(part, ValueId) and part.pointer == renamed:
            fields.append(_Place(part.pointer, "a string is wanted", _is_text))
        elif isinstance(part, ValueId):
            fields.append(_Place(part.pointer, "a string, number or boolean is wanted", _is_id))
    return headers, fields


def _column(column: ColumnId | ColumnNumber, wanted: str, fits: Callable[[Any], bool]) -> _Place:
    return _Place(f"column {column.number}", wanted, fits, column)


def _is_there(value: Any) -> bool:
    return value is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and _is_decimal(value.encode())


def _is_decimal(value: bytes) -> bool:
    return value.removeprefix(b"-").isdigit()


def _has_form(value: bytes, width: int) -> bool:
    """Whether a header's value has so many bytes; 0: digits, however many."""
    return len(value) == width if width else _is_decimal(value)


def _headers(columns: Columns, row: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield name and value of each header of a record; the decoder has checked their bounds."""
    data = columns.data[int(columns.headers[row]) : int(columns.end[row])].tobytes()
    count, at = read_varint(data, 0)
    for _ in range(count):
        size, at = read_varint(data, at)
        name = data[at : at + size].decode(errors="backslashreplace")
        size, at = read_varint(data, at + size)
        yield name, None if size < 0 else data[at : at + size]
        at += max(size, 0)


def _form(value: bytes | None) -> str:
    """Say how long a header's value is, and whether it is a number in digits; not which."""
    if value is None:
        return "no value"
    size = "1 byte" if len(value) == 1 else f"{len(value)} bytes"
    return f"{size}{' of decimal digits' if _is_decimal(value) else ''}"


def _value(columns: Columns, row: int) -> bytes:
    begin = int(columns.value[row])
    return columns.data[begin : begin + max(int(columns.value_length[row]), 0)].tobytes()


_UNREAD = object()


class _NoJson(NamedTuple):
    """What stands where a string with JSON is wanted."""

    what: str


def parsed(value: bytes, rules: JsonRules) -> Any:
    """Return a value, read as the rules say.

    Raises:
        ValueError: It is none.
    """
    text = rules.text(value)
    return json.loads(text, parse_constant=NotFinite) if rules.lenient else orjson.loads(text)


def _parsed(value: bytes, rules: JsonRules) -> Any:
    """Return a value; `_UNREAD` where it is long, deeper than the parser goes, or forgiven only by ours."""
    try:
        return _UNREAD if len(value) > _PARSED_BYTES else parsed(value, rules)
    except (ValueError, RecursionError):
        return _UNREAD


def _beginning(value: bytes) -> str:
    """Say how a value begins that is no JSON, without saying what is in it."""
    if not value:
        return "is empty"
    if value[0] == 0:
        return "begins with a zero byte, as the serializers of a schema registry write (Avro, Protobuf)"
    if value.lstrip()[:1] in {b"{", b"["}:
        return "begins like JSON, and is cut or not valid"
    return "does not begin like JSON"


def _found(value: bytes, place: _Place, rules: JsonRules) -> tuple[str, Any, bool]:
    """Look for a field; return how far its pointer leads, what is there, and whether that is short."""
    if place.column is not None:
        number = place.column.number
        texts = value.split(place.column.separator.encode(), number)
        if len(texts) < number:
            return "", [], True
        return place.name, texts[number - 1].decode(errors="replace"), False
    found, (first, *inner) = _parsed(value, rules), through_strings(place.name)
    if found is _UNREAD:
        return "", found, False
    where, found, missing = _walk(found, first, "")
    for pointer in inner:
        if missing or found is None:
            break
        opened = (
            _parsed(found.encode(errors="surrogateescape"), rules._replace(framing=NONE))
            if isinstance(found, str)
            else _UNREAD
        )
        if opened is _UNREAD:
            return (
                where,
                _NoJson("a string that holds no JSON" if isinstance(found, str) else _kind(found)),
                False,
            )
        where, found, missing = _walk(opened, pointer, f"{where}|")
    return where if missing else place.name, found, missing


def _walk(value: Any, pointer: str, where: str) -> tuple[str, Any, bool]:
    """Follow a JSON pointer from a place on; return how far it leads, what is there, whether that is short."""
    compiled = Pointers.of([pointer])
    for (begin, stop), element in zip(pairwise(compiled.cut.tolist()), compiled.element.tolist(), strict=True):
        token = compiled.text[begin:stop].tobytes().decode()
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and 0 <= element < len(value):
            value = value[element]
        else:
            return where, value, True
        where += f"/{token}"
    return where, value, False


def _kind(value: Any) -> str:
    if isinstance(value, float):
        return "a number that is no 64-bit integer"
    return _KINDS.get(type(value), "an integer")


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - MOST_NAMES} more" if len(some) > MOST_NAMES else ""
    return ", ".join(map(_shown, some[:MOST_NAMES])) + more


def _shown(name: str) -> str:
    """Return a name as a terminal takes it."""
    cut = name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"
    return visible(cut)
