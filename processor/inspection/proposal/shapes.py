"""Says what kind of values a topic holds: what is needed to read them, and where no rule fits. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from processor.inspection.proposal.candidates import COMMON
from processor.inspection.proposal.member_names import names_event_id
from processor.inspection.proposal.near import ID_TEXT
from processor.inspection.proposal.record_parts import KEY
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.proposal.record_parts import ObservedRecord, RecordPart

_MANY = 0.8
"""Different contents per record from which on what is called an id of an event is one."""
MOST_PARTS = 60
"""Of a text's columns: an id has no more parts."""


def reading(records: Sequence[ObservedRecord]) -> dict[str, Any]:
    """Return the keys of a dedup that values need to be read at all."""
    return {"json": "lenient"} if any(record.is_lenient for record in records) else {}


def why_no_rule(records: Sequence[ObservedRecord]) -> str:
    """Say why whole records cannot be judged; empty: they can."""
    several = [record for record in records if record.events > 1]
    if not several:
        return ""
    what = (
        "a JSON array of events"
        if any(record.is_json for record in several)
        else "several JSON documents, a line each"
    )
    return (
        f"{count(len(several), 'record')} of {len(records):,} looked at hold {what}: a resend may part them in "
        "another way, and a rule judges whole records. Have them split first, one event a record"
    )


def has_id(records: Sequence[ObservedRecord]) -> bool:
    """Whether values name themselves: what is called an id there, or looks like one, tells them apart."""
    places = Counter(
        place for record in records for place in record.leaves if place.source in {"value", "column"}
    )
    for place, present in places.items():
        if present < COMMON * len(records):
            continue
        texts = {str(record.leaves[place].text) for record in records if place in record.leaves}
        if len(texts) >= _MANY * present and (names_event_id(place.name) or all(map(ID_TEXT.fullmatch, texts))):
            return True
    return False


def common_parts(records: Sequence[ObservedRecord]) -> list[RecordPart]:
    """Return what beside the value makes records the same: key and headers that nearly all have.

    Where values name themselves only headers that are called ids of events do.
    """
    places = Counter(place for record in records for place in record.leaves)
    common = [place for place, there in places.items() if there >= COMMON * len(records)]
    named = has_id(records)
    return [place for place in common
            if (place == KEY and not named)
            or (place.source == "header" and (names_event_id(place.name) or not named))]  # fmt: skip


def columns_of(records: Sequence[ObservedRecord]) -> list[RecordPart]:
    """Return the columns of texts that differ; none where they are no such texts, or more than an id takes."""
    seen: dict[RecordPart, set[Any]] = {}
    for record in records:
        for place, leaf in record.leaves.items():
            if place.source == "column":
                seen.setdefault(place, set()).add(leaf.text)
    differ = [place for place, texts in seen.items() if len(texts) > 1 or len(seen) <= MOST_PARTS]
    return sorted(differ, key=lambda place: int(place.name[:-1])) if len(differ) <= MOST_PARTS else []
