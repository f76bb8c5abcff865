"""Begins a pipeline with a history, as `seqmark backfill` does, through kills; a worker may come in between.

Where a load stands is read from the changelogs themselves: what is committed there says whether a worker may
begin, and it does not before all is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from processor.commands.spark.backfill_columns import AskedBackfill
from processor.commands.spark.backfill_prepare import _take_topic
from processor.errors import SeqmarkError, StopError
from processor.kafka.client import KafkaError
from processor.ops.fault_points import heard_by
from processor.reset.backfill import hop_load, prepare
from processor.reset.backfill.intake import topic as _topic  # noqa: F401 - before a mistake is looked for in it
from processor.reset.backfill.intake.cuts import CutChoice
from processor.reset.backfill.intake.looks import look_ahead
from processor.reset.backfill.load import loading
from processor.reset.backfill.prepare import Preparation
from processor.reset.backfill.staging import stage_partition
from schemas.changelog.backfill import BACKFILL_KEY
from schemas.changelog.ids import IDS_KEY
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from tests.simulation.brokers.processes import Process
from tests.simulation.faults import Killed
from tests.simulation.scenario import APPLICATION
from tests.simulation.truth.oracle import read

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from enum import StrEnum

    from processor.reset.backfill.staging import Staging
    from schemas.config import Settings
    from tests.simulation.brokers.episode import WorkerEpisode
    from tests.simulation.brokers.kafka.cluster import Brokers

RUN = "history"
TRIES = 5
"""Of a load, through faults; then without."""
ARRIVED_S = 10.0
"""After it nothing is on its way, and all markers have come, or never do."""
SCOPES_BYTES = 300
"""Of a block: a few scopes, or about ten ids."""
LARGE_BYTES = 100_000
"""Of a block that the longest scope fits into."""
CHANGELOG, POSITIONS, INTERNAL = (
    f"{APPLICATION}-p-{name}" for name in ("changelog", "positions", "repartition")
)


async def backfilled(episode: WorkerEpisode, cuts: Mapping[int, int], history: str = "source") -> None:
    """Have the ids or sequences of a history remembered, and nothing of it written.

    Args:
        episode: Its pipeline has not begun.
        cuts: By source partition, where the stream goes on.
        history: A topic; the source itself up to the cuts.
    """
    settings, choice = episode.now, CutChoice(cuts)
    with _folder() as folder, small_blocks(episode.dice):
        staging = await episode.calmly(_staged(episode, folder, choice, history))
        await _loaded(episode, staging)
    (pipeline,) = settings.pipelines
    goal = await episode.calmly(look_ahead(settings, pipeline, RUN, choice, has_offsets=False))
    assert goal.whole, f"a backfill that is loaded would be loaded again: {goal}"


async def refused(episode: WorkerEpisode, cuts: Mapping[int, int], what: str) -> None:
    """Ask for a backfill that must not be loaded."""
    with _folder() as folder:
        try:
            await episode.calmly(_staged(episode, folder, CutChoice(cuts), "source"))
        except StopError:
            return
    raise AssertionError(f"a backfill is taken in {what}")


async def overtaken(episode: WorkerEpisode, cuts: Mapping[int, int], slots: int) -> None:
    """Have a worker begin between the look of a load and its first write: it must not load anything then.

    Args:
        episode: Its pipeline has not begun.
        cuts: Of the history.
        slots: Not those of the load, so that neither fences the other.
    """
    settings = episode.now
    (pipeline,) = settings.pipelines
    worker = settings.worker.model_copy(update={"slots": slots})

    async def race() -> None:
        async with loading(settings, pipeline, staging) as load:
            plan = await load.plan()
            looked.set()
            await begun.wait()
            await load.apply(plan, lambda _: None)

    looked, begun = asyncio.Event(), asyncio.Event()
    with _folder() as folder:
        staging = await episode.calmly(_staged(episode, folder, CutChoice(cuts), "source"))
        process = Process(episode.brokers, episode.calm)
        racing = process.begin(race())
        await looked.wait()
        await episode.work(settings.model_copy(update={"worker": worker}))
        begun.set()
        await asyncio.wait([racing])
        await process.gone()
        assert isinstance(racing.exception(), StopError), "a load goes on over what a worker has begun"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="seqmark-sim-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def small_blocks(dice: random.Random) -> Iterator[None]:
    """Have some ids or scopes make several blocks, and those several transactions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hop_load, "TRANSACTION_BYTES", dice.choice((1, 500, 2**25)))
        patch.setattr(prepare, "stage_partition", partial(stage_partition, block_bytes=SCOPES_BYTES))
        yield


