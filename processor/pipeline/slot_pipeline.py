"""Takes chunks in, and commits what they became in six numbered steps.

A `SlotPipeline` is one slot's unit of work: the partitions that commit together. It is called by one task at
a time (the Faust agent of the slot), so it has no locks. The steps of a commit, numbered as in
docs/architecture.md, in logs and in tests; a process that ends between any two loses nothing and passes no
duplicate:

    1 begin      the transaction begins, with the first chunk after the last commit
    2 output     sink, verdict, receipt and quarantine batches are acknowledged
    3 changelog  the state's changes, the position and maybe a mark are acknowledged
    4 offsets    the source offsets are part of the transaction
    5 end        the transaction has committed
    6 local      the same changes are written to the local state, when that is due

Few changes are due at once; those of many scopes are held and written together, every few seconds and at the
end (`processor.state.scope_log`). Until then the local state lags, and its mark says from where the changelog
is to be read again: it never holds a part of a commit under a mark that speaks of the whole.

With ``at_least_once`` there is no transaction: the same order makes that output is there before the state that
remembers it, so a crash repeats records and loses none.
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from processor.engine.batch.columns import BASE_OFFSET, CRC
from processor.errors import RebuildError, StopError
from processor.kafka.transactions.pace import Pace
from processor.ops.fault_points import CommitStep, reached
from processor.pipeline.failures import explained
from processor.pipeline.piece import PieceWork
from processor.pipeline.turns import ChunkSteps, Mark, Turns
from processor.state.kv.store import CorruptStoreError
from processor.wire.decode import PIECE_BYTES, UndecodableError
from processor.wire.encode import plain_batch
from schemas.changelog.marks import MARK_KEY, IndexMark
from schemas.changelog.position import NO_BATCH, LocalMark
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from processor.ops.metrics import Metrics
    from processor.pipeline.failures import Failures
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.piece import PieceOutcome
    from processor.pipeline.ports import OpenPartition, Topics, TransactionOutput
    from processor.wire.decode import Chunk, Decoder, Piece
    from processor.wire.encode import EncodedBatch, Encoder
    from schemas.changelog.position import OutputEnds

# A mark is part of the commit (step 3), in the same transaction: it speaks of what is committed, or is not
# there. There is at most one per partition and second, and one more with each commit that makes 65,536
# records since the last one: what lies between two is then found by a fetch or a few.

EVERY_S = float(os.environ.get("SEQMARK_TEST_MARK_S", "1"))
EVERY_RECORDS = 65_536
"""About 10 MB of records of 150 B, uncompressed: what a fetch or a few bring."""


def ends_now(partition: OpenPartition, topics: Topics, output: TransactionOutput) -> OutputEnds:
    """Return where the outputs of a partition end, now that all of this commit's are acknowledged.

    An output that nothing was written to stays where it was.
    """
    where = topics.ends_in(partition.number)
    known = {kind: output.next_offset(*where[kind]) for kind in partition.written if kind in where}
    partition.written.clear()
    return partition.position.ends._replace(**known)


class MarkWriter:
    """Writes the marks of a slot's partitions.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, topics: Topics, output: TransactionOutput, clock: Callable[[], float]) -> None:
        self._topics = topics
        self._output = output
        self._clock = clock
        self._written_at: dict[int, float] = {}
        self._records: dict[int, int] = {}
        self._expected: set[int] = set()

    def expect(self, number: int) -> None:
        """Announce a partition's mark where it is due, so that it costs no round trip of its own."""
        index = self._topics.index
        if index is None or number >= self._topics.index_partitions or number in self._expected:
            return
        if self._is_time(number):
            self._expected.add(number)
            self._output.expect(index, number)

    async def write(self, partition: OpenPartition) -> None:
        """Write a partition's mark, if one is due; its position is as this commit writes it."""
        number, index = partition.number, self._topics.index
        if index is None or number >= self._topics.index_partitions:
            return
        self._records[number] = self._records.get(number, 0) + int(partition.counts.sum())
        many = self._records[number] >= EVERY_RECORDS
        if not (number in self._expected or many or self._is_time(number)):
            return
        self._expected.discard(number)
        self._written_at[number], self._records[number] = self._clock(), 0
        now_ms = int(time.time() * 1000)
        mark = IndexMark.of(partition.position, number, self._topics.quarantined_to(number), now_ms)
        await self._output.send(index, number, [plain_batch([(MARK_KEY, mark.encode(), now_ms, ())])])

    def _is_time(self, number: int) -> bool:
        return self._clock() - self._written_at.get(number, -math.inf) >= EVERY_S


