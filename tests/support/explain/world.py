"""Topics in memory, of one partition each, over which records are explained without a broker.

world = judged_world(settings)           # six records of a source, and what a worker made of them
story = explained(settings, world, ("clicks.raw", 2))[0]
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from processor.inspection.explain.explainer import Explainer
from processor.judges.factory import mode_of
from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.offsets import EARLIEST, READ_COMMITTED
from processor.kafka.protocol.internals import FetchRequest, OffsetFetchRequest
from processor.kafka.protocol.requests import ListOffsetsRequest
from processor.wire.encode import plain_batch
from processor.wire.receipt_values import RecordRef
from schemas.changelog.position import NO_BATCH, Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from processor.inspection.explain.story import Story

SOURCE, SINK, DUPLICATES, QUARANTINE = "clicks.raw", "clicks.clean", "clicks.duplicates", "clicks.quarantine"
CHANGELOG = "app-clicks-changelog"
START_MS = 1_795_000_000_000
FIRST, SECOND = b"s" * 16, b"t" * 16
"""Ids of states."""
_FETCH_BATCHES = 50

Item = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Key, value, timestamp in ms, headers."""


@dataclass
class HiddenTail:
    """Records at the end of a topic that are not committed there until it has been looked at some times."""

    records: int
    looks: int = 0


@dataclass
class WorldClient:
    """Connections to the leader of every partition.

    Attributes:
        topics: By name, the batches of partition 0, of one record each.
        starts: Where topics begin that retention has shortened.
        hidden: What of a topic is of a transaction whose end has not come there yet.
        offsets: What the group has committed.
        ids: Of topics.
        times: By topic, the timestamps of its records in ms.
        fetched: By topic, the offsets that were fetched from.
    """

    topics: dict[str, list[bytes]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    hidden: dict[str, HiddenTail] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=dict)
    fetched: dict[str, list[int]] = field(default_factory=dict)

    def put(self, topic: str, *items: Item) -> None:
        """Append records to a topic, which is made with the first call."""
        rows = self.topics.setdefault(topic, [])
        for each in items:
            batch = plain_batch([each]).build(-1, -1, -1, transactional=False)
            rows.append(len(rows).to_bytes(8, "big") + batch[8:])
            self.times.setdefault(topic, []).append(each[2])

    def partitions(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        return {0} if topic in self.topics else set()

    def leader(self, tp: TopicPartition) -> int:
        """Return the one broker."""
        del tp
        return 1

    def epoch(self, tp: TopicPartition) -> int:
        """Return that none is known."""
        del tp
        return -1

    async def group_coordinator(self, group_id: str) -> int:
        """Return the one broker."""
        del group_id
        return 1

    async def request(self, node: int, request: Any, **_: Any) -> Any:
        """Answer a fetch, where a log begins and ends, and what a group has committed."""
        del node
        await asyncio.sleep(0)
        if isinstance(request, OffsetFetchRequest):
            found = [
                (topic, [(0, self.offsets.get(topic, -1), "", KafkaCode.NONE)])
                for topic, _ in request._partitions
            ]
            return SimpleNamespace(topics=found)
        if isinstance(request, ListOffsetsRequest):
            wanted: Any = request._fields[2]
            isolation = request._fields[1]
            bounds: Any = [
                (topic, [self._bound(topic, when, isolation) for _, _, when, _ in rows], {})
                for topic, rows, _ in wanted
            ]
            return SimpleNamespace(topics=bounds)
        assert isinstance(request, FetchRequest)
        found = [(topic, [self._fetched(topic, at) for _, at, *_ in parts]) for topic, parts in request._topics]
        return SimpleNamespace(topics=found, API_VERSION=5)

    def _stable(self, topic: str) -> int:
        tail = self.hidden.get(topic, HiddenTail(0))
        return len(self.topics[topic]) - (tail.records if tail.looks > 0 else 0)

    def _bound(self, topic: str, asked: int, isolation: object) -> tuple[Any, ...]:
        if asked >= 0:
            offset = next((n for n, time_ms in enumerate(self.times[topic]) if time_ms >= asked), -1)
        elif asked == EARLIEST:
            self.hidden.get(topic, HiddenTail(0)).looks -= 1
            offset = self.starts.get(topic, 0)
        else:
            offset = self._stable(topic) if isolation == READ_COMMITTED else len(self.topics[topic])
        return 0, KafkaCode.NONE, -1, offset, -1, {}

    def _fetched(self, topic: str, at: int) -> tuple[Any, ...]:
        self.fetched.setdefault(topic, []).append(at)
        stable = self._stable(topic)
        data = b"".join(self.topics[topic][at : min(stable, at + _FETCH_BATCHES)])
        return 0, KafkaCode.NONE, len(self.topics[topic]), stable, self.starts.get(topic, 0), [], data


def settings_of(folder: Path, *, duplicates: bool = True, **dedup: Any) -> Settings:
    """Return the config of one pipeline; by ids of a header, where nothing else is said."""
    keys = dedup or {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "7d"}
    pipeline = {"name": "clicks", "source": SOURCE, "sink": SINK, "quarantine": QUARANTINE, "dedup": keys}
    if duplicates:
        pipeline["duplicates"] = DUPLICATES
    worker = {"application_id": "app", "state_dir": str(folder)}
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": "h:1"}, "worker": worker, "pipelines": [pipeline]}
    )


