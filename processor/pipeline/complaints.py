"""Says what is wrong with a record that cannot be judged: which header or field, what it is, what is wanted.

Each quarantined record says so in ``seqmark.detail``, and so do warnings. Invariant: no value of a record is
ever in what is said, only names, lengths and types; and what is said is bounded, whatever the record holds.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from processor.config.visible import visible
from processor.engine.bytes.varints import read_varint
from processor.engine.extract.pointers import Pointers
from processor.engine.verdict import Fault
from schemas.config import HeaderId, HeaderSource, ValueId, ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from schemas.config import InsertIdDedup, Pipeline, WatermarkDedup
    from schemas.config.dedup import SequenceSource

MOST_NAMES = 20
"""As many names are said: more than most records have, and no more than fit a few lines."""
_NAME_CHARACTERS = 60
_PARSED_BYTES = 64 * 1024
"""Longer values are not opened to be described."""
MOST_AT_ONCE = 200
"""Of one piece, each in words of its own: the kernel that writes them tells 256 texts apart."""
RECORDS_PER_S = 1_000
"""So many are looked into, 15 us each: 1.5 % of a core, however many are faulty."""

_FORMS = {
    "int64": ("8 bytes (int64) are wanted", 8),
    "int32": ("4 bytes (int32) are wanted", 4),
    "text": ("decimal digits are wanted", 0),
}
_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
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
        self._clock = clock
        self._at_s, self._left = clock(), float(RECORDS_PER_S)

    def of_some(self, columns: Columns, rows: NDArray[Any], fault: NDArray[Any]) -> dict[int, str]:
        """Return by row what is wrong with the first of some records, as far as there is time for it.

        ``rows`` are faulty, ``fault`` is uint8[n], `Fault` codes of all records.
        """
        now_s = self._clock()
        self._left = min(RECORDS_PER_S, self._left + (now_s - self._at_s) * RECORDS_PER_S)
        self._at_s = now_s
        some = rows[: min(int(self._left), MOST_AT_ONCE)].tolist()
        self._left -= len(some)
        found = {row: self.of(columns, row, Fault(int(fault[row]))) for row in some}
        return {row: text for row, text in found.items() if text}

    def of_any(self, code: Fault) -> str:
        """Name what may be wrong with a record that has not been looked into; empty: the code says it."""
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
            case Fault.VALUE_NOT_JSON:
                return f"the value {_beginning(_value(columns, row))}; JSON is wanted"
            case Fault.VALUE_MISSING:
                return "the record has no value (a tombstone); one is wanted"
            case Fault.KEY_MISSING:
                return f"the record has no key; one is wanted, as {self._key_is}"
            case _:
                return ""

    def names(self, columns: Columns, row: int, code: Fault) -> str:
        """Name what a record has where something is missing; empty: nothing is to be said."""
        if code is Fault.HEADER_MISSING:
            there = dict(_headers(columns, row))
            return f"its headers: {_listed(there)}" if there else "it has no headers"
        if code is Fault.FIELD_MISSING:
            for _, where, found in self._missing(_parsed(_value(columns, row))):
                if isinstance(found, dict):
                    return f"members{f' of {where}' if where else ''}: {_listed(map(str, found))}"
        return ""

    def _of_header(self, there: dict[str, bytes | None], code: Fault) -> str:
        for name, wanted, fits in self._headers:
            if code is Fault.HEADER_MISSING and name not in there:
                return f"header {_shown(name)} is missing; {wanted}"
            if code is Fault.HEADER_MALFORMED and name in there and not fits(there[name]):
                return f"header {_shown(name)} has {_form(there[name])}; {wanted}"
        return ""

    def _of_field(self, value: bytes, code: Fault) -> str:
        parsed = _parsed(value)
        if code is Fault.FIELD_MISSING:
            for (name, wanted, _), where, found in self._missing(parsed):
                why = "" if isinstance(found, dict | list) else f"{where or 'the value'} is {_kind(found)}, so "
                return f"{why}{_shown(name)} is missing; {wanted}"
        for name, wanted, fits in self._fields if code is Fault.FIELD_TYPE else ():
            _, found, missing = _walk(parsed, name)
            if not missing and not fits(found):
                return f"{_shown(name) or 'the value'} is {_kind(found)}; {wanted}"
        return ""

    def _missing(self, parsed: Any) -> Iterator[tuple[_Place, str, Any]]:
        """Yield each field that a value lacks, how far its pointer leads, and what is there."""
        for place in self._fields if parsed is not _UNREAD else ():
            where, found, missing = _walk(parsed, place.name)
            if missing:
                yield place, where, found


def _of_sequences(dedup: WatermarkDedup) -> tuple[list[_Place], list[_Place]]:
    """Return the headers and the fields of scope, sequence and epoch, in the order in which they are read."""
    scope = dedup.scope.removeprefix("header:")
    sources: list[SequenceSource] = [each for each in (dedup.sequence, dedup.epoch) if each is not None]
    headers = [] if scope == dedup.scope else [_Place(scope, "a value is wanted", _is_there)]
    headers += [_header(each) for each in sources if isinstance(each, HeaderSource)]
    return headers, [_field(each) for each in sources if isinstance(each, ValueSource)]


def _header(source: HeaderSource) -> _Place:
    wanted, width = _FORMS[source.format]
    return _Place(source.name, wanted, lambda value: value is not None and _has_form(value, width))


def _field(source: ValueSource) -> _Place:
    if source.format:
        return _Place(source.pointer, "a string of digits is wanted", _is_digits)
    return _Place(source.pointer, "an integer is wanted", lambda value: type(value) is int)


def _of_ids(dedup: InsertIdDedup) -> tuple[list[_Place], list[_Place]]:
    headers = [
        _Place(each.name, "a value is wanted", _is_there) for each in dedup.id if isinstance(each, HeaderId)
    ]
    counted = [] if dedup.fingerprint is None else dedup.fingerprint.headers
    headers += [_Place(name, "a value is wanted", _is_there) for name in counted]
    renamed = None if dedup.rename is None else dedup.rename.to
    fields = [
        _Place(each.pointer, "a string is wanted", _is_text)
        if each.pointer == renamed
        else _Place(each.pointer, "a string or number is wanted", _is_id)
        for each in dedup.id
        if isinstance(each, ValueId)
    ]
    return headers, fields


def _is_there(value: Any) -> bool:
    return value is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


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


def _parsed(value: bytes) -> Any:
    """Return a value; `_UNREAD` where it is long, deeper than the parser goes, or forgiven only by ours."""
    if len(value) > _PARSED_BYTES:
        return _UNREAD
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
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


def _walk(value: Any, pointer: str) -> tuple[str, Any, bool]:
    """Follow a JSON pointer; return how far it leads, what is there, and whether something is missing then."""
    compiled, where = Pointers.of([pointer]), ""
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
