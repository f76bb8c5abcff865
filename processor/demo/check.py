"""Compares what came out of a partition with what should have.

Pure: sequences of records as a plain consumer sees them go in, counts and differences come out. The
sink must hold each record that passes exactly as it came, in the source's order, and nothing else; the
duplicates topic a receipt for each one that was dropped, and a note for each one that collided; the quarantine
each one that cannot be judged, with its three headers behind its own. A receipt of an id names the right owner
and expiry.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.generator import FAULTS, RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.generator.truth import Truth
    from processor.generator.window import Judged
    from processor.kafka.plain.consumer import Seen

Grounds = Callable[[int], Mapping[str, object]]
"""What the receipt or note of a row has to say beside where the record stands; of a pattern: what fits it."""

COPIES = {
    RecordKind.RESEND: "immediate resend",
    RecordKind.TAIL: "resent tail after a crash",
    RecordKind.LATE: "connector's late restart",
}
"""Why a record is sent again, for people."""
_DROPS, _COLLIDES = ("duplicate", "late"), ("collision",)
_EXAMPLES = 2  # of a kind and partition
_SHOWN = 5  # differences per partition: one fault can follow from another a thousand times


class Receipt(NamedTuple):
    """One receipt as it was read, and why its record was sent."""

    kind: RecordKind
    told: Mapping[str, Any]


@dataclass(slots=True)
class CheckOutcome:
    """What became of one partition's records.

    Attributes:
        passed: By kind, what was found in the sink.
        dropped: By kind, what was not.
        receipts: Found in the duplicates topic as they should be.
        notes: Of collisions, likewise.
        quarantined: Found in the quarantine as it should be.
        examples: Receipts as they were read, a few of each kind, in the source's order.
        fate: uint8[n], a row per source record: `PASSED`, `DROPPED` or `QUARANTINED`.
        differences: For people; empty where all is as it should be.
    """

    passed: Counter[RecordKind] = field(default_factory=Counter)
    dropped: Counter[RecordKind] = field(default_factory=Counter)
    receipts: int = 0
    notes: int = 0
    quarantined: int = 0
    examples: list[Receipt] = field(default_factory=list)
    fate: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    differences: list[str] = field(default_factory=list)


DROPPED, PASSED, QUARANTINED = 0, 1, 2


def compare(
    place: str,
    source: Sequence[Seen],
    truth: Truth,
    sink: Sequence[Seen],
    receipts: Sequence[Seen],
    quarantine: Sequence[Seen],
    grounds: Grounds | None = None,
) -> CheckOutcome:
    """Compare one partition's outputs, as they are read_committed, with what its source and the truth ask for.

    Args:
        place: ``topic:partition`` of the source, as receipts of the quarantine name it.
        source: What it holds.
        truth: What the rules say of that.
        sink: What the sink holds.
        receipts: What the duplicates topic holds.
        quarantine: What the quarantine holds.
        grounds: What receipts have to say; None: no more than that the record was dropped by a rule.
    """
    if [record[4] for record in source] != truth.offset.tolist():
        text = f"the source holds {len(source):,} records at other offsets than the {len(truth):,} produced"
        return CheckOutcome(differences=[f"{place}: {text}"])
    walk = _Walk(place, source, truth, sink)
    walk.through_sink()
    walk.through_receipts(receipts, grounds)
    walk.through_quarantine(quarantine)
    outcome = walk.outcome
    hidden = len(outcome.differences) - _SHOWN
    if hidden > 0:
        outcome.differences[_SHOWN:] = [f"{place}: and {hidden:,} more differences"]
    return outcome


def id_grounds(place: str, source: Sequence[Seen], judged: Judged, member: str) -> Grounds:
    """Return what receipts of the mode ``insert-id`` have to say where the id is the value's ``member``."""
    topic, _, partition = place.rpartition(":")
    owner, expires_ms = judged.owner.tolist(), judged.expires_ms.tolist()

    def grounds(row: int) -> Mapping[str, object]:
        passed = {"topic": topic, "partition": int(partition), "offset": source[owner[row]][4]}
        return {
            "verdict": "duplicate",
            "mode": "insert-id",
            "id": [json.loads(source[row][1] or b"{}").get(member)],
            "owner": passed,
            "expires_at": expires_ms[row],
        }

    return grounds


