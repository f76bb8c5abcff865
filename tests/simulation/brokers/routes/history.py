"""A topic with what others have delivered, before a routed pipeline begins; its partitions are its own.

An id is remembered by the clock that reads its record: one for each partition of the topic, and of those each
for every partition that ids are judged in. So an old record that stands behind a new one of the same two is as
new as that, and one that stands before all of them has expired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from processor.kafka.client import TopicPartition
from processor.wire.encode import plain_batch
from tests.simulation.scenario import HOUR_MS
from tests.support.worker.routed import judged_alone

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.support.kafka.topics import Record
    from tests.support.worker.routed import RoutedRules

TOPIC = "before"
OLD_MS = 4 * HOUR_MS
"""So much older a record may be: a window and a bucket are over by the time that the stream begins."""


@dataclass
class History:
    """What stands in a topic, as its own parts say it.

    Attributes:
        rules: By which ids are read.
        parts: By partition, its records in order; each with whether it is old.
    """

    rules: RoutedRules
    parts: list[list[tuple[Record, bool]]] = field(default_factory=list)

    def known(self, judged: Mapping[Any, int], passed: set[Any]) -> set[Any]:
        """Return the ids that are remembered when the stream begins.

        Args:
            judged: By id of the stream, in which partition it is judged.
            passed: Ids that have passed, for where nobody knows which records were judged together.
        """
        found: set[Any] = set()
        for some in self.parts:
            moved = set[int]()
            doubtful = False
            for record, old in some:
                code, name = judged_alone(self.rules, record)
                if code or name is None:
                    # Without an id it goes where its partition's records do: nobody says which that is.
                    doubtful = doubtful or not (code or old)
                    continue
                where = judged.get(name)
                if not old or where in moved or (doubtful and name not in passed):
                    found.add(name)
                if not old and where is not None:
                    moved.add(where)
                doubtful = doubtful or (not old and where is None)
        return found


def drawn(dice: random.Random, brokers: Brokers, rules: RoutedRules, source: Sequence[list[Record]]) -> History:
    """Make a topic of some of the source's records, in other partitions, and of others."""
    parts: list[list[tuple[Record, bool]]] = [[] for _ in range(dice.choice((1, 2, 4)))]
    olds = dice.choice((0.0, 0.0, 0.3))
    for some in source:
        until = dice.randint(0, len(some))
        for record in some[:until]:
            if dice.random() < 0.7:
                old = dice.random() < olds
                at_ms = record.timestamp - (OLD_MS if old else 0)
                dice.choice(parts).append((record._replace(timestamp=at_ms), old))
    for part in parts:
        if dice.random() < 0.5:
            part.sort(key=lambda each: each[0].timestamp)
    if TOPIC in brokers.topics:
        brokers.delete(TOPIC)
    brokers.create(TOPIC, len(parts), {})
    for number, part in enumerate(parts):
        for batch in _batches(dice, [record for record, _ in part]):
            brokers.logs[TopicPartition(TOPIC, number)].append(batch)
    return History(rules, parts)


def _batches(dice: random.Random, records: Sequence[Record]) -> Iterator[bytes]:
    at = 0
    while at < len(records):
        some = records[at : at + dice.choice((1, 5, 50))]
        at += len(some)
        rows = [(each.key, each.value, each.timestamp, each.headers) for each in some]
        yield plain_batch(rows).build(-1, -1, -1, transactional=False)
