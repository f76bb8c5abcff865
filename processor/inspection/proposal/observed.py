"""Takes records apart: what each holds that could tell it from others.

A place is a header, the key, or a member of the JSON value. What stands there is text, told from other kinds by
its `Kind`. Two records have the same content if their values have the same leaves, however they are written.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.inspection.proposal.member_names import names_sending
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from processor.inspection.topic_records import TopicRecord

FEW = 50
"""Records below which a sample says little."""
MOST_DEPTH = 6
"""Of objects within objects: an id does not lie deeper."""
MOST_NESTED = 128
"""The contract's bound: what is nested deeper is not JSON for a worker."""
MOST_LEAVES = 1_000
"""Of one value; what has more is compared by its bytes, and the rest of its members is not looked at."""


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
    """Where something stands in a record; ``name`` is a header's, a JSON pointer, or empty for the key."""

    source: str
    """As the config has it: ``header``, ``key`` or ``value``."""
    name: str

    def __str__(self) -> str:
        return self.name if self.source == "value" else f"{self.source} {self.name}".rstrip()


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
    """

    partition: int
    timestamp_ms: int
    clock_ms: int
    leaves: Mapping[RecordPart, Leaf]
    content: Hashable
    is_json: bool
    is_null: bool
    unnamed: frozenset[RecordPart]

    @cached_property
    def lasting(self) -> Hashable:
        """The content without what names the sending: equal in a record and its copies."""
        if not isinstance(self.content, frozenset):
            return self.content
        return frozenset((pointer, leaf) for pointer, leaf in self.content if not names_sending(pointer))


def observe(records: Iterable[TopicRecord]) -> list[ObservedRecord]:
    """Take records apart; those of a partition must be in the order of their offsets."""
    clocks: dict[int, int] = {}
    return [_observed(record, clocks) for record in records]


def _observed(record: TopicRecord, clocks: dict[int, int]) -> ObservedRecord:
    clock = clocks[record.partition] = max(clocks.get(record.partition, record.timestamp), record.timestamp)
    leaves = {KEY: Leaf(Kind.STRING, record.key)} if record.key is not None else {}
    unnamed = set()
    # Of several headers of one name the last counts, also where it has no value.
    for name, content in dict(record.headers).items():
        # What is no UTF-8 becomes what cannot be printed: no config can name it.
        place = RecordPart("header", name if isinstance(name, str) else name.decode(errors="surrogateescape"))
        if content is not None and place.name.strip() and place.name.isprintable():
            leaves[place] = Leaf(Kind.STRING, content)
        elif content is not None:
            unnamed.add(place)
    value = _parsed(record.value)
    members = [] if value is None else list(islice(_members(value, "", 0), MOST_LEAVES + 1))
    leaves |= {
        RecordPart("value", member.pointer): member.leaf
        for member in members
        if member.named and member.leaf != _NULL  # to a worker it is missing
    }
    unnamed |= {RecordPart("value", member.pointer) for member in members if member.unprintable}
    content_: Hashable = record.value
    if value is not None and len(members) <= MOST_LEAVES:
        content_ = frozenset((member.pointer, member.leaf) for member in members)
    times = record.partition, record.timestamp, clock
    return ObservedRecord(*times, leaves, content_, value is not None, record.value is None, frozenset(unnamed))


class _Member(NamedTuple):
    pointer: str
    leaf: Leaf
    named: bool
    """Whether a config could name it: in no array, not too deep, and printable."""
    unprintable: bool
    """Whether it is not named for that alone."""


def _members(
    value: Any, pointer: str, depth: int, *, named: bool = True, unprintable: bool = False
) -> Iterator[_Member]:
    """Yield the leaves of a JSON value; empty containers are leaves."""
    if depth > MOST_NESTED:
        yield _Member(pointer, Leaf(Kind.OTHER, "nested too deep"), named=False, unprintable=False)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            reached = (named or unprintable) and depth < MOST_DEPTH
            known = reached and named and name.isprintable()
            yield from _members(inner, below, depth + 1, named=known, unprintable=reached and not known)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _members(inner, f"{pointer}/{index}", depth + 1, named=False)
    else:
        leaf = value if isinstance(value, Leaf) else _leaf(value)
        yield _Member(pointer, leaf, named=named, unprintable=unprintable)


_NULL = Leaf(Kind.OTHER, "null")


def _leaf(value: Any) -> Leaf:
    return Leaf(Kind.STRING, value) if isinstance(value, str) else Leaf(Kind.OTHER, json.dumps(value))


def _parsed(value: bytes | None) -> Any:
    """Return a JSON value, numbers as leaves with their text; None: it is no JSON, or null."""
    if value is None:
        return None
    try:
        return _DECODER.decode(value.decode())
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(
    parse_int=lambda text: Leaf(Kind.INTEGER, text),
    parse_float=lambda text: Leaf(Kind.NUMBER, text),
    parse_constant=_no_constant,
)


def remarks(records: Sequence[ObservedRecord]) -> list[str]:
    """Return what is wrong with some of the records, whatever they are judged by."""
    notes = []
    if len(records) < FEW:
        notes.append(f"only {count(len(records), 'record')} there: look over what is proposed")
    valued = [record for record in records if not record.is_null]
    unread = sum(not record.is_json for record in valued)
    if unread:
        which = (
            "no value is JSON"
            if unread == len(valued)
            else f"{count(unread, 'value')} of {len(valued):,} {'is' if unread == 1 else 'are'} no JSON"
        )
        registry = all(isinstance(each.content, bytes) and each.content[:1] == b"\0" for each in valued)
        like = " (Avro or Protobuf of a schema registry, by their first byte)" if registry else ""
        notes.append(f"{which}{like}: only headers, keys and whole values can tell such records apart")
    if len(valued) < len(records):
        notes.append(f"{count(len(records) - len(valued), 'record')} without a value (tombstones)")
    return notes + _left_out(records)


def _left_out(records: Sequence[ObservedRecord]) -> list[str]:
    """Say how many places were not looked at for their names."""
    sources = Counter(place.source for place in frozenset().union(*(each.unnamed for each in records)))
    words = (("header", "header"), ("value", "JSON member"))
    return [
        f"{count(sources[source], word)} {'was' if sources[source] == 1 else 'were'} not looked at: "
        f"{'its name is' if sources[source] == 1 else 'their names are'} not printable"
        for source, word in words
        if sources[source]
    ]
