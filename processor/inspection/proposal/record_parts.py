"""What stands where in a record that was taken apart (`processor.inspection.proposal.observed`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


class Kind(Enum):
    """Of what kind a leaf is."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    OTHER = "other"


class Leaf(NamedTuple):
    """What stands at a place."""

    kind: Kind
    text: str | bytes


class RecordPart(NamedTuple):
    """Where something stands in a record.

    Attributes:
        source: As the config has it: ``header``, ``key``, ``value`` or ``column``.
        name: A header's, a JSON pointer, a column's number and what parts columns; empty for the key.
    """

    source: str
    name: str

    def __str__(self) -> str:
        shown = self.name[:-1] if self.source == "column" else self.name
        return shown if self.source == "value" else f"{self.source} {shown}".rstrip()

    def as_config(self, spelled: Mapping[RecordPart, str] | None = None) -> dict[str, Any]:
        """As a config names it; ``spelled`` says how it is read where it is written in several ways."""
        more = {} if spelled is None or self not in spelled else {"normalise": spelled[self]}
        match self.source:
            case "key":
                return {"from": "key"}
            case "column":
                return {"from": "column", "number": int(self.name[:-1]), "separator": self.name[-1]}
            case _:
                name = "name" if self.source == "header" else "pointer"
                return {"from": self.source, name: self.name, **more}


KEY = RecordPart("key", "")


@dataclass(frozen=True)
class ObservedRecord:
    """A record taken apart.

    Attributes:
        partition: Its number.
        timestamp_ms: Its own; below 0: none.
        clock_ms: The highest timestamp of its partition so far, as ids expire by.
        leaves: By place; members of arrays, and nulls, are content only.
        content: Equal in records with the same value.
        is_json: Whether its value is JSON.
        is_null: Whether it has no value.
        unnamed: Headers and members that are not looked at, for their names cannot be printed.
        is_lenient: Whether it is JSON only for those who do not take the standard at its word.
        events: How many events its value holds: members of an array of objects, or lines that are JSON each.
        is_utf8: Whether all of it is text, so that any part of it could be judged by.
        changing: Where copies among the records differ from those.
        spelled: How ids are read that are written in several ways.
    """

    partition: int
    timestamp_ms: int
    clock_ms: int
    leaves: Mapping[RecordPart, Leaf]
    content: Hashable
    is_json: bool
    is_null: bool
    unnamed: frozenset[RecordPart]
    is_lenient: bool = False
    events: int = 1
    is_utf8: bool = True
    changing: frozenset[RecordPart] = frozenset()
    spelled: Mapping[RecordPart, str] = field(default_factory=dict)

    @cached_property
    def lasting(self) -> Hashable:
        """The content without what each sending says anew: equal in a record and its copies."""
        if not isinstance(self.content, frozenset):
            return self.content
        names = {part.name for part in self.changing if part.source != "header"}
        return frozenset((name, leaf) for name, leaf in self.content if name not in names)
