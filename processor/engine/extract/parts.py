"""Reads the parts that ids and scopes are made of: from header, key or value.

A part is bytes (a header's, the key's, a column of delimited text, the whole value), a JSON string, number or
boolean, or the value's content. It may be the first that is there of several, and written in one way where
others mean the same (`processor.engine.extract.normalise`).

Invariant: a part of a record is there, or has a `Fault`; it may be said of a fault that nothing is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.json_matches import JsonKind
from processor.engine.extract.json_text import plain_texts
from processor.engine.extract.normalise import IdTextForm, Normal, PartTexts, normalised
from processor.engine.extract.sequence import column_values, header_values
from processor.engine.extract.value_walk import WHOLE, PointerMatch
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.value_walk import ContentOf, Walked


@dataclass(frozen=True, slots=True)
class HeaderPart:
    """A header's bytes; of several of one name the last counts. The name is compared byte for byte."""

    name: bytes
    normal: Normal = Normal.NONE


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The key's bytes."""

    normal: Normal = Normal.NONE


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A string, a number or a boolean of the JSON value, where a pointer leads.

    Attributes:
        pointer: It (RFC 6901), also through JSON in strings.
        only_text: Whether anything but a string there is a fault.
        normal: What of it does not count.
    """

    pointer: str
    only_text: bool = False
    normal: Normal = Normal.NONE


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A column of a value that is delimited text: its bytes as they stand.

    Attributes:
        number: Which, from 1.
        separator: What stands between columns; not empty.
        normal: What of it does not count.
    """

    number: int
    separator: bytes
    normal: Normal = Normal.NONE


@dataclass(frozen=True, slots=True)
class TextPart:
    """The whole value's bytes."""

    normal: Normal = Normal.NONE


@dataclass(frozen=True, slots=True)
class ContentPart:
    """The value's content: what a topic without ids has in their place. Once in an id."""

    of: ContentOf = WHOLE


PlainPart = HeaderPart | KeyPart | ValuePart | ColumnPart | TextPart | ContentPart


@dataclass(frozen=True, slots=True)
class AnyPart:
    """The first of some parts that is there; bytes among them count as the JSON string of their text."""

    parts: tuple[PlainPart, ...]


Part = PlainPart | AnyPart


class PartColumn(NamedTuple):
    """One part of n records.

    Attributes:
        texts: What it holds; of another form than 0 where there is no fault.
        fault: uint8[n], `Fault` codes.
        absent: bool[n], whether the fault is that nothing is there: it is missing, or null.
    """

    texts: PartTexts
    fault: NDArray[np.uint8]
    absent: NDArray[np.bool_]


_FORM_OF_KIND = np.zeros(len(JsonKind), np.uint8)
_FORM_OF_KIND[[JsonKind.FALSE, JsonKind.TRUE]] = IdTextForm.BOOLEAN
_FORM_OF_KIND[[JsonKind.INTEGER, JsonKind.DECIMAL]] = IdTextForm.NUMBER
_FORM_OF_KIND[JsonKind.STRING] = IdTextForm.STRING
_FORM_OF_KIND[JsonKind.ESCAPED] = IdTextForm.ESCAPED
_TEXT_FORMS = [IdTextForm.STRING, IdTextForm.ESCAPED]


def plain_parts(parts: Iterable[Part]) -> Iterator[PlainPart]:
    """Yield parts, those of which the first counts in the place where it does."""
    for part in parts:
        if isinstance(part, AnyPart):
            yield from part.parts
        else:
            yield part


def pointers_of(parts: Iterable[Part]) -> list[str]:
    """Return the pointers of parts, in the order in which `read_parts` takes what they found."""
    return [part.pointer for part in plain_parts(parts) if isinstance(part, ValuePart)]


def read_parts(parts: Sequence[Part], columns: Columns, walked: Walked) -> list[PartColumn]:
    """Return the parts of all records; ``walked`` is of the pointers of all."""
    found = iter(walked.found)
    made = []
    for part in parts:
        if isinstance(part, AnyPart):
            made.append(_first_there([_read(each, columns, walked, found) for each in part.parts]))
        else:
            made.append(_read(part, columns, walked, found))
    return made


