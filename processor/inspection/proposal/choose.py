"""Chooses by what a topic's records should be judged, and says why.

First a number that is called a sequence, or a header that is counted one by one; then an id; then two fields
that make one together; then any number that rises; and where nothing tells records apart their content. Of ids
those in the JSON value come first, and those of which copies were seen: an id that a resend renews is useless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from processor.inspection.proposal.candidates import (
    Candidate,
    candidate,
    content_part,
    contents,
    places_of,
)
from processor.inspection.proposal.member_names import (
    names_change,
    names_event_id,
    names_id,
    names_sending,
    names_sequence,
    names_subject,
    names_time,
    names_transaction,
)
from processor.inspection.proposal.observed import FEW, KEY, Kind, ObservedRecord, RecordPart, remarks
from processor.inspection.proposal.rising import Rise, rise
from processor.inspection.proposal.toml_text import toml_text
from processor.ops.status_text import count, duration
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONGEST_ID = 256
"""Characters; longer contents are text, not ids."""
_SCOPES = 20
_PAIRS = 8
_DAY_MS = 86_400_000
_WINDOWS_MS = (_DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS)
"""None is shorter than where no copy was seen: a sample of minutes shows no copies that come after hours."""
_MANY = 0.5
"""Share of copies by content above which they are hardly resends."""
_MARGIN = 10
"""Times the longest gap that was seen: a sample does not see the longest there is."""

_TIME_TEXT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_ID_TEXT = re.compile(
    r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9A-HJKMNP-TV-Z]{26}|[0-9a-fA-F]{32,64}"
)
_NAMED_EVENT, _NAMED, _FORMED, _KEYED = 40, 30, 20, 10
_COPIED = 15
"""More than the name of an event is worth above any id's: an id that resends keep is one."""
_BY_SOURCE = {"value": 5, "header": 3, "key": 0}


@dataclass(frozen=True)
class Proposal:
    """What a pipeline's dedup should be.

    Attributes:
        dedup: The keys of ``[pipelines.dedup]``, in order.
        reasons: By key of ``dedup``, why; ``mode`` has the reason for all of it.
        hints: What else could be set, as lines of TOML and remarks, each with its reason.
        notes: What people should know of the topic.
        candidates: All that was looked at, the best first.
        chosen: The places that are judged by; none: the content is.
        rises: Of those that rise.
        other: The keys of another way that would do, in the other mode; None: there is none.
    """

    dedup: dict[str, Any]
    reasons: dict[str, str]
    hints: list[tuple[str, str]]
    notes: list[str]
    candidates: list[Candidate]
    rises: dict[RecordPart, Rise]
    chosen: tuple[RecordPart, ...]
    other: dict[str, Any] | None = None

    @property
    def others(self) -> list[tuple[dict[str, Any], str]]:
        """All ways of judging that are proposed, the best first, each with the reason."""
        ways = [(self.dedup, self.reasons["mode"])]
        if self.other is not None:
            ways.append((self.other, "the other way: the id of each record, within a window of time"))
        return ways


@dataclass
class _Sample:
    """The records and what was counted of them."""

    records: Sequence[ObservedRecord]
    candidates: list[Candidate] = field(default_factory=list)
    rises: dict[RecordPart, Rise] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    changes: bool = False
    """Whether they are changes that Debezium has read from a database."""


def propose(records: Sequence[ObservedRecord]) -> Proposal | None:
    """Propose how to judge; None: the records have neither values nor anything else that tells them apart.

    Args:
        records: At least one; those of a partition in the order of their offsets.
    """
    sample = _Sample(records)
    places = places_of(records)
    sample.candidates = [candidate(records, place) for place in places]
    groups = [each.places[0] for each in sample.candidates if _may_scope(each)]
    scopes: list[RecordPart | None] = [None, *groups[:_SCOPES], KEY]
    # A snapshot, a failover, a new slot or a new log of the database begins its numbers again, and changes of
    # one transaction may share theirs.
    sample.changes = any(names_change(place.name) for place in places)
    for each in sample.candidates if not sample.changes else ():
        if each.common and not names_sending(each.places[0].name):
            found = rise(records, each.places[0], scopes)
            if found is not None:
                sample.rises[each.places[0]] = found
    sample.candidates.sort(key=lambda each: -_score(sample, each))
    sample.notes += remarks(records)
    return _chosen(sample)


def _chosen(sample: _Sample) -> Proposal | None:
    if (sequence := _best_sequence(sample, sure=True)) is not None:
        return _by_sequence(sample, *sequence)
    if (best := next(_ids(sample), None)) is not None:
        return _by_id(sample, best)
    if (sequence := _best_sequence(sample, sure=False)) is not None:
        return _by_sequence(sample, *sequence)
    return _by_content(sample)


# ------------------------------------------------------------------ sequences


def _may_scope(each: Candidate) -> bool:
    """Whether a place could say whose a number is: a header of few values."""
    return each.common and each.places[0].source == "header" and 1 < each.distinct <= each.present / 2