async def _staged(episode: WorkerEpisode, folder: Path, choice: CutChoice, history: str) -> Staging:
    settings = episode.now
    (pipeline,) = settings.pipelines
    goal = await look_ahead(settings, pipeline, RUN, choice, has_offsets=False)
    assert not goal.loaded, f"a backfill is loaded that nobody has loaded: {goal}"
    asked = AskedBackfill(settings, pipeline, history, "topic", None, None, RUN, choice, None, "", "")
    _, work = await _take_topic(asked, goal, folder)
    return work.stage() if isinstance(work, Preparation) else work.stage(_scopes_bytes(episode))


def _scopes_bytes(episode: WorkerEpisode) -> int:
    """Return the bytes of a block of scopes: few, but where there are scopes as long as any may be."""
    keys = (each.key or b"" for some in episode.scenario.records for each in some)
    return SCOPES_BYTES if all(len(key) < SCOPES_BYTES for key in keys) else LARGE_BYTES


async def _loaded(episode: WorkerEpisode, staging: Staging) -> None:
    """Load what is staged: it goes on where it was, and no worker begins before it is whole."""
    settings, brokers, dice = episode.now, episode.brokers, episode.dice
    for fate in (*[episode.fate] * TRIES, episode.calm):
        process = Process(brokers, fate)
        steps = 0 if fate is episode.calm else dice.randrange(1, dice.choice((6, 20, 60)))
        try:
            with _ended_after(steps, process):
                await process.begin(_load(settings, staging))
            break
        except (Killed, asyncio.CancelledError, SeqmarkError, KafkaError):
            if fate is episode.calm:
                raise
        finally:
            await process.gone()
        await asyncio.sleep(ARRIVED_S)
        stands = _stands(brokers)
        if stands.marked and not stands.whole and dice.random() < 0.5:
            await episode.refused(settings, "a backfill that is not whole")
            _stands(brokers)


@contextlib.contextmanager
def _ended_after(steps: int, process: Process) -> Iterator[None]:
    """Kill a process after so many steps of its commits; 0: do not."""
    left = [steps]

    def heard(_step: StrEnum, _hop: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            process.kill()

    with heard_by(heard):
        yield


async def _load(settings: Settings, staging: Staging) -> None:
    (pipeline,) = settings.pipelines
    async with loading(settings, pipeline, staging) as load:
        await load.apply(await load.plan(), lambda _: None)


class _Stands(NamedTuple):
    """How far a load has come.

    Attributes:
        marked: Whether it has begun.
        whole: Whether it is done.
    """

    marked: bool
    whole: bool


def _stands(brokers: Brokers) -> _Stands:
    """Look into the changelogs of a pipeline that is being loaded, and require their order.

    All partitions are marked at once, no block comes twice, and where the source is read, all ids are there.
    """
    looks = {topic: _looked(brokers, topic) for topic in (POSITIONS, CHANGELOG) if topic in brokers.topics}
    every = [each for some in looks.values() for each in some]
    seen = [each for each in every if each is not None]
    assert len({bool(keys) for keys in seen}) < 2, f"some partitions are marked, and others are not: {looks}"
    for keys in seen:
        blocks = [key for key in keys if key not in {ORIGIN_KEY, BACKFILL_KEY, IDS_KEY, POSITION_KEY}]
        assert len(set(blocks)) == len(blocks), "what was loaded is loaded again"
    on_their_way = any(read(brokers, INTERNAL, number) for number in range(len(looks[CHANGELOG])))
    is_read = any(POSITION_KEY in (keys or ()) for keys in looks.get(POSITIONS, ()))
    ids_there = all(keys is None or POSITION_KEY in keys for keys in looks[CHANGELOG])
    assert ids_there or not (is_read or on_their_way), "the source is read before all ids are there"
    whole = all(keys is not None and POSITION_KEY in keys for keys in every)
    return _Stands(any(seen), whole)


def _looked(brokers: Brokers, topic: str) -> list[list[bytes] | None]:
    """Return by partition the keys of what is loaded, up to a state; None where a transaction is open."""
    found: list[list[bytes] | None] = []
    for number in range(brokers.topics[topic].partitions):
        keys = [each.key or b"" for each in read(brokers, topic, number)]
        keys = keys[max((at for at, key in enumerate(keys) if key == ORIGIN_KEY), default=0) :]
        keys = keys[: keys.index(POSITION_KEY) + 1] if POSITION_KEY in keys else keys
        found.append(None if brokers.log(topic, number).open else keys)
    return found
