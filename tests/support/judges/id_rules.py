"""The contract's rules of mode insert-id, as a naive model.

The naive model: a dictionary and the partition's clock, record by record, by the sentences of the contract and
nothing of the engine.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.judges.leaves import leaves
from tests.support.judges.rules import FaultError, below, header_of, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from schemas.config import InsertIdDedup
    from tests.support.kafka.topics import Record
    from tests.support.worker.process import PipelineConfig

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
HEADER_ID = ({"from": "header", "name": "id"},)
NEVER = -(2**63)
_HASH = re.compile(r"[0-9a-f]{32}")
_MISSING = {"header_missing", "key_missing", "value_missing", "field_missing"}


@dataclass(frozen=True)
class IdRules:
    """One definition: the keys of ``[pipelines.dedup]``."""

    id: tuple[Mapping[str, Any], ...] = HEADER_ID
    window: str = "1h"
    time: str = "record"
    max_ahead: str = "5m"
    refresh: bool = False
    on_missing: str = "quarantine"
    bloom: Mapping[str, Any] | None = None
    """Options of the bloom backend; None: exact."""

    @classmethod
    def of(cls, dedup: InsertIdDedup) -> IdRules:
        """Return the rules of a config with the exact backend that has been read."""
        return cls(
            tuple(part.model_dump(by_alias=True) for part in dedup.id),
            f"{dedup.window // 1000}s",
            dedup.time,
            f"{dedup.max_ahead // 1000}s",
            dedup.refresh,
            dedup.on_missing,
        )

    @property
    def exact(self) -> bool:
        """Whether verdicts are exact, and owners are known."""
        return self.bloom is None

    @property
    def window_ms(self) -> int:
        """The window."""
        return _ms(self.window)

    @property
    def dedup(self) -> dict[str, Any]:
        """All keys."""
        backend = {} if self.bloom is None else {"backend": "bloom", "bloom": dict(self.bloom)}
        return {
            "mode": "insert-id",
            **backend,
            "id": [dict(part) for part in self.id],
            "window": self.window,
            "time": self.time,
            "max_ahead": self.max_ahead,
            "refresh": self.refresh,
            "on_missing": self.on_missing,
        }

    def applied(self, pipeline: PipelineConfig) -> PipelineConfig:
        """Return a pipeline that judges by these."""
        return replace(pipeline, dedup=self.dedup)

    def model(self) -> IdModel:
        """Return the naive model of one partition."""
        return IdModel(self) if self.exact else BucketIdModel(self)


class IdSaid(NamedTuple):
    """What the rules say of one record.

    Attributes:
        verdict: ``pass``, ``duplicate``, ``collision``, or the code of what cannot be judged.
        owner: Of a duplicate, the offset of the record that passed; of a collision that of the earliest one of
            its id that is remembered.
        expires_ms: Of a duplicate, when its id expires; of a collision when it expires itself, 0 where it is
            not remembered.
    """

    verdict: str
    owner: int = -1
    expires_ms: int = 0


class Number(str):
    """A JSON number as it is written: it differs from the string."""

    __slots__ = ()


class Boolean(str):
    """A JSON boolean by its text: it differs from the string."""

    __slots__ = ()


class Content(bytes):
    """A value that counts as it stands."""

    __slots__ = ()


class AnyContent(dict[str, str]):
    """What a receipt shows of content: a hash of which only who has the secret knows more than its form."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        shown = other.get("content") if isinstance(other, dict) and len(other) == 1 else None
        return isinstance(shown, str) and _HASH.fullmatch(shown) is not None


class _NullError(FaultError):
    """A part is null, or a header has no value: missing, with the code of a wrong type."""