log = logging.getLogger(__name__)

COMMIT_ROWS = 256 * 1024
"""A commit has about so many records at most, whatever the interval: 50 to 100 ms to write their state down.
Where brokers take fewer in a transaction's time, it has those (`processor.kafka.transactions.pace`)."""


class SlotPipeline:
    """Takes chunks of a slot's partitions in and commits what they became.

    Args:
        decoder: Shared by the worker's slots: nothing of a piece is used after an await
            (`processor.wire.decode`).
        encoder: Shared by the slots that write to the same topic, in the same way.
        clock: Monotonic seconds; for latencies only, never for judging.
        turns: One for all that share a decoder and an encoder; None: nobody does.

    Attributes:
        failures: Told of each piece; None: nobody wants to know.
        stops_before: As `PieceWork.outcome` has it.
        pace: Of its transactions.
    """

    failures: Failures | None = None

    def __init__(
        self,
        kind: HopKind,
        output: TransactionOutput,
        decoder: Decoder,
        encoder: Encoder,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        turns: Turns | None = None,
    ) -> None:
        self.name = kind.hop.name
        self._kind = kind
        self._topics = kind.topics
        self._output = output
        self._decoder = decoder
        self._work = PieceWork(kind, encoder)
        self._metrics = metrics
        self._turns = turns or Turns()
        self._clock = clock
        self._marks = MarkWriter(self._topics, output, clock)
        self.partitions: dict[int, OpenPartition] = {}
        self.stops_before: dict[int, int] = {}
        self.begun_at: float | None = None
        self.pace = Pace(clock=clock)
        self._taken = 0
        self._commit_began_at = -math.inf
        self._source_trims: dict[int, int] = {}

    def due_at(self, interval_s: float) -> float | None:
        """Return when the open transaction is to be committed, on the clock; None where none is open.

        The interval is counted from the start of the commit before: what comes in during a commit does not wait
        for the rest of it and for a whole interval as well. Half an interval is left to gather chunks: commits
        slower than the interval would otherwise follow each other with one chunk each.
        """
        if self.begun_at is None:
            return None
        return max(self._commit_began_at + interval_s, self.begun_at + interval_s / 2)

    async def take(self, chunk: Chunk) -> None:
        """Judge a chunk and queue what it became.

        Raises:
            StopError: A record or batch cannot be passed; what comes before it has been committed.
            RebuildError, FencedError: Drop everything of this slot.
        """
        partition = self.partitions[chunk.partition]
        if chunk.position != partition.position.next_offset:
            raise RebuildError(
                "position",
                f"{chunk.topic}:{chunk.partition}: fetched from {chunk.position}, expected "
                f"{partition.position.next_offset}",
            )
        self._begin()
        partition.stable = chunk.last_stable_offset
        self._metrics.bytes_in.labels(self.name).inc(len(chunk.data))
        stop: StopError | None = None
        steps = self._steps(partition, chunk)
        made: PieceOutcome | Mark
        try:
            while True:
                made = await self._turns.take(steps.step, long=steps.long)
                if made is Mark.END:
                    break
                if made is Mark.LONG:
                    continue
                self._begin()
                with self.pace.waiting():
                    await self._send(partition, made)
                if made.stop is not None:
                    stop = made.stop
                    break
                if made.again or self._taken >= COMMIT_ROWS or self.pace.full:
                    await self.commit()
                if made.again:
                    rest = self._steps(partition, replace(chunk, position=partition.position.next_offset))
                    rest.worked, steps = steps.worked, rest
        except UndecodableError as error:
            stop = StopError(
                f"{chunk.topic}:{chunk.partition}: {error}. Nothing from there on was taken in. To "
                f"step over it: "
                f"{self._kind.step_over(chunk.partition, error.next_offset or '<next readable offset>')}"
            )
        self._metrics.chunk_seconds.labels(self.name).observe(steps.worked)
        if stop is not None:
            await self.commit()
            raise stop

    async def put(self, number: int, made: PieceOutcome) -> None:
        """Take in what became of records that are not the next ones of the source: the position stays."""
        partition = self.partitions[number]
        self._begin()
        await self._send(partition, made)
        partition.moved = True

    def _steps(self, partition: OpenPartition, chunk: Chunk) -> ChunkSteps[PieceOutcome]:
        routed = self._kind.upstream is not None
        most = min(partition.judge.piece_bytes or PIECE_BYTES, int(self.pace.most_bytes))
        pieces = self._decoder.steps(chunk, most, routed=routed)
        return ChunkSteps(pieces, partial(self._judge, partition), self._work.is_long, self._clock)

    def _judge(self, partition: OpenPartition, piece: Piece) -> PieceOutcome:
        """Work on a piece, and note it as taken in; awaits nothing."""
        committed = not any(each.moved for each in self.partitions.values())
        number, judge = partition.number, partition.judge
        made = self._work.outcome(
            number, judge, piece, self.stops_before, committed=committed, most_bytes=self.pace.piece_bytes
        )
        if made.stop is not None:
            made.stop = explained(self._kind, partition.judge, piece, made)
        if self.failures is not None:
            self.failures.saw(self._kind, partition, piece, made)
        partition.counts += made.verdicts
        partition.faults += made.faults
        if partition.verdicts is not None and made.part is not None:
            partition.verdicts.add(made.part)
        self._taken += int(made.verdicts.sum())
        self.pace.took(made.size_bytes)
        self._move(partition, made.next_offset, made.batch)
        return made

    def _begin(self) -> None:
        """Step 1."""
        if self.begun_at is None:
            self._output.begin()
            self.pace.begin()
            self.begun_at = self._clock()
            reached(CommitStep.BEGUN, self.name)

    def skip(self, number: int, to_offset: int) -> None:
        """Move a partition's position without reading: retention has deleted what was there."""
        partition = self.partitions[number]
        self._begin()
        lost = to_offset - partition.position.next_offset
        log.error(
            "%s:%s: offsets %s to %s are gone: retention removed them before they were read",
            self._topics.source,
            number,
            partition.position.next_offset,
            to_offset - 1,
        )
        self._metrics.records_expired.labels(self.name).inc(lost)
        self._move(partition, to_offset, None)

    def begin_at(self, partition: OpenPartition) -> None:
        """Have the position that a partition was opened at committed, for it differs from the committed one.

        A partition without state is committed before its first record, so that ``start = "latest"`` means the
        same offset after a crash.
        """
        self._begin()
        partition.moved = True

    def _move(self, partition: OpenPartition, next_offset: int, batch: NDArray[np.int64] | None) -> None:
        old = partition.position
        offset, crc = old.batch_offset, old.batch_crc
        if batch is not None:
            offset, crc = int(batch[BASE_OFFSET]), int(batch[CRC])
        partition.position = replace(old, next_offset=next_offset, batch_offset=offset, batch_crc=crc)
        partition.moved = True

    async def _send(self, partition: OpenPartition, made: PieceOutcome) -> None:
        topics, number = self._topics, partition.number
        self._output.expect(topics.changelog, number)
        if topics.verdicts is not None:
            self._output.expect(topics.verdicts, number)
        self._marks.expect(number)
        for to, batches in made.sink.items():
            self._metrics.bytes_out.labels(self.name).inc(sum(batch.size for batch in batches))
            if batches and topics.passes_to is not None:
                partition.written.add("sink")
                await self._output.send(topics.passes_to, to, batches)
        if made.receipts and topics.duplicates is not None:
            partition.written.add("duplicates")
            await self._output.send(topics.duplicates, number, made.receipts)
        if made.quarantine and topics.quarantine is not None:
            partition.written.add("quarantine")
            await self._output.send(topics.quarantine, topics.quarantined_to(number), made.quarantine)

    async def commit(self) -> None:
        """Make everything taken in since the last commit last: steps 2 to 6.

        Raises:
            RebuildError, FencedError, StopError: It has not committed, or nobody knows; or it has, and the
                local state, which is not whole, is thrown away.
        """
        if self.begun_at is None:
            return
        started = self._commit_began_at = self._clock()
        with self.pace.waiting():
            moved = await self._commit()
        self.pace.committed()
        self.begun_at = None
        self._taken = 0
        self._metrics.committed(self.name, self._clock() - started)
        for partition in moved:
            partition.count_in(self._metrics, self.name)
            if self.failures is not None:
                self.failures.compared(self._kind, partition)

    async def _commit(self) -> list[OpenPartition]:
        """Do the steps; returns the partitions that moved."""
        moved = [partition for partition in self.partitions.values() if partition.moved]
        for partition in moved:
            if partition.verdicts is not None:
                size = await partition.verdicts.send(self._output.send, partition.position.next_offset)
                self._metrics.bytes_out.labels(self.name).inc(size)
        await self._output.flush()
        reached(CommitStep.OUTPUT, self.name)  # 2
        for partition in moved:
            ends = ends_now(partition, self._topics, self._output)
            partition.position = replace(partition.position, ends=ends)
        changes = {p.number: {**p.judge.changes(), POSITION_KEY: p.position.encode()} for p in moved}
        await self._write_changelog(moved, changes)
        reached(CommitStep.CHANGELOG, self.name)  # 3
        offsets = {p.number: p.position.next_offset for p in moved}
        await self._output.commit(offsets, lambda: reached(CommitStep.OFFSETS, self.name))  # 4
        reached(CommitStep.ENDED, self.name)  # 5
        for partition in moved:
            after = self._output.next_offset(self._topics.changelog, partition.number)
            mark = LocalMark(after, partition.position.state_id)
            partition.changelog_end = after + self._output.marker
            partition.judge.committed()
            if partition.verdicts is not None:
                partition.verdicts.committed(partition.position.next_offset)
            if partition.origin is not None:
                partition.judge.log.note_origin(partition.origin.encode())
            partition.table.hold(changes[partition.number], mark)
            if partition.table.due(self._clock()):
                _flush(partition, self._clock())
            partition.moved = False
            partition.origin = None
        reached(CommitStep.LOCAL, self.name)  # 6
        return moved

    async def _write_changelog(
        self, moved: Iterable[OpenPartition], changes: Mapping[int, Mapping[bytes, bytes | None]]
    ) -> None:
        """Step 3; raises `RebuildError` where it lands elsewhere than behind all that was restored."""
        topic, counts = self._topics.changelog, dict[int, int]()
        for partition in moved:
            # The origin comes first: what stands before it in the changelog is forgotten. The position comes
            # last: at least once, it must not stand for changes that are not there yet.
            batches = [] if partition.origin is None else [_batch({ORIGIN_KEY: partition.origin.encode()})]
            batches += partition.judge.changelog_batches(self._topics.changelog_limit_bytes)
            batches.append(_batch(changes[partition.number]))
            counts[partition.number] = sum(batch.count for batch in batches)
            await self._output.send(topic, partition.number, batches)
            await self._marks.write(partition)
        await self._output.flush()
        for partition in moved:
            after = self._output.next_offset(topic, partition.number)
            partition.require_landed(topic, after - counts[partition.number], alone=self._output.marker > 0)

    async def finish(self) -> None:
        """Commit, and write what the local states hold back, so that the next start has little to read."""
        await self.commit()
        for partition in self.partitions.values():
            _flush(partition)

    def take_changelog_trims(self) -> dict[int, int]:
        """Return, by partition, the offset below which nobody needs its changelog; each is said once."""
        taken = {number: each.table.log.take_trim_offset() for number, each in self.partitions.items()}
        return {number: offset for number, offset in taken.items() if offset is not None}

    def take_source_trims(self) -> dict[int, int]:
        """Return, by partition, the offset below which nobody needs an internal topic; each is said once.

        Only the source of a second hop is ours to trim. The last batch taken in stays: by it the topic is
        identified when the slot comes back (`processor.kafka.source_identity`).
        """
        found: dict[int, int] = {}
        for number, partition in self.partitions.items() if self._kind.upstream is not None else ():
            offset = partition.position.batch_offset
            if not partition.moved and offset != NO_BATCH and self._source_trims.get(number) != offset:
                found[number] = self._source_trims[number] = offset
        return found


def _batch(values: Mapping[bytes, bytes | None]) -> EncodedBatch:
    """Write changelog keys and values as a batch of now."""
    now_ms = int(time.time() * 1000)
    return plain_batch([(key, value, now_ms, ()) for key, value in values.items()])


def _flush(partition: OpenPartition, now_s: float | None = None) -> None:
    """Write what is held.

    Raises:
        RebuildError: The local state is not whole, and has been thrown away. Opened again it might look
            whole, for not all of it is read then, and fail at the same place, again and again.
    """
    try:
        partition.table.flush(now_s)
    except CorruptStoreError as error:
        partition.table.clear()
        raise RebuildError("local", f"local state: {error}") from error
