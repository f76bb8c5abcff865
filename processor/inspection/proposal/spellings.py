"""Finds ids that are written in several ways: UUIDs with and without dashes, numbers as text. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from processor.inspection.proposal.member_names import names_id
from processor.inspection.proposal.record_parts import Kind, Leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from processor.inspection.proposal.record_parts import ObservedRecord, RecordPart

_UUID = re.compile(r"\{?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?")
_WHOLE = re.compile(r"0*([0-9]{1,18})(\.0*)?", re.ASCII)


def _as_uuid(text: str) -> str:
    return text.strip("{}").replace("-", "").lower() if _UUID.fullmatch(text) else ""


def _as_integer(text: str) -> str:
    found = _WHOLE.fullmatch(text)
    return "" if found is None else found[1]


READ: dict[str, Callable[[str], str]] = {"uuid": _as_uuid, "integer": _as_integer}
"""By what a config calls it how a text is read; empty: it is no such."""


def spellings(records: Sequence[ObservedRecord]) -> dict[RecordPart, str]:
    """Return how ids have to be read that are written in several ways; those that are not are left out.

    Only where all else is equal in the records of one meaning: else they may be of different events.
    """
    places = {place for record in records for place in record.leaves if place.source == "value"}
    found = {}
    for place in filter(lambda each: names_id(each.name), places):
        having = [record for record in records if place in record.leaves]
        for kind, read in READ.items():
            meant: dict[str, dict[Leaf, Hashable]] = defaultdict(dict)
            for record in having:
                leaf = record.leaves[place]
                meant[read(str(leaf.text))].setdefault(leaf, _without(record, place))
            several = [ways for ways in meant.values() if len(ways) > 1]
            if several and "" not in meant and all(len(set(ways.values())) == 1 for ways in several):
                found[place] = kind
    return found


def _without(record: ObservedRecord, place: RecordPart) -> Hashable:
    """Return what a record says but for a place."""
    if not isinstance(record.content, frozenset):
        return record.content
    return frozenset(member for member in record.content if member[0] != place.name)


def respelled(leaf: Leaf, kind: str) -> Leaf:
    """Return what stands at a place as every spelling of it is read."""
    return Leaf(Kind.STRING, READ[kind](str(leaf.text)))
