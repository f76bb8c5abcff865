"""Chooses by what a topic's records should be judged, and says why.

First a number that is called a sequence, or a header that is counted one by one; then an id; then two fields
that make one together; then any number that rises; and where nothing tells records apart their content. Of ids
those in the JSON value come first, and those of which copies were seen: an id that a resend renews is useless.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
from processor.inspection.proposal.near import ID_TEXT, TIME_TEXT
from processor.inspection.proposal.observed import FEW, remarks
from processor.inspection.proposal.record_parts import KEY, Kind, ObservedRecord, RecordPart
from processor.inspection.proposal.rising import Rise, rises
from processor.inspection.proposal.shapes import reading
from processor.inspection.proposal.toml_text import toml_text
from processor.ops.status_text import count, duration_ms
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

_NAMED_EVENT, _NAMED, _FORMED, _KEYED = 40, 30, 20, 10
_COPIED = 15
"""More than the name of an event is worth above any id's: an id that resends keep is one."""
_BY_SOURCE = {"value": 5, "header": 3, "column": 1, "key": 0}
_SEQUENCES, _IDS = 3, 4
"""Of each kind so many are proposed; which of them loses nothing is for who tries them."""
_VALUE_SCOPES = 6
_WHOSE = {
    "sensor",
    "source",
    "gateway",
    "driver",
    "path",
    "file",
    "inode",
    "boot_id",
    "partition",
    "shard",
    "unit",
}
"""Names of members that may have a count of their own, beside those that are called as subjects are."""


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
        changing: Where copies differ from their originals.
        is_named: Whether what is judged by is called an id of an event or a sequence, or is formed as an id.
    """

    dedup: dict[str, Any]
    reasons: dict[str, str]
    hints: list[tuple[str, str]]
    notes: list[str]
    candidates: list[Candidate]
    rises: dict[RecordPart, Rise]
    chosen: tuple[RecordPart, ...]
    changing: frozenset[RecordPart] = frozenset()
    is_named: bool = False

    @property
    def by_content(self) -> bool:
        """Whether the content alone tells records apart."""
        return not self.chosen

    def told_apart(self) -> Proposal | None:
        """Return the same ids with a fingerprint, where other content under one id passes; None: of no use."""
        if self.by_content or "fingerprint" in self.dedup:
            return None
        exclude = sorted({part.name for part in self.changing if part.source == "value"})
        more = {"fingerprint": {"exclude": exclude} if exclude else {}, "on_collision": "pass"}
        reasons = {
            "fingerprint": "ids come with other content too: it tells a resend from another event "
            "(docs/fingerprints.md)",
            "on_collision": "what becomes of the other event: it passes",
        }
        return replace(self, dedup=self.dedup | more, reasons=self.reasons | reasons, hints=[])

    def wrapping(self, numbers: int) -> Proposal:
        """Return the same sequence, as one that begins again behind so many numbers."""
        dedup = self.dedup | {"sequence": self.dedup["sequence"] | {"wraps": numbers}}
        return replace(
            self, dedup=dedup, reasons=self.reasons | {"sequence": f"it begins again behind {numbers - 1:,}"}
        )

    def set_window(self, gap_ms: int | None, crossing: int, seen: str) -> None:
        """Set window and route of ids by what was seen; sequences have neither.

        Args:
            gap_ms: The longest time between a record and its copy; None: no copies were seen.
            crossing: Copies in another partition than their original.
            seen: What that was seen of.
        """
        if self.dedup["mode"] != "insert-id":
            return
        self.dedup["window"], self.reasons["window"] = _window(gap_ms, seen)
        self.dedup.pop("route", None)
        if crossing:
            self.dedup["route"] = "by-id"
            self.reasons["route"] = f"{_copies(crossing)} came in another partition than the first"


_CLOUD_EVENT_HEADERS = RecordPart("header", "ce_id"), RecordPart("header", "ce_source")
_CLOUD_EVENT = RecordPart("value", "/id"), RecordPart("value", "/source")
_SPECVERSION = RecordPart("value", "/specversion")
_CHANGES = tuple(
    (*(RecordPart("value", f"{above}{name}") for name in names), KEY)
    for above in ("/source/", "/payload/source/", "/__source_")
    for names in (("lsn",), ("file", "pos", "row"), ("scn",))
)
"""What names a change of PostgreSQL, MySQL and Oracle, beside its key, in what Debezium writes."""


@dataclass
class _Sample:
    """The records and what was counted of them."""

    records: Sequence[ObservedRecord]
    candidates: list[Candidate] = field(default_factory=list)
    rises: dict[RecordPart, Rise] = field(default_factory=dict)
    rising: list[tuple[Candidate, Rise]] = field(default_factory=list)
    """Those, in every scope in which they rise."""
    notes: list[str] = field(default_factory=list)
    changes: bool = False
    """Whether they are changes that Debezium has read from a database."""

    def whole(self, parts: Sequence[RecordPart]) -> Candidate | None:
        """Return some places as one id, where nearly all records have all of them; None: they have not."""
        found = candidate(self.records, *parts)
        return found if found.common and found.distinct > 1 else None


def propose(records: Sequence[ObservedRecord]) -> Proposal | None:
    """Propose how to judge; None: the records have neither values nor anything else that tells them apart.

    Args:
        records: At least one; those of a partition in the order of their offsets.
    """
    return next(iter(proposals(records)), None)


def proposals(records: Sequence[ObservedRecord]) -> list[Proposal]:
    """Return all ways of judging that a sample suggests, the likeliest first."""
    sample = _Sample(records)
    places = places_of(records)
    sample.candidates = [candidate(records, place) for place in places]
    groups = [each.places[0] for each in sample.candidates if _may_scope(each)]
    headers = [each for each in groups if each.source == "header"][:_SCOPES]
    members = [each for each in groups if each.source != "header"][:_VALUE_SCOPES]
    scopes: list[RecordPart | None] = [None, *headers, KEY, *members]
    # A snapshot, a failover, a new slot or a new log of the database begins its numbers again, and changes of
    # one transaction may share theirs.
    sample.changes = any(names_change(place.name) for place in places)
    for each in sample.candidates if not sample.changes else ():
        if each.common and not names_sending(each.places[0].name):
            found = rises(records, each.places[0], scopes)
            sample.rising += [(each, one) for one in found]
            if found:
                sample.rises[each.places[0]] = found[0]
    sample.candidates.sort(key=lambda each: -_score(sample, each))
    sample.notes += remarks(records)
    changing = frozenset().union(*(record.changing for record in records))
    ways = [replace(each, changing=changing) for each in _ways(sample)]
    for way in ways:
        way.dedup.update(reading(records))
        if "json" in way.dedup:
            forgiven = sum(record.is_lenient for record in records)
            way.reasons["json"] = (
                f"without it {count(forgiven, 'value')} would be quarantined, for NaN, a byte order mark, NUL "
                "at the end, or bytes that are not UTF-8 beside what is judged"
            )
    return [way for number, way in enumerate(ways) if all(way.dedup != one.dedup for one in ways[:number])]


def _ways(sample: _Sample) -> Iterator[Proposal]:
    yield from (replace(_by_id(sample, each), is_named=True) for each in _standard_ids(sample))
    sure = _sequences(sample, sure=True)[:_SEQUENCES]
    yield from (replace(_by_sequence(sample, *each), is_named=True) for each in sure)
    for each in islice(_ids(sample), _IDS):
        yield replace(_by_id(sample, each), is_named=any(_is_event_id(sample, part) for part in each.places))
    yield from (_by_sequence(sample, *each) for each in _sequences(sample, sure=False)[:_SEQUENCES])
    by_content = _by_content(sample)
    if by_content is not None:
        yield by_content


def _is_event_id(sample: _Sample, place: RecordPart) -> bool:
    """Whether a place is called an id of an event, or has the form of one."""
    return names_event_id(place.name) or all(map(ID_TEXT.fullmatch, _texts(sample, place)))


# ------------------------------------------------------------------ sequences


def _may_scope(each: Candidate) -> bool:
    """Whether a place could say whose a number is: a header of few values, or a member that is called so."""
    place = each.places[0]
    few = each.common and 1 < each.distinct <= each.present / 2
    if place.source == "header" or not few:
        return few
    kinds = each.kinds.keys() <= {Kind.STRING, Kind.INTEGER}
    whose = names_subject(place.name) or place.name.rsplit("/", 1)[-1] in _WHOSE
    return place.source == "value" and kinds and whose


def _sequences(sample: _Sample, *, sure: bool) -> list[tuple[Candidate, Rise]]:
    """Return the numbers to judge by, the likeliest first.

    Args:
        sample: Where to look.
        sure: Only those that are called a sequence, or headers that are counted one by one.
    """
    found = []
    for each, rise in sample.rising:
        place = each.places[0]
        if names_subject(place.name) or names_transaction(place.name) or _is_time(sample, each):
            continue
        counted = rise.contiguous and place.source == "header" and not names_id(place.name)
        if sure and not rise.named and not counted:
            continue
        worth = not rise.late, rise.named, rise.contiguous, rise.scope == "partition", place.source == "header"
        found.append((worth, each, rise))
    found.sort(key=lambda item: item[0], reverse=True)
    return [(each, rise) for _, each, rise in found]


def _by_sequence(sample: _Sample, chosen: Candidate, rise: Rise) -> Proposal:
    place = chosen.places[0]
    source, _, scope_name = rise.scope.partition(":")
    whose = scope_name or source
    of = "partition" if whose == "partition" else f"partition and {whose}"
    how = "one by one" if rise.contiguous else "with gaps"
    why = f"{place} is a number that rises per {of}, {how}, in {_share(chosen)}"
    if rise.copies:
        why += f"; {count(rise.copies, 'number')} came again with the same value, as resends do"
    if rise.older:
        why += (
            f"; {count(rise.older, 'number')} lay below those of the sample: resends of older records, or a "
            "producer that has begun its count again (then set epoch)"
        )
    dedup: dict[str, Any] = {"mode": "watermark"}
    reasons = {"mode": why}
    if rise.scope != "partition":
        dedup["scope"] = {"from": "value", "pointer": scope_name} if source == "value" else rise.scope
        reasons["scope"] = f"the numbers rise per {whose}, not per partition"
    named = {"name": place.name} if place.source == "header" else {"pointer": place.name}
    written: dict[str, Any] = {} if rise.format.name is None else {"format": rise.format.name}
    if rise.wraps:
        written["wraps"] = rise.wraps
        why += f"; it begins again behind {rise.wraps - 1:,}"
    dedup["sequence"] = {"from": place.source, **named, **written}
    if rise.late:
        dedup["reorder_window"] = rise.reorder_window
        reasons["reorder_window"] = (
            f"{count(rise.late, 'record')} came up to {rise.reach} numbers late and for the first time: "
            "without it they would be dropped"
        )
    hints = []
    if (other := next(_ids(sample), None)) is not None:
        second = {"mode": "insert-id", "id": _parts(sample, other), "window": "1d"}
        table = ", ".join(f"{key} = {toml_text(value)}" for key, value in second.items())
        hints.append((table, "the other way: the id of each record, within a window of time"))
    return Proposal(dedup, reasons, hints, sample.notes, sample.candidates, sample.rises, chosen.places)


# ------------------------------------------------------------------ ids


def _standard_ids(sample: _Sample) -> Iterator[Candidate]:
    """Yield what is an id by the standard that the records follow."""
    structured = _SPECVERSION in sample.records[0].leaves
    clouds = _CLOUD_EVENT_HEADERS, *((_CLOUD_EVENT,) if structured else ())
    for parts in (*clouds, *(_CHANGES if sample.changes else ())):
        found = sample.whole(parts)
        if found is not None:
            yield found


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
    whose.sort(key=lambda each: each.places[0] == KEY)  # a key may be of whoever forwards
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
    elif all(map(ID_TEXT.fullmatch, _texts(sample, place))):
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
    return all(map(TIME_TEXT.fullmatch, _texts(sample, place)))


def _texts(sample: _Sample, place: RecordPart) -> Iterator[str]:
    """Yield what stands at a place in the first records that have it, as text."""
    texts = (record.leaves[place].text for record in sample.records if place in record.leaves)
    for text in islice(texts, FEW):
        yield text if isinstance(text, str) else text.decode(errors="replace")


def _by_id(sample: _Sample, chosen: Candidate) -> Proposal:
    why = f"{chosen} is in {_share(chosen)} and tells them apart: {chosen.distinct:,} different"
    if chosen.copies:
        why += f", and {_copies(chosen.copies)} with the same content"
    dedup: dict[str, Any] = {"mode": "insert-id", "id": _parts(sample, chosen)}
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
            hints.append(
                (f"id = {toml_text(_parts(sample, other))}", "tells them apart as well: yours to choose")
            )
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
    if whole.copies:
        why += f"; of {whole.records:,} records {whole.copies:,} have the value of an earlier one"
    hints = [("", "two real events with the same content are one: docs/content-ids.md")]
    proposal = _with_window(sample, whole, {"mode": "insert-id", "id": [part]}, why, hints)
    if whole.copies > _MANY * whole.present:
        warning = (
            f"WARNING: the content would drop {whole.copies:,} of the {whole.present:,} records with a value "
            "as copies; take it only if they are resends, and else have the producer write an id"
        )
        proposal = replace(proposal, notes=[*proposal.notes, warning])
    return proposal


def _with_window(
    sample: _Sample, chosen: Candidate, dedup: dict[str, Any], why: str, hints: list[tuple[str, str]]
) -> Proposal:
    """Add the window, the clock and the route."""
    reasons = {"mode": why, "window": ""}
    dedup["window"] = ""
    if any(record.timestamp_ms <= 0 for record in sample.records):
        dedup["time"] = "arrival"
        reasons["time"] = "records have no timestamps: the worker's clock counts"
    found = Proposal(dedup, reasons, hints, sample.notes, sample.candidates, sample.rises, chosen.places)
    found.set_window(chosen.gap_ms, chosen.crossing, "the sample")
    return found


def _window(gap_ms: int | None, seen: str) -> tuple[str, str]:
    """Return a window, and why."""
    if gap_ms is None:
        why = "a guess, for no copy was seen; take longer than your producer may take to send again"
        return duration_text(_DAY_MS), why
    wanted = gap_ms * _MARGIN
    window = next((each for each in _WINDOWS_MS if each >= wanted), max(_WINDOWS_MS[-1], _days(gap_ms)))
    gap = duration_ms(gap_ms)
    why = f"{seen} shows no later ones: so a day" if wanted <= _DAY_MS else "ten times that, rounded up"
    if wanted > window:
        why = "more would cost much"
    return duration_text(
        window
    ), f"copies came up to {gap} after the first; {why}. One that comes later still passes"


def _days(time_ms: int) -> int:
    """Return a time in whole days, and one more."""
    return (time_ms // _DAY_MS + 1) * _DAY_MS


# ------------------------------------------------------------------ texts


def _share(chosen: Candidate) -> str:
    if chosen.present == chosen.records:
        return f"all {chosen.records:,} records" if chosen.records > 1 else "the one record"
    lacking = chosen.records - chosen.present
    return f"{chosen.present:,} of {chosen.records:,} records ({lacking:,} without it would be quarantined)"


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number:,} copies"


def _parts(sample: _Sample, chosen: Candidate) -> list[dict[str, Any]]:
    return [place.as_config(sample.records[0].spelled) for place in chosen.places]
