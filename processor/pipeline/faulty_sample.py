"""Says what records have where they could not be judged: names of headers and members, lengths and types.

An operator who has named a header that no record has needs the names that records do have. Invariant: no value
of a record is ever in what is said, and what is said is bounded, whatever the records hold.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from processor.config.visible import visible
from processor.engine.bytes.varints import read_varint
from processor.engine.extract.pointers import Pointers
from processor.engine.verdict import Fault
from schemas.config import HeaderId, HeaderSource, ValueId, ValueSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from schemas.config import Pipeline, WatermarkDedup
    from schemas.config.dedup import IdPart

MOST_NAMES = 20
"""As many names are said: more than most records have, and no more than fit a few lines."""
_KEPT_NAMES = 200
_NAME_CHARACTERS = 60
_PARSED_BYTES = 64 * 1024
"""Longer values are not opened to be described."""
_FORMS = {
    "int64": ("8 bytes (int64)", 8),
    "int32": ("4 bytes (int32)", 4),
    "text": ("decimal digits (text)", 0),
}
_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}


class _Wanted(NamedTuple):
    """A header or a field that records are judged by; ``form`` says what it must be."""

    name: str
    form: str
    width: int | None = None
    """Bytes of a header's value; 0: digits, however many; None: any."""

    def fits(self, value: bytes | None) -> bool:
        """Whether a header's value has the form."""
        if value is None or self.width is None:
            return value is not None
        return len(value) == self.width if self.width else _is_decimal(value)


class FaultySample:
    """What some records have that cannot be judged, by what is wrong with them.

    Args:
        pipeline: Whose ``dedup`` says what they are judged by.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._headers, self._fields, self._keyed = _wanted(pipeline)
        self._seen: dict[Fault, dict[str, Counter[str]]] = {}
        self._missing: dict[str, None] = {}

    def add(self, columns: Columns, fault: NDArray[Any]) -> None:
        """Look at the faulty ones of some records; ``fault`` is uint8[n], `Fault` codes."""
        for row in fault.nonzero()[0].tolist():
            code = Fault(int(fault[row]))
            seen = self._seen.setdefault(code, {})
            for about, name in self._in(code, columns, row):
                names = seen.setdefault(about, Counter())
                if len(names) < _KEPT_NAMES or name in names:
                    names[name] += 1

    def _in(self, code: Fault, columns: Columns, row: int) -> Iterator[tuple[str, str]]:
        match code:
            case Fault.HEADER_MISSING:
                there = dict(_headers(columns, row))
                self._missing |= dict.fromkeys(each.name for each in self._headers if each.name not in there)
                yield from (("headers seen", name) for name in there)
            case Fault.HEADER_MALFORMED:
                there = dict(_headers(columns, row))
                for each in self._headers:
                    if each.name in there and not each.fits(there[each.name]):
                        yield f"header {_shown(each.name)} seen with", _form(there[each.name])
            case Fault.VALUE_NOT_JSON:
                yield "values seen", _beginning(_value(columns, row))
            case Fault.FIELD_MISSING | Fault.FIELD_TYPE:
                yield from self._members(code, _value(columns, row))
            case _:
                pass

    def _members(self, code: Fault, value: bytes) -> Iterator[tuple[str, str]]:
        if len(value) > _PARSED_BYTES:
            return
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:  # deeper than it goes, or forgiven by nobody but us
            return
        for field in self._fields:
            where, found, missing = _walk(parsed, field.name)
            if code is Fault.FIELD_TYPE and not missing:
                yield f"at {field.name}", _kind(found)
            elif code is Fault.FIELD_MISSING and missing:
                self._missing[field.name] = None
                about = f"members of {where} seen" if where else "members seen"
                if isinstance(found, dict):
                    yield from ((about, str(name)) for name in found)
                else:
                    yield f"{where or 'the value'} is", _kind(found)

    def text(self, code: Fault) -> str:
        """Say what was looked for, and what is there; empty where nothing is known beside the code."""
        seen = self._seen.get(code)
        if seen is None:
            return ""
        wanted = self._looked_for(code)
        there = "; ".join(f"{about}: {_listed(names)}" for about, names in list(seen.items())[:5])
        if code is Fault.HEADER_MISSING and not there:
            there = "the records have no headers"
        return "; ".join(filter(None, (wanted, there)))

    def _looked_for(self, code: Fault) -> str:
        wanted = {
            Fault.HEADER_MISSING: _named("header", self._missing),
            Fault.HEADER_MALFORMED: _forms("header", self._headers),
            Fault.FIELD_MISSING: _named("field", self._missing),
            Fault.FIELD_TYPE: _forms("field", self._fields),
            Fault.VALUE_NOT_JSON: "a JSON value",
            Fault.KEY_MISSING: f"{self._keyed}; the records have no key",
            Fault.VALUE_MISSING: "a value; the records have none (tombstones)",
        }
        return f"looked for {wanted[code]}" if code in wanted else ""


def _wanted(pipeline: Pipeline) -> tuple[list[_Wanted], list[_Wanted], str]:
    """Return the headers and the fields that records are judged by, and what the key is for."""
    if pipeline.id_dedup is not None:
        return *_of_ids(pipeline.id_dedup.id), "a key, which is a part of the id"
    dedup = cast("WatermarkDedup", pipeline.dedup)
    scope = dedup.scope.removeprefix("header:")
    sources = [source for source in (dedup.sequence, dedup.epoch) if source is not None]
    headers = [] if scope == dedup.scope else [_Wanted(scope, "bytes")]
    headers += [_Wanted(each.name, *_FORMS[each.format]) for each in sources if isinstance(each, HeaderSource)]
    fields = [
        _Wanted(each.pointer, "a string of digits" if each.format else "an integer")
        for each in sources
        if isinstance(each, ValueSource)
    ]
    return headers, fields, 'a key (scope = "key")'


def _of_ids(parts: Iterable[IdPart]) -> tuple[list[_Wanted], list[_Wanted]]:
    some = list(parts)
    return (
        [_Wanted(each.name, "bytes") for each in some if isinstance(each, HeaderId)],
        [_Wanted(each.pointer, "a string or a number") for each in some if isinstance(each, ValueId)],
    )


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


def _is_decimal(value: bytes) -> bool:
    return value.removeprefix(b"-").isdigit()


def _form(value: bytes | None) -> str:
    """Say how long a header's value is, and whether it is a number in digits; not which."""
    if value is None:
        return "no value"
    return f"{len(value)} bytes{' of decimal digits' if _is_decimal(value) else ''}"


def _value(columns: Columns, row: int) -> bytes:
    begin = int(columns.value[row])
    return columns.data[begin : begin + max(int(columns.value_length[row]), 0)].tobytes()


def _beginning(value: bytes) -> str:
    """Say how a value begins that is no JSON, without saying what is in it."""
    if not value:
        return "empty"
    if value[0] == 0:
        return "a zero byte first, as the serializers of a schema registry write (Avro, Protobuf)"
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
        return "number that is no 64-bit integer"
    return _KINDS.get(type(value), "integer")


def _named(what: str, names: Iterable[str]) -> str:
    some = list(names)
    return f"{what}{'' if len(some) == 1 else 's'} {_listed(some)}"


def _forms(what: str, wanted: Iterable[_Wanted]) -> str:
    return ", ".join(f"{what} {_shown(each.name)}: {each.form}" for each in wanted)


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - MOST_NAMES} more" if len(some) > MOST_NAMES else ""
    return ", ".join(map(_shown, some[:MOST_NAMES])) + more


def _shown(name: str) -> str:
    """Return a name as a terminal takes it."""
    cut = name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"
    return visible(cut)
