"""Loads a staged backfill into the changelog of a stopped pipeline that has no state yet.

The order is that of a reset, so that it is safe against a worker:

    1 stopped   nobody in the group reads the source; asked again before each transaction ends
    2 fence     the transactional ids of the slots, and of whoever began to load this before
    3 look      each partition: nothing there, a part of this backfill, or all of it; anything else is refused
    4 mark      all partitions in one transaction: origin, at which readers forget what lies before it, and how
                far this has come, nowhere yet
    5 blocks    the ids or scopes, in transactions that each end with how far it has come
    6 state     once all blocks are there, per partition one transaction: secret, clock and numbers of its ids,
                position, and the group's offset

From step 4 on a worker refuses each partition by the backfill's name, until its step 6 is done: were it marked
later than another one, a worker could begin it with an empty state meanwhile. A process that ends anywhere is
started again: what has committed is not written once more.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.judges.ids import make_id_extractor
from processor.kafka.offsets import bounds, committed, origin_at
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.ops.fault_points import CommitStep as FaultStep
from processor.ops.fault_points import reached
from processor.pipeline.ports import new_position
from processor.reset.backfill.found import FoundState, find
from processor.reset.backfill.sample import CutSample, sample_cut, sample_sequences
from processor.reset.context import ResetContext, connected
from processor.reset.fences import SlotFences
from processor.state.restore import settled
from processor.wire.encode import plain_batch
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.producer import Producer
    from processor.reset.backfill.staging import StagedPartition, Staging
    from schemas.changelog.position import Origin
    from schemas.config import Pipeline, Settings

TRANSACTION_BYTES = 32 * 1024 * 1024
"""Of blocks in one transaction, about 1.4 million ids, or 800,000 scopes of 16 bytes: what is lost by a kill,
and held in memory at most."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What is to be loaded of one partition.

    Attributes:
        staged: It.
        marked: Whether it is marked as one of this backfill.
        done: How many blocks are there already.
        whole: Nothing is to be done: its state is there.
        gap: How many source offsets below the cut and before the first retained one nobody has any more.
    """

    staged: StagedPartition
    marked: bool = False
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

    async def sample(self, steps: Iterable[LoadStep]) -> dict[int, CutSample]:
        """Look on both sides of the cuts, see `sample_cut`; by partition, of those that are not loaded yet.

        Raises:
            StopError: A file is not whole, or retention has taken what was to be read.
            RebuildError: The broker does not answer.
        """
        context, staging, dedup = self._context, self._staging, self._context.pipeline.id_dedup
        numbers = [step.staged.partition for step in steps if not step.whole]
        found = await bounds(context.client, [context.source(number) for number in numbers])
        limits = {number: found[context.source(number)] for number in numbers}
        if dedup is None:
            return {each: await sample_sequences(context, staging, each, limits[each]) for each in numbers}
        extractor = make_id_extractor(dedup, staging.secret)
        return {
            each: await sample_cut(context, staging, each, limits[each], extractor, dedup.window)
            for each in numbers
        }

    async def apply(self, steps: Iterable[LoadStep], advance: Callable[[int], None]) -> None:
        """Load what `plan` has said; ``advance`` gets the number of blocks loaded since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known, or a file is not whole.
        """
        left = [step for step in steps if not step.whole]
        try:
            await self._mark([step for step in left if not step.marked])
            for step in left:
                await self._blocks(step, advance)
            for step in left:
                await self._state(step.staged)
        except (RebuildError, FencedError) as error:
            raise StopError(
                f"backfill {self._staging.run} is not loaded to its end: {error}. Load it again: it goes on "
                "where it was"
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
        if dedup is not None and dedup.route is not None:
            yield f"pipeline {name} has a route: it cannot be backfilled"
        if dedup is not None and dedup.on_collision == "tag":
            yield f"pipeline {name} tags collisions with the first record, which of a history stands nowhere"
        if staging.definition != context.definition:
            yield (
                f"backfill {staging.run} was staged for another dedup definition of {name} (mode, id or "
                "sequence, window, fingerprint): stage it again"
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
                return LoadStep(staged, marked=True, done=staged.blocks, whole=True)
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
            return LoadStep(staged, marked=True, done=progress.blocks, gap=gap)
        # Of another history, or none: step 4 begins with an origin.
        return LoadStep(staged, gap=gap)

    async def _found(self, number: int) -> FoundState:
        """Look at a partition that nobody else writes to any more."""
        context = self._context
        changelog = context.changelog(number)
        whose, sequences = (context.application, context.pipeline.name), self._staging.sequences
        found = await find(changelog, await changelog.bounds(), *whose, sequences=sequences)
        if found.progress is not None:
            await self._fences.fence_former(number, found.progress.slots)
        settling = await settled(changelog, context.transaction_timeout_s)
        return await find(changelog, settling, *whose, sequences=sequences)

    async def _mark(self, steps: list[LoadStep]) -> None:
        """Do step 4: from here on no worker begins any of these partitions."""
        items = []
        for step in steps:
            number = step.staged.partition
            origin = await self._origin(step.staged)
            items += [(number, ORIGIN_KEY, origin.encode()), (number, BACKFILL_KEY, self._progress(0))]
        if items:
            await self._write(self._fences.producer(0), items)

    async def _blocks(self, step: LoadStep, advance: Callable[[int], None]) -> None:
        """Do step 5."""
        number, done = step.staged.partition, step.done
        for blocks in _transactions(self._staging.blocks(number, step.done)):
            done += len(blocks)
            items = [(number, key, block) for key, block in blocks]
            await self._write(self._producer(number), [*items, (number, BACKFILL_KEY, self._progress(done))])
            advance(len(blocks))

    async def _state(self, staged: StagedPartition) -> None:
        """Do step 6."""
        context, number = self._context, staged.partition
        slots, since_ms = context.settings.worker.slots, int(time.time() * 1000)
        made = new_position(staged.cut, context.definition, os.urandom(16), slots, since_ms)
        position = replace(context.named(made), ends=(await self._origin(staged)).ends)
        items = [(number, POSITION_KEY, position.encode())]
        if not self._staging.sequences:
            items.insert(0, (number, IDS_KEY, self._staging.state(number).encode()))
        await self._write(self._producer(number), items, {number: staged.cut})

    def _producer(self, number: int) -> Producer:
        return self._fences.producer(number % self._context.settings.worker.slots)

    def _progress(self, blocks: int) -> bytes:
        slots = self._context.settings.worker.slots
        return BackfillProgress(self._staging.run, self._staging.digest, blocks, slots).encode()

    async def _origin(self, staged: StagedPartition) -> Origin:
        topics = self._context.topics
        outputs = topics.sink, topics.duplicates, topics.quarantine
        origin = await origin_at(self._context.client, *outputs, staged.partition, staged.cut)
        return replace(origin, backfill=self._staging.run)

    async def _write(
        self,
        producer: Producer,
        items: Iterable[tuple[int, bytes, bytes]],
        offsets: Mapping[int, int] | None = None,
    ) -> None:
        """Write records (partition, key, value) in one transaction; with ``offsets`` the group's too."""
        context = self._context
        output = ExactlyOnceOutput(producer, context.application, context.topics.source)
        now_ms = int(time.time() * 1000)
        output.begin()
        reached(FaultStep.BEGUN)
        for number, key, value in items:
            # One at a time: the producer's deadline is for what is on its way.
            await output.send(context.topics.changelog, number, [plain_batch([(key, value, now_ms, ())])])
        await output.flush()
        reached(FaultStep.CHANGELOG)
        # Whoever joins from here on finds a transaction open on the changelog and waits for it.
        await context.require_stopped()
        if offsets is None:
            await producer.end(commit=True)
        else:
            await output.commit(offsets, lambda: reached(FaultStep.OFFSETS))
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
    again = "load the same backfill again"
    async with connected(settings, pipeline, "backfill", again, create=True) as context:
        load = BackfillLoad(context, staging)
        try:
            yield load
        finally:
            await load.close()
