"""Reads ids as people write them, and hashes them as the ids of records are hashed.

A part of an id is written as one word::

    word              a string, or the bytes of a header, key, column or text; of a value's field also the
                      number or the boolean that it reads as
    json:TEXT         what JSON says: json:17 is the number, json:"17" the string
    "TEXT"            likewise, the string
    text:TEXT         this text, whatever it begins with
    base64:BYTES      bytes that are no text, of a header or key
    content:DIGITS    a content's hash, 32 hexadecimal digits, as receipts show it

Numbers and strings differ, and a number is its text as written: a word that reads as a number asks for both,
and whoever answers says which of them it found. What does not count of a part does not count of its word.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from processor.engine.bytes.siphash import words_of_key
from processor.engine.extract.ids import NO_FINGERPRINT, Ids, hash_ids
from processor.engine.extract.normalise import IdTextForm, Normal, PartTexts, normalised
from processor.engine.extract.parts import AnyPart, ContentPart, ValuePart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.extract.parts import Part, PlainPart

MOST_ALTERNATIVES = 16
"""Ids that a list of words may mean: four words that read as numbers."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = ("true", "false")
_FORMS = {
    IdTextForm.BYTES: "bytes",
    IdTextForm.STRING: "string",
    IdTextForm.NUMBER: "number",
    IdTextForm.BOOLEAN: "boolean",
}
_IN_ANY = {IdTextForm.BYTES: IdTextForm.STRING}
KINDS = frozenset({*_FORMS.values(), "content"})
"""What a part of an id can be."""


class AskedPart(NamedTuple):
    """One part of an id.

    Attributes:
        form: What it is.
        content: Its bytes; of content the 16 bytes of its hash.
    """

    form: IdTextForm
    content: bytes

    @property
    def kind(self) -> str:
        """What it is, as people and programs are told."""
        return _FORMS.get(self.form, "content")


AskedId = tuple[AskedPart, ...]


def asked_ids(parts: Sequence[Part], words: Sequence[str]) -> list[AskedId]:
    """Return the ids that some words can mean, at least one.

    Args:
        parts: Of the pipeline's ids.
        words: As many, in their order.

    Raises:
        ValueError: They mean none; says what would be right.
    """
    if len(words) != len(parts):
        raise ValueError(f"its ids have {len(parts)} parts, and {len(words)} were given")
    found = list(itertools.product(*(_read(part, word) for part, word in zip(parts, words, strict=True))))
    if len(found) > MOST_ALTERNATIVES:
        raise ValueError('too many of the words read as numbers: write json:17 or json:"17"')
    return found


def asked_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return words as a query carries them: by ``id``, or as bytes by ``id64`` where one of them is no UTF-8.

    What decodes a query would put U+FFFD in place of such bytes, which is another id.
    """
    if all(word.encode(errors="ignore").decode() == word for word in words):
        return [("id", word) for word in words]
    return [("id64", base64.b64encode(_encoded(word)).decode()) for word in words]


def words_of(texts: Sequence[str]) -> list[str]:
    """Return the words that values of ``id64`` stand for; raises `ValueError` where one is no base64."""
    return [base64.b64decode(text, validate=True).decode(errors="surrogateescape") for text in texts]


def field_values(word: str) -> list[AskedPart]:
    """Return what a word can mean that stands for a string or number of a JSON value.

    Raises:
        ValueError: It means none.
    """
    return _field(word)


def hash_of(asked: AskedId, secret: bytes) -> NDArray[np.uint64]:
    """Return uint64[1, 2]: the hash that records with this id have under a partition's secret."""
    count = len(asked)
    # Of the types that judging gives the kernel: nothing is compiled for one question.
    data = np.array(bytearray(b"".join(part.content for part in asked)), np.uint8)
    form = np.array([[part.form] for part in asked], np.uint8)
    begin, length = np.zeros((2, count, 1), np.int64)
    length[:, 0] = [len(part.content) for part in asked]
    begin[1:, 0] = np.cumsum(length[:-1, 0])
    content = np.zeros((1, 2), np.uint64)
    for part in asked:
        if part.form == IdTextForm.CONTENT:
            content[0] = np.frombuffer(part.content, "<u8")
    out = np.zeros((1, 2), np.uint64)
    flags, lot = (np.zeros(1, np.uint8), np.zeros(1, np.bool_)), np.zeros(1, np.uint64)
    ids = Ids(out, *flags, form, begin, length, content, NO_FINGERPRINT, lot, data)
    hash_ids(ids, words_of_key(secret))
    return out


