"""What became of each record of a source partition, state after state, as the episode knows it.

Verdicts are those of the naive models; where something stands follows from its order: the n-th that an output
was given is the n-th there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY
from tests.simulation.brokers.streams.readers import verdicts_in
from tests.simulation.truth.oracle import own_receipts, read
from tests.simulation.truth.walk import is_big, walked
from tests.support.explain.truth import CarryingModel, Place, Truth
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdModel, IdSaid
from tests.support.judges.rules import Said

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from schemas.config import Pipeline
    from schemas.verdicts.record import VerdictRecord
    from tests.simulation.brokers.episode import WorkerEpisode
    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.simulation.scenario import Scenario
    from tests.simulation.truth.oracle import Stretch
    from tests.support.judges.rules import Model
    from tests.support.kafka.topics import Record

TOPICS = {"clean": "sink", "receipt": "receipts", "quarantine": "quarantine"}
"""What a story calls the places of a record, by the topics that they are in."""


@dataclass
class Fate:
    """What one state has made of one record.

    Attributes:
        at: Of the stretch that it was taken in with.
        stretch: That one.
        record: The record.
        truth: With the places where something of it stands.
        clock_ms: What the clock read then; None: there is none.
        written: Of `TOPICS`, where something of it was written.
        gone: Of `TOPICS`, which was made again since.
    """

    at: int
    stretch: Stretch
    record: Record
    truth: Truth
    clock_ms: int | None
    written: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Known:
    """What is known of a partition at a time.

    Attributes:
        pipeline: As it is configured then.
        scenario: The episode's.
        number: The partition's.
        records: That were ever in the source, by offset.
        fates: By offset, the newest last.
        stretches: That states have taken in.
        anew: Topics that were made again since.
        first: Of the stretches, the first of the state of now.
        begin: The first source offset of the state of now; None: there is no state.
        position: The one behind the last that it has taken in.
        start: The first source offset that is left.
        end: Where the source ends.
        verdicts: Offset and content of the verdict records.
    """

    pipeline: Pipeline
    scenario: Scenario
    number: int
    records: dict[int, Record]
    fates: dict[int, list[Fate]]
    stretches: Sequence[Stretch]
    anew: Collection[str]
    first: int
    begin: int | None
    position: int
    start: int
    end: int
    verdicts: Sequence[tuple[int, VerdictRecord]]

    @classmethod
    def of(cls, episode: WorkerEpisode, number: int) -> Known:
        """Return what an episode knows now."""
        brokers, scenario = episode.brokers, episode.scenario
        (pipeline,) = episode.now.pipelines
        stretches, records = episode.story[number], scenario.records[number]
        now, states = state_of(brokers, scenario, number), episode.states[number]
        first = next((at for at, each in enumerate(states) if each == now), len(states))
        position = episode._start[number]
        begin = None if now is None else stretches[first].start if first < len(states) else position
        log = brokers.log("source", number)
        return cls(
            pipeline,
            scenario,
            number,
            {each.offset: each for each in records},
            _fates(scenario, brokers, number, stretches, episode.anew),
            stretches,
            episode.anew,
            first,
            begin,
            position,
            log.start,
            log.end,
            verdicts_in(brokers, number) if "verdicts" in brokers.topics else (),
        )

    @property
    def switched(self) -> bool:
        """Whether a state went to other outputs than the pipeline does."""
        now = self.pipeline.writes_records, self.pipeline.verdicts is not None
        return any((each.records, each.verdicts) != now for each in self.stretches)

    def newest(self, offset: int) -> Fate | None:
        """Return what has become of a record last; None: nobody has taken it in."""
        return self.fates.get(offset, [None])[-1]

    def is_judged(self, offset: int) -> bool:
        """Whether the state of now has come to an offset."""
        return self.begin is not None and self.begin <= offset < self.position

    def equals(self, offset: int) -> bool:
        """Whether other records are like one in all."""
        one = self.records[offset]
        like = (each for at, each in self.records.items() if at != offset)
        return any(each._replace(offset=offset) == one for each in like)


def state_of(brokers: Brokers, scenario: Scenario, number: int) -> bytes | None:
    """Return the id of a partition's state, by its last position; None: it has none."""
    rows = read(brokers, scenario.kind.topics.changelog, number)
    said = [each.value for each in rows if each.key == POSITION_KEY]
    return Position.decode(said[-1] or b"").state_id if said else None


def _fates(
    scenario: Scenario,
    brokers: Brokers,
    number: int,
    stretches: Sequence[Stretch],
    anew: Collection[str],
) -> dict[int, list[Fate]]:
    found: dict[int, list[Fate]] = {}
    taken_in: list[Fate] = []
    for at, (stretch, model, records) in enumerate(walked(scenario, scenario.records[number], stretches)):
        _forget(taken_in, stretch.anew)
        for record in records:
            fate = _fate(scenario, at, stretch, model, record)
            found.setdefault(record.offset, []).append(fate)
            taken_in.append(fate)
    _forget(taken_in, anew)
    for place, topic in TOPICS.items():
        written = [each for each in taken_in if place in each.written - each.gone]
        rows = [each.offset for each in read(brokers, topic, number)]
        if place == "receipt":
            rows = [offset for offset, _ in own_receipts(brokers, number)]
        for fate, offset in zip(written, rows, strict=True):
            there: dict[str, Any] = {place: Place(number, offset)}
            fate.truth = replace(fate.truth, **there)
    return found


def _forget(fates: Iterable[Fate], topics: Collection[str]) -> None:
    """Note which topics were made again since some fates."""
    gone = {place for place, topic in TOPICS.items() if topic in topics}
    for each in fates:
        each.gone |= gone


def _fate(scenario: Scenario, at: int, stretch: Stretch, model: Model | IdModel, record: Record) -> Fate:
    rules, observe = scenario.rules, scenario.kind.hop.pipeline.observe
    if stretch.small and is_big(record):
        return Fate(at, stretch, record, Truth("too_large", Said("too_large")), None, {"quarantine"})
    said = model.judge(record)
    owner, action, clock_ms = None, None, None
    if isinstance(model, CarryingModel):
        owner = model.owner
    elif isinstance(model, IdModel):
        assert isinstance(said, IdSaid)
        owner = Place(record.partition, said.owner) if said.owner >= 0 else None
        clock_ms = model.clock_ms
    if said.verdict == "collision" and isinstance(rules, FingerprintRules):
        action = rules.on_collision
    truth = Truth(said.verdict, said, owner, action)
    wrote = {"clean": stretch.records and (truth.passes or observe)}
    wrote |= {"receipt": truth.receipted, "quarantine": truth.aside}
    return Fate(at, stretch, record, truth, clock_ms, {place for place, does in wrote.items() if does})
