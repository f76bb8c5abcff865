"""Makes the state that a partition goes on with: kept, recomputed from the source, or empty."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.judges.factory import mode_of
from processor.kafka.client import TopicPartition
from processor.pipeline.ports import new_position
from processor.reset.decide import ResetState
from processor.reset.records import replayed_source, too_large
from processor.reset.replay import Replay
from processor.state.clock_history import ClockHistory
from processor.state.kv.memory import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.encode import Encoder
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.judges.judge import Judge
    from processor.reset.context import ResetContext
    from processor.reset.decide import PartitionFacts, PartitionStep
    from processor.reset.replay import Replayed
    from schemas.changelog.position import Position


@dataclass(frozen=True, slots=True)
class ResetResult:
    """What was done to one partition."""

    step: PartitionStep
    replayed: Replayed


@dataclass(frozen=True, slots=True)
class NewState:
    """What a partition's changelog gets."""

    judge: Judge
    position: Position
    result: ResetResult


async def make_state(
    context: ResetContext, step: PartitionStep, facts: PartitionFacts, advance: Callable[[int], None]
) -> NewState:
    """Do what a step says, in memory; ``advance`` gets the number of source offsets judged since its last call.

    Raises:
        StopError: The state cannot be made; says what can be done.
        RebuildError: The broker does not answer.
    """
    mode = mode_of(context.pipeline)
    clocked = mode.clocked_judge()
    judge = clocked or mode.judge()
    slots = context.settings.worker.slots
    position = context.named(new_position(step.to_offset, context.definition, os.urandom(16), slots))
    table = Table(MemoryStore(), judge.log)
    kept = step.state is ResetState.KEPT
    if kept and facts.position is not None:
        changelog = context.changelog(step.partition)
        await restore(table, changelog, context.transaction_timeout_s, lambda _done, _total: None)
        table.flush()
        if clocked is not None:
            clocked.recall(await _clock_limits(context, step))
        before = facts.position
        position = replace(position, batch_offset=before.batch_offset, batch_crc=before.batch_crc)
    judge.load(table)
    source = replayed_source(context.client, context.decoder, context.source(step.partition), kept=kept)
    skipped = await _too_large(context, step)
    replay = Replay(source, Encoder(), context.topics.sink_limit_bytes, advance, skipped)
    replayed = await replay.run(step.judge_from, step.to_offset, judge)
    if replayed.batch_offset != NO_BATCH:
        position = replace(position, batch_offset=replayed.batch_offset, batch_crc=replayed.batch_crc)
    judge.restate()
    if step.state is ResetState.RECOMPUTED:
        _require_window(facts, judge)
    return NewState(judge, position, ResetResult(step, replayed))


async def _too_large(context: ResetContext, step: PartitionStep) -> set[tuple[int, int]]:
    quarantine = context.topics.quarantine
    if quarantine is None or not step.offsets:
        return set()
    tp = TopicPartition(quarantine, step.partition)
    return await too_large(context.client, context.decoder, tp, context.topics.source)


async def _clock_limits(context: ResetContext, step: PartitionStep) -> list[tuple[int, int]] | None:
    """Return what the changelog says of the clock since the state began; None: not all is there."""
    changelog = context.changelog(step.partition)
    limits = await changelog.bounds()
    history = ClockHistory(changelog, limits.start, arrival=False)
    await history.read(limits.stable)
    whole = history.known_from is not None and history.known_from <= step.known_from
    return history.limits() if whole else None


def _require_window(facts: PartitionFacts, judge: Judge) -> None:
    least_ms, stats = facts.window_end_ms, judge.take_clock_stats()
    if least_ms is not None and (stats is None or stats.clock_ms is None or stats.clock_ms < least_ms):
        raise StopError(
            f"{facts.name}: only timestamps further ahead than max_ahead say that what is retained lasts for a "
            "window. With --forget it begins with an empty state"
        )