def _read(part: Part, word: str) -> list[AskedPart]:
    if not isinstance(part, AnyPart):
        return _plain(part, word)
    found: list[AskedPart] = []
    wrong: list[ValueError] = []
    for each in part.parts:
        try:
            found += _plain(each, word)
        except ValueError as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    # As they are judged: bytes beside JSON count as a string.
    strings = (each._replace(form=_IN_ANY.get(each.form, each.form)) for each in found)
    return list(dict.fromkeys(strings))


def _plain(part: PlainPart, word: str) -> list[AskedPart]:
    if isinstance(part, ContentPart):
        kind, _, digits = word.partition(":")
        if kind != "content" or not re.fullmatch("[0-9a-f]{32}", digits):
            raise ValueError("a content is asked for as content: and the 32 hexadecimal digits of receipts")
        return [AskedPart(IdTextForm.CONTENT, bytes.fromhex(digits))]
    found = _field(word) if isinstance(part, ValuePart) else [_bytes(word)]
    return list(dict.fromkeys(_normal(each, part.normal) for each in found))


def _normal(part: AskedPart, how: Normal) -> AskedPart:
    """Return a part in the one way in which it is written."""
    if not how:
        return part
    data, form = np.frombuffer(part.content, np.uint8), np.array([part.form], np.uint8)
    made = normalised(PartTexts(data, form, np.zeros(1, np.int64), np.array([data.size])), how)
    return AskedPart(IdTextForm(int(made.form[0])), made.data[: made.length[0]].tobytes())


def _field(word: str) -> list[AskedPart]:
    kind, separator, rest = word.partition(":")
    if separator and kind == "text":
        return [AskedPart(IdTextForm.STRING, _encoded(rest))]
    if separator and kind == "json":
        return [_json(rest)]
    if len(word) > 1 and word.startswith('"') and word.endswith('"'):
        return [_json(word)]
    string = AskedPart(IdTextForm.STRING, _encoded(word))
    form = IdTextForm.BOOLEAN if word in _BOOLEANS else IdTextForm.NUMBER if _NUMBER.fullmatch(word) else None
    return [string] if form is None else [string, AskedPart(form, word.encode())]


def _bytes(word: str) -> AskedPart:
    kind, separator, rest = word.partition(":")
    if separator and kind == "base64":
        try:
            return AskedPart(IdTextForm.BYTES, base64.b64decode(rest, validate=True))
        except binascii.Error as error:
            raise ValueError(f"{word} is no base64: {error}") from error
    return AskedPart(IdTextForm.BYTES, _encoded(rest if separator and kind == "text" else word))


def _json(text: str) -> AskedPart:
    if _NUMBER.fullmatch(text):
        return AskedPart(IdTextForm.NUMBER, text.encode())
    if text in _BOOLEANS:
        return AskedPart(IdTextForm.BOOLEAN, text.encode())
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{text} is no JSON: {error}") from error
    if not isinstance(found, str):
        raise ValueError(f"{text} is neither a JSON string nor a number nor a boolean")  # noqa: TRY004 - of what was typed
    return AskedPart(IdTextForm.STRING, found.encode())


def _encoded(word: str) -> bytes:
    # Of a command line: bytes that are no UTF-8 are escaped, and become what they were.
    return word.encode(errors="surrogateescape")
