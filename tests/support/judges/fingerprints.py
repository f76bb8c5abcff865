"""The contract's rules of fingerprints, as a naive model.

Python's own parser, sets of leaves, and for each id a dictionary of the contents that have passed with it;
nothing of the engine, and nothing of the generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.judges.id_rules import IdModel, IdRules, IdSaid, Number
from tests.support.judges.leaves import leaves
from tests.support.judges.rules import FaultError, header_of, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from schemas.config import InsertIdDedup
    from tests.support.kafka.topics import Record

LET_IN = frozenset({"pass", "tag", "rename"})
"""What becomes of collisions that are in the sink: these are remembered."""


@dataclass(frozen=True, kw_only=True)
class FingerprintRules(IdRules):
    """One definition with a fingerprint."""

    fingerprint: Mapping[str, Any]
    on_collision: str = "pass"
    rename: Mapping[str, str] | None = None

    @classmethod
    def of(cls, dedup: InsertIdDedup) -> FingerprintRules:
        """Return the rules of a config with a fingerprint, and with the exact backend."""
        assert dedup.fingerprint is not None
        plain = vars(IdRules.of(dedup))
        rename = None if dedup.rename is None else dedup.rename.model_dump()
        return cls(
            **plain,
            fingerprint=dedup.fingerprint.model_dump(),
            on_collision=dedup.on_collision,
            rename=rename,
        )

    @property
    def dedup(self) -> dict[str, Any]:
        """All keys."""
        rename = {} if self.rename is None else {"rename": dict(self.rename)}
        more = {"fingerprint": dict(self.fingerprint), "on_collision": self.on_collision}
        return {**super().dedup, **more, **rename}

    def model(self) -> FingerprintModel:
        """Return the naive model of one partition."""
        return FingerprintModel(self)


class FingerprintModel(IdModel):
    """Judges the records of one partition, in order.

    Attributes:
        variants: By id and fingerprint the offset and the reading of the record that passed with them.
        unfit: Offsets of records that their tag or new id makes too large for the sink.
    """

    def __init__(self, rules: FingerprintRules, now_ms: Callable[[], int] | None = None) -> None:
        super().__init__(rules, now_ms)
        self._fingerprints = rules
        self.variants: dict[tuple[Any, ...], dict[Any, tuple[int, int]]] = {}
        self.unfit: Collection[int] = ()

    def _part(self, record: Record, place: Mapping[str, Any]) -> Any:
        part = super()._part(record, place)
        if isinstance(part, Number) and place["pointer"] == (self._fingerprints.rename or {}).get("to"):
            raise FaultError("field_type")
        return part

    def _content(self, record: Record) -> Any:
        return fingerprint_of(record, self._fingerprints.fingerprint)

    def _known(self, name: tuple[Any, ...], content: Any, offset: int) -> IdSaid:
        rules = self._fingerprints
        alive = {
            each: (owner, reading)
            for each, (owner, reading) in self.variants.get(name, {}).items()
            if self.clock_ms < reading + rules.window_ms
        }
        self.variants[name] = alive
        if content in alive:
            owner, reading = alive[content]
            if rules.refresh:
                reading = self.clock_ms
                alive[content] = owner, reading
            return IdSaid("duplicate", owner, reading + rules.window_ms)
        if not alive:
            alive[content] = offset, self.clock_ms
            return IdSaid("pass")
        earliest = min(owner for owner, _ in alive.values())
        if offset in self.unfit:
            return IdSaid("too_large")
        if rules.on_collision not in LET_IN:
            return IdSaid("collision", earliest)
        alive[content] = offset, self.clock_ms
        return IdSaid("collision", earliest, self.clock_ms + rules.window_ms)

    def living(self) -> list[tuple[int, int]]:
        """Return offset and reading of each record that is remembered and not expired, in order."""
        known = (each for contents in self.variants.values() for each in contents.values())
        return sorted(each for each in known if self.clock_ms < each[1] + self._fingerprints.window_ms)


def fingerprint_of(record: Record, fingerprint: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what counts of a record: equal where its fingerprint is.

    Args:
        record: A record.
        fingerprint: The table of the config; keys that are not set have their defaults.

    Raises:
        FaultError: It cannot be judged; the message is the code.
    """
    content: Any = record.value
    if fingerprint.get("of", "value") == "value":
        if record.value is None:
            raise FaultError("value_missing")
        parsed(record.value)
        content = leaves(record.value, fingerprint.get("exclude", ()))
    return content, *(_header(record, name) for name in fingerprint.get("headers", ()))


def _header(record: Record, name: str) -> bytes | None:
    """Return the last value of a header; None: there is none of this name."""
    try:
        return header_of(record, name)
    except FaultError as fault:
        if str(fault) == "header_missing":
            return None
        raise
