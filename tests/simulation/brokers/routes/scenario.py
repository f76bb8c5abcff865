"""A pipeline with ``route``, and records of which equal ids come in several partitions of its source."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from processor.kafka.topics.plan import TopicView, plan
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops
from tests.simulation import scenario as plain
from tests.simulation.scenario import ID_PLACES, Scenario
from tests.support.worker.routed import RoutedRules

if TYPE_CHECKING:
    import random

    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.support.wire import batches

SOURCE_CONFIGS = {"max.message.bytes": "1048588"}


def drawn(dice: random.Random, brokers: Brokers) -> Scenario:
    """Draw a pipeline, and fill its source; source, sink and quarantine are there."""
    bloom: dict[str, Any] | None = dice.choice((None, {}))
    if bloom is not None:
        bloom = {"bucket": dice.choice(("1h", "15m")), "false_positive_rate": 1e-9, "expected_per_bucket": 64}
    rules = RoutedRules(
        dice.choice(ID_PLACES),
        # No id expires within an episode: nothing says in which order records of several partitions come.
        "1h",
        refresh=dice.random() < 0.3,
        on_missing=dice.choice(("quarantine", "pass")),
        bloom=bloom,
    )
    make, numbers = plain._some_ids(dice.choice((5, 60))), itertools.count()

    def told_apart(number: int) -> batches.Record:
        record = make(dice, number)
        return record._replace(headers=(*record.headers, (b"n", b"%d" % next(numbers))))

    settings = plain._settings(rules, {"quarantine": "quarantine"})
    view = {name: TopicView(brokers.topics[name].partitions, 1, SOURCE_CONFIGS) for name in ("source", "sink")}
    topics = {topic.topic: topic for topic in plan(settings, view).topics}
    first, _ = hops(settings)
    records: list[list[Any]] = [[] for _ in range(dice.choice((2, 2, 3)))]
    scenario = Scenario(settings, kind_of(settings, first, topics), rules, records, told_apart)
    for number in range(len(records)):
        scenario.fill(dice, brokers, number)
    return scenario
