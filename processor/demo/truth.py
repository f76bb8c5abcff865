"""Compares what became of records and rows with what had to, by the truth of who made them.

Pure: what was read goes in, counts and differences come out. Each record has a place and fates: it is kept,
dropped, noted as a collision, quarantined under a code. What is kept has to be in the clean topic byte for
byte, in order; what collided has its old id behind its headers there. That receipts say the right thing is what
`seqmark verify` proves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from processor.kafka.plain.consumer import Seen

    Line = Mapping[str, Any]
    Must = Mapping[str, tuple[str, Collection[str]]]

FIRST, COLLISION = "first", "collision"
KEPT, DROPPED, NOTED = "kept", "dropped", "noted"
FATES = {COLLISION: NOTED, "duplicate": DROPPED, "late": DROPPED}
"""By the verdict of a receipt."""
HOUR_MS = 3_600_000
_ORIGINAL_ID = "seqmark.original_id"
_SHOWN = 5  # differences of a place: one fault can follow from another a thousand times

Hour = tuple[int, str]
"""Start of the hour in ms since 1970, and the campaign."""
Amounts = tuple[int, int]
"""Events, and what was spent in hundredths."""


class PartitionTopics(NamedTuple):
    """A partition of each topic, as it is read_committed."""

    source: Sequence[Seen]
    clean: Sequence[Seen]
    duplicates: Sequence[Seen]
    quarantine: Sequence[Seen]


@dataclass(slots=True)
class DemoResult:
    """What a demo has found.

    Attributes:
        found: Counts, by what became of records and why they were sent.
        truth: What they have to be.
        differences: What is not as it must be, for people; empty where all is.
        shown: What people are shown behind the counts, in order.
        fields: What programs are told beside the counts.
    """

    found: Counter[str] = field(default_factory=Counter)
    truth: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return not self.differences and self.found == self.truth

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """What was found, and the truth, by question."""
        return {what: (self.found[what], self.truth[what]) for what in sorted(self.found | self.truth)}

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """The same, for people."""
        return [
            (what, f"{found:,}", f"{truth:,}", "ok" if found == truth else "WRONG")
            for what, (found, truth) in self.counts.items()
        ]

    def differ(self, where: str, differences: Collection[str]) -> None:
        """Note what is wrong somewhere, the first few."""
        self.differences += [f"{where}{each}" for each in list(differences)[:_SHOWN]]
        if len(differences) > _SHOWN:
            self.differences.append(f"{where}and {len(differences) - _SHOWN:,} more differences")

    def compare(self, where: str, must: Must, found: Counter[tuple[str, str]], label: str | None = "") -> None:
        """Compare fates with those that must be.

        Args:
            where: Said before a difference.
            must: By place why a record was sent, and its fates.
            found: Places and fates; what is there twice counts twice.
            label: Said before each count; None: nothing is counted.
        """
        wanted = Counter((place, fate) for place, (_, fates) in must.items() for fate in fates)
        differences = [f"{place} must be {fate}, and is not" for place, fate in wanted - found]
        differences += [f"{place} is {fate}, and must not be, or not twice" for place, fate in found - wanted]
        self.differ(where, differences)
        if label is not None:
            for counts, every in ((self.found, found), (self.truth, wanted)):
                of = ((must.get(place, ("of no record",))[0], fate) for place, fate in every.elements())
                counts.update(f"{label}{fate}: {kind}" for kind, fate in of)

    def compare_partition(
        self, place: str, truth: Sequence[Line], topics: PartitionTopics, label: str = ""
    ) -> None:
        """Compare one partition's outputs with what its source and the truth ask for.

        Args:
            place: ``topic:partition`` of the source.
            truth: Lines of the truth file, by offset.
            topics: What they hold.
            label: Said before each count.
        """
        self.found[f"{label}in"] += len(topics.source)
        self.truth[f"{label}in"] += len(truth)
        source = {record[4]: record for record in topics.source}
        if list(source) != [line["offset"] for line in truth]:
            text = f"the source holds {len(source):,} records at other offsets than the {len(truth):,} produced"
            self.differ(f"{place}: ", [text])
            return
        kept, same = [line["offset"] for line in truth if line["passes"]], 0
        for offset, record in zip(kept, topics.clean, strict=False):
            if before_renaming(record) != source[offset][:4]:
                break
            same += 1
        if other := topics.clean[same:]:
            text = f"offset {other[0][4]} of the clean topic is not what must be there, or one too many"
            self.differ(f"{place}: ", [text])
        found = Counter((f"{place}:{offset}", KEPT) for offset in kept[:same])
        for told in (orjson.loads(value or b"{}") for _, value, *_ in topics.duplicates):
            found[f"{place}:{told['offset']}", FATES.get(told["verdict"], "?")] += 1
        for record in topics.quarantine:
            headers = dict(record[2])
            where, code = ((headers.get(f"seqmark.{name}") or b"").decode() for name in ("source", "error"))
            found[where, f"quarantined as {code}"] += 1
        must = {f"{place}:{line['offset']}": (line["kind"], _fates(line)) for line in truth}
        self.compare("", must, found, label)

    def compare_hours(
        self, rows: Iterable[tuple[Hour, Amounts]], truth: Mapping[Hour, Amounts], closed_ms: int
    ) -> None:
        """Compare what an aggregate holds with the records that must pass.

        Args:
            rows: What Spark has written.
            truth: Rows of all hours by hour and campaign, from the source and its truth alone.
            closed_ms: An hour that ends later is not written yet.
        """
        found: dict[Hour, Amounts] = {}
        for key, (events, cents) in rows:
            before = found.get(key, (0, 0))
            found[key] = before[0] + events, before[1] + cents
        must = {key: row for key, row in truth.items() if key[0] + HOUR_MS <= closed_ms}
        wrong = [key for key in sorted(found.keys() | must.keys()) if found.get(key) != must.get(key)]
        texts = [f"{key} has (events, hundredths) {found.get(key)}; must be: {must.get(key)}" for key in wrong]
        self.differ("the aggregate: ", texts)
        agree = sum(found.get(key) == row for key, row in must.items())
        told = f"{agree} of {len(must)} rows of closed hours agree with the truth"
        self.shown.append(f"{told}; an open hour is not written yet")
        self.fields["aggregate"] = {"rows": len(found), "truth": len(must), "agree": agree}


def _fates(line: Line) -> tuple[str, ...]:
    """Return what must become of a record."""
    if "quarantine" in line:
        return (f"quarantined as {line['quarantine']}",)
    if line["kind"] == COLLISION:
        return KEPT, NOTED
    return (KEPT,) if line["passes"] else (DROPPED,)


def before_renaming(record: Seen) -> tuple[object, ...]:
    """Return a record of the clean topic as its source has it, without the offset."""
    key, value, headers, time_ms, _ = record
    if not headers or headers[-1][0] != _ORIGINAL_ID:
        return key, value, headers, time_ms
    new, old = str(orjson.loads(value or b"{}").get("event_id")).encode(), headers[-1][1] or b""
    return key, (value or b"").replace(b'"%b"' % new, b'"%b"' % old, 1), headers[:-1], time_ms
