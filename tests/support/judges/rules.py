"""The contract's rules of mode watermark, as a naive model.

The naive model that broker and kill tests compare with: record by record, a Python object each, forgetting
nothing, by the sentences of the contract and nothing of the engine. JSON is what Python's parser takes, made
strict; the whole grammar is compared in `tests/property`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from schemas.config import WatermarkDedup
    from tests.support.kafka.topics import Record
    from tests.support.worker.process import PipelineConfig

Place = Mapping[str, Any]
"""Where a number stands: a table ``sequence`` or ``epoch`` of the config."""
SEQ_HEADER: Place = {"from": "header", "name": "seq", "format": "int64"}
EPOCH_HEADER: Place = {"from": "header", "name": "epoch", "format": "int32"}
LEAST, MOST = -(2**63), 2**63 - 1
MOST_SCOPE_BYTES = 65_536
_WIDTHS = {"int64": 8, "int32": 4}


@dataclass(frozen=True)
class Rules:
    """One definition: the keys of ``[pipelines.dedup]``."""

    scope: str = "partition"
    sequence: Place = field(default_factory=lambda: SEQ_HEADER)
    epoch: Place | None = None
    reorder_window: int = 0

    @classmethod
    def of(cls, dedup: WatermarkDedup) -> Rules:
        """Return the rules of a config that has been read."""
        sequence, epoch = (
            None if place is None else place.model_dump(by_alias=True)
            for place in (dedup.sequence, dedup.epoch)
        )
        return cls(dedup.scope_name, sequence or SEQ_HEADER, epoch, dedup.reorder_window)

    @property
    def plain(self) -> bool:
        """Whether one watermark a partition is all the state there is."""
        return self.scope == "partition" and self.epoch is None and not self.reorder_window

    def applied(self, pipeline: PipelineConfig) -> PipelineConfig:
        """Return a pipeline that judges by these."""
        return replace(pipeline, sequence=self.sequence, dedup=self.dedup)

    def model(self) -> Model:
        """Return the naive model of one partition."""
        return Model(self)

    @property
    def dedup(self) -> dict[str, Any]:
        """The keys beside ``mode`` and ``sequence``."""
        keys = {"scope": self.scope, "epoch": self.epoch, "reorder_window": self.reorder_window}
        return {name: value for name, value in keys.items() if value is not None}


class Said(NamedTuple):
    """What the rules say of one record.

    Attributes:
        verdict: ``pass``, ``duplicate``, ``late``, or the code of what cannot be judged.
        watermark: Of the record's scope, as it stood before the record; None: there was none.
        sequence: The record's; None where it cannot be judged.
        epoch: The record's; None where the definition has none.
    """

    verdict: str
    watermark: int | None = None
    sequence: int | None = None
    epoch: int | None = None


@dataclass
class Scope:
    """What one scope has seen of its present epoch; numbers that wrap are counted on."""

    epoch: Any
    watermark: int
    seen: set[int]
    left: list[Any] = field(default_factory=list)

    def window(self, size: int) -> set[int]:
        """Return which of the ``size`` numbers below the watermark were seen."""
        return {number for number in self.seen if self.watermark - size <= number < self.watermark}


class FaultError(Exception):
    """The record cannot be judged; the message is the code."""


class Model:
    """Judges the records of one partition, in order.

    Attributes:
        scopes: State by scope; b"" is that of scope ``partition``.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._changes = rules.epoch is not None and rules.epoch.get("order") == "change"
        self.scopes: dict[bytes, Scope] = {}

    def judge(self, record: Record) -> Said:
        """Judge the next record."""
        rules = self._rules
        try:
            name = scope_of(record, rules.scope)
            sequence = number_of(record, rules.sequence)
            epoch = None if rules.epoch is None else epoch_of(record, rules.epoch)
        except FaultError as fault:
            return Said(str(fault))
        scope = self.scopes.get(name)
        if scope is None:
            self.scopes[name] = Scope(0 if epoch is None else epoch, sequence, {sequence})
            return Said("pass", None, sequence, epoch)
        wraps = rules.sequence.get("wraps")
        before, number = scope.watermark, sequence
        if wraps:
            # Of all numbers that are written so the one next to the watermark; of two the higher one.
            up = (sequence - before) % wraps
            before, number = before % wraps, before + (up if up * 2 <= wraps else up - wraps)
            if epoch is not None and epoch != scope.epoch:
                number = sequence
        return Said(self._known(scope, number, 0 if epoch is None else epoch), before, sequence, epoch)

    def _known(self, scope: Scope, sequence: int, epoch: Any) -> str:
        if epoch != scope.epoch:
            if epoch in scope.left[-16:] if self._changes else epoch < scope.epoch:
                return "late"
            scope.left.append(scope.epoch)
            scope.epoch, scope.watermark, scope.seen = epoch, sequence, {sequence}
            return "pass"
        if sequence in scope.seen and sequence >= scope.watermark - self._rules.reorder_window:
            return "duplicate"
        if sequence < scope.watermark - self._rules.reorder_window:
            return "late"
        scope.seen.add(sequence)
        scope.watermark = max(scope.watermark, sequence)
        return "pass"

    def judge_all(self, records: Iterable[Record]) -> list[Said]:
        """Judge several."""
        return [self.judge(record) for record in records]


