"""Loads what a backfill has for one hop of a pipeline; `processor.reset.backfill.load` says in which order.

A hop that judges gets blocks and a state. With ``route`` the hop that reads the source for it gets positions:
where the stream goes on. The one that judges then begins with the first record of the internal topic, which
nobody has written to yet.

Invariant: a partition is marked before anything else of it is written, and its state is the last that is.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.engine.ids.clock import NEVER
from processor.errors import StopError
from processor.kafka.offsets import bounds, committed, origin_at
from processor.kafka.reader import PartitionReader, StopReading, first_record
from processor.kafka.transactions.output import transaction
from processor.ops.fault_points import CommitStep
from processor.pipeline.ports import new_position
from processor.reset.backfill.found import find
from processor.reset.backfill.staging import StagedPartition
from processor.reset.fences import SlotFences
from processor.state.restore import settled
from processor.wire.encode import plain_batch
from schemas.changelog.backfill import BACKFILL_KEY, BackfillProgress
from schemas.changelog.ids import IDS_KEY
from schemas.changelog.position import NO_ENDS, NO_TOPIC, Origin
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from processor.kafka.client import TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.producer import Producer
    from processor.reset.backfill.staging import Staging
    from processor.reset.context import ResetContext
    from schemas.changelog.position import OutputEnds

    Item = tuple[TopicPartition, bytes, bytes]

TRANSACTION_BYTES = 32 * 1024 * 1024
"""Of blocks in one transaction, about 1.4 million ids, or 800,000 scopes of 16 bytes: what is lost by a kill,
and held in memory at most."""
ANEW = "see 'Beginning anew' in docs/operations.md"
_READ = StopReading(damage=f"; {ANEW}", loss="; load it again")


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What is to be loaded of one partition.

    Attributes:
        staged: It.
        begin: The first offset of the hop's source that its worker takes in.
        marked: Whether it is marked as one of this backfill.
        done: How many blocks are there already.
        whole: Nothing is to be done: its state is there.
        gap: How many source offsets below the cut and before the first retained one nobody has any more.
        changelog_end: Where its changelog ended when nobody else could write to it any more.
    """

    staged: StagedPartition
    begin: int = 0
    marked: bool = False
    done: int = 0
    whole: bool = False
    gap: int = 0
    changelog_end: int = 0

    @property
    def partition(self) -> int:
        """Its number."""
        return self.staged.partition


