"""Counts, for each place in a sample, how well it tells records apart.

Two records with equal content at a place are *copies* if their values are the same (but for what names the
sending, such as ``/sent_at``), and a *clash* otherwise. An id has copies and no clashes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from processor.inspection.proposal.record_parts import Kind, Leaf, ObservedRecord, RecordPart

MOST_PLACES = 200
"""Looked at of a topic; those that most records have."""
COMMON = 0.95
"""Share of the records that has to have a place for it to tell records apart; the rest is quarantined."""
_UNIQUE = 0.98
"""Share of the different records that must not clash."""


@dataclass
class Candidate:
    """How the records of a sample differ at one place, or at two together.

    Attributes:
        places: One; or two that make an id together.
        kinds: What stands there.
        records: How many records the sample has.
        present: In how many of them something stands there.
        distinct: How many different contents.
        copies: Records whose content and value came before.
        clashes: Records whose content came before with another value.
        gap_ms: The longest time between a record and its copy, by the partition's clock; None without copies.
        crossing: Copies in another partition than the record.
        changing: Members that differ between copies.
        longest: Characters or bytes of the longest content.
    """

    places: tuple[RecordPart, ...]
    records: int
    kinds: Counter[Kind] = field(default_factory=Counter)
    present: int = 0
    distinct: int = 0
    copies: int = 0
    clashes: int = 0
    gap_ms: int | None = None
    crossing: int = 0
    changing: set[str] = field(default_factory=set)
    longest: int = 0

    @property
    def common(self) -> bool:
        """Whether nearly all records have it."""
        return self.present >= COMMON * self.records

    @property
    def unique(self) -> bool:
        """Whether it tells nearly all different records apart."""
        different = self.present - self.copies
        return self.distinct > (self.records > 1) and self.distinct >= _UNIQUE * different

    def __str__(self) -> str:
        return " + ".join(map(str, self.places))


def places_of(records: Sequence[ObservedRecord]) -> list[RecordPart]:
    """Return the places that most records have, as they come in a record."""
    counted = Counter(place for record in records for place in record.leaves)
    order = {place: index for index, place in enumerate(counted)}
    common = [place for place, _ in counted.most_common(MOST_PLACES)]
    return sorted(common, key=order.__getitem__)


def candidate(records: Sequence[ObservedRecord], *places: RecordPart) -> Candidate:
    """Count how records differ at some places together."""
    found = Candidate(places, len(records))
    seen: dict[tuple[Leaf, ...], dict[Hashable, ObservedRecord]] = {}
    for record in records:
        leaves = tuple(record.leaves[place] for place in places if place in record.leaves)
        if len(leaves) < len(places):
            continue
        found.present += 1
        found.kinds.update(leaf.kind for leaf in leaves)
        found.longest = max(found.longest, *(len(leaf.text) for leaf in leaves))
        earlier = seen.setdefault(leaves, {})
        original = earlier.setdefault(record.lasting, record)
        if original is not record:
            _add_copy(found, original, record)
        elif len(earlier) > 1:
            found.clashes += 1
    found.distinct = len(seen)
    return found


def contents(records: Iterable[ObservedRecord]) -> Candidate:
    """Count copies among the values themselves, as content ids see them."""
    seen: dict[Hashable, ObservedRecord] = {}
    found = Candidate((), 0)
    for record in records:
        found.records += 1
        if record.is_null:
            continue
        found.present += 1
        original = seen.setdefault(record.lasting, record)
        if original is not record:
            _add_copy(found, original, record)
    found.distinct = len(seen)
    return found


def content_part(records: Iterable[ObservedRecord]) -> dict[str, Any]:
    """Return the content of the values as a part of an id, without what names the sending."""
    part: dict[str, Any] = {"from": "content"}
    valued = [record for record in records if not record.is_null]
    if not all(record.is_json and record.is_utf8 for record in valued):
        return part | {"of": "bytes"}
    places = {place for record in valued for place in record.leaves if place.source == "value"}
    sending = sorted(place.name for place in places if any(place in record.changing for record in valued[:1]))
    return part | ({"exclude": sending} if sending else {})


def _add_copy(found: Candidate, original: ObservedRecord, copy: ObservedRecord) -> None:
    found.copies += 1
    if copy.partition == original.partition:
        found.gap_ms = max(found.gap_ms or 0, copy.clock_ms - original.clock_ms)
    else:
        found.crossing += 1
        found.gap_ms = max(found.gap_ms or 0, abs(copy.timestamp_ms - original.timestamp_ms))
    if copy.content != original.content:
        both = original.leaves.items() ^ copy.leaves.items()
        found.changing |= {place.name for place, _ in both if place.source == "value"}
