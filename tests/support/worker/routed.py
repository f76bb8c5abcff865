"""What must stand in the topics of a pipeline with ``route = "by-id"``.

Nothing decides how records of different source partitions fall in between each other, so sink and receipts are
not compared with one truth but with what holds of all: here for ids that do not expire within the test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules, shown
from tests.support.kafka.topics import bounds, create_topic, group_offsets, open_transactions, read_topic
from tests.support.worker.crash import Scene
from tests.support.worker.id_feed import IdFeed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
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
    source = read_topic(bootstrap, config.source)
    at = {(record.partition, record.offset): record for record in source}
    faults = {place: code for place, record in at.items() if (code := _fault(rules, record))}

    quarantined = _assert_quarantine(config, at, faults)
    receipts = read_topic(bootstrap, config.duplicates)
    told = [json.loads(receipt.value or b"") for receipt in receipts]
    dropped = [(each["partition"], each["offset"]) for each in told]
    assert len(set(dropped)) == len(dropped), "a record was dropped twice"
    assert not set(dropped) & faults.keys()

    sink = read_topic(bootstrap, config.sink)
    passing = {place: record for place, record in at.items() if place not in faults}
    for place in dropped:
        del passing[place]
    assert sorted(map(_content, sink)) == sorted(map(_content, passing.values())), "sink = source - the others"
    names = {place: json.dumps(shown(record, rules)) for place, record in passing.items()}
    assert len(set(names.values())) == len(names), "an id has passed twice"
    first = {name: place for place, name in names.items()}
    placed = {_content(record): place for place, record in passing.items()}
    lies = {placed[_content(record)]: record.partition for record in sink}
    _assert_in_order((record.partition, placed[_content(record)]) for record in sink)
    _assert_in_order((receipt.partition, place) for receipt, place in zip(receipts, dropped, strict=True))
    for receipt, said, place in zip(receipts, told, dropped, strict=True):
        owner = first[json.dumps(shown(at[place], rules))]
        assert (said["topic"], said["owner"]) == (
            config.source,
            {"topic": config.source, "partition": owner[0], "offset": owner[1]},
        )
        assert owner[0] != place[0] or owner[1] < place[1], "equal ids keep their order"
        assert receipt.partition == lies[owner], "a receipt lies where its owner does"
        assert (receipt.key, receipt.timestamp, said["timestamp"]) == (
            at[place].key,
            at[place].timestamp,
            at[place].timestamp,
        )
    _assert_taken_in(config)
    return Outcome(sink, told, quarantined)


def _assert_taken_in(config: WorkerConfig) -> None:
    """The group has committed both hops to their ends."""
    group = group_offsets(config.bootstrap_servers, config.application_id)
    internal = internal_topics(config)[0]
    for (topic, number), offset in group.items():
        assert topic in {config.source, internal}
        assert offset == bounds(config.bootstrap_servers, topic, number)[1], f"{topic}:{number}"


def _assert_quarantine(config: WorkerConfig, at: dict[Place, Record], faults: dict[Place, str]) -> list[Place]:
    found = read_topic(config.bootstrap_servers, config.quarantine)
    places = []
    for record in found:
        added = dict(record.headers[-3:])
        topic, number, offset = (added["seqmark.source"] or b"").decode().rsplit(":", 2)
        place = int(number), int(offset)
        came = at[place]
        assert topic == config.source
        assert record.headers[:-3] == came.headers
        assert (record.key, record.value, record.timestamp) == (came.key, came.value, came.timestamp)
        assert (added["seqmark.error"] or b"").decode() == faults[place]
        assert record.partition == place[0] % QUARANTINES
        places.append(place)
    assert sorted(places) == sorted(faults)
    return places


def _assert_in_order(rows: Iterable[tuple[int, Place]]) -> None:
    """Within a partition, records of one source partition stand in its order."""
    last: dict[tuple[int, int], int] = {}
    for partition, (number, offset) in rows:
        assert last.get((partition, number), -1) < offset
        last[partition, number] = offset


def _fault(rules: RoutedRules, record: Record) -> str:
    said = rules.model().judge(record).verdict
    return "" if said == "pass" else said


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