class HopLoad:
    """The load of the hop that judges.

    Args:
        context: Of the hop.
        staging: What is loaded.
        marked: What the ids of its slots write to beside what a worker's do.
    """

    def __init__(
        self, context: ResetContext, staging: Staging, marked: Collection[TopicPartition] = ()
    ) -> None:
        self.context = context
        self.staging = staging
        self._fences = SlotFences(context, marked)

    @cached_property
    def parts(self) -> Mapping[int, StagedPartition]:
        """What is staged of each partition."""
        return self.staging.partitions

    async def fence(self) -> None:
        """Take the ids of all slots."""
        for slot in range(min(self.context.settings.worker.slots, self.context.partitions)):
            await self._fences.fence(slot)

    async def look(self) -> tuple[list[LoadStep], list[str]]:
        """Say what is to be loaded of each partition, which are fenced, and what cannot be.

        Raises:
            RebuildError: The broker does not answer.
        """
        context = self.context
        sources = [context.source(number) for number in sorted(self.parts)]
        limits = await bounds(context.client, sources)
        offsets = await committed(context.client, context.application, sources)
        steps, refused = [], []
        for tp in sources:
            try:
                steps.append(await self._step(tp.partition, limits[tp], has_offset=tp in offsets))
            except StopError as error:
                refused.append(str(error))
        return steps, refused

    async def _step(self, number: int, limits: Bounds, *, has_offset: bool) -> LoadStep:
        context, staging = self.context, self.staging
        staged = self.parts[number]
        changelog = context.changelog(number)
        whose, named_by_origin = (context.application, context.hop.name), self._named_by_origin
        found = await find(changelog, await changelog.bounds(), *whose, sequences=named_by_origin)
        if found.progress is not None:
            await self._fences.fence_former(number, found.progress.slots)
        settling = await settled(changelog, context.transaction_timeout_s)
        found = await find(changelog, settling, *whose, sequences=named_by_origin)
        name = f"{context.topics.source}:{number}"
        if found.position is not None:
            if found.backfill == staging.run:
                return LoadStep(staged, marked=True, done=staged.blocks, whole=True)
            raise StopError(
                f"{name} has a state already: only a pipeline that has not begun can be backfilled; {ANEW}"
            )
        if has_offset:
            raise StopError(
                f"{name}: the group {context.application} has committed an offset, and there is no state: it "
                f"was deleted; {ANEW}"
            )
        step = replace(await self._beginning(staged, limits, name), changelog_end=settling.stable)
        progress = found.progress
        if progress is not None and progress.digest == staging.digest:
            return replace(step, marked=True, done=progress.blocks)
        # Of another history, or none: it begins with an origin.
        return step

    @property
    def _named_by_origin(self) -> bool:
        """Whether only the origin says of a state that it began with a backfill."""
        return self.staging.sequences

    async def _beginning(self, staged: StagedPartition, limits: Bounds, name: str) -> LoadStep:
        """Return a step that says from where on the hop takes records in.

        Raises:
            StopError: The history does not fit what is there.
        """
        if self.context.hop.upstream is None:
            return _at_cut(staged, limits, name)
        reader = PartitionReader(
            self.context.client, self.context.decoder, self.context.source(staged.partition), _READ
        )
        # Fences leave markers there.
        found = await first_record(reader, limits.start, limits.stable)
        if found is not None or limits.stable < limits.end:
            raise StopError(
                f"{name} has records, which a worker has sent to the partitions of their ids, and there is no "
                f"state: it was deleted; {ANEW}"
            )
        return LoadStep(staged, limits.start)

    async def marks(self, steps: Iterable[LoadStep]) -> list[Item]:
        """Return what marks partitions: from there on no worker begins any of them."""
        items = []
        for step in steps:
            tp = self.context.changelog_at(step.partition)
            origin = await self._origin(step)
            items += [(tp, ORIGIN_KEY, origin.encode()), (tp, BACKFILL_KEY, self._progress(0))]
        return items

    async def blocks(self, step: LoadStep, advance: Callable[[int], None]) -> None:
        """Load those that are not there yet."""
        number, done = step.partition, step.done
        tp = self.context.changelog_at(number)
        for blocks in _transactions(self.staging.blocks(number, step.done)):
            done += len(blocks)
            items = [(tp, key, block) for key, block in blocks]
            await self.write(number, [*items, (tp, BACKFILL_KEY, self._progress(done))])
            advance(len(blocks))

    async def state(self, step: LoadStep) -> None:
        """Load the state of a partition that has all its blocks."""
        context, number = self.context, step.partition
        slots, since_ms = context.settings.worker.slots, int(time.time() * 1000)
        made = new_position(step.begin, context.definition, os.urandom(16), slots, since_ms)
        position = replace(context.named(made), ends=await self._ends(step))
        tp = context.changelog_at(number)
        items = [*self._ids(step, tp), (tp, POSITION_KEY, position.encode())]
        await self.write(number, items, {number: step.begin})

    def _ids(self, step: LoadStep, tp: TopicPartition) -> list[Item]:
        if self.staging.sequences:
            return []
        return [(tp, IDS_KEY, self.staging.state(step.partition, step.begin).encode())]

    async def _ends(self, step: LoadStep) -> OutputEnds:
        return (await self._origin(step)).ends

    async def _origin(self, step: LoadStep) -> Origin:
        context, topics = self.context, self.context.topics
        # As a worker's: where the source is another hop's, all partitions share quarantine.
        quarantine = topics.quarantine if context.hop.upstream is None else None
        outputs = topics.sink, topics.duplicates, quarantine
        origin = await origin_at(context.client, *outputs, step.partition, step.begin)
        return replace(origin, backfill=self.staging.run)

    def _progress(self, blocks: int) -> bytes:
        slots = self.context.settings.worker.slots
        return BackfillProgress(self.staging.run, self.staging.digest, blocks, slots).encode()

    async def write(
        self,
        number: int,
        items: Iterable[Item],
        offsets: Mapping[int, int] | None = None,
        written: Callable[[Producer], None] = lambda _producer: None,
    ) -> None:
        """Write records in one transaction of a partition's slot; with ``offsets`` the group's too.

        ``written`` is called once they are acknowledged, before the transaction ends.
        """
        context = self.context
        producer = self._fences.producer(number % context.settings.worker.slots)
        whose = context.application, context.topics.source
        now_ms = int(time.time() * 1000)
        # Whoever joins after the check finds a transaction open on the changelog and waits for it.
        async with transaction(producer, *whose, check=context.require_stopped) as writing:
            for tp, key, value in items:
                # One at a time: the producer's deadline is for what is on its way.
                await writing.send(tp.topic, tp.partition, [plain_batch([(key, value, now_ms, ())])])
            await writing.written(CommitStep.CHANGELOG)
            written(producer)
            await writing.done(offsets or {})

    async def close(self) -> None:
        """Give the slots up."""
        await self._fences.close()


class FirstHopLoad(HopLoad):
    """The load of the hop that reads the source, of a pipeline with ``route``: positions, and no blocks."""

    @cached_property
    @override
    def parts(self) -> Mapping[int, StagedPartition]:
        return {number: StagedPartition(number, cut, NEVER, 0, 0) for number, cut in self.staging.cuts.items()}

    @property
    @override
    def _named_by_origin(self) -> bool:
        return True

    @override
    def _ids(self, step: LoadStep, tp: TopicPartition) -> list[Item]:
        return []

    @override
    async def _ends(self, step: LoadStep) -> OutputEnds:
        return NO_ENDS

    @override
    async def _origin(self, step: LoadStep) -> Origin:
        # Nobody compares what a first hop writes.
        return Origin(step.begin, NO_TOPIC, backfill=self.staging.run)


def _at_cut(staged: StagedPartition, limits: Bounds, name: str) -> LoadStep:
    if staged.cut > limits.stable:
        raise StopError(f"{name}: the cut, offset {staged.cut}, lies beyond the end, which is {limits.stable}")
    return LoadStep(staged, staged.cut, gap=max(0, limits.start - staged.cut))


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
