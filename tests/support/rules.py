"""What do the contract's rules of judging say of records in mode ``watermark``? As slowly as it likes.

A model that forgets nothing and takes nothing from the code under test but the config's definition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.config import HeaderSource, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.config import ValueSource

LEAST, MOST = -(2**63), 2**63 - 1


class Judged(NamedTuple):
    """One record's verdict; the code where it is ``quarantine``."""

    verdict: str
    code: str = ""


class FaultyError(Exception):
    """A record cannot be judged; its argument is the code."""


@dataclass
class Scope:
    """What has come in one scope: everything of the present epoch."""

    epoch: int
    watermark: int
    seen: set[int] = field(default_factory=set)


def judge(dedup: WatermarkDedup, records: Iterable[Any]) -> list[Judged]:
    """Judge the records (key, value, headers) of one partition, in order."""
    scopes: dict[bytes, Scope] = {}
    judged = []
    for record in records:
        try:
            name = scope_of(dedup, record)
            sequence = number_of(dedup.sequence, record)
            epoch = 0 if dedup.epoch is None else number_of(dedup.epoch, record)
        except FaultyError as error:
            judged.append(Judged("quarantine", str(error)))
            continue
        judged.append(Judged(_verdict(scopes, name, epoch, sequence, dedup.reorder_window)))
    return judged


def _verdict(scopes: dict[bytes, Scope], name: bytes, epoch: int, sequence: int, window: int) -> str:
    scope = scopes.get(name)
    if scope is None or epoch > scope.epoch:
        scopes[name] = Scope(epoch, sequence, {sequence})
        return "pass"
    if epoch < scope.epoch or sequence < scope.watermark - window:
        return "late"
    if sequence in scope.seen:
        return "duplicate"
    scope.seen.add(sequence)
    scope.watermark = max(scope.watermark, sequence)
    return "pass"


def scope_of(dedup: WatermarkDedup, record: Any) -> bytes:
    """Return a record's scope."""
    if dedup.scope == "partition":
        return b""
    if dedup.scope == "key":
        if record.key is None:
            raise FaultyError("key_missing")
        key: bytes = record.key
        return key
    return header_of(dedup.scope.removeprefix("header:"), record)


def header_of(name: str, record: Any) -> bytes:
    """Return the last header of a name."""
    values = [value for found, value in record.headers if found == name]
    if not values:
        raise FaultyError("header_missing")
    if values[-1] is None:
        raise FaultyError("header_malformed")
    last: bytes = values[-1]
    return last


def number_of(source: HeaderSource | ValueSource, record: Any) -> int:
    """Return a sequence or an epoch."""
    if isinstance(source, HeaderSource):
        data = header_of(source.name, record)
        if source.format == "text":
            return _in_range(_digits(data.decode("latin-1"), "header_malformed"))
        if len(data) != {"int64": 8, "int32": 4}[source.format]:
            raise FaultyError("header_malformed")
        return int.from_bytes(data, "big", signed=True)
    if record.value is None:
        raise FaultyError("value_missing")
    try:
        found = json.loads(record.value)
    except ValueError:
        raise FaultyError("value_not_json") from None
    for step in source.pointer.split("/")[1:]:
        found = _below(found, step.replace("~1", "/").replace("~0", "~"))
    if source.format == "text":
        if not isinstance(found, str):
            raise FaultyError("field_type")
        return _in_range(_digits(found, "field_type"))
    if isinstance(found, bool) or not isinstance(found, int):
        raise FaultyError("field_type")
    return _in_range(found)


def _below(node: Any, step: str) -> Any:
    if isinstance(node, dict) and step in node:
        return node[step]
    if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        return node[int(step)]
    raise FaultyError("field_missing")


def _digits(text: str, code: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise FaultyError(code)
    return int(text)


def _in_range(number: int) -> int:
    if not LEAST <= number <= MOST:
        raise FaultyError("out_of_range")
    return number
