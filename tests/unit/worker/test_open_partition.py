"""A partition without state is not a pipeline without state: what its others say decides where it begins.

With positions in a list: where they come from on a broker is tested in `tests/broker/modes/test_route.py` and
`tests/broker/worker/test_identity.py`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import StopError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import Bounds
from processor.kafka.transactions.fencing import SlotId
from processor.pipeline.hop_kinds import FirstHopKind
from processor.pipeline.hops import FirstHop
from processor.pipeline.ports import RouteTopics, Topics
from processor.worker import open_partition
from processor.worker.open_partition import PartitionOpener
from schemas.changelog.position import Origin, Position
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import Pipeline
from tests.support.judges.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.batch.columns import Columns


class Work(FirstHopKind):
    """Of a hop whose definition is given."""

    definition = b"this definition."


class Positions:
    """Positions of a routed source, in a list by partition; one that is None has none."""

    def __init__(self, definitions: list[bytes | None]) -> None:
        self.definitions = definitions
        self.read: list[tuple[int, int, int]] = []

    def partitions(self, topic: str) -> set[int]:
        return set(range(len(self.definitions))) if topic == "positions" else set()

    async def bounds(self, client: object, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        del client
        return {tp: Bounds(5, 5000, 5000) for tp in partitions}

    def changelog(self, client: object, decoder: object, topic: str, partition: int) -> Any:
        del client, decoder, topic
        return SimpleNamespace(columns=lambda start, stop: self.columns(partition, start, stop))

    async def columns(self, partition: int, start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
        self.read.append((partition, start, stop))
        meaning = self.definitions[partition]
        if meaning is not None:
            value = Position(7, -1, 0, meaning, bytes(16), 1).encode()
            yield columns_of([(POSITION_KEY, value)])[0], stop


@pytest.mark.parametrize(
    ("others", "refused", "read"),
    [
        ([None, None], False, [0, 1]),
        ([b"this definition.", None], False, [0]),
        ([None, b"this definition."], False, [0, 1]),
        ([None, b"other definition"], True, [0, 1]),
    ],
)
def test_a_new_partition_of_a_routed_source_sends_ids_where_the_others_do_or_nowhere(
    others: list[bytes | None],
    refused: bool,  # noqa: FBT001 - a parameter of the test
    read: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    positions: Any = Positions([*others, None])
    monkeypatch.setattr(open_partition, "bounds", positions.bounds)
    monkeypatch.setattr(open_partition, "ChangelogPartition", positions.changelog)

    routed = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "route": "by-id"}
    config = Pipeline.model_validate({"name": "p", "source": "raw", "sink": "clean", "dedup": routed})
    topics = RouteTopics("raw", "clean", None, "positions", 0, 0, 0, internal="internal")
    context: Any = SimpleNamespace(decoder=None)
    nobody: Any = None
    work = Work(FirstHop(config, "p.route", "raw", None, None, "internal"), topics)

    async def run() -> None:
        begun: Any = PartitionOpener(context, SlotId("a", "p.route", 0, 4), work, positions, nobody)
        await begun._require_same_meaning(TopicPartition("raw", 2))

    if refused:
        with pytest.raises(StopError, match=r"raw:1 .*the number of partitions of internal"):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert positions.read == [(number, 4000, 5000) for number in read]


class Others:
    """A source of four partitions that ends at 100, with the origins of those that have begun."""

    def __init__(
        self, origins: dict[int, Origin], told: int | None = None, *, front: bytes | None = bytes(16)
    ) -> None:
        self.origins, self.told, self.front = origins, told, front
        self.ids: dict[str, bytes] = {}

    def partitions(self, topic: str) -> set[int]:
        del topic
        return set(range(4))

    async def bounds(self, client: object, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        del client
        return {tp: Bounds(10, 100, 100) for tp in partitions}

    async def committed(
        self, client: object, group: str, some: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        del client, group
        return {tp: 7 for tp in some if tp.partition == self.told}

    def changelog(self, client: object, decoder: object, topic: str, partition: int) -> Any:
        del client, decoder, topic

        async def there() -> Bounds:
            return Bounds(0, 40, 40)

        async def columns(start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
            origin = self.origins.get(partition)
            if origin is None:
                return
            state = bytes(16) if start else self.front
            found = [] if start else [(ORIGIN_KEY, origin.encode())]
            if state is not None:
                value = Position(7, -1, 0, b"this definition.", state, 1).encode()
                found.append((POSITION_KEY, value))
            yield columns_of(found)[0], stop

        return SimpleNamespace(bounds=there, columns=columns)


BEGUN = Origin(50, 0, beginning=(50, 60, 5))


@pytest.mark.parametrize(
    ("start", "number", "others", "expected"),
    [
        ("earliest", 1, Others({0: BEGUN}), (10, ())),
        ("latest", 1, Others({}), (100, (100,) * 4)),
        ("latest", 1, Others({0: BEGUN}), (60, (50, 60, 5))),
        ("latest", 2, Others({0: BEGUN}), (10, (50, 60, 5))),
        ("latest", 3, Others({1: BEGUN}), (10, (50, 60, 5))),
        ("latest", 1, Others({3: Origin(50, 0)}), (10, ())),
        ("latest", 1, Others({}, told=2), (10, ())),
        ("latest", 1, Others({0: BEGUN}, front=b"before the reset"), (10, ())),
        ("latest", 1, Others({0: BEGUN}, front=None), (10, ())),
    ],
    ids=[
        "earliest",
        "all begin",
        "was there",
        "was shorter",
        "was added",
        "nobody says",
        "the group has come",
        "was reset",
        "may have been reset",
    ],
)
def test_with_latest_a_partition_begins_where_it_ended_when_the_pipeline_began(
    start: str,
    number: int,
    others: Any,
    expected: tuple[int, tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_partition, "bounds", others.bounds)
    monkeypatch.setattr(open_partition, "committed", others.committed)
    monkeypatch.setattr(open_partition, "ChangelogPartition", others.changelog)
    context: Any = SimpleNamespace(decoder=None, start=start, application_id="a", slots=4)
    topics = Topics("raw", "clean", None, "changelog", 0, 0)
    work: Any = SimpleNamespace(topics=topics, definition=bytes(16), upstream=None, only_positions=False)
    nobody: Any = None

    async def run() -> tuple[Position, tuple[int, ...]]:
        tp = TopicPartition("raw", number)
        return await PartitionOpener(context, SlotId("a", "p", 0, 4), work, others, nobody)._first_position(
            tp, Bounds(10, 100, 100)
        )

    position, beginning = asyncio.run(run())
    assert (position.next_offset, beginning) == expected
