"""Stages a history of records with ids in a header, and loads it; or begins to, and is killed.

staging = stage(config, folder, {0: history}, {0: cut})
kill_load(config, folder, "ended")
assert run_load(config, folder) == (0, "3 blocks, 0 partitions were whole")
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from processor.config.load import load
from processor.engine.ids.clock import NEVER
from processor.engine.verdict import Verdict
from processor.errors import SeqmarkError
from processor.inspection.explain.explainer import Explainer
from processor.inspection.explain.sentence import sentence
from processor.judges.exact import ExactIds
from processor.judges.factory import mode_of
from processor.reset.backfill.fold import SequenceRows, WatermarkPreparation
from processor.reset.backfill.load import loading
from processor.reset.backfill.staging import Staging, remembered_rows, stage_partition
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.wire.encode import plain_batch
from schemas.config import InsertIdDedup, WatermarkDedup
from tests.support.judges.scopes import columns_of
from tests.support.kafka.topics import PATIENCE_S, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.reset.backfill.sample import CutSample
    from processor.wire.receipt_values import RecordRef
    from tests.support.kafka.topics import New
    from tests.support.worker.process import WorkerConfig

SECRET = bytes(range(16))
RUN = "archive-2024"
ROOT = Path(__file__).parents[3]


def stage(
    config: WorkerConfig,
    folder: Path,
    history: Mapping[int, Sequence[New]],
    cuts: Mapping[int, int],
    run: str = RUN,
) -> Staging:
    """Stage what a worker remembers of a history, by partition; the stream goes on at the cuts."""
    (pipeline,) = load(config.write()).pipelines
    dedup = pipeline.dedup
    assert isinstance(dedup, InsertIdDedup)
    parts = {}
    folder.mkdir(exist_ok=True)
    for number, cut in cuts.items():
        judge = ExactIds(dedup)
        judge.log.secret = SECRET
        judge.load(Table(MemoryStore(), judge.log))
        some = [(each.key, each.value, each.timestamp, each.headers) for each in history[number]]
        columns = columns_of(plain_batch(some) if some else [])[0]
        evidence = judge.extract(columns)
        kept = judge.judge(evidence).verdict == Verdict.PASS
        readings = np.maximum.accumulate(np.array([each[2] for each in some], np.int64))
        clock_ms = int(readings.max(initial=NEVER))
        rows = remembered_rows(evidence.ids.hash[kept], readings[kept], clock_ms, dedup.window)
        # Blocks of about ten ids, so that there are several.
        parts[number] = stage_partition(folder, number, cut, clock_ms, rows, 300)
    definition = mode_of(pipeline).definition()
    return Staging(folder, run, pipeline.name, definition, SECRET, fingerprints=False, partitions=parts).write()


def stage_sequences(
    config: WorkerConfig,
    folder: Path,
    name: str,
    history: Mapping[int, Sequence[New]],
    cuts: Mapping[int, int],
) -> Staging:
    """Stage what a worker remembers of a history of one pipeline, by partition, in any order."""
    (pipeline,) = (each for each in load(config.write()).pipelines if each.name == name)
    dedup = pipeline.dedup
    assert isinstance(dedup, WatermarkDedup)
    folder.mkdir(exist_ok=True)
    mode = mode_of(pipeline)
    empty = Staging(folder, RUN, name, mode.definition(), SECRET, fingerprints=False, partitions={})
    work = WatermarkPreparation(empty, cuts, dedup)
    for number, some in history.items():
        batch = [(each.key, each.value, each.timestamp, each.headers) for each in some]
        evidence = mode.judge().extract(columns_of(plain_batch(batch) if batch else [])[0])
        where = np.full(len(some), number)
        rows = SequenceRows(where, evidence.sequence)
        if evidence.scope is not None:
            epoch = where[:0] if evidence.epoch is None else evidence.epoch
            rows = SequenceRows(where, evidence.sequence, epoch, evidence.data, *evidence.scope)
        work.take(rows)
    # Blocks of a few scopes, so that there are several.
    return work.stage(300)


def run_load(config: WorkerConfig, folder: Path, name: str = "p") -> tuple[int, str]:
    """Load what is staged; return the exit code that a command would have, and what it would say."""
    try:
        return 0, asyncio.run(_load(config.write(), folder, name))
    except SeqmarkError as error:
        return error.exit_code, str(error)


def sampled(config: WorkerConfig, folder: Path, name: str = "p") -> dict[int, CutSample]:
    """Return what is found next to the cuts of what is staged; nothing is loaded."""

    async def look() -> dict[int, CutSample]:
        settings = load(config.write())
        (pipeline,) = (each for each in settings.pipelines if each.name == name)
        async with loading(settings, pipeline, Staging.read(folder)) as work:
            return await work.sample(await work.plan())

    return asyncio.run(look())


def explained(config: WorkerConfig, ref: RecordRef) -> str:
    """Return what `seqmark explain` says of a record."""

    async def ask() -> str:
        async with Explainer.open(load(config.write())) as explainer:
            (story,) = await explainer.explain_many([ref])
        assert not story.problems
        return sentence(story)

    return asyncio.run(ask())


def kill_load(config: WorkerConfig, folder: Path, step: str, name: str = "p") -> None:
    """Load what is staged in a process that ends by SIGKILL after a step."""
    command = [sys.executable, "-m", __name__, str(config.write()), str(folder), name]
    variables = environment({"SEQMARK_FAULT_STEP": step})
    ended = subprocess.run(
        command, check=False, capture_output=True, cwd=ROOT, env=variables, timeout=PATIENCE_S
    )
    assert ended.returncode == -signal.SIGKILL, (step, ended.stdout, ended.stderr)


async def _load(config: Path, folder: Path, name: str) -> str:
    settings = load(config)
    (pipeline,) = (each for each in settings.pipelines if each.name == name)
    async with loading(settings, pipeline, Staging.read(folder)) as work:
        done: list[int] = []
        plan = await work.plan()
        await work.apply(plan, done.append)
    return f"{sum(done)} blocks, {sum(step.whole for step in plan.steps)} partitions were whole"


if __name__ == "__main__":
    asyncio.run(_load(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
