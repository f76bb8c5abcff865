"""Finds the records that were asked for in columns: by their id, their key, or fields of their value.

Whole columns are compared at once: ids and fields by the hash that the kernels of judging make of them, under a
key of this process, keys by their bytes. 128 bits under a key that nobody knows stand for what they are of.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.extract.ids import MOST_PART_BYTES, IdExtractor
from processor.engine.extract.json_matches import BARE, JsonRules
from processor.engine.extract.normalise import IdTextForm
from processor.engine.extract.parts import ContentPart, ValuePart, plain_parts
from processor.errors import ConfigError, Problem
from processor.judges.asked_id import MOST_ALTERNATIVES, AskedPart, asked_ids, field_values, hash_of
from processor.judges.ids import json_rules_of, parts_of
from processor.wire.receipts import LEAST_CUT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.parts import Part
    from processor.judges.asked_id import AskedId
    from schemas.config import Pipeline

_KEY = os.urandom(16)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class HashMatcher:
    """Finds records whose parts are one of some lists.

    Args:
        parts: What is read of each record.
        wanted: The lists, at least one.
        secret: By which contents among them were hashed; any other where there are none.
        rules: How values are read.
    """

    parts: Sequence[Part]
    wanted: Sequence[AskedId]
    secret: bytes = _KEY
    rules: JsonRules = BARE
    _extractor: IdExtractor = field(init=False, repr=False)
    _hashes: NDArray[np.uint64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_extractor", IdExtractor(self.parts, self.secret, rules=self.rules))
        hashes = np.concatenate([hash_of(each, self.secret) for each in self.wanted])
        object.__setattr__(self, "_hashes", hashes)

    def rows(self, columns: Columns) -> NDArray[np.int64]:
        """Return int64[k], rising: the rows that are wanted."""
        ids = self._extractor.extract(columns)
        found = np.zeros(len(columns), np.bool_)
        for first, second in self._hashes:
            found |= (ids.hash[:, 0] == first) & (ids.hash[:, 1] == second)
        # What has no hash has zeros.
        return np.flatnonzero(found & (ids.fault == 0) & ~ids.unjudged)


@dataclass(frozen=True)
class KeyMatcher:
    """Finds records by their key."""

    key: bytes

    def rows(self, columns: Columns) -> NDArray[np.int64]:
        """Return int64[k], rising: the rows that are wanted."""
        rows = np.flatnonzero(columns.key_length == len(self.key))
        at = columns.key[rows, np.newaxis] + np.arange(len(self.key))
        found: NDArray[np.int64] = rows[(columns.data[at] == np.frombuffer(self.key, np.uint8)).all(axis=1)]
        return found


Matcher = HashMatcher | KeyMatcher


def rows_of(matchers: Iterable[Matcher], columns: Columns) -> NDArray[np.int64]:
    """Return int64[k], rising: the rows that any of some matchers wants."""
    found = [each.rows(columns) for each in matchers]
    return np.unique(np.concatenate(found)) if found else _NONE


@dataclass(frozen=True)
class Wanted:
    """What was asked for, of one pipeline.

    Attributes:
        text: It, for people.
        ids: By id: what its words can mean.
        key: By key.
        fields: By fields of the value: their pointers, and what they may hold.
    """

    text: str
    ids: tuple[AskedId, ...] = ()
    key: bytes | None = None
    pointers: tuple[str, ...] = ()
    fields: tuple[AskedId, ...] = ()

    def of_records(self, pipeline: Pipeline, secret: bytes | None) -> list[Matcher]:
        """Return what finds the records themselves, in source, sink and quarantine.

        Args:
            pipeline: Whose records.
            secret: The partition's, where contents are asked for.
        """
        if self.key is not None:
            return [KeyMatcher(self.key)]
        rules = json_rules_of(pipeline.dedup)
        if self.fields:
            return [HashMatcher([ValuePart(each) for each in self.pointers], self.fields, rules=rules)]
        dedup = pipeline.id_dedup
        assert dedup is not None  # noqa: S101 - ids are asked for of such pipelines only
        parts = parts_of(dedup)
        if not self.by_content:
            return [HashMatcher(parts, self.ids, rules=rules)]
        return [] if secret is None else [HashMatcher(parts, self.ids, secret, rules)]

    def of_receipts(self) -> list[Matcher]:
        """Return what finds receipts and notes; none where they do not say it."""
        if self.key is not None:
            return [KeyMatcher(self.key)]
        by_shape: dict[tuple[str, ...], list[AskedId]] = {}
        for asked, most in itertools.product(self.ids, (MOST_PART_BYTES, LEAST_CUT_BYTES)):
            shape, shown = zip(
                *(_as_receipt(index, part, most) for index, part in enumerate(asked)), strict=True
            )
            by_shape.setdefault(shape, []).append(shown)
        return [
            HashMatcher([ValuePart(pointer) for pointer in shape], list(dict.fromkeys(shown)))
            for shape, shown in by_shape.items()
        ]

    @property
    def by_content(self) -> bool:
        """Whether a content is asked for, whose hash only the partition's secret makes."""
        return any(part.form == IdTextForm.CONTENT for asked in self.ids for part in asked)

    @property
    def ambiguous(self) -> bool:
        """Whether a word may be a string or a number."""
        return len(self.ids) > 1 or len(self.fields) > 1


