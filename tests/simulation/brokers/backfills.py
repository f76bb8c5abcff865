"""Begins a pipeline with a part of its own source, as `seqmark backfill` does, through kills."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from processor.commands.spark.backfill_prepare import AskedBackfill, _take_topic
from processor.errors import SeqmarkError, StopError
from processor.kafka.client import KafkaError
from processor.reset.backfill.intake.cuts import CutChoice
from processor.reset.backfill.intake.looks import look_ahead
from processor.reset.backfill.load import loading
from tests.simulation.brokers.processes import Process
from tests.simulation.faults import Killed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.reset.backfill.staging import Staging
    from schemas.config import Settings
    from tests.simulation.brokers.episode import WorkerEpisode

RUN = "history"
TRIES = 5
"""Of a load, through faults; then without."""


async def backfilled(episode: WorkerEpisode, cuts: Mapping[int, int]) -> None:
    """Have the ids or sequences of what lies before the cuts remembered, and nothing of it written."""
    settings, folder = episode.now, Path(tempfile.mkdtemp(prefix="seqmark-sim-"))
    try:
        staging = await episode.calmly(_staged(settings, folder, CutChoice(cuts)))
        for fate in (*[episode.fate] * TRIES, episode.calm):
            process = Process(episode.brokers, fate)
            try:
                await process.begin(_load(settings, staging))
                break
            except (Killed, asyncio.CancelledError, SeqmarkError, KafkaError):
                if fate is episode.calm:
                    raise
            finally:
                await process.gone()
    finally:
        shutil.rmtree(folder)
    (pipeline,) = settings.pipelines
    goal = await episode.calmly(look_ahead(settings, pipeline, RUN, CutChoice(cuts), has_offsets=False))
    assert goal.whole, f"a backfill that is loaded would be loaded again: {goal}"


async def overtaken(episode: WorkerEpisode, cuts: Mapping[int, int], slots: int) -> None:
    """Have a worker begin between the look of a load and its first write: it must not load anything then.

    Args:
        episode: Its pipeline has not begun.
        cuts: Of the history.
        slots: Not those of the load, so that neither fences the other.
    """
    settings, folder = episode.now, Path(tempfile.mkdtemp(prefix="seqmark-sim-"))
    (pipeline,) = settings.pipelines
    worker = settings.worker.model_copy(update={"slots": slots})

    async def race() -> None:
        async with loading(settings, pipeline, staging) as load:
            plan = await load.plan()
            looked.set()
            await begun.wait()
            await load.apply(plan, lambda _: None)

    looked, begun = asyncio.Event(), asyncio.Event()
    try:
        staging = await episode.calmly(_staged(settings, folder, CutChoice(cuts)))
        process = Process(episode.brokers, episode.calm)
        racing = process.begin(race())
        await looked.wait()
        await episode.work(settings.model_copy(update={"worker": worker}))
        begun.set()
        await asyncio.wait([racing])
        await process.gone()
        assert isinstance(racing.exception(), StopError), "a load goes on over what a worker has begun"
    finally:
        shutil.rmtree(folder)


async def _staged(settings: Settings, folder: Path, choice: CutChoice) -> Staging:
    (pipeline,) = settings.pipelines
    goal = await look_ahead(settings, pipeline, RUN, choice, has_offsets=False)
    assert not goal.loaded, f"a backfill is loaded that nobody has loaded: {goal}"
    asked = AskedBackfill(settings, pipeline, pipeline.source, "topic", None, None, RUN, choice, None, "", "")
    _, work = await _take_topic(asked, goal, folder)
    return work.stage()


async def _load(settings: Settings, staging: Staging) -> None:
    (pipeline,) = settings.pipelines
    async with loading(settings, pipeline, staging) as load:
        await load.apply(await load.plan(), lambda _: None)
