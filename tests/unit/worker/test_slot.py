"""Is what was judged and not sent kept from being committed, once a slot has failed?

With a pipeline that only counts: the moment between a failure and its handling cannot be met for real.
"""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from processor.errors import RebuildError
from processor.ops.metrics import Metrics
from processor.worker.slot import Event, SlotRun, Tick


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

    def take_changelog_trims(self) -> dict[int, int]:
        return {}

    def take_source_trims(self) -> dict[int, int]:
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


def test_a_slot_that_fails_after_it_was_given_up_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        run, _ = working()
        run._fail(RebuildError("produce", "refused"))

    asyncio.run(fail())
    gc.collect()

    assert caplog.messages == []
