"""Loads a staged backfill into the changelog of a stopped pipeline that has no state yet.

The order is that of a reset, so that it is safe against a worker:

    1 stopped   nobody in the group reads the source; asked again before each transaction ends
    2 fence     the transactional ids of the slots, and of whoever began to load this before
    3 look      each partition: nothing there, a part of this backfill, or all of it; anything else is refused
    4 blocks    the ids, in transactions of their own: the first begins with the origin, at which readers forget
                what lies before it, and each ends with how far it has come
    5 state     per partition one transaction: secret, clock and numbers, position, and the group's offset

A partition has no state before its step 5, and a worker refuses it by the backfill's name until then. A process
that ends anywhere is started again: what has committed is not written once more.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import check_aiokafka, open_client
from processor.kafka.offsets import bounds, committed, origin_at
from processor.kafka.topics.ensure import ensure, look
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.ops.fault_points import CommitStep as FaultStep
from processor.ops.fault_points import reached
from processor.pipeline.ports import new_position
from processor.reset.backfill.found import FoundState, find
from processor.reset.context import ResetContext
from processor.reset.fences import SlotFences
from processor.state.restore import settled
from processor.wire.encode import plain_batch
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.producer import Producer
    from processor.reset.backfill.staging import StagedPartition, Staging
    from schemas.config import Pipeline, Settings

TRANSACTION_BYTES = 32 * 1024 * 1024
"""Of blocks in one transaction, about 1.4 million ids: what is lost by a kill, and held in memory at most."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What is to be loaded of one partition.

    Attributes:
        staged: It.
        done: How many blocks are there already.
        whole: Nothing is to be done: its state is there.
        gap: How many source offsets below the cut and before the first retained one nobody has any more.
    """

    staged: StagedPartition
    done: int = 0
    whole: bool = False
    gap: int = 0


class BackfillLoad:
    """One backfill, ready to be loaded; made by `loading`."""

    def __init__(self, context: ResetContext, staging: Staging) -> None:
        self._context = context
        self._staging = staging
        self._fences = SlotFences(context)

    async def plan(self) -> list[LoadStep]:
        """Fence the slots, look at each partition and say what is to be loaded, by partition.

        Raises:
            StopError: The pipeline is not stopped, or has a state, or the backfill is of another one; names
                everything that is wrong.
            RebuildError: The broker does not answer.
        """
        context, staging = self._context, self._staging
        await context.require_stopped()
        if refused := list(self._misfits()):
            raise StopError("nothing was loaded:\n" + "\n".join(refused))
        slots = context.settings.worker.slots
        for slot in range(min(slots, context.partitions)):
            await self._fences.fence(slot)
        sources = [context.source(number) for number in sorted(staging.partitions)]
        limits = await bounds(context.client, sources)
        offsets = await committed(context.client, context.application, sources)
        steps = []
        for tp in sources:
            try:
                steps.append(await self._step(tp.partition, limits[tp], has_offset=tp in offsets))
            except StopError as error:
                refused.append(str(error))
        if refused:
            raise StopError("nothing was loaded:\n" + "\n".join(refused))
        return steps

    async def apply(self, steps: Iterable[LoadStep], advance: Callable[[int], None]) -> None:
        """Load what `plan` has said; ``advance`` gets the number of blocks loaded since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known, or a file is not whole.
        """
        for step in steps:
            if step.whole:
                continue
            number = step.staged.partition
            try:
                await self._load(step, advance)
            except (RebuildError, FencedError) as error:
                raise StopError(
                    f"partition {number} is not loaded to its end: {error}. Load the same backfill again: it "
                    "goes on where it was"
                ) from error

    async def close(self) -> None:
        """Abort what is open and give the slots up."""
        await self._fences.close()

    def _misfits(self) -> Iterator[str]:
        """Say what of the backfill is not this pipeline's."""
        context, staging = self._context, self._staging
        dedup, name = context.pipeline.id_dedup, context.pipeline.name
        if staging.pipeline != name:
            yield f"backfill {staging.run} was staged for pipeline {staging.pipeline}, not for {name}"
        if dedup is None:
            yield f"pipeline {name} is of mode watermark: ids can be backfilled, sequences cannot"
            return
        if dedup.route is not None:
            yield f"pipeline {name} has a route: it cannot be backfilled"
        if dedup.on_collision == "tag":
            yield f"pipeline {name} tags collisions with the first record, which of a history stands nowhere"
        if staging.definition != context.definition:
            yield (
                f"backfill {staging.run} was staged for another dedup definition of {name} (id, window, "
                "fingerprint): stage it again"
            )
        if sorted(staging.partitions) != list(range(context.partitions)):
            there = f"{context.topics.source} has the partitions 0 to {context.partitions - 1}"
            has = f"backfill {staging.run} has partitions {sorted(staging.partitions)}"
            yield f"{has}, and {there}: stage it again"

    async def _step(self, number: int, limits: Bounds, *, has_offset: bool) -> LoadStep:
        context, staging = self._context, self._staging
        staged = staging.partitions[number]
        found = await self._found(number)
        name = f"{context.topics.source}:{number}"
        if found.position is not None:
            if found.backfill == staging.run:
                return LoadStep(staged, staged.blocks, whole=True)
            raise StopError(
                f"{name} has a state already: only a pipeline that has not begun can be backfilled; see "
                "'Beginning anew' in docs/operations.md"
            )
        if has_offset:
            raise StopError(
                f"{name}: the group {context.application} has committed an offset, and there is no state: it "
                "was deleted; see 'Beginning anew' in docs/operations.md"
            )
        if staged.cut > limits.stable:
            raise StopError(
                f"{name}: the cut, offset {staged.cut}, lies beyond the end, which is {limits.stable}"
            )
        gap = max(0, limits.start - staged.cut)
        progress = found.progress
        if progress is not None and progress.digest == staging.digest:
            return LoadStep(staged, progress.blocks, gap=gap)
        # Of another history, or none: the first transaction begins with an origin.
        return LoadStep(staged, gap=gap)

    async def _found(self, number: int) -> FoundState:
        """Look at a partition that nobody else writes to any more."""
        context = self._context
        changelog = context.changelog(number)
        found = await find(changelog, await changelog.bounds(), context.application, context.pipeline.name)
        if found.progress is not None:
            await self._fences.fence_former(number, found.progress.slots)
        settling = await settled(changelog, context.transaction_timeout_s)
        return await find(changelog, settling, context.application, context.pipeline.name)

    async def _load(self, step: LoadStep, advance: Callable[[int], None]) -> None:
        context, staging = self._context, self._staging
        staged, number = step.staged, step.staged.partition
        slots = context.settings.worker.slots
        producer = self._fences.producer(number % slots)
        origin = await origin_at(
            context.client,
            context.topics.sink,
            context.topics.duplicates,
            context.topics.quarantine,
            number,
            staged.cut,
        )
        begin: list[tuple[bytes, bytes]] = [] if step.done else [(ORIGIN_KEY, origin.encode())]
        done = step.done
        for blocks in _transactions(staging.blocks(number, step.done)):
            done += len(blocks)
            progress = BackfillProgress(staging.run, staging.digest, done, slots)
            await self._write(
                producer,
                number,
                [*begin, *blocks, (BACKFILL_KEY, progress.encode())],
                None,  # 4
            )
            begin = []
            advance(len(blocks))
        position = context.named(
            new_position(staged.cut, context.definition, os.urandom(16), slots, int(time.time() * 1000))
        )
        position = replace(position, ends=origin.ends)
        last = [*begin, (IDS_KEY, staging.state(number).encode()), (POSITION_KEY, position.encode())]
        await self._write(producer, number, last, staged.cut)  # 5

    async def _write(
        self, producer: Producer, number: int, items: list[tuple[bytes, bytes]], offset: int | None
    ) -> None:
        """Write records in one transaction, large ones each as a batch; with an ``offset`` the group's too."""
        context = self._context
        output = ExactlyOnceOutput(producer, context.application, context.topics.source)
        now_ms = int(time.time() * 1000)
        output.begin()
        reached(FaultStep.BEGUN)
        for key, value in items:
            # One at a time: the producer's deadline is for what is on its way.
            await output.send(context.topics.changelog, number, [plain_batch([(key, value, now_ms, ())])])
        await output.flush()
        reached(FaultStep.CHANGELOG)
        # Whoever joins from here on finds a transaction open on the changelog and waits for it.
        await context.require_stopped()
        if offset is None:
            await producer.end(commit=True)
        else:
            await output.commit({number: offset}, lambda: reached(FaultStep.OFFSETS))
        reached(FaultStep.ENDED)


def _transactions(blocks: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    some: list[tuple[bytes, bytes]] = []
    size = 0
    for key, block in blocks:
        some.append((key, block))
        size += len(block)
        if size >= TRANSACTION_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


@asynccontextmanager
async def loading(settings: Settings, pipeline: Pipeline, staging: Staging) -> AsyncIterator[BackfillLoad]:
    """Connect, create the topics that are missing, and give what loads a backfill.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    check_aiokafka()
    alone = settings.model_copy(update={"pipelines": [pipeline]})
    report = await ensure(alone, create=True)
    report.require()
    view = await look(alone)
    client_id = f"{settings.worker.application_id}-backfill"
    async with open_client(settings.kafka, client_id, view, "; load the same backfill again") as client:
        load = BackfillLoad(ResetContext(alone, client, view), staging)
        try:
            yield load
        finally:
            await load.close()