def wanted_id(pipeline: Pipeline, words: Sequence[str]) -> Wanted:
    """Return what an id asks for.

    Raises:
        ConfigError: The words are no id of this pipeline.
    """
    dedup = pipeline.id_dedup
    if dedup is None:
        raise ConfigError(
            [
                Problem(
                    "--id",
                    f"pipeline {pipeline.name} judges by sequences and knows no ids: --key or --json-field",
                )
            ]
        )
    parts = parts_of(dedup)
    try:
        ids = asked_ids(parts, words)
    except ValueError as error:
        raise ConfigError([Problem("--id", f"pipeline {pipeline.name}: {error}")]) from error
    if pipeline.routed and any(isinstance(part, ContentPart) for part in plain_parts(parts)):
        raise ConfigError(
            [Problem("--id", "a routed content cannot be looked for: ask for a position, or --key")]
        )
    return Wanted(f"id {' '.join(words)}", ids=tuple(ids))


def wanted_key(word: str) -> Wanted:
    """Return what a key asks for: text, or ``base64:...``.

    Raises:
        ConfigError: It is no base64.
    """
    if word.startswith("base64:"):
        try:
            key = base64.b64decode(word.removeprefix("base64:"), validate=True)
        except ValueError as error:
            raise ConfigError([Problem("--key", f"{word} is no base64: {error}")]) from error
    else:
        key = os.fsencode(word.removeprefix("text:"))
    return Wanted(f"key {word}", key=key)


def wanted_fields(given: Sequence[str]) -> Wanted:
    """Return what fields ask for: ``/POINTER=VALUE`` each, and all of them count.

    Raises:
        ConfigError: One is none.
    """
    pointers: list[str] = []
    values: list[list[AskedPart]] = []
    for each in given:
        pointer, equals, word = each.partition("=")
        if not equals:
            raise ConfigError([Problem("--json-field", f"{each}: is written /POINTER=VALUE")])
        try:
            values.append(field_values(word))
            IdExtractor([ValuePart(pointer)], _KEY)
        except ValueError as error:
            raise ConfigError([Problem("--json-field", f"{each}: {error}")]) from error
        pointers.append(pointer)
    found = list(itertools.product(*values))
    if len(found) > MOST_ALTERNATIVES:
        raise ConfigError(
            [Problem("--json-field", 'too many words read as numbers: write json:17 or json:"17"')]
        )
    return Wanted(f"{' and '.join(given)}", pointers=tuple(pointers), fields=tuple(found))


def _as_receipt(index: int, part: AskedPart, most_bytes: int) -> tuple[str, AskedPart]:
    """Return where a receipt shows a part of an id, and the string that stands there.

    See `processor.engine.extract.ids.texts`, which writes it.
    """
    pointer, raw = f"/id/{index}", part.content
    if part.form == IdTextForm.CONTENT:
        return f"{pointer}/content", AskedPart(IdTextForm.STRING, raw.hex().encode())
    if len(raw) > most_bytes:
        digest = hashlib.sha256(raw).hexdigest()
        return f"{pointer}/sha256", AskedPart(IdTextForm.STRING, digest.encode())
    try:
        raw.decode()
    except UnicodeDecodeError:
        return f"{pointer}/base64", AskedPart(IdTextForm.STRING, base64.b64encode(raw))
    return pointer, AskedPart(IdTextForm.STRING, raw)