class IdModel:
    """Judges the records of one partition, in order.

    Attributes:
        clock_ms: The partition's.
        ids: Owner and reading by id.
    """

    def __init__(self, rules: IdRules, now_ms: Callable[[], int] | None = None) -> None:
        self._rules = rules
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))
        self.clock_ms = NEVER
        self.ids: dict[tuple[Any, ...], tuple[int, int]] = {}

    def judge(self, record: Record) -> IdSaid:
        """Judge the next record."""
        rules = self._rules
        parts: list[Any] = []
        missing = False
        for place in rules.id:
            try:
                part = self._part(record, place)
            except FaultError as fault:
                absent = isinstance(fault, _NullError) or str(fault) in _MISSING
                if rules.on_missing == "quarantine" or not absent:
                    return IdSaid(str(fault))
                missing = True
            else:
                parts.append(_named(part))
        content = None
        try:
            content = self._content(record)
        except FaultError as fault:
            # What is no JSON is told also beside a part that is missing.
            if not missing or str(fault) == "value_not_json":
                return IdSaid(str(fault))
        now_ms = self._now_ms()
        reading = now_ms if rules.time == "arrival" else min(record.timestamp, now_ms + _ms(rules.max_ahead))
        self.clock_ms = max(self.clock_ms, reading)
        if missing:
            return IdSaid("pass")
        return self._known(tuple(parts), content, record.offset)

    def _part(self, record: Record, place: Mapping[str, Any]) -> Any:
        """Return a part of the id."""
        return _part(record, place)

    def _content(self, record: Record) -> Any:
        """Return what counts beside the id."""
        del record

    def _known(self, name: tuple[Any, ...], content: Any, offset: int) -> IdSaid:
        del content
        if name in self.ids:
            owner, reading = self.ids[name]
            if self.clock_ms < reading + self._rules.window_ms:
                if self._rules.refresh:
                    reading = self.clock_ms
                    self.ids[name] = owner, reading
                return IdSaid("duplicate", owner, reading + self._rules.window_ms)
        self.ids[name] = offset, self.clock_ms
        return IdSaid("pass")

    def judge_all(self, records: Iterable[Record]) -> list[IdSaid]:
        """Judge several."""
        return [self.judge(record) for record in records]

    def living(self) -> list[tuple[int, int]]:
        """Return owner and reading of each id that is not expired, in order."""
        return sorted(each for each in self.ids.values() if self.clock_ms < each[1] + self._rules.window_ms)


class BucketIdModel(IdModel):
    """Bloom filters: an id is remembered until all of its bucket is outside the window."""

    def __init__(self, rules: IdRules) -> None:
        super().__init__(rules)
        self._bucket_ms = _ms((rules.bloom or {})["bucket"])

    def _known(self, name: tuple[Any, ...], content: Any, offset: int) -> IdSaid:
        del content, offset
        _, reading = self.ids.get(name, (0, NEVER))
        bucket = reading // self._bucket_ms
        known = name in self.ids and self.clock_ms < (bucket + 1) * self._bucket_ms - 1 + self._rules.window_ms
        renewed = self._rules.refresh and bucket != self.clock_ms // self._bucket_ms
        if not known or renewed:
            # Nobody knows who it was.
            self.ids[name] = 0, self.clock_ms
        return IdSaid("duplicate" if known else "pass")


def id_of(record: Record, rules: IdRules) -> tuple[Any, ...]:
    """Return a record's id; a string and a number of the same text are two."""
    return tuple(_named(_part(record, place)) for place in rules.id)


def shown(record: Record, rules: IdRules) -> list[Any]:
    """Return an id as a receipt shows it."""
    return [_shown(_part(record, place)) for place in rules.id]


def _shown(part: Any) -> Any:
    if isinstance(part, Content | frozenset):
        return AnyContent()
    content = part.encode() if isinstance(part, str) else part
    if len(content) > 4096:
        return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    if isinstance(part, str):
        return str(part)
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(part).decode()}


def _named(part: Any) -> tuple[str, Any]:
    return type(part).__name__, part


def _part(record: Record, place: Mapping[str, Any]) -> Any:
    """Return bytes, a string, a `Number`, the leaves of a value or a `Content`."""
    if place["from"] == "header":
        try:
            return header_of(record, place["name"])
        except FaultError as fault:
            if str(fault) == "header_malformed":
                raise _NullError(str(fault)) from None
            raise
    if place["from"] == "key":
        if record.key is None:
            raise FaultError("key_missing")
        return record.key
    if record.value is None:
        raise FaultError("value_missing")
    return _in_value(record.value, place)


def _in_value(value: bytes, place: Mapping[str, Any]) -> Any:
    if place.get("of") == "bytes":
        return Content(value)
    found = parsed(value, Number)
    if place["from"] == "content":
        return leaves(value, place.get("exclude", ()))
    for step in place["pointer"].split("/")[1:]:
        found = below(found, step.replace("~1", "/").replace("~0", "~"))
    if found is None:
        raise _NullError("field_type")
    if isinstance(found, bool):
        return Boolean(str(found).lower())
    if not isinstance(found, str):
        raise FaultError("field_type")
    return found


def _ms(duration: str) -> int:
    return int(duration[:-1]) * UNITS_MS[duration[-1]]
