"""A partition without state is not a pipeline without state: what its others say decides where it begins.

With positions in a list: where they come from on a broker is tested in `tests/broker/modes/test_route.py` and
`tests/broker/worker/test_identity.py`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import FencedError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import Bounds
from processor.kafka.transactions.fencing import SlotId
from processor.pipeline.hop_kinds import FirstHopKind
from processor.pipeline.hops import FirstHop
from processor.pipeline.ports import RouteTopics, Topics
from processor.state.changelog import ChangelogBounds
from processor.worker import open_partition
from processor.worker.open_partition import PartitionOpener
from schemas.changelog.ids import ORIGIN_COPY_KEY
from schemas.changelog.position import Origin, Position
from schemas.changelog.topic_ids import NO_TOPIC_IDS, UNKNOWN_ID, TopicId
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


STATE = bytes(16)


def position(state: bytes = STATE, source: bytes = UNKNOWN_ID) -> tuple[bytes, bytes]:
    topics = NO_TOPIC_IDS._replace(source=TopicId.of("raw", source))
    return POSITION_KEY, Position(7, -1, 0, b"this definition.", state, 1, topics).encode()


def begins(origin: Origin, key: bytes = ORIGIN_KEY) -> tuple[bytes, bytes]:
    return key, origin.encode()


class Others:
    """A source of four partitions that ends at 100, with the changelogs of those that have begun, by offset."""

    def __init__(self, logs: dict[int, dict[int, tuple[bytes, bytes]]], told: int | None = None) -> None:
        self.logs, self.told = logs, told
        self.ids = {"raw": b"id of the source"}

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
        rows = self.logs.get(partition, {})

        async def there() -> ChangelogBounds:
            return ChangelogBounds(min(rows, default=0), 90_000, 90_000)

        async def columns(start: int, stop: int) -> AsyncIterator[tuple[Columns, int]]:
            # One at a time: whatever a fetch ends with, the answer is the same.
            for offset in sorted(each for each in rows if start <= each < stop):
                found = columns_of([rows[offset]])[0]
                found.offset[:] = offset
                yield found, offset + 1

        return SimpleNamespace(bounds=there, columns=columns, name=f"changelog:{partition}")


BEGUN = Origin(50, 0, beginning=(50, 60, 5))
RESET = Origin(0, 0, reset_ms=1)
STARTED = {0: begins(BEGUN), 1: position(), 89_990: position()}
"""As it was written: the origin, and a position with each commit."""
CLEANED = {0: begins(BEGUN), 89_990: position()}
"""What compaction leaves: of each key the newest."""
TRIMMED = {70: position(), 50_000: begins(BEGUN, ORIGIN_COPY_KEY), 89_990: position()}
"""What deleting expired ids leaves: the origin's copy is not in front."""
RESET_BEHIND = {70: position(b"before the reset"), 80: begins(RESET), 81: position(), 89_990: position()}


@pytest.mark.parametrize(
    ("start", "number", "others", "expected"),
    [
        ("earliest", 1, Others({0: STARTED}), (10, ())),
        ("latest", 1, Others({}), (100, (100,) * 4)),
        ("latest", 1, Others({0: STARTED}), (60, (50, 60, 5))),
        ("latest", 2, Others({0: STARTED}), (10, (50, 60, 5))),
        ("latest", 3, Others({1: STARTED}), (10, (50, 60, 5))),
        ("latest", 1, Others({3: {0: begins(Origin(50, 0)), 1: position()}}), (10, ())),
        ("latest", 1, Others({}, told=2), (10, ())),
        ("latest", 1, Others({0: CLEANED}), (60, (50, 60, 5))),
        ("latest", 1, Others({0: TRIMMED}), (60, (50, 60, 5))),
        ("latest", 1, Others({0: {0: begins(BEGUN), **RESET_BEHIND}}), (10, ())),
        ("latest", 1, Others({0: {80: begins(RESET), 89_990: position()}}), (10, ())),
        ("latest", 1, Others({0: TRIMMED | {50_000: begins(RESET, ORIGIN_COPY_KEY)}}), (10, ())),
        ("latest", 1, Others({0: {60: begins(BEGUN, ORIGIN_COPY_KEY), **RESET_BEHIND}}), (10, ())),
        ("latest", 1, Others({0: {89_990: position()}}), (10, ())),
        ("latest", 1, Others({0: CLEANED | {89_990: position(source=b"id of the source")}}), (60, (50, 60, 5))),
        ("latest", 1, Others({0: STARTED | {89_990: position(source=b"id of another...")}}), (10, ())),
    ],
    ids=[
        "earliest",
        "all begin",
        "was there",
        "was shorter",
        "was added",
        "nobody says",
        "the group has come",
        "was cleaned",
        "was trimmed",
        "was reset",
        "was reset and cleaned",
        "was reset and trimmed",
        "was trimmed and reset",
        "has lost its origin",
        "is of this topic",
        "is of another topic",
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


@pytest.mark.parametrize(
    ("group", "exactly_once", "refused"),
    [(7, True, False), (6, True, False), (None, True, False), (8, True, True), (8, False, False)],
)
def test_a_state_that_is_older_than_the_groups_last_commit_is_not_gone_on_with(
    group: int | None,
    exactly_once: bool,  # noqa: FBT001 - a parameter of the test
    refused: bool,  # noqa: FBT001 - likewise
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def committed(client: object, name: str, some: list[TopicPartition]) -> dict[TopicPartition, int]:
        del client, name
        return {} if group is None else dict.fromkeys(some, group)

    monkeypatch.setattr(open_partition, "committed", committed)
    context: Any = SimpleNamespace(decoder=None, application_id="a", exactly_once=exactly_once)
    work: Any = SimpleNamespace(topics=None, definition=bytes(16), reset=lambda to: f"reset {to}")
    nobody: Any = None
    opener = PartitionOpener(context, SlotId("a", "p", 0, 4), work, nobody, nobody)
    state, changelog = Position(7, -1, 0, bytes(16), bytes(16), 1), Others({}).changelog(0, 0, "c", 0)

    async def run() -> None:
        await opener._require_newest(TopicPartition("raw", 0), state, changelog)

    if refused:
        with pytest.raises(
            StopError, match=r"raw:0: the group a has committed offset 8, .*only reaches 7.*--to-offset 0:8"
        ):
            asyncio.run(run())
    else:
        asyncio.run(run())


def test_where_another_has_written_meanwhile_the_group_is_asked_whose_the_slot_is() -> None:
    changelog: Any = Others({}).changelog(0, 0, "c", 0)

    async def run() -> None:
        end = (await changelog.bounds()).end
        await PartitionOpener._require_ours(changelog, end)
        with pytest.raises(FencedError, match="has been written to since it was restored"):
            await PartitionOpener._require_ours(changelog, end - 1)

    asyncio.run(run())
