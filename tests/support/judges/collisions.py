"""Collisions as a text editor would change them: values as text, with what Python's parser finds in it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, NamedTuple

from tests.support.judges.leaves import derived_key, sip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wire.batches import Header, Record

_DECODER = json.JSONDecoder()


class Span(NamedTuple):
    """Where a JSON value stands in a text."""

    start: int
    end: int


def new_id(hashed: bytes, fingerprint: int, secret: bytes) -> str:
    """Return the new id for an id's 16 bytes of hash, see `processor.engine.ids.new_ids`."""
    low, high = (int.from_bytes(part, "little") for part in (hashed[:8], hashed[8:]))
    made = bytearray(sip([low, high, fingerprint, 24 << 56], derived_key(b"seqmark new id", secret)))
    made[6] = 0x80 | made[6] & 0x0F
    made[8] = 0x80 | made[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(made)))


def tagged(record: Record, owner: str) -> Record:
    """Return a record with the position of the first one."""
    return record._replace(headers=(*record.headers, (b"seqmark.collision", owner.encode())))


def renamed_in_value(record: Record, to: str, keep: str | None, new: str) -> Record:
    """Return a record with a new id at a JSON pointer, where its value has a string."""
    assert record.value is not None
    text = record.value.decode()
    old = _found(text, to)
    assert old is not None
    written = text[old.start : old.end]
    edits = [(old, f'"{new}"')]
    headers: tuple[Header, ...] = ()
    if (place := _place(text, keep, written)) is not None:
        edits.append(place)
    else:
        headers = ((b"seqmark.original_id", json.loads(written).encode()),)
    value = _edited(text, edits).encode()
    return record._replace(value=value, headers=record.headers + headers)


def renamed_in_header(record: Record, name: bytes, keep: str | None, new: str) -> Record:
    """Return a record with a new id in its last header of a name."""
    last = max(index for index, (each, _) in enumerate(record.headers) if each == name)
    old = record.headers[last][1]
    assert old is not None
    headers = [*record.headers[:last], (name, new.encode()), *record.headers[last + 1 :]]
    try:
        text = (record.value or b"").decode()
        place = _place(text, keep, json.dumps(old.decode(), ensure_ascii=False))
        if place is not None:
            return record._replace(value=_edited(text, [place]).encode(), headers=tuple(headers))
    except ValueError:  # no JSON, or an id that is no text
        pass
    return record._replace(headers=(*headers, (b"seqmark.original_id", old)))


def _place(text: str, keep: str | None, written: str) -> tuple[Span, str] | None:
    """Return where the old id becomes a member, and what is put in there; None: it does not."""
    if keep is None:
        return None
    parent, _, name = keep.rpartition("/")
    name = _unescaped(name)
    span = _found(text, parent)
    if span is None or text[span.start] != "{":
        return None
    names = [each for each, _ in _members(text, span.start)]
    if name in names:
        return None
    comma = "," if names else ""
    member = f"{comma}{json.dumps(name, ensure_ascii=False)}:{written}"
    return Span(span.end - 1, span.end - 1), member


def _edited(text: str, edits: list[tuple[Span, str]]) -> str:
    for span, put_in in sorted(edits, reverse=True):
        text = text[: span.start] + put_in + text[span.end :]
    return text


def _whole(text: str) -> Span:
    """Return the span of the only value of a text.

    Raises:
        ValueError: It is not JSON.
    """
    json.loads(text, parse_constant=_refused)
    start = _behind_space(text, 0)
    return Span(start, _DECODER.raw_decode(text, start)[1])


def _refused(name: str) -> None:
    raise ValueError(name)


def _found(text: str, pointer: str) -> Span | None:
    span = _whole(text)
    for token in map(_unescaped, pointer.split("/")[1:]):
        if text[span.start] == "{":
            inside = dict(_members(text, span.start))
        elif text[span.start] == "[":
            inside = {str(index): each for index, each in enumerate(_elements(text, span.start))}
        else:
            return None
        if token not in inside:
            return None
        span = inside[token]
    return span


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _members(text: str, at: int) -> Iterator[tuple[str, Span]]:
    at = _behind_space(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _behind_space(text, _behind_space(text, at) + 1)
        end = _DECODER.raw_decode(text, start)[1]
        yield name, Span(start, end)
        at = _next(text, end)


def _elements(text: str, at: int) -> Iterator[Span]:
    at = _behind_space(text, at + 1)
    while text[at] != "]":
        end = _DECODER.raw_decode(text, at)[1]
        yield Span(at, end)
        at = _next(text, end)


def _next(text: str, at: int) -> int:
    at = _behind_space(text, at)
    return _behind_space(text, at + 1) if text[at] == "," else at


def _behind_space(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at