def _best_sequence(sample: _Sample, *, sure: bool) -> tuple[Candidate, Rise] | None:
    """Return the number to judge by; ``sure``: called a sequence, or a header that is counted one by one."""
    found = []
    for each in sample.candidates:
        place = each.places[0]
        rises = sample.rises.get(place)
        if rises is None or names_subject(place.name) or _is_time(sample, each):
            continue
        if names_transaction(place.name):
            continue
        counted = rises.contiguous and place.source == "header" and not names_id(place.name)
        if sure and not rises.named and not counted:
            continue
        worth = rises.named, rises.contiguous, rises.scope == "partition", place.source == "header"
        found.append((worth, each, rises))
    if not found:
        return None
    _, each, rises = max(found, key=lambda item: item[0])
    return each, rises


def _by_sequence(sample: _Sample, chosen: Candidate, rises: Rise) -> Proposal:
    place = chosen.places[0]
    of = {"partition": "partition", "key": "partition and key"}.get(
        rises.scope, f"partition and {rises.scope[7:]}"
    )
    how = "one by one" if rises.contiguous else "with gaps"
    why = f"{place} is a number that rises per {of}, {how}, in {_share(chosen)}"
    if rises.copies:
        why += f"; {count(rises.copies, 'number')} came again with the same value, as resends do"
    if rises.older:
        why += (
            f"; {count(rises.older, 'number')} lay below those of the sample: resends of older records, or a "
            "producer that has begun its count again (then set epoch)"
        )
    dedup: dict[str, Any] = {"mode": "watermark"}
    reasons = {"mode": why}
    if rises.scope != "partition":
        dedup["scope"] = rises.scope
        reasons["scope"] = f"the numbers rise per {rises.scope.removeprefix('header:')}, not per partition"
    named = {"name": place.name} if place.source == "header" else {"pointer": place.name}
    written = {} if rises.format.name is None else {"format": rises.format.name}
    dedup["sequence"] = {"from": place.source, **named, **written}
    if rises.late:
        dedup["reorder_window"] = rises.reorder_window
        reasons["reorder_window"] = (
            f"{count(rises.late, 'record')} came up to {rises.reach} numbers late and for the first time: "
            "without it they would be dropped"
        )
    hints = []
    second: dict[str, Any] | None = None
    if (other := next(_ids(sample), None)) is not None:
        second = {"mode": "insert-id", "id": _parts(other), "window": "1d"}
        table = ", ".join(f"{key} = {toml_text(value)}" for key, value in second.items())
        hints.append((table, "the other way: the id of each record, within a window of time"))
    return Proposal(dedup, reasons, hints, sample.notes, sample.candidates, sample.rises, chosen.places, second)


# ------------------------------------------------------------------ ids


def _ids(sample: _Sample) -> Iterator[Candidate]:
    """Yield what could be the id, the best first; pairs where nothing is one alone."""
    single = [each for each in sample.candidates if each.common and each.unique and _score(sample, each) > 0]
    yield from single
    if single:
        return
    common = [each for each in sample.candidates if each.common and each.distinct > 1]
    common = [each for each in common if not _is_of_database(sample, each)]
    ids = [each for each in common if names_id(each.places[0].name) or each.places[0] in sample.rises]
    ids += [each for each in common if each.kinds.keys() == {Kind.INTEGER} and each not in ids]
    whose = [each for each in common if names_subject(each.places[0].name) or each.places[0] == KEY]
    pairs = [
        candidate(sample.records, one.places[0], other.places[0])
        for one, other in product(ids[:_PAIRS], whose[:_PAIRS])
        if one is not other and not _is_time(sample, one)
    ]
    yield from sorted((pair for pair in pairs if pair.unique), key=lambda pair: -pair.copies)


def _score(sample: _Sample, each: Candidate) -> int:
    """Return how likely a place is the id of an event, by name, form and copies; 0: it is none."""
    place = each.places[0]
    if each.longest > LONGEST_ID or Kind.OTHER in each.kinds or Kind.NUMBER in each.kinds:
        return 0
    if names_sending(place.name) or _is_time(sample, each):
        return 0
    if _is_of_database(sample, each):
        return 0
    if place == KEY:
        worth = _KEYED
    elif names_event_id(place.name):
        worth = _NAMED_EVENT
    elif names_subject(place.name):
        return 0
    elif names_id(place.name):
        worth = _NAMED
    elif all(map(_ID_TEXT.fullmatch, _texts(sample, place))):
        worth = _FORMED
    else:
        return 0
    return worth + _COPIED * (each.copies > 0) + _BY_SOURCE[place.source] - place.name.count("/")


def _is_of_database(sample: _Sample, each: Candidate) -> bool:
    """Whether it is a transaction or a place in a database's log, which several changes share."""
    name = each.places[0].name
    return sample.changes and (names_transaction(name) or names_sequence(name))