def identified(*names: str) -> list[Item]:
    """Return source records with these ids."""
    return [(b"k", b"v%d" % n, START_MS + 1000 * n, (("id", name.encode()),)) for n, name in enumerate(names)]


def receipt(offset: int, name: str, owner: int) -> Item:
    """Return the receipt of a source record that was dropped."""
    at_ms = START_MS + 1000 * offset
    said = {
        "pipeline": "clicks",
        "topic": SOURCE,
        "partition": 0,
        "offset": offset,
        "timestamp": at_ms,
        "verdict": "duplicate",
        "mode": "insert-id",
        "id": [name],
        "owner": {"topic": SOURCE, "partition": 0, "offset": owner},
        "expires_at": START_MS + 7 * 86_400_000,
    }
    return b"k", json.dumps(said, separators=(",", ":")).encode(), at_ms, ()


def position(settings: Settings, next_offset: int, state: bytes = FIRST, since_ms: int = START_MS) -> Item:
    """Return how far a state has come, as its changelog says it."""
    definition = mode_of(settings.pipelines[0]).definition()
    said = Position(
        next_offset, NO_BATCH, 0, definition, state, 1, application="app", pipeline="clicks", since_ms=since_ms
    )
    return POSITION_KEY, said.encode(), START_MS, ()


def origin(sink: int, duplicates: int, reset_ms: int = 0) -> Item:
    """Return where a state begins: at the first record of the source."""
    return ORIGIN_KEY, Origin(0, sink, duplicates, 0, 0, reset_ms).encode(), START_MS, ()


def judged_world(settings: Settings) -> WorldClient:
    """Return the topics of a pipeline that has judged all of ``a b a c b d``."""
    world, items = WorldClient(), identified(*"abacbd")
    world.put(SOURCE, *items)
    world.put(SINK, *(items[n] for n in (0, 1, 3, 5)))
    world.put(DUPLICATES, receipt(2, "a", 0), receipt(4, "b", 1))
    world.put(QUARANTINE)
    world.put(CHANGELOG, origin(0, 0), position(settings, 6))
    world.offsets[SOURCE] = 6
    return world


def reset_world(settings: Settings) -> WorldClient:
    """Return the same after ``seqmark reset --to-earliest``, before a worker goes on."""
    world, reset_ms = judged_world(settings), START_MS + 100_000
    world.put(CHANGELOG, origin(4, 2, reset_ms), position(settings, 0, SECOND, reset_ms))
    world.offsets[SOURCE] = 0
    return world


async def ask(explainer: Explainer, refs: Iterable[tuple[str, int]]) -> list[Story]:
    """Return what became of the records at some positions."""
    return [await explainer.explain(RecordRef(topic, 0, offset)) for topic, offset in refs]


def explained(settings: Settings, world: WorldClient, *refs: tuple[str, int]) -> Sequence[Story]:
    """Return what became of the records at some positions, over one explainer."""
    client: Any = world

    async def run() -> list[Story]:
        return await ask(Explainer(settings, client), refs)

    return asyncio.run(run())
