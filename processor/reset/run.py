"""Sets a stopped pipeline and its state to another place in the source, or changes nothing.

The order is a worker's, so that it is safe against one:

    stopped   nobody in the group reads the source; asked again before each commit, and in it
    fence     the transactional ids of the slots: a zombie of theirs can write no more
    facts     position and origin, from the changelog once no transaction is open on it
    decide    what becomes of each partition; all of them may be reset, or nothing is
    state     in memory: kept or recomputed from the source, or empty
    commit    one transaction per slot: origin, the whole state, position, and the group's offset

The state's id is new, so every local copy of the old state is thrown away when a worker next meets it. A
process that ends before a slot's commit has changed nothing of that slot.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import check_aiokafka, open_client
from processor.kafka.offsets import bounds, committed, offsets_at
from processor.kafka.topics.ensure import ensure, look
from processor.reset.commit import commit
from processor.reset.context import ResetContext
from processor.reset.decide import ResetState, ToTime, decide, touched, wanted
from processor.reset.facts import learn, require_same_source
from processor.reset.fences import SlotFences
from processor.reset.replay import Replayed
from processor.reset.state import ResetResult, make_state

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

    from processor.kafka.client import TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.reset.decide import PartitionFacts, PartitionStep, Target
    from schemas.config import Pipeline, Settings


class Reset:
    """One pipeline, ready to be reset; made by `opened`.

    Args:
        context: Its topics exist and are right.
    """

    def __init__(self, context: ResetContext) -> None:
        self._context = context
        self._fences = SlotFences(context)
        self._facts: dict[int, PartitionFacts] = {}

    async def plan(self, target: Target, *, forget: bool, fence: bool) -> list[PartitionStep]:
        """Say what is to be done, by partition; with ``fence`` nobody else can write from now on.

        Raises:
            StopError: The pipeline is not stopped, or a partition cannot be reset; names every one.
            ConfigError: There is no such partition.
            RebuildError: The broker does not answer.
        """
        context = self._context
        await context.require_stopped()
        sources = [context.source(number) for number in range(context.partitions)]
        limits = await bounds(context.client, sources)
        to = await self._wanted(target, limits)
        if fence:
            for slot in sorted({number % context.settings.worker.slots for number in to}):
                await self._fences.fence(slot)
        offsets = await committed(context.client, context.application, sources)
        steps, refused = [], []
        for number in sorted(to):
            tp = context.source(number)
            fences = self._fences if fence else None
            facts = await learn(context, fences, limits[tp], number, to[number], has_offset=tp in offsets)
            try:
                step = decide(number, facts, to[number], context.definition, forget=forget)
                if step.state is not ResetState.EMPTY:
                    await require_same_source(context, tp, facts)
            except StopError as error:
                refused.append(str(error))
                continue
            self._facts[number] = facts
            position = facts.position
            steps.append(replace(step, rewritten=position is None or context.named(position) != position))
        if refused:
            raise StopError("nothing was changed:\n" + "\n".join(refused))
        return steps

    async def apply(
        self, steps: Iterable[PartitionStep], advance: Callable[[int], None]
    ) -> AsyncGenerator[ResetResult]:
        """Do what `plan` has said, a slot at a time; yields what is committed.

        Args:
            steps: From `plan`, which has fenced.
            advance: Called with the number of source offsets judged since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known; says which partitions are done.
        """
        context = self._context
        finished: list[int] = []
        for slot, some in touched(list(steps), context.settings.worker.slots).items():
            for step in some:
                if step.stays:
                    yield ResetResult(step, Replayed())
            moving = [step for step in some if not step.stays]
            if not moving:
                continue
            numbers = [step.partition for step in moving]
            try:
                states = [
                    await make_state(context, step, self._facts[step.partition], advance) for step in moving
                ]
                await context.require_stopped()
                await commit(context, self._fences.producer(slot), states)
            except (StopError, RebuildError, FencedError) as error:
                raise StopError(_unfinished(error, numbers, finished)) from error
            finished += numbers
            for state in states:
                yield state.result

    async def close(self) -> None:
        """Abort what is open and give the slots up."""
        await self._fences.close()

    async def _wanted(self, target: Target, limits: Mapping[TopicPartition, Bounds]) -> dict[int, int]:
        if not isinstance(target, ToTime):
            starts = {tp.partition: each.start for tp, each in limits.items()}
            return wanted(target, starts, self._context.topics.source)
        found = await offsets_at(self._context.client, limits, target.timestamp_ms)
        return {tp.partition: limits[tp].stable if offset is None else offset for tp, offset in found.items()}


def _unfinished(error: Exception, numbers: list[int], finished: list[int]) -> str:
    if isinstance(error, FencedError):
        text = f"a worker has started in between and taken the slot of partitions {numbers}: {error}"
    elif isinstance(error, RebuildError) and error.reason == "end":
        text = f"whether partitions {numbers} were reset is not known: {error}. Run the same reset again"
    else:
        text = f"partitions {numbers} were not reset: {error}"
    done = f"partitions {finished} are reset" if finished else "nothing was changed before"
    return f"{text}; {done}"


@asynccontextmanager
async def opened(settings: Settings, pipeline: Pipeline, *, create: bool) -> AsyncIterator[Reset]:
    """Connect, look at the pipeline's topics, and give what resets it.

    Args:
        settings: Checked already.
        pipeline: One of its pipelines.
        create: Create the topics that are missing: a state needs its changelog.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    check_aiokafka()
    alone = settings.model_copy(update={"pipelines": [pipeline]})
    report = await ensure(alone, create=create)
    report.require()
    view = await look(alone)
    client_id = f"{settings.worker.application_id}-reset"
    async with open_client(settings.kafka, client_id, view, "; run the same reset again") as client:
        reset = Reset(ResetContext(alone, client, view))
        try:
            yield reset
        finally:
            await reset.close()
