"""Commits a slot's new states in one transaction; the steps are those of a worker's commit."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.kafka.origin import origin_at
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.ops.fault_points import CommitStep as FaultStep
from processor.ops.fault_points import reached
from processor.wire.encode import plain_batch
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from processor.kafka.transactions.producer import Producer
    from processor.reset.context import ResetContext
    from processor.reset.decide import PartitionStep
    from processor.reset.state import NewState
    from schemas.changelog.position import Origin


async def commit(context: ResetContext, producer: Producer, states: list[NewState]) -> None:
    """Write origin, whole state and position of a slot's partitions, and the group's offsets.

    Raises:
        StopError: The pipeline is not stopped any more.
        FencedError: A worker has taken the slot.
        RebuildError: It was refused; with the reason ``end`` the outcome is not known.
    """
    topics = context.topics
    output = ExactlyOnceOutput(producer, context.application, topics.source)
    origins = [await _origin(context, state.result.step) for state in states]
    output.begin()
    reached(FaultStep.BEGUN)  # 1
    for state, origin in zip(states, origins, strict=True):
        now_ms = int(time.time() * 1000)
        last = {**state.judge.changes(), POSITION_KEY: state.position.encode()}
        batches = [plain_batch([(ORIGIN_KEY, origin.encode(), now_ms, ())])]
        batches += state.judge.changelog_batches(topics.changelog_limit_bytes)
        batches.append(plain_batch([(key, value, now_ms, ()) for key, value in last.items()]))
        for batch in batches:
            # One at a time: the producer's deadline is for what is on its way, not for all of a state.
            await output.send(topics.changelog, state.result.step.partition, [batch])
    await output.flush()
    reached(FaultStep.CHANGELOG)  # 3
    # Whoever joins from here on finds a transaction open on the changelog and waits for it. One that came just
    # before has not, and with at_least_once it does not fence us either.
    await context.require_stopped()
    offsets = {state.result.step.partition: state.result.step.to_offset for state in states}
    await output.commit(offsets, lambda: reached(FaultStep.OFFSETS))  # 4
    reached(FaultStep.ENDED)  # 5


async def _origin(context: ResetContext, step: PartitionStep) -> Origin:
    outputs = context.topics.sink, context.topics.duplicates, context.topics.quarantine
    origin = await origin_at(context.client, *outputs, step.partition, step.to_offset)
    return replace(origin, known_before=step.to_offset - step.known_from, reset_ms=int(time.time() * 1000))
