"""Is what was judged and not sent kept from being committed, once a slot has failed?

With a pipeline that only counts: the moment between a failure and its handling cannot be met for real. And is a
new partition of a routed source kept from sending ids elsewhere than the others do?
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor import slot
from processor.errors import RebuildError, StopError
from processor.hops import FirstHop
from processor.kafka.offsets import Bounds
from processor.kafka.seam import TopicPartition
from processor.metrics import Metrics
from processor.slot import Event, SlotRun, Tick
from schemas.changelog import POSITION_KEY, Position
from tests.support.scopes import columns_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.engine.records import Columns


class CountingPipeline:
    """Has work to commit, and counts how often it is."""

    def __init__(self) -> None:
        self.partitions: dict[int, Any] = {}
        self.begun_at: float | None = 0.0
        self.commits = 0

    def due_at(self, interval_s: float) -> float | None:
        return None if self.begun_at is None else self.begun_at + interval_s

    async def commit(self) -> None:
        self.commits += 1

    async def finish(self) -> None:
        self.commits += 1

    def expendable(self) -> dict[int, int]:
        return {}


def working() -> tuple[Any, CountingPipeline]:
    """A slot at work; as Any, because its inside is set."""

    async def put(event: Event) -> None:
        del event

    context: Any = SimpleNamespace(
        application_id="a", slots=1, commit_interval_s=0.0, metrics=Metrics(), progressed=lambda: None
    )
    config: Any = SimpleNamespace(name="p")
    run: Any = SlotRun(context, config, 0, [0], put)
    pipeline = CountingPipeline()
    run.ready, run._pipeline = True, pipeline
    run._failed = asyncio.get_running_loop().create_future()
    return run, pipeline


@pytest.mark.parametrize("failed", [False, True])
def test_an_event_behind_a_failure_commits_nothing(*, failed: bool) -> None:
    async def commits() -> int:
        run, pipeline = working()
        if failed:
            run._fail(RebuildError("produce", "refused"))
        await run.handle(Event(run, run._epoch, Tick()))
        if failed:
            run._failed.exception()
        return pipeline.commits

    assert asyncio.run(commits()) == (0 if failed else 1)


@pytest.mark.parametrize("failed", [False, True])
def test_a_slot_that_fails_while_it_is_given_up_commits_nothing(*, failed: bool) -> None:
    async def commits() -> int:
        run, pipeline = working()
        async with run._busy:
            closing = asyncio.create_task(run.close())
            for _ in range(5):  # until it has looked and waits for the lock
                await asyncio.sleep(0)
            if failed:
                run._fail(RebuildError("produce", "refused"))
        await closing
        if failed:
            run._failed.exception()
        return pipeline.commits

    assert asyncio.run(commits()) == (0 if failed else 1)


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
    monkeypatch.setattr(slot, "bounds", positions.bounds)
    monkeypatch.setattr(slot, "ChangelogPartition", positions.changelog)
    monkeypatch.setattr(slot, "judged_by", lambda _: [])

    async def run() -> None:
        work, _ = working()
        work._context.decoder = None
        hop: Any = {"name": "p.route", "source": "raw", "internal": "internal", "of": "p"}
        work._config = FirstHop.model_construct(**hop)
        work._topics = SimpleNamespace(changelog="positions")
        await work._require_same_route(positions, TopicPartition("raw", 2), b"this definition.")

    if refused:
        with pytest.raises(StopError, match=r"raw:1 .*the number of partitions of internal"):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert positions.read == [(number, 4000, 5000) for number in read]
