"""What must stand in the topics of a pipeline with ``route = "by-id"``.

Nothing decides how records of different source partitions fall in between each other, so sink and receipts are
not compared with one truth but with what holds of all: here for ids that do not expire within the test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import bounds, create_topic, group_offsets, open_transactions, read_topic
from tests.support.worker.crash import Scene
from tests.support.worker.id_feed import IdFeed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.support.kafka.topics import New, Record
    from tests.support.worker.process import WorkerConfig

ELSEWHERE = 0.3
"""Share of a feed's records that go to another partition than they would."""
QUARANTINES = 2
"""Partitions of the quarantine topic: neither as many as the source nor as the sink has."""
Place = tuple[int, int]
"""Source partition and offset."""


@dataclass(frozen=True)
class RoutedRules(IdRules):
    """Those of `IdRules`, across partitions."""

    @property
    def dedup(self) -> dict[str, Any]:
        """All keys."""
        return {**super().dedup, "route": "by-id"}


@dataclass(frozen=True, kw_only=True)
class RoutedFingerprintRules(FingerprintRules):
    """Those of `FingerprintRules`, across partitions."""

    @property
    def dedup(self) -> dict[str, Any]:
        """All keys."""
        return {**super().dedup, "route": "by-id"}


class RoutedFeed(IdFeed):
    """A producer that sends the same id now to this partition and now to that one."""

    def _put(self, partition: int, record: New) -> None:
        if self._dice.random() < ELSEWHERE:
            partition = self._dice.randrange(len(self._counts))
        super()._put(partition, record)


def routed(config: WorkerConfig, rules: RoutedRules | RoutedFingerprintRules, sinks: int = 3) -> WorkerConfig:
    """Return a config that routes, its sink and quarantine made with a partition count of their own."""
    config = config.with_quarantine().with_duplicates()
    (pipeline,) = config.pipelines
    create_topic(config.bootstrap_servers, config.sink, sinks)
    create_topic(config.bootstrap_servers, config.quarantine, QUARANTINES)
    return replace(config, pipelines=(rules.applied(pipeline),))


def internal_topics(config: WorkerConfig) -> list[str]:
    """Return the names of what only a routed pipeline has."""
    return [f"{config.application_id}-p-repartition", f"{config.application_id}-p-positions"]


class Topics(NamedTuple):
    """What is committed in the topics of a routed pipeline.

    Attributes:
        name: Of the source.
        source: Its records.
        sink: What has passed.
        receipts: What was dropped.
        quarantine: What cannot be judged.
        quarantines: Partitions of the quarantine topic.
    """

    name: str
    source: list[Record]
    sink: list[Record]
    receipts: list[Record]
    quarantine: list[Record]
    quarantines: int = QUARANTINES


class Brought(NamedTuple):
    """What a backfill has brought.

    Attributes:
        run: Its name.
        cuts: By source partition, where the stream goes on.
        ids: Says which it has delivered, of what is given: by id in which partition it is judged, and which
            ids have passed.
    """

    run: str
    cuts: Mapping[int, int]
    ids: Callable[[Mapping[Any, int], set[Any]], set[Any]]


@dataclass(frozen=True)
class Outcome:
    """What became of a source.

    Attributes:
        passed: What is in the sink.
        receipts: What was dropped.
        quarantined: Source positions.
    """

    passed: list[Record]
    receipts: list[dict[str, Any]]
    quarantined: list[Place]


def assert_routed(config: WorkerConfig, rules: RoutedRules) -> Outcome:
    """Each record is in one place once, each id passes once, receipts say so; nothing is left on the way."""
    bootstrap = config.bootstrap_servers
    assert not open_transactions(bootstrap, config.application_id)
    topics = config.source, config.sink, config.duplicates, config.quarantine
    source, sink, receipts, quarantine = (read_topic(bootstrap, each) for each in topics)
    found = assert_judged(Topics(config.source, source, sink, receipts, quarantine), rules)
    _assert_taken_in(config)
    return found


