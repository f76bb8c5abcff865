"""Finds the parts in which a copy differs from its record: times, and numbers of the sending. Pure.

Two records are near copies if all that is neither a time nor an id of some form is equal, and something that
tells nearly all records apart is equal too. What they differ in is said by each sending anew. An id of an event
is believed to be renewed only where another one is the same. Parts that are called so (``/sent_at``) always
are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from processor.inspection.proposal.member_names import names_id, names_sending, names_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from processor.inspection.proposal.record_parts import Leaf, ObservedRecord, RecordPart

TIME_TEXT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
ID_TEXT = re.compile(
    r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9A-HJKMNP-TV-Z]{26}|[0-9a-fA-F]{32,64}"
)
_FEW = 50
_TELLS_APART = 0.8
"""Different contents per record from which on a part tells records apart. Of a topic that has more copies than
that nothing is said: a part that only some records share by chance would pass for their name."""
_NEAR_MS = 400 * 86_400_000
"""Events of a topic may be a year older than their records. Records without a time have none near."""
_PER_MS = (0.001, 1, 1_000, 1_000_000)
"""Seconds to nanoseconds, as units that a time may have."""
MOST_CHANGING = 40
"""More are a map whose members are named by data; a config has room for 62."""
_LEAST = 20
"""Records below which nothing is told from what their parts have in common."""


def are_times(numbers: Iterable[tuple[int, int]]) -> bool:
    """Whether numbers, in one of the usual units, are times near those of their records: pairs of both, ms."""
    pairs = list(numbers)
    for per_ms in _PER_MS:
        near = sum(abs(number / per_ms - at) < _NEAR_MS for number, at in pairs if at > _NEAR_MS)
        if pairs and near > 0.9 * len(pairs):
            return True
    return False


def changing(records: Sequence[ObservedRecord]) -> frozenset[RecordPart]:
    """Return the parts in which copies among some records differ from those, at most `MOST_CHANGING`."""
    places = Counter(place for record in records for place in record.leaves)
    volatile = frozenset(place for place in places if _is_volatile(place, records))
    found = Counter({place: places[place] for place in volatile if _is_time_of_sending(place, records)})
    if len(records) >= _LEAST:
        telling = {place for place, present in places.items() if _tells_apart(place, present, records)}
        for one, other in _alike(records, volatile, telling):
            differ = {place for place in volatile if one.leaves.get(place) != other.leaves.get(place)}
            both = one.leaves.items() & other.leaves.items()
            same = {place for place, _ in both if place in telling}
            if same and is_believed(differ, same, (one, other)):
                found.update({place: places[place] for place in differ})
    return frozenset(place for place, _ in found.most_common(MOST_CHANGING))


def _alike(
    records: Sequence[ObservedRecord], volatile: frozenset[RecordPart], telling: Collection[RecordPart]
) -> Iterator[tuple[ObservedRecord, ObservedRecord]]:
    """Yield records that say the same but for parts that may be of their sending, and share one that tells."""
    groups: dict[Hashable, list[ObservedRecord]] = defaultdict(list)
    for record in records:
        core = _core(record, volatile)
        for place in telling:
            if place in record.leaves:
                groups[core, place, record.leaves[place]].append(record)
    for group in groups.values():
        yield from pairwise(group)


def is_believed(
    differ: Collection[RecordPart], same: Collection[RecordPart], records: Sequence[ObservedRecord]
) -> bool:
    """Whether parts in which two records differ may be of their sending, where others are the same."""

    def is_id(place: RecordPart) -> bool:
        texts = [_text(each.leaves[place]) for each in records if place in each.leaves]
        return names_id(place.name) or all(map(ID_TEXT.fullmatch, texts))

    return not any(map(is_id, differ)) or any(map(is_id, same))


def differing(records: Sequence[ObservedRecord], same: Collection[RecordPart]) -> frozenset[RecordPart]:
    """Return the parts in which two records of one id differ, where only times and ids of their sending do.

    Args:
        records: They.
        same: The parts of the id.
    """
    one, other = records
    volatile = frozenset(place for place in one.leaves.keys() | other.leaves if _is_volatile(place, records))
    if _core(one, volatile) != _core(other, volatile):
        return frozenset()
    differ = frozenset(place for place in volatile if one.leaves.get(place) != other.leaves.get(place))
    return differ if is_believed(differ, same, records) else frozenset()


def _core(record: ObservedRecord, volatile: frozenset[RecordPart]) -> Hashable:
    """Return what a record says but for some parts."""
    if not isinstance(record.content, frozenset):
        return record.content
    names = {place.name for place in volatile if place.source != "header"}
    return frozenset(member for member in record.content if member[0] not in names)


def _is_volatile(place: RecordPart, records: Sequence[ObservedRecord]) -> bool:
    """Whether a part may be said anew by each sending."""
    if place.source == "key" or "|" in place.name:
        return False
    if names_sending(_last(place)) or _are_times_at(place, records):
        return True
    return all(map(ID_TEXT.fullmatch, _texts_at(place, records)))


def _is_time_of_sending(place: RecordPart, records: Sequence[ObservedRecord]) -> bool:
    """Whether a part is called as the time of a sending, and is a time: that needs no copy to be seen."""
    return names_sending(_last(place)) and _are_times_at(place, records)


def _are_times_at(place: RecordPart, records: Sequence[ObservedRecord]) -> bool:
    """Whether times stand at a place."""
    texts = _texts_at(place, records)
    if all(map(TIME_TEXT.fullmatch, texts)):
        return True
    short = all(len(text) <= 20 and text.isascii() and text.isdigit() for text in texts)
    ats = [each.timestamp_ms for each in records if place in each.leaves]
    return short and not names_id(place.name) and are_times(zip(map(int, texts), ats, strict=False))


def _texts_at(place: RecordPart, records: Sequence[ObservedRecord]) -> list[str]:
    leaves = (each.leaves[place] for each in records if place in each.leaves)
    return [_text(leaf) for leaf in islice(leaves, _FEW)]


def _last(place: RecordPart) -> str:
    return place.name.rsplit("/", 1)[-1]


def _tells_apart(place: RecordPart, present: int, records: Sequence[ObservedRecord]) -> bool:
    """Whether nearly all records have a part, and many different ones."""
    if present < 0.95 * len(records) or place.source == "key" or names_subject(place.name):
        return False
    return len({record.leaves.get(place) for record in records}) >= _TELLS_APART * present


def _text(leaf: Leaf) -> str:
    return leaf.text if isinstance(leaf.text, str) else leaf.text.decode(errors="replace")
