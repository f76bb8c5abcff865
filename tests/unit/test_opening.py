"""Is a new partition of a routed source kept from sending ids elsewhere than the others do?

With positions in a list: where they come from on a broker is tested in `tests/broker/test_route.py`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor import opening
from processor.errors import StopError
from processor.hop_work import FirstHopWork
from processor.hops import FirstHop
from processor.kafka.offsets import Bounds
from processor.kafka.seam import TopicPartition
from processor.opening import Opening
from processor.router import RouteTopics
from schemas.changelog import POSITION_KEY, Position
from schemas.config import InsertIdDedup
from tests.support.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.records import Columns


class Work(FirstHopWork):
    """Of a hop whose definition is given."""

    definition = b"this definition."


class Positions:
    """Positions of a routed source, in a list by partition; one that is None has none."""

    def __init__(self, definitions: list[bytes | None]) -> None:
        self.definitions = definitions
        self.read: list[tuple[int, int, int]] = []

    def partitions(self, topic: str) -> set[int]:
        return set(range(len(self.definitions))) if topic == "positions" else set()

    async def bounds(self, link: object, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        del link
        return {tp: Bounds(5, 5000, 5000) for tp in partitions}

    def changelog(self, link: object, decoder: object, topic: str, partition: int) -> Any:
        del link, decoder, topic
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
    monkeypatch.setattr(opening, "bounds", positions.bounds)
    monkeypatch.setattr(opening, "ChangelogPartition", positions.changelog)

    hop: Any = {"name": "p.route", "source": "raw", "internal": "internal", "of": "p"}
    routed = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "route": "by-id"}
    hop["dedup"] = InsertIdDedup.model_validate(routed)
    topics = RouteTopics("raw", "clean", None, "positions", 0, 0, 0, internal="internal")
    context: Any = SimpleNamespace(decoder=None)
    nobody: Any = None
    work = Work(FirstHop.model_construct(**hop), topics)

    async def run() -> None:
        begun: Any = Opening(context, "p.route", work, positions, nobody)
        await begun._require_same_meaning(TopicPartition("raw", 2))

    if refused:
        with pytest.raises(StopError, match=r"raw:1 .*the number of partitions of internal"):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert positions.read == [(number, 4000, 5000) for number in read]