def assert_judged(topics: Topics, rules: RoutedRules, brought: Brought | None = None) -> Outcome:
    """Each record is in one place once, each id passes once, receipts say so; partitions keep their order."""
    cuts = {} if brought is None else brought.cuts
    at = {(each.partition, each.offset): each for each in topics.source}
    at = {place: each for place, each in at.items() if place[1] >= cuts.get(place[0], 0)}
    said = {place: judged_alone(rules, record) for place, record in at.items()}
    faults = {place: code for place, (code, _) in said.items() if code}

    quarantined = _assert_quarantine(topics, at, faults)
    receipts, sink = topics.receipts, topics.sink
    told = [json.loads(receipt.value or b"") for receipt in receipts]
    dropped = [(each["partition"], each["offset"]) for each in told]
    assert len(set(dropped)) == len(dropped), "a record was dropped twice"
    assert not set(dropped) & faults.keys()

    passing = {place: record for place, record in at.items() if place not in faults}
    for place in dropped:
        assert place in passing, f"{place} is before the cut"
        del passing[place]
    assert sorted(map(_content, sink)) == sorted(map(_content, passing.values())), "sink = source - the others"
    names = {place: said[place][1] for place in passing if said[place][1] is not None}
    assert len(set(names.values())) == len(names), "an id has passed twice"
    first = {name: place for place, name in names.items()}
    placed = {_content(record): place for place, record in passing.items()}
    lies = {placed[_content(record)]: record.partition for record in sink}
    _assert_in_order((record.partition, placed[_content(record)]) for record in sink)
    _assert_in_order((receipt.partition, place) for receipt, place in zip(receipts, dropped, strict=True))
    judged = {name: lies[place] for name, place in first.items()}
    for receipt, place in zip(receipts, dropped, strict=True):
        where = judged.setdefault(said[place][1], receipt.partition)
        assert receipt.partition == where, "a receipt lies where its owner does, and others of its id"
    delivered = set[Any]() if brought is None else brought.ids(judged, set(first))
    assert not delivered & first.keys(), "an id passes that was delivered before"
    for receipt, each, place in zip(receipts, told, dropped, strict=True):
        name = said[place][1]
        if name in first:
            number, offset = first[name]
            owner = {"topic": topics.name, "partition": number, "offset": offset}
            assert number != place[0] or offset < place[1], "equal ids keep their order"
        else:
            assert brought is not None, "an id is dropped that has not passed"
            assert name in delivered, "an id is dropped that nobody has delivered"
            owner = {"backfill": brought.run}
        assert not rules.exact or each["owner"] == owner
        assert each["topic"] == topics.name
        assert (receipt.key, receipt.timestamp, each["timestamp"]) == (
            at[place].key,
            at[place].timestamp,
            at[place].timestamp,
        )
    return Outcome(sink, told, quarantined)


def _assert_taken_in(config: WorkerConfig) -> None:
    """The group has committed both hops to their ends."""
    group = group_offsets(config.bootstrap_servers, config.application_id)
    internal = internal_topics(config)[0]
    for (topic, number), offset in group.items():
        assert topic in {config.source, internal}
        assert offset == bounds(config.bootstrap_servers, topic, number)[1], f"{topic}:{number}"


def _assert_quarantine(topics: Topics, at: dict[Place, Record], faults: dict[Place, str]) -> list[Place]:
    places = []
    for record in topics.quarantine:
        added = dict(record.headers[-3:])
        topic, number, offset = (added["seqmark.source"] or b"").decode().rsplit(":", 2)
        place = int(number), int(offset)
        came = at[place]
        assert topic == topics.name
        assert record.headers[:-3] == came.headers
        assert (record.key, record.value, record.timestamp) == (came.key, came.value, came.timestamp)
        assert (added["seqmark.error"] or b"").decode() == faults[place]
        assert record.partition == place[0] % topics.quarantines
        places.append(place)
    assert sorted(places) == sorted(faults)
    return places


def _assert_in_order(rows: Iterable[tuple[int, Place]]) -> None:
    """Within a partition, records of one source partition stand in its order."""
    last: dict[tuple[int, int], int] = {}
    for partition, (number, offset) in rows:
        assert last.get((partition, number), -1) < offset
        last[partition, number] = offset


def judged_alone(rules: RoutedRules, record: Record) -> tuple[str, Any]:
    """Return why a record cannot be judged, if so, and its id, if it has one."""
    model = rules.model()
    said = model.judge(record).verdict
    return "" if said == "pass" else said, next(iter(model.ids), None)


def _content(record: Record) -> tuple[bytes, bytes, tuple[Any, ...], int]:
    return record.key or b"", record.value or b"", record.headers, record.timestamp


def routed_feed(
    config: WorkerConfig, partitions: int, dice: random.Random, progress: Callable[[], int] | None = None
) -> RoutedFeed:
    """Return a producer for the source."""
    return RoutedFeed(config.bootstrap_servers, config.source, partitions, dice, progress=progress)


class RoutedScene(Scene):
    """What a kill test of a routed pipeline stands on: two source partitions, three of the sink.

    Args:
        bootstrap: Of the broker.
        folder: For configs, logs and state.
        slots: Of each hop.
    """

    def __init__(self, bootstrap: str, folder: Path, slots: int = 1) -> None:
        self._routed = RoutedRules()
        super().__init__(bootstrap, folder, rules=self._routed, slots=slots)
        self.config = routed(self.config, self._routed)

    def feed(self, dice: random.Random) -> RoutedFeed:
        """Return a producer for the source."""
        return routed_feed(self.config, self._partitions, dice, self._progress)

    def assert_routed(self) -> Outcome:
        """Nothing is open, and `assert_routed` finds nothing."""
        self.assert_nothing_open()
        return assert_routed(self.config, self._routed)
