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

import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.offsets import bounds, committed, offsets_at, origin_at
from processor.kafka.transactions.broker_time import BrokerTime, ClockMove
from processor.kafka.transactions.output import transaction
from processor.ops.fault_points import CommitStep
from processor.reset.context import ResetContext, connected
from processor.reset.decide import ResetState, ToEarliest, ToTime, decide, touched, wanted
from processor.reset.facts import learn, of_another_source, require_same_source
from processor.reset.fences import SlotFences
from processor.reset.state import Replayed, make_state
from processor.wire.encode import plain_batch
from schemas.changelog.marks import MARK_KEY, IndexMark
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

    from processor.kafka.client import TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.output import Transaction
    from processor.kafka.transactions.producer import Producer
    from processor.reset.decide import PartitionFacts, PartitionStep, Target
    from processor.reset.state import NewState
    from schemas.changelog.position import Origin
    from schemas.config import Pipeline, Settings


class Reset:
    """One pipeline, ready to be reset; made by `opened`."""

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
            # Of a topic that is gone the state is given up, but for what its source never held.
            anew = isinstance(target, ToEarliest) and of_another_source(context, facts) and not facts.backfill
            try:
                step = decide(number, facts, to[number], context.definition, forget=forget or anew)
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
    ) -> AsyncGenerator[tuple[PartitionStep, Replayed]]:
        """Do what `plan` has said, a slot at a time; yields what is committed, and what was judged for it.

        ``steps`` are from `plan`, which has fenced; ``advance`` is called with the number of source offsets
        judged since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known; says which partitions are done.
        """
        context = self._context
        finished: list[int] = []
        for slot, some in touched(list(steps), context.settings.worker.slots).items():
            moving = [step for step in some if not step.stays]
            for step in some:
                if step.stays:
                    yield step, Replayed()
            if not moving:
                continue
            numbers = [step.partition for step in moving]
            try:
                states = [
                    await make_state(context, step, self._facts[step.partition], advance) for step in moving
                ]
                await context.require_stopped()
                ends = {number: self._facts[number].changelog_end for number in numbers}
                await _commit(context, self._fences.producer(slot), states, ends)
            except (StopError, RebuildError, FencedError) as error:
                raise StopError(_unfinished(error, numbers, finished)) from error
            finished += numbers
            for state in states:
                yield state.step, state.replayed

    async def close(self) -> None:
        """Give the slots up."""
        await self._fences.close()

    async def _wanted(self, target: Target, limits: Mapping[TopicPartition, Bounds]) -> dict[int, int]:
        if not isinstance(target, ToTime):
            starts = {tp.partition: each.start for tp, each in limits.items()}
            return wanted(target, starts, self._context.topics.source)
        found = await offsets_at(self._context.client, limits, target.timestamp_ms)
        return {tp.partition: limits[tp].stable if offset is None else offset for tp, offset in found.items()}


async def _commit(
    context: ResetContext, producer: Producer, states: list[NewState], ends: Mapping[int, int]
) -> None:
    """Write origin, whole state and position of a slot's partitions, and the group's offsets, as a worker does.

    ``ends`` says by partition where the changelog ended that the state was made from.

    Raises:
        StopError: The pipeline is not stopped any more, the changelog does not end there, or a clock is wrong.
        FencedError: A worker has taken the slot.
        RebuildError: It was refused; with the reason ``end`` the outcome is not known.
    """
    topics = context.topics

    async def check() -> None:
        # Whoever joins from here on finds a transaction open on the changelog and waits for it. One that came
        # just before has not, and with at_least_once it does not fence us either.
        await context.require_stopped()
        moves = ((f"{topics.source}:{state.step.partition}", state.judge.clock_move) for state in states)
        await BrokerTime(producer.beginning).require(ClockMove(where, *move) for where, move in moves if move)

    origins = [await _origin(context, state) for state in states]
    async with transaction(producer, context.application, topics.source, check=check) as writing:
        written = {
            state.step.partition: await _send(writing, context, state, origin)
            for state, origin in zip(states, origins, strict=True)
        }
        await writing.written(CommitStep.CHANGELOG)
        for number, count in written.items():
            landed = writing.next_offset(topics.changelog, number) - count
            if landed != ends[number]:
                raise StopError(
                    f"{topics.changelog}:{number} took this reset at offset {landed}, but was read up to "
                    f"{ends[number]}: another program has written to it, or a broker that no longer leads it "
                    "has answered"
                )
        await writing.done({state.step.partition: state.step.to_offset for state in states})


async def _send(writing: Transaction, context: ResetContext, state: NewState, origin: Origin) -> int:
    """Send what a partition's changelog and index get; returns how many records that are of its changelog."""
    topics, number, now_ms = context.topics, state.step.partition, int(time.time() * 1000)
    position = replace(state.position, ends=origin.ends, since_ms=origin.reset_ms)
    last = {**state.judge.changes(), POSITION_KEY: position.encode()}
    batches = [plain_batch([(ORIGIN_KEY, origin.encode(), now_ms, ())])]
    # Each by itself: a block is as large as the topic takes.
    batches += [plain_batch([(*each, now_ms, ())]) for each in state.brought]
    batches += state.judge.changelog_batches(topics.changelog_limit_bytes)
    batches.append(plain_batch([(key, value, now_ms, ()) for key, value in last.items()]))
    for batch in batches:
        # One at a time: the producer's deadline is for what is on its way, not for all of a state.
        await writing.send(topics.changelog, number, [batch])
    if topics.index is not None and number < topics.index_partitions:
        # Offsets that were taken in before are taken in again: from here on by another state.
        # Before that how far the one before had come, and into which topics: they may be others by now.
        marked = [each for each in (state.before, position) if each is not None]
        marks = (IndexMark.of(each, number, topics.quarantined_to(number), now_ms) for each in marked)
        rows = [(MARK_KEY, mark.encode(), now_ms, ()) for mark in marks]
        await writing.send(topics.index, number, [plain_batch(rows)])
    return sum(batch.count for batch in batches)


async def _origin(context: ResetContext, state: NewState) -> Origin:
    step = state.step
    outputs = context.topics.sink, context.topics.duplicates, context.topics.quarantine
    origin = await origin_at(context.client, *outputs, step.partition, step.to_offset)
    return replace(
        origin,
        known_before=step.to_offset - step.known_from,
        reset_ms=int(time.time() * 1000),
        backfill=state.backfill,
    )


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

    With ``create`` topics that are missing are created: a state needs its changelog.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    async with connected(settings, pipeline, "reset", "run the same reset again", create=create) as context:
        reset = Reset(context)
        try:
            yield reset
        finally:
            await reset.close()
