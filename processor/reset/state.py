"""Makes the state that a partition goes on with: kept, recomputed from the source, or empty.

Source records are judged again as a worker judges them, without writing any output: read_committed, whole
batches, the same judge; a record that cannot be judged or is too large for the sink changes nothing. What the
sink takes may have changed since, so records that the quarantine calls too large are left out too.
"""

from __future__ import annotations

import os
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC
from processor.errors import StopError
from processor.judges.factory import mode_of
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StepOver, StopReading
from processor.pipeline.collisions import CollisionWork
from processor.pipeline.ports import new_position
from processor.reset.decide import ResetState
from processor.state.changelog import read_brought, read_secret
from processor.state.clock_history import ClockHistory
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.encode import Encoder
from processor.wire.quarantine import QuarantineIndex, mark_too_large, named_rows
from schemas.changelog.position import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from processor.judges.judge import Judge
    from processor.kafka.client import Client
    from processor.reset.context import ResetContext
    from processor.reset.decide import PartitionFacts, PartitionStep
    from processor.wire.decode import Decoder, Piece
    from schemas.changelog.position import Position

UNKNOWN = ", nor is it known where the next one begins: "
LOSS = ": retention has removed it meanwhile. Run the same reset again"
_RECOMPUTED, _KEPT = (
    StepOver(f"{UNKNOWN}the state cannot be recomputed. With --forget it begins empty", LOSS, to_the_end)
    for to_the_end in (False, True)
)
_QUARANTINE = StopReading(
    # What was too large would be remembered as if it were in the sink, and its resend dropped.
    damage=": without it which records were too large for the sink is not known, and the state cannot be made. "
    "With --forget it begins empty",
    loss=LOSS,
)
PACKED_RECORDS = 65_536
"""Records after which ids are packed: 23 bytes each then instead of 60."""


@dataclass(slots=True)
class Replayed:
    """How many records were judged, how many of them could not be, and the last batch, if there was one."""

    records: int = 0
    unjudged: int = 0
    batch_offset: int = NO_BATCH
    batch_crc: int = 0


@dataclass(frozen=True, slots=True)
class NewState:
    """What a partition's changelog gets, and how it came about.

    Attributes:
        judge: Has the state.
        position: Of it.
        step: What was to be done.
        replayed: What was judged for it.
        before: Of the state of before.
        backfill: The name of the backfill that it still begins with; empty where there is none.
        brought: Key and value of the blocks of scopes that the backfill has brought, in mode watermark.
    """

    judge: Judge
    position: Position
    step: PartitionStep
    replayed: Replayed
    before: Position | None = None
    backfill: str = ""
    brought: tuple[tuple[bytes, bytes], ...] = ()


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
    elif clocked is not None and facts.position is not None:
        # So content and new ids stay the same.
        clocked.log.secret = await read_secret(context.changelog(step.partition))
    judge.load(table)
    source = replayed_source(context.client, context.decoder, context.source(step.partition), kept=kept)
    skipped = await _too_large(context, step)
    replay = Replay(source, context.topics.source, context.topics.sink_limit_bytes, advance, skipped)
    replayed = await replay.run(step.judge_from, step.to_offset, judge)
    if replayed.batch_offset != NO_BATCH:
        position = replace(position, batch_offset=replayed.batch_offset, batch_crc=replayed.batch_crc)
    judge.restate()
    if step.state is ResetState.RECOMPUTED:
        _require_window(facts, judge)
    brought = await _brought(context, step, facts) if kept and clocked is None else ()
    return NewState(judge, position, step, replayed, facts.position, facts.backfill if kept else "", brought)


async def _brought(
    context: ResetContext, step: PartitionStep, facts: PartitionFacts
) -> tuple[tuple[bytes, bytes], ...]:
    """Return what a backfill has brought of scopes: a certificate goes on to begin with that."""
    if not facts.backfill:
        return ()
    changelog = context.changelog(step.partition)
    limits = await changelog.bounds()
    return tuple(await read_brought(changelog, limits.start, limits.stable))


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


@dataclass(frozen=True, slots=True)
class Replay:
    """Feeds source records to judges.

    ``topic`` is the source's name. ``advance`` is called with the number of offsets done since its last call.
    ``too_large`` are offset and timestamp of source records that were too large for the sink when a worker
    judged them.
    """

    reader: PartitionReader
    topic: str
    sink_limit_bytes: int
    advance: Callable[[int], None]
    too_large: Collection[tuple[int, int]] = ()
    _encoder: Encoder = field(default_factory=Encoder)

    async def run(self, start: int, stop: int, judge: Judge) -> Replayed:
        """Judge the records from ``start`` to before ``stop``, which is at or below the last stable offset.

        Raises:
            StopError: Retention has taken records of them meanwhile, or a batch cannot be stepped over.
            RebuildError: Nothing comes any more.
        """
        done, at = Replayed(), start
        async with aclosing(self.reader.pieces(start, stop)) as pieces:
            async for piece in pieces:
                self._judge(piece, stop, judge, done)
                after = min(piece.next_offset, stop)
                self.advance(after - at)
                at = after
        self.advance(max(0, stop - at))
        return done

    def _judge(self, piece: Piece, stop: int, judge: Judge, done: Replayed) -> None:
        columns = piece.columns
        rows = int(np.searchsorted(columns.offset, stop))
        if not rows:
            return
        evidence = judge.extract(columns)
        mark_too_large(self._encoder, piece, evidence.fault, self.sink_limit_bytes)
        CollisionWork(judge, self.topic).mark_too_large(self._encoder, piece, evidence, self.sink_limit_bytes)
        evidence = evidence.part(slice(rows))
        named = named_rows(columns, self.too_large)
        judge.learn(evidence, named[named < rows])
        judge.absorb(PACKED_RECORDS)
        done.records += rows
        done.unjudged += int(np.count_nonzero(evidence.fault))
        batch = piece.batches[int(np.searchsorted(piece.first_row, rows, side="left")) - 1]
        done.batch_offset, done.batch_crc = int(batch[BASE_OFFSET]), int(batch[CRC])


def replayed_source(client: Client, decoder: Decoder, tp: TopicPartition, *, kept: bool) -> PartitionReader:
    """Return what reads the records to judge; a worker has stopped at a damaged batch, and is reset past it.

    A state that is ``kept`` goes on behind a damaged batch wherever the next one begins.
    """
    return PartitionReader(client, decoder, tp, _KEPT if kept else _RECOMPUTED)


async def too_large(client: Client, decoder: Decoder, tp: TopicPartition, source: str) -> set[tuple[int, int]]:
    """Return offset and timestamp of source records that were too large for the sink, which may take more now.

    The quarantine ``tp`` says so; what was judged again since is in an output by now.
    """
    index = QuarantineIndex(source, tp.partition)
    limits = (await bounds(client, [tp]))[tp]
    reader = PartitionReader(client, decoder, tp, _QUARANTINE)
    async with aclosing(reader.columns(limits.start, limits.stable)) as pieces:
        async for columns, _ in pieces:
            index.take(columns)
    return index.too_large()