def scope_of(record: Record, scope: str) -> bytes:
    """Return a record's scope."""
    if scope == "partition":
        return b""
    if scope == "key":
        if record.key is None:
            raise FaultError("key_missing")
        name = record.key
    else:
        name = header_of(record, scope.removeprefix("header:"))
    if len(name) > MOST_SCOPE_BYTES:
        raise FaultError("scope_too_large")
    return name


def header_of(record: Record, name: str) -> bytes:
    """Return the last value of a header."""
    values = [value for each, value in record.headers if each == name]
    if not values:
        raise FaultError("header_missing")
    if values[-1] is None:
        raise FaultError("header_malformed")
    return values[-1]


def epoch_of(record: Record, place: Place) -> Any:
    """Return an epoch: a number, or where any other one begins anew what it is and how it is written."""
    if place.get("order") != "change":
        return number_of(record, place)
    if place["from"] == "header":
        return header_of(record, place["name"])
    found = _found(record.value, place, lambda text: ("number", text))
    if not isinstance(found, str | tuple):
        raise FaultError("field_type")
    return found


def number_of(record: Record, place: Place) -> int:
    """Return a sequence or an epoch."""
    number, wraps = _number_of(record, place), place.get("wraps")
    if wraps and not 0 <= number < wraps:
        raise FaultError("out_of_range")
    return number


def _number_of(record: Record, place: Place) -> int:
    if place["from"] == "value":
        return _field(record.value, place)
    value = header_of(record, place["name"])
    if place["format"] == "text":
        return _text(value, "header_malformed")
    if len(value) != _WIDTHS[place["format"]]:
        raise FaultError("header_malformed")
    return int.from_bytes(value, "big", signed=True)


def _text(value: bytes, otherwise: str) -> int:
    if not re.fullmatch(rb"-?[0-9]+", value):
        raise FaultError(otherwise)
    return _within(int(value))


def _within(number: int) -> int:
    if not LEAST <= number <= MOST:
        raise FaultError("out_of_range")
    return number


def parsed(value: bytes, number: Callable[[str], Any] | None = None) -> Any:
    """Return a JSON value as Python has it, strictly by the contract.

    Args:
        value: Its text.
        number: Makes something of a number's text; None: what Python makes of it.
    """
    try:
        tree = json.loads(value.decode(), parse_constant=_refuse, parse_int=number, parse_float=number)
        _check(tree, 0)
    except ValueError:  # decoding and encoding errors are ValueErrors
        raise FaultError("value_not_json") from None
    return tree


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _check(node: Any, depth: int) -> None:
    """Refuse lone surrogates, and more than 128 arrays and objects in one another."""
    if isinstance(node, str):
        node.encode()
    elif isinstance(node, dict | list):
        if depth == 128:
            raise ValueError(depth)
        for each in [*node, *node.values()] if isinstance(node, dict) else node:
            _check(each, depth + 1)


def _found(value: bytes | None, place: Place, number: Callable[[str], Any] | None = None) -> Any:
    if value is None:
        raise FaultError("value_missing")
    found = parsed(value, number)
    for step in place["pointer"].split("/")[1:]:
        found = below(found, step.replace("~1", "/").replace("~0", "~"))
    return found


def _field(value: bytes | None, place: Place) -> int:
    found = _found(value, place)
    if place.get("format") == "text":
        if not isinstance(found, str):
            raise FaultError("field_type")
        return _text(found.encode(), "field_type")
    if not isinstance(found, int) or isinstance(found, bool):
        raise FaultError("field_type")
    return _within(found)


def below(node: Any, step: str) -> Any:
    """Return what a step of a JSON pointer leads to."""
    if isinstance(node, dict) and step in node:
        return node[step]
    if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        return node[int(step)]
    raise FaultError("field_missing")