def _is_time(sample: _Sample, each: Candidate) -> bool:
    place = each.places[0]
    if names_time(place.name):
        return True
    return all(map(_TIME_TEXT.fullmatch, _texts(sample, place)))


def _texts(sample: _Sample, place: RecordPart) -> Iterator[str]:
    """Yield what stands at a place in the first records that have it, as text."""
    texts = (record.leaves[place].text for record in sample.records if place in record.leaves)
    for text in islice(texts, FEW):
        yield text if isinstance(text, str) else text.decode(errors="replace")


def _by_id(sample: _Sample, chosen: Candidate) -> Proposal:
    why = f"{chosen} is in {_share(chosen)} and tells them apart: {chosen.distinct:,} different"
    if chosen.copies:
        why += f", and {_copies(chosen.copies)} with the same content"
    dedup: dict[str, Any] = {"mode": "insert-id", "id": _parts(chosen)}
    hints: list[tuple[str, str]] = []
    exclude = sorted(pointer for pointer in chosen.changing if pointer)
    fingerprint = f"fingerprint = {toml_text({'exclude': exclude} if exclude else {})}"
    if chosen.clashes:
        why += f", {count(chosen.clashes, 'record')} with an id that came before with other content"
        hints.append((fingerprint, "tells a resend from another event with the same id: docs/fingerprints.md"))
        hints.append(('on_collision = "pass"', "what becomes of the other event: it passes"))
    elif exclude:
        hints.append(
            (
                fingerprint,
                "in case ids are not always unique (docs/fingerprints.md): copies differ in what is excluded",
            )
        )
    for other in _ids(sample):
        # What has no copies where another has is made anew by a resend.
        if other.places != chosen.places and bool(other.copies) == bool(chosen.copies):
            hints.append((f"id = {toml_text(_parts(other))}", "tells them apart as well: yours to choose"))
            break
    return _with_window(sample, chosen, dedup, why, hints)


def _by_content(sample: _Sample) -> Proposal | None:
    whole = contents(sample.records)
    if not whole.present:
        return None
    part = content_part(sample.records)
    why = (
        "no header, key or member of the value that was looked at tells the records apart: their content is "
        "the id"
    )
    if whole.copies > _MANY * whole.present:
        sample.notes.append(
            f"WARNING: the content would drop {whole.copies:,} of the {whole.present:,} records with a value "
            "as copies; take it only if they are resends, and else have the producer write an id"
        )
    if whole.copies:
        why += f"; of {whole.records:,} records {whole.copies:,} have the value of an earlier one"
    hints = [("", "two real events with the same content are one: docs/content-ids.md")]
    return _with_window(sample, whole, {"mode": "insert-id", "id": [part]}, why, hints)


def _with_window(
    sample: _Sample, chosen: Candidate, dedup: dict[str, Any], why: str, hints: list[tuple[str, str]]
) -> Proposal:
    """Add the window, the clock and the route."""
    reasons = {"mode": why}
    if chosen.gap_ms is None:
        dedup["window"] = duration_text(_DAY_MS)
        reasons["window"] = (
            "a guess, for no copy was seen; take longer than your producer may take to send again"
        )
    else:
        wanted = chosen.gap_ms * _MARGIN
        window = next((each for each in _WINDOWS_MS if each >= wanted), _WINDOWS_MS[-1])
        dedup["window"] = duration_text(window)
        gap = f"{chosen.gap_ms} ms" if chosen.gap_ms < 1_000 else duration(chosen.gap_ms / 1_000)
        why_so = "a sample shows no late ones: so a day" if wanted <= _DAY_MS else "ten times that, rounded up"
        reasons["window"] = (
            f"copies came up to {gap} after the first; {why_so}. One that comes later still passes"
        )
    if any(record.timestamp_ms <= 0 for record in sample.records):
        dedup["time"] = "arrival"
        reasons["time"] = "records have no timestamps: the worker's clock counts"
    if chosen.crossing:
        dedup["route"] = "by-id"
        reasons["route"] = f"{_copies(chosen.crossing)} came in another partition than the first"
    return Proposal(dedup, reasons, hints, sample.notes, sample.candidates, sample.rises, chosen.places)


# ------------------------------------------------------------------ texts


def _share(chosen: Candidate) -> str:
    if chosen.present == chosen.records:
        return f"all {chosen.records:,} records" if chosen.records > 1 else "the one record"
    lacking = chosen.records - chosen.present
    return f"{chosen.present:,} of {chosen.records:,} records ({lacking:,} without it would be quarantined)"


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number:,} copies"


def _parts(chosen: Candidate) -> list[dict[str, Any]]:
    return [_part(place) for place in chosen.places]


def _part(place: RecordPart) -> dict[str, Any]:
    if place == KEY:
        return {"from": "key"}
    return {"from": place.source, "name" if place.source == "header" else "pointer": place.name}
