"""What became of each record of a stream: verdicts by naive models, places as a plain consumer counts them.

Nothing of `processor`: outputs are read as anybody reads them, and what passed stands in the clean topic in the
source's order, so that the n-th that passed is the n-th there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from tests.support.judges.fingerprints import LET_IN, FingerprintRules
from tests.support.judges.rules import Model, Rules, Said, scope_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.explain.streams import Stream
    from tests.support.judges.id_rules import IdModel, IdRules, IdSaid
    from tests.support.kafka.topics import Record

JUDGED = {"pass", "duplicate", "late", "collision"}


class Place(NamedTuple):
    """Partition and offset."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Truth:
    """What became of one record that was judged.

    Attributes:
        verdict: ``pass``, ``duplicate``, ``late``, ``collision``, or the code of what cannot be judged.
        said: By the model; None of its numbers where it cannot be judged.
        owner: The record that had passed.
        action: What becomes of a collision.
        clean: Where it stands in the clean topic.
        receipt: Where its receipt or note stands.
        quarantine: Where its copy stands in quarantine.
    """

    verdict: str
    said: Said | IdSaid
    owner: Place | None = None
    action: str | None = None
    clean: Place | None = None
    receipt: Place | None = None
    quarantine: Place | None = None

    @property
    def passes(self) -> bool:
        """Whether it is in the clean topic."""
        return self.verdict == "pass" or (self.verdict == "collision" and self.action in LET_IN)

    @property
    def receipted(self) -> bool:
        """Whether it has a receipt or a note."""
        return self.verdict in JUDGED - {"pass"}

    @property
    def aside(self) -> bool:
        """Whether a copy is in quarantine."""
        return self.verdict not in JUDGED or self.action == "quarantine"


def verdicts(stream: Stream, records: Sequence[Record]) -> dict[Place, Truth]:
    """Judge all records of a stream, by the sentences of the contract."""
    rules = stream.rules
    if isinstance(rules, Rules):
        parts = [
            _by_numbers(rules, [each for each in records if each.partition == number])
            for number in range(stream.partitions)
        ]
    elif stream.routed:
        # A partition after the other, as they were sent: ids meet, whichever they came by.
        parts = [_by_ids(rules, list(records))]
    else:
        parts = [
            _by_ids(rules, [each for each in records if each.partition == number])
            for number in range(stream.partitions)
        ]
    return {place: truth for part in parts for place, truth in part.items()}


def _place(record: Record) -> Place:
    return Place(record.partition, record.offset)


def _by_numbers(rules: Rules, records: Sequence[Record]) -> dict[Place, Truth]:
    model = CarryingModel(rules)
    found: dict[Place, Truth] = {}
    for record in records:
        said = model.judge(record)
        found[_place(record)] = Truth(said.verdict, said, model.owner)
    return found


class CarryingModel(Model):
    """Knows which record brought a number as well.

    Attributes:
        owner: Of the record that was judged last, what it was compared with; None: it was with nothing.
    """

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.owner: Place | None = None
        self._scope = rules.scope
        self._carried: dict[tuple[bytes, int, int | None], Place] = {}
        self._leading: dict[bytes, Place] = {}

    @override
    def judge(self, record: Record) -> Said:
        said, self.owner = super().judge(record), None
        if said.verdict not in JUDGED:
            return said
        scope = scope_of(record, self._scope)
        name = scope, said.epoch or 0, said.sequence
        if said.verdict == "pass":
            self._carried[name] = _place(record)
            if self.scopes[scope].watermark == said.sequence:
                self._leading[scope] = _place(record)
        else:
            self.owner = self._carried[name] if said.verdict == "duplicate" else self._leading[scope]
        return said


def _by_ids(rules: IdRules, records: Sequence[Record]) -> dict[Place, Truth]:
    model: IdModel = rules.model()
    action = rules.on_collision if isinstance(rules, FingerprintRules) else None
    found: dict[Place, Truth] = {}
    for number, record in enumerate(records):
        said = model.judge(record._replace(offset=number))
        owner = _place(records[said.owner]) if said.owner >= 0 else None
        done = action if said.verdict == "collision" else None
        found[_place(record)] = Truth(said.verdict, said, owner, done)
    return found


