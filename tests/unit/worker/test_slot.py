"""What was judged and not sent is not committed, once a slot has failed.

With a pipeline that only counts: the moment between a failure and its handling cannot be met for real.
"""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from processor.errors import RebuildError, StopError
from processor.kafka.transactions.pace import Pace
from processor.ops.metrics import Metrics
from processor.worker.drain_goal import DrainGoal
from processor.worker.open_slot import OpenSlot
from processor.worker.slot import SlotRun
from processor.worker.slot_state import SlotState
from processor.worker.slot_work import Event, SlotWork, Tick
from processor.worker.standstill import Standstill


class CountingPipeline:
    """Has work to commit, and counts how often it is."""

    def __init__(self) -> None:
        self.partitions: dict[int, Any] = {}
        self.begun_at: float | None = 0.0
        self.pace = Pace()
        self.commits = 0

    def due_at(self, interval_s: float) -> float | None:
        return None if self.begun_at is None else self.begun_at + interval_s

    async def commit(self) -> None:
        self.commits += 1

    async def finish(self) -> None:
        self.commits += 1

    def take_changelog_trims(self) -> dict[int, int]:
        return {}

    def take_source_trims(self) -> dict[int, int]:
        return {}


async def ignore(event: Event) -> None:
    """Put an event nowhere."""
    del event


def working() -> tuple[SlotRun, OpenSlot, SlotWork, CountingPipeline]:
    """A slot at work; its life is set, for no broker is there."""
    context: Any = SimpleNamespace(
        application_id="a",
        slots=1,
        commit_interval_s=0.0,
        transaction_timeout_ms=60_000,
        metrics=Metrics(),
        progressed=lambda: None,
    )
    topics = SimpleNamespace(changelog="p-changelog", source="p")
    kind: Any = SimpleNamespace(hop=SimpleNamespace(name="p"), topics=topics)
    pipeline: Any = CountingPipeline()
    run = SlotRun(context, kind.hop, 0, [0], ignore)
    slot = run._slot = OpenSlot(context, run._id, kind, [0])
    slot.pipeline = pipeline
    for state in (SlotState.WAITING, SlotState.FENCING, SlotState.RESTORING, SlotState.WORKING):
        run._life.enter(state)
    goal, standstill = DrainGoal(context, [0]), Standstill("p", context.metrics)
    return run, slot, SlotWork(context, run._life, slot, goal, standstill, ignore), pipeline


@pytest.mark.parametrize("failed", [False, True])
def test_an_event_behind_a_failure_commits_nothing(*, failed: bool) -> None:
    async def commits() -> int:
        _, slot, work, pipeline = working()
        if failed:
            slot.fail(RebuildError("produce", "refused"))
        await work.handle(Tick())
        assert slot.failed.done() == failed
        return pipeline.commits

    assert asyncio.run(commits()) == (0 if failed else 1)


@pytest.mark.parametrize(("doubt", "stops"), [("", True), ("broker 2 says that broker 2 leads it", False)])
def test_what_one_broker_says_stops_no_worker_while_another_denies_it(*, doubt: str, stops: bool) -> None:
    class Asked:
        async def contradiction(self) -> str:
            return doubt

        async def close(self) -> None:
            pass

    async def story() -> tuple[bool, list[Exception]]:
        run, slot, _, _ = working()
        client: Any = Asked()
        slot._clients = [client]
        slot.pipeline = None
        ended: list[Exception] = []
        context: Any = run._context
        context.fail, context.look_again = ended.append, lambda: None
        goes_on = await run._goes_on_after(StopError("p-changelog:0 was deleted"))
        assert doubt in run.reason
        return goes_on, ended

    goes_on, ended = asyncio.run(story())
    assert (goes_on, [str(error) for error in ended]) == (not stops, ["p-changelog:0 was deleted"] * stops)


@pytest.mark.parametrize("failed", [False, True])
def test_a_slot_that_fails_while_it_is_given_up_commits_nothing(*, failed: bool) -> None:
    async def commits() -> int:
        run, slot, _, pipeline = working()
        async with slot.busy:
            closing = asyncio.create_task(run.close())
            for _ in range(5):  # until it has looked and waits for the lock
                await asyncio.sleep(0)
            if failed:
                slot.fail(RebuildError("produce", "refused"))
        await closing
        return pipeline.commits

    assert asyncio.run(commits()) == (0 if failed else 1)


def test_an_event_of_a_slot_that_is_given_up_does_nothing() -> None:
    async def commits() -> int:
        run, _, work, pipeline = working()
        run._life.enter(SlotState.CLOSING)
        await work.handle(Tick())
        return pipeline.commits

    assert asyncio.run(commits()) == 0


def test_a_slot_that_fails_after_it_was_given_up_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        _, slot, _, _ = working()
        slot.fail(RebuildError("produce", "refused"))

    asyncio.run(fail())
    gc.collect()

    assert caplog.messages == []