def pooled(made: Sequence[PartTexts]) -> PartTexts:
    """Return all texts as they stand in one array; its columns are of [K, n]."""
    data = made[0].data
    if any(each.data is not data for each in made):
        copies, begin = [], 0
        for each in made:
            escaped = each.form == IdTextForm.ESCAPED
            text, at, size = plain_texts(each.data, each.at, each.length, each.form != IdTextForm.NONE, escaped)
            form = np.where(escaped, np.uint8(IdTextForm.STRING), each.form)
            copies.append(PartTexts(text, form, at + begin, np.maximum(size, 0)))
            begin += text.size
        made, data = copies, np.concatenate([each.data for each in copies])
    form, at, length = (np.array([each[k] for each in made]) for k in (1, 2, 3))
    return PartTexts(data, form, at, length)


def _read(part: PlainPart, columns: Columns, walked: Walked, found: Iterator[PointerMatch]) -> PartColumn:
    data, rows = columns.data, len(columns)
    null = columns.value_length < 0
    missing = np.where(null, np.uint8(Fault.VALUE_MISSING), np.uint8(0))
    at, length = columns.value, np.maximum(columns.value_length, 0)
    match part:
        case HeaderPart(name):
            at, length, wrong = header_values(data, columns.table, np.frombuffer(name, np.uint8))
            absent = wrong != 0  # missing, or without a value: the span has no other fault
        case KeyPart():
            absent = columns.key_length < 0
            wrong = np.where(absent, np.uint8(Fault.KEY_MISSING), np.uint8(0))
            at, length = columns.key, np.maximum(columns.key_length, 0)
        case ValuePart():
            return _normal(_of_value(part, next(found)), part.normal)
        case ColumnPart(number, separator):
            between = np.frombuffer(separator, np.uint8)
            at, length, wrong = column_values(data, columns.value, columns.value_length, number, between)
            absent = wrong != 0
        case TextPart():
            absent, wrong = null, missing
        case ContentPart(of):
            # Bytes need not be JSON, whatever another part asks of the value.
            wrong = missing if of.as_bytes or walked.fault is None else walked.fault.copy()
            form = np.full(rows, np.uint8(IdTextForm.CONTENT))
            return PartColumn(PartTexts(data, form, *np.zeros((2, rows), np.int64)), wrong, null)
    form = np.full(rows, np.uint8(IdTextForm.BYTES))
    return _normal(PartColumn(PartTexts(data, form, at, length), wrong, absent), part.normal)


def _of_value(part: ValuePart, found: PointerMatch) -> PartColumn:
    data, fault, kind, start, length = found
    form = _FORM_OF_KIND[kind]
    wrong = np.where(form == IdTextForm.NONE, np.uint8(Fault.FIELD_TYPE), np.uint8(0))
    if part.only_text:
        wrong[~np.isin(form, _TEXT_FORMS)] = Fault.FIELD_TYPE
    wrong[kind == JsonKind.MISSING] = Fault.FIELD_MISSING
    wrong[kind == JsonKind.NOT_UTF8] = Fault.VALUE_NOT_JSON
    absent = (fault == Fault.VALUE_MISSING) | ((fault == 0) & (kind <= JsonKind.NULL))
    return PartColumn(PartTexts(data, form, start, length), np.where(fault != 0, fault, wrong), absent)


def _normal(column: PartColumn, how: Normal) -> PartColumn:
    return column._replace(texts=normalised(column.texts, how)) if how else column


def _first_there(made: Sequence[PartColumn]) -> PartColumn:
    """Return of each record the first part that is there; the first one's fault where none is."""
    texts = pooled([each.texts for each in made])
    # A fault of another kind is there, too.
    which = np.array([each.absent for each in made]).argmin(axis=0), np.arange(made[0].absent.size)
    form, at, length = texts.form[which], texts.at[which], texts.length[which]
    form[form == IdTextForm.BYTES] = IdTextForm.STRING
    fault, absent = (np.array([each[k] for each in made])[which] for k in (1, 2))
    return PartColumn(PartTexts(texts.data, form, at, length), fault, absent)