@dataclass(frozen=True)
class Outputs:
    """What a consumer reads of a pipeline's topics."""

    clean: Sequence[Record]
    duplicates: Sequence[Record]
    quarantine: Sequence[Record]


def origins(
    stream: Stream,
    truths: Mapping[Place, Truth],
    records: Mapping[Place, Record],
    outputs: Outputs,
    again: Mapping[int, int],
) -> list[tuple[str, Place, Place]]:
    """Return of each record of the outputs which role its topic has, where it is, and where it came from.

    Arguments are those of `placed`.
    """
    if stream.routed:
        clean = {there: place for place, there in _by_content(truths, records, outputs).items()}
        found = [("clean", there, place) for there, place in clean.items()]
    else:
        found = [("clean", there, place) for place, there in _written(truths, outputs, again)]
    found += [("receipt", there, place) for place, there in _told(outputs.duplicates)]
    return found + [("quarantine", there, place) for place, there in _copied(outputs.quarantine)]


def placed(
    stream: Stream,
    truths: Mapping[Place, Truth],
    records: Mapping[Place, Record],
    outputs: Outputs,
    again: Mapping[int, int],
) -> dict[Place, Truth]:
    """Add to each record where it stands; of one that was judged again, where the last copy does.

    Args:
        stream: Its pipeline.
        truths: What the models say.
        records: The source.
        outputs: What the pipeline has written.
        again: By partition the offset from which on it was judged again, after a reset.
    """
    receipts, copies = dict(_told(outputs.duplicates)), dict(_copied(outputs.quarantine))
    assert receipts.keys() == ({p for p, t in truths.items() if t.receipted} if stream.receipts else set())
    assert copies.keys() == {place for place, truth in truths.items() if truth.aside}
    clean = _by_content(truths, records, outputs) if stream.routed else dict(_written(truths, outputs, again))
    return {
        place: replace(truth, clean=clean.get(place), receipt=receipts.get(place), quarantine=copies.get(place))
        for place, truth in truths.items()
    }


def _told(records: Sequence[Record]) -> list[tuple[Place, Place]]:
    """Return what receipts are about, and where they are."""
    told: list[Any] = [json.loads(each.value or b"") for each in records]
    return [
        (Place(said["partition"], said["offset"]), _place(each))
        for said, each in zip(told, records, strict=True)
    ]


def _copied(records: Sequence[Record]) -> list[tuple[Place, Place]]:
    """Return what copies in quarantine are of, and where they are."""
    sources = [(dict(each.headers)["seqmark.source"] or b"").decode().rsplit(":", 2)[1:] for each in records]
    return [
        (Place(int(partition), int(offset)), _place(each))
        for (partition, offset), each in zip(sources, records, strict=True)
    ]


def _written(
    truths: Mapping[Place, Truth], outputs: Outputs, again: Mapping[int, int]
) -> list[tuple[Place, Place]]:
    """Return what passed, in the order in which it was written, and where it stands."""
    passing: dict[int, list[Place]] = defaultdict(list)
    for place in sorted(place for place, truth in truths.items() if truth.passes):
        passing[place.partition].append(place)
    found: list[tuple[Place, Place]] = []
    for partition, places in passing.items():
        since = again.get(partition)
        written = places + ([] if since is None else [each for each in places if each.offset >= since])
        there = [_place(each) for each in outputs.clean if each.partition == partition]
        assert len(there) == len(written), f"{len(there)} clean records of {len(written)} that passed"
        found += zip(written, there, strict=True)
    return found


def _by_content(
    truths: Mapping[Place, Truth], records: Mapping[Place, Record], outputs: Outputs
) -> dict[Place, Place]:
    there = {(each.key, each.value, each.timestamp): _place(each) for each in outputs.clean}
    assert len(there) == len(outputs.clean), "two records of the clean topic are the same"
    passing = [place for place, truth in truths.items() if truth.passes]
    assert len(passing) == len(there)
    return {
        place: there[records[place].key, records[place].value, records[place].timestamp] for place in passing
    }