class _Walk:
    """Goes through the source in order, with a finger in the sink."""

    def __init__(self, place: str, source: Sequence[Seen], truth: Truth, sink: Sequence[Seen]) -> None:
        self._place = place
        self._source = source
        self._sink = sink
        self._passes: list[bool] = truth.passes.tolist()
        self._kinds: list[int] = truth.kind.tolist()
        self._faults: list[int] = truth.fault.tolist()
        self._expected = np.flatnonzero(truth.passes)
        self._finger = 0
        self._swapped: set[int] = set()
        self.outcome = CheckOutcome(fate=np.zeros(len(source), np.uint8))

    def through_sink(self) -> None:
        """Match the sink's records with the source's."""
        for row, record in enumerate(self._source):
            here = self._peek(0)
            if row in self._swapped:
                self._pass(row)
            elif here == record[:4] and (self._passes[row] or not self._comes_again(row)):
                self._finger += 1
                self._pass(row)
                if not self._passes[row]:
                    self._differ(row, "passed, and must not have")
            elif not self._passes[row]:
                if not self._faults[row]:
                    self.outcome.dropped[RecordKind(self._kinds[row])] += 1
            elif not self._explain(row, here):
                return
        left = len(self._sink) - self._finger
        if left:
            self._say(
                f"the sink has {left:,} records too many, from its offset {self._sink[self._finger][4]} on"
            )

    def _explain(self, row: int, here: tuple[object, ...] | None) -> bool:
        """Say why a record that must be next in the sink is not; False: it cannot be told."""
        record, after = self._source[row][:4], self._peek(1)
        following = self._following(row)
        then = None if following is None else self._source[following][:4]
        if following is not None and here == then and after == record:
            self._differ(row, f"and offset {self._source[following][4]} have changed places")
            self._swapped.add(following)
            self._finger += 2
            self._pass(row)
        elif here is None or here == then:
            self._differ(row, "is lost")
            self.outcome.dropped[RecordKind(self._kinds[row])] += 1
        elif after == record:
            self._say(f"the sink has a record too many at its offset {self._sink[self._finger][4]}")
            self._finger += 2
            self._pass(row)
        elif after == then:
            self._differ(row, f"was changed: {_changes(record, here)}")
            self._finger += 1
            self._pass(row)
        else:
            self._differ(row, f"must come next in the sink; something else is at {self._sink[self._finger][4]}")
            return False
        return True

    def through_receipts(self, receipts: Sequence[Seen], grounds: Grounds | None) -> None:
        """Match the receipts with the records that must be dropped, and the notes with those that collided."""
        rows = zip(self._passes, self._faults, self._kinds, strict=True)
        wanted = [
            row
            for row, (passes, fault, kind) in enumerate(rows)
            if kind == RecordKind.COLLISION or not (passes or fault)
        ]
        topic, _, partition = self._place.rpartition(":")
        for row, (key, value, _, timestamp_ms, _) in zip(wanted, receipts, strict=False):
            record = self._source[row]
            told = json.loads(value or b"{}")
            where = (told.get("topic"), told.get("partition"), told.get("offset"), told.get("timestamp"))
            if where != (topic, int(partition), record[4], record[3]):
                self._differ(row, f"has no receipt; the next one is of {where}")
                return
            wanted_of = {} if grounds is None else grounds(row)
            wrong = {name: value for name, value in wanted_of.items() if not _fits(told.get(name), value)}
            verdicts = _COLLIDES if self._kinds[row] == RecordKind.COLLISION else _DROPS
            if (key, timestamp_ms) != (record[0], record[3]) or told.get("verdict") not in verdicts:
                self._differ(row, f"has a receipt that is not right: {told}")
            elif wrong:
                self._differ(row, f"has a receipt that is not right: {told}; must say {wrong}")
            else:
                self._note(row, told)
        if len(wanted) != len(receipts):
            self._say(f"there are {len(receipts):,} receipts instead of {len(wanted):,}")

    def through_quarantine(self, quarantine: Sequence[Seen]) -> None:
        """Match the quarantine's records with those that cannot be judged."""
        wanted = [row for row, fault in enumerate(self._faults) if fault]
        for row, found in zip(wanted, quarantine, strict=False):
            record, code = self._source[row], FAULTS[self._faults[row]]
            key, value, headers, timestamp_ms = found[:4]
            marks = dict(headers[-3:])
            source = f"{self._place}:{record[4]}".encode()
            if (key, value, headers[:-3], timestamp_ms) != record[:4]:
                self._differ(row, "is not as it came in the quarantine")
            elif tuple(marks) != ("seqmark.error", "seqmark.detail", "seqmark.source"):
                self._differ(row, "has other headers than the three of the quarantine")
            elif (marks["seqmark.error"], marks["seqmark.source"]) != (code.encode(), source):
                self._differ(row, f"is not quarantined as {code} of {source.decode()}")
            else:
                self.outcome.quarantined += 1
                self.outcome.fate[row] = QUARANTINED
        if len(wanted) != len(quarantine):
            self._say(f"the quarantine has {len(quarantine):,} records instead of {len(wanted):,}")

    def _note(self, row: int, told: Mapping[str, Any]) -> None:
        kind, outcome = RecordKind(self._kinds[row]), self.outcome
        if kind is RecordKind.COLLISION:
            outcome.notes += 1
        else:
            outcome.receipts += 1
        if sum(each.kind is kind for each in outcome.examples) < _EXAMPLES:
            outcome.examples.append(Receipt(kind, told))

    def _peek(self, ahead: int) -> tuple[object, ...] | None:
        at = self._finger + ahead
        return self._sink[at][:4] if at < len(self._sink) else None

    def _following(self, row: int) -> int | None:
        """Return the next row that must pass."""
        at = int(np.searchsorted(self._expected, row, side="right"))
        return int(self._expected[at]) if at < self._expected.size else None

    def _comes_again(self, row: int) -> bool:
        """Return whether the next that must pass is the same record, sent once more: the sink's is that one."""
        following = self._following(row)
        return following is not None and self._source[following][:4] == self._source[row][:4]

    def _pass(self, row: int) -> None:
        self.outcome.passed[RecordKind(self._kinds[row])] += 1
        self.outcome.fate[row] = PASSED

    def _differ(self, row: int, what: str) -> None:
        offset, kind = self._source[row][4], RecordKind(self._kinds[row]).label
        self.outcome.differences.append(f"{self._place}:{offset} ({kind}) {what}")

    def _say(self, what: str) -> None:
        self.outcome.differences.append(f"{self._place}: {what}")


def _fits(said: object, wanted: object) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(said, str) and wanted.fullmatch(said) is not None
    return said == wanted


def _changes(record: tuple[object, ...], found: tuple[object, ...]) -> str:
    names = ("key", "value", "headers", "timestamp")
    pairs = zip(names, record, found, strict=True)
    return ", ".join(name for name, came, went in pairs if came != went)
