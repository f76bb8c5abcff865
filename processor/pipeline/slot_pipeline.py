"""What happens to a chunk, and in which order is it made to last?

A `SlotPipeline` is one slot's unit of work: the partitions that commit together. It is called by one task at
a time (the Faust agent of the slot), so it has no locks. The steps of a commit, numbered as in
docs/architecture.md, in logs and in tests; a process that ends between any two loses nothing and passes no
duplicate:

    1 begin      the transaction begins, with the first chunk after the last commit
    2 output     sink, receipt and quarantine batches are acknowledged
    3 changelog  the state's changes and the position are acknowledged
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
import time
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from processor.engine.batch.columns import BASE_OFFSET, CRC
from processor.engine.extract.sequence import MOST_SCOPE_BYTES
from processor.engine.quarantine import QuarantineText
from processor.engine.verdict import Fault, Verdict
from processor.errors import RebuildError, StopError, reset_command
from processor.ops.fault_points import CommitStep, reached
from processor.pipeline.turns import Rest, Turns
from processor.state.kv.store import CorruptStoreError
from processor.wire.decode import Piece, UndecodableError
from processor.wire.encode import EncodedBatch, TooLargeError, plain_batch
from processor.wire.quarantine import (
    codec_of,
    mark_too_large,
    oversized,
    quarantine_batches,
    surely_fits,
)
from processor.wire.receipts import ReceiptEncoder
from schemas.changelog.position import NO_BATCH, LocalMark, Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId, TopicIds
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.id_receipts import IdGrounds
    from processor.engine.receipts import Grounds
    from processor.judges.evidence import Evidence, Judgement
    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.state.table import Table
    from processor.wire.decode import Chunk, Decoder
    from processor.wire.encode import Encoder
    from schemas.changelog.position import Origin

log = logging.getLogger(__name__)

Result = TypeVar("Result")

COMMIT_ROWS = 256 * 1024
"""A commit has at most about so many records, whatever the interval: 50 to 100 ms to write their state down."""


class TransactionOutput(Protocol):
    """Where batches go; `processor.kafka.transactions.producer.Producer` is one."""

    def begin(self) -> None:
        """Begin a transaction."""

    def expect(self, topic: str, partition: int) -> None:
        """Say that the transaction will write there as well: announced along with what is written first."""

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches."""

    async def flush(self) -> None:
        """Wait until all are acknowledged."""

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last acknowledged batch."""

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None]) -> None:
        """Make source offsets part of the transaction, call ``between``, end the transaction."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Where a pipeline reads and writes, and what those topics take.

    Attributes:
        width: Partitions of the source below this number have one of their own wherever that is needed.
    """

    source: str
    sink: str
    quarantine: str | None
    changelog: str
    sink_limit_bytes: int
    quarantine_limit_bytes: int
    changelog_limit_bytes: int = 1_048_588
    duplicates: str | None = None
    duplicates_limit_bytes: int = 0
    width: int = 2**31 - 1

    @property
    def written(self) -> list[str]:
        """The topics that a pipeline's transactional ids write to."""
        return [self.sink, *filter(None, (self.duplicates, self.quarantine)), self.changelog]

    def named(self, kind: str) -> str | None:
        """Return the topic that a field of `TopicIds` speaks of; None: the pipeline has none."""
        return {
            "source": self.source,
            "changelog": self.changelog,
            "sink": self.passes_to,
            "duplicates": self.duplicates,
            "quarantine": self.quarantine,
        }[kind]

    @property
    def passes_to(self) -> str:
        """The topic that what passes is written to."""
        return self.sink

    def identified(self, ids: Mapping[str, bytes]) -> TopicIds:
        """Return which topics these are, ``ids`` being by name."""
        names = map(self.named, TopicIds._fields)
        return TopicIds(*(TopicId.of(name, ids.get(name or "", UNKNOWN_ID)) for name in names))

    def written_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        """Return the partitions that are written to by whoever works on the source partitions ``numbers``."""
        return [(topic, number) for topic in self.written for number in numbers]


@dataclass(slots=True)
class OpenPartition:
    """One source partition at work: its committed table, its judge, and how far it has been taken in.

    Attributes:
        number: Of the partition.
        table: Committed state.
        judge: Staged state.
        position: As it will be committed next.
        counts: Records by verdict since the last commit.
        faults: Of those in quarantine, by what is wrong with them.
        moved: Whether the position differs from the committed one.
        stable: The source's last stable offset, as it was last heard of.
        origin: Where this state begins, as long as that is not committed.
        changelog_offset: So far the changelog is known: what is written next lands at or behind it.
    """

    number: int
    table: Table
    judge: Judge
    position: Position
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Verdict), np.int64))
    faults: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Fault), np.int64))
    moved: bool = False
    stable: int = -1
    origin: Origin | None = None
    changelog_offset: int = 0


@dataclass(slots=True)
class PieceOutcome:
    """What became of one piece, computed before anything is awaited."""

    sink: dict[int, list[EncodedBatch]]
    quarantine: list[EncodedBatch]
    receipts: list[EncodedBatch]
    stop: StopError | None = None
    stop_row: int = 0


class _Long(Enum):
    """In place of a piece: the next step takes long."""

    LONG = 1


_LONG = _Long.LONG


class _End(Enum):
    """In place of a piece: there is none any more."""

    END = 1


_END = _End.END


class _Taking:
    """A chunk that is being taken in, step by step.

    Args:
        steps: As the decoder yields them.
        judge: Judges a piece.
        squeezes: Whether judging one may take long.
        clock: Monotonic seconds.

    Attributes:
        long: Whether the next step is done in a thread, and all that follow in this chunk: at most one fetch.
        worked: Seconds that its steps have taken so far.
    """

    def __init__(
        self,
        steps: Iterator[Piece | None],
        judge: Callable[[Piece], PieceOutcome],
        squeezes: Callable[[Piece], bool],
        clock: Callable[[], float],
    ) -> None:
        self._steps = steps
        self._judge = judge
        self._squeezes = squeezes
        self._clock = clock
        self.long = False
        self.worked = 0.0

    def step(self) -> PieceOutcome | _Long | Rest[PieceOutcome | _Long | None] | None:
        """Open and judge the next piece; None at the end."""
        piece = self._timed(lambda: next(self._steps, _END))
        if isinstance(piece, _End):
            return None
        if piece is None:
            self.long = True
            return _LONG
        judge = partial(self._timed, partial(self._judge, piece))
        return Rest(judge) if not self.long and self._squeezes(piece) else judge()

    def _timed(self, work: Callable[[], Result]) -> Result:
        started = self._clock()
        try:
            return work()
        finally:
            self.worked += self._clock() - started


class SlotPipeline:
    """Takes chunks of a slot's partitions in and commits what they became.

    Args:
        name: The pipeline's name.
        topics: Where it reads and writes.
        output: The slot's producer.
        decoder: Shared by the worker's slots: nothing of a piece is used after an await.
        encoder: Likewise.
        metrics: The worker's.
        clock: Monotonic seconds; for latencies only, never for judging.
        turns: The worker's, one for all that share a decoder and an encoder; None: nobody does.
    """

    _routed = False
    """Whether the records that come have been routed."""

    def __init__(  # noqa: PLR0913 - its ports, and what all slots share
        self,
        name: str,
        topics: Topics,
        output: TransactionOutput,
        decoder: Decoder,
        encoder: Encoder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        turns: Turns | None = None,
    ) -> None:
        self.name = name
        self._topics = topics
        self._output = output
        self._decoder = decoder
        self._encoder = encoder
        self._receipts = ReceiptEncoder(name, topics.source)
        self._metrics = metrics
        self._turns = turns or Turns()
        self._clock = clock
        self.partitions: dict[int, OpenPartition] = {}
        self.begun_at: float | None = None
        self._taken = 0
        self._commit_began_at = -math.inf

    def due_at(self, interval_s: float) -> float | None:
        """Return when the open transaction is to be committed, on the clock; None where none is open.

        The interval is counted from the start of the commit before: what comes in during a commit does not wait
        for the rest of it and for a whole interval as well. Half an interval is left for gathering, or commits
        that are slower than the interval would follow each other with a chunk each.
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
        taking = _Taking(
            self._decoder.steps(chunk, partition.judge.piece_bytes, routed=self._routed),
            lambda piece: self._judge(partition, piece),
            self._squeezes,
            self._clock,
        )
        try:
            while (made := await self._turns.take(taking.step, long=taking.long)) is not None:
                if isinstance(made, _Long):
                    continue
                self._begin()
                await self._send(partition, made)
                if made.stop is not None:
                    stop = made.stop
                    break
                if self._taken >= COMMIT_ROWS:
                    await self.commit()
        except UndecodableError as error:
            stop = StopError(
                f"{chunk.topic}:{chunk.partition}: {error}. Nothing from there on was taken in. To "
                f"step over it: "
                f"{self._step_over(chunk.partition, error.next_offset or '<next readable offset>')}"
            )
        self._metrics.chunk_seconds.labels(self.name).observe(taking.worked)
        if stop is not None:
            await self.commit()
            raise stop

    def _squeezes(self, piece: Piece) -> bool:
        """Whether a record may have to be compressed as hard as can be to go into quarantine: some 1 MB/s."""
        limit = surely_fits(self._topics.quarantine_limit_bytes)
        return self._topics.quarantine is not None and bool(oversized(piece.columns, limit).size)

    def _begin(self) -> None:
        """Step 1."""
        if self.begun_at is None:
            self._output.begin()
            self.begun_at = self._clock()
            reached(CommitStep.BEGUN, self.name)

    def skip(self, number: int, to_offset: int) -> None:
        """Move a partition's position without reading: retention has removed what was there."""
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
        """Take a partition in at the position it has been given, which differs from the committed one.

        It is committed at once: without state, so that ``start = "latest"`` means the same place after a crash;
        with its origin, where it has one.
        """
        self._begin()
        partition.moved = True

    def _judge(self, partition: OpenPartition, piece: Piece) -> PieceOutcome:
        """Decide over one piece and encode what passes; stages the state, awaits nothing."""
        evidence = self._extract(partition, piece)
        mark_too_large(self._encoder, piece, evidence.fault, self._topics.sink_limit_bytes)
        made = PieceOutcome({}, [], [])
        faulty = np.flatnonzero(evidence.fault)
        if faulty.size:
            made = self._quarantine(partition, piece, faulty, evidence.fault)
        if made.stop is not None:
            piece = before(piece, made.stop_row)
            evidence = evidence.before(made.stop_row)
        judged = partition.judge.judge(evidence)
        made.sink = self._passed(partition, piece, evidence, judged)
        if self._topics.duplicates is not None:
            made.receipts = self._receipts_of(partition, piece, judged)
        partition.counts += np.bincount(judged.verdict, minlength=len(Verdict))
        partition.faults += np.bincount(evidence.fault, minlength=len(Fault))
        self._taken += judged.verdict.size
        batch = piece.batches[-1] if len(piece.batches) else None
        self._move(partition, piece.next_offset, batch)
        return made

    def _extract(self, partition: OpenPartition, piece: Piece) -> Evidence:
        """Read what the records of a piece are judged by."""
        evidence: Evidence = partition.judge.extract(piece.columns)
        return evidence

    def _passed(
        self, partition: OpenPartition, piece: Piece, evidence: Evidence, judged: Judgement
    ) -> dict[int, list[EncodedBatch]]:
        """Encode what passes, by the partition that it goes to."""
        del evidence
        return {partition.number: self._encoder.encode(piece, judged.verdict, self._topics.sink_limit_bytes)}

    def _where(self, partition: OpenPartition, columns: Columns, row: int) -> str:
        """Name a record to people."""
        return f"{self._topics.source}:{partition.number}:{int(columns.offset[row])}"

    def _receipts_of(self, partition: OpenPartition, piece: Piece, judged: Judgement) -> list[EncodedBatch]:
        """Encode a receipt for each record that is dropped.

        Raises:
            StopError: The duplicates topic does not take one; nothing since the last commit is committed.
        """
        verdict = judged.verdict
        rows = np.flatnonzero((verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE))
        if not rows.size:
            return []
        limit = self._topics.duplicates_limit_bytes
        try:
            return self._write_receipts(partition, piece, rows, judged.grounds(), limit)
        except TooLargeError as error:
            raise StopError(
                f"{self._where(partition, piece.columns, error.row)}: the receipt "
                f"of this dropped record is too large, even without its key: topic {self._topics.duplicates} "
                f"needs max.message.bytes of at least {error.size_bytes} (it has {limit})"
            ) from error

    def _write_receipts(
        self,
        partition: OpenPartition,
        piece: Piece,
        rows: NDArray[np.int64],
        grounds: Grounds | IdGrounds,
        limit_bytes: int,
    ) -> list[EncodedBatch]:
        return self._receipts.encode(partition.number, piece.columns, rows, grounds, limit_bytes)

    def _move(self, partition: OpenPartition, next_offset: int, batch: NDArray[np.int64] | None) -> None:
        old = partition.position
        partition.position = Position(
            next_offset,
            old.batch_offset if batch is None else int(batch[BASE_OFFSET]),
            old.batch_crc if batch is None else int(batch[CRC]),
            old.definition,
            old.state_id,
            old.slots,
            old.topics,
            old.application,
            old.pipeline,
        )
        partition.moved = True

    def _quarantine(
        self,
        partition: OpenPartition,
        piece: Piece,
        rows: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> PieceOutcome:
        """Encode the faulty ``rows`` for quarantine; where one cannot go there, stop before it."""
        if self._topics.quarantine is None:
            row = int(rows[0])
            return PieceOutcome({}, [], [], self._unjudgeable(partition, piece, row, fault), row)
        try:
            return PieceOutcome({}, self._quarantine_batches(partition, piece, rows, fault), [])
        except TooLargeError as error:
            row = error.row
            stop = StopError(
                f"{self._where(partition, piece.columns, row)}: the record goes to quarantine "
                f"({Fault(int(fault[row])).code}) and is too large for it: topic "
                f"{self._topics.quarantine} needs max.message.bytes of at least {error.size_bytes} "
                f"(it has {self._topics.quarantine_limit_bytes}). Everything before it is committed."
            )
            before = rows[rows < row]
            batches = self._quarantine_batches(partition, piece, before, fault)
            return PieceOutcome({}, batches, [], stop, row)

    def _quarantine_batches(
        self,
        partition: OpenPartition,
        piece: Piece,
        rows: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> list[EncodedBatch]:
        if not rows.size:
            return []
        source = f"{self._topics.source}:{partition.number}:"
        text = QuarantineText({code: self._detail(code) for code in Fault}, source.encode())
        return quarantine_batches(piece, rows, fault, text, self._topics.quarantine_limit_bytes)

    def _unjudgeable(
        self, partition: OpenPartition, piece: Piece, row: int, fault: NDArray[np.uint8]
    ) -> StopError:
        code = Fault(int(fault[row]))
        where = self._where(partition, piece.columns, row)
        if code is Fault.TOO_LARGE:
            need = self._encoder.alone_bytes(piece.columns, row, codec_of(piece, row))
            return StopError(
                f"{where}: {code.code}: topic {self._topics.sink} needs max.message.bytes of at least "
                f"{need} (it has {self._topics.sink_limit_bytes}), or set "
                f"pipelines.quarantine for pipeline {self._configured}"
            )
        return StopError(
            f"{where}: the record cannot be judged: {code.code} ({self._detail(code)}). Everything "
            f"before it is committed. Set a quarantine topic for pipeline {self._configured} to go on, or step "
            f"over it: {self._step_over(partition.number, int(piece.columns.offset[row]) + 1)}"
        )

    @property
    def _configured(self) -> str:
        """The name that the pipeline has in the config."""
        return self.name

    def _step_over(self, number: int, offset: int | str) -> str:
        """Say how a partition is made to go on at an offset."""
        return reset_command(self.name, f"--to-offset {number}:{offset}")

    def _detail(self, code: Fault) -> str:
        return _DETAILS[code].format(limit=self._topics.sink_limit_bytes, sink=self._topics.sink)

    @property
    def _sink(self) -> str:
        """The topic that what passes is written to."""
        return self._topics.sink

    def _aside(self, partition: OpenPartition) -> int:
        """Return the partition of quarantine for the records of a source partition."""
        return partition.number

    async def _send(self, partition: OpenPartition, made: PieceOutcome) -> None:
        self._output.expect(self._topics.changelog, partition.number)
        for number, batches in made.sink.items():
            size = sum(batch.size for batch in batches)
            self._metrics.bytes_out.labels(self.name).inc(size)
            if batches:
                await self._output.send(self._sink, number, batches)
        if made.receipts and self._topics.duplicates is not None:
            await self._output.send(self._topics.duplicates, partition.number, made.receipts)
        if made.quarantine and self._topics.quarantine is not None:
            await self._output.send(self._topics.quarantine, self._aside(partition), made.quarantine)

    async def commit(self) -> None:
        """Make everything taken in since the last commit last: steps 2 to 6.

        Raises:
            RebuildError, FencedError, StopError: It has not committed, or that is not known; or it has, and the
                local state, which is not whole, is thrown away.
        """
        if self.begun_at is None:
            return
        started = self._commit_began_at = self._clock()
        await self._output.flush()
        reached(CommitStep.OUTPUT, self.name)  # 2
        moved = [partition for partition in self.partitions.values() if partition.moved]
        changes = {p.number: self._changes(p) for p in moved}
        for partition in moved:
            # The origin comes first: what stands before it in the changelog is forgotten. The position comes
            # last: at least once, it must not stand for changes that are not there yet.
            origin = {} if partition.origin is None else {ORIGIN_KEY: partition.origin.encode()}
            batches = self._changelog_batches(origin)
            batches += partition.judge.changelog_batches(self._topics.changelog_limit_bytes)
            batches += self._changelog_batches(changes[partition.number])
            await self._output.send(self._topics.changelog, partition.number, batches)
        await self._output.flush()
        self._require_same_changelog(moved)
        reached(CommitStep.CHANGELOG, self.name)  # 3
        offsets = {p.number: p.position.next_offset for p in moved}
        await self._output.commit(offsets, lambda: reached(CommitStep.OFFSETS, self.name))  # 4
        reached(CommitStep.ENDED, self.name)  # 5
        for partition in moved:
            mark = LocalMark(
                self._output.next_offset(self._topics.changelog, partition.number),
                partition.position.state_id,
            )
            partition.changelog_offset = mark.changelog_offset
            partition.judge.committed()
            if partition.origin is not None and partition.judge.log is not None:
                partition.judge.log.note_origin(partition.origin.encode())
            partition.table.hold(changes[partition.number], mark)
            if partition.table.due(self._clock()):
                _settle(partition, self._clock())
            partition.moved = False
            partition.origin = None
        reached(CommitStep.LOCAL, self.name)  # 6
        self.begun_at = None
        self._taken = 0
        self._metrics.commit_seconds.labels(self.name).observe(self._clock() - started)
        self._count(moved)

    def _require_same_changelog(self, moved: Iterable[OpenPartition]) -> None:
        """Look whether this commit's part of the changelog landed behind all that is known of it.

        Raises:
            StopError: It did not: what was there before is gone, and a part of a state is no state.
        """
        for partition in moved:
            after = self._output.next_offset(self._topics.changelog, partition.number)
            if after <= partition.changelog_offset:
                raise StopError(
                    f"{self._topics.changelog}:{partition.number} ends at {after}, but it was known up to "
                    f"{partition.changelog_offset}: the changelog was deleted and made anew, or lost records. "
                    "Nothing of this commit counts. Restore the topic from a copy, or see 'A source made anew' "
                    "and 'Beginning anew' in docs/operations.md."
                )

    async def finish(self) -> None:
        """Commit, and write what the local states hold back, so that the next start has little to read."""
        await self.commit()
        for partition in self.partitions.values():
            _settle(partition)

    def expendable(self) -> dict[int, int]:
        """Return, by partition, up to which changelog offset nobody needs it any more; each is told once."""
        logs = {number: partition.table.log for number, partition in self.partitions.items()}
        told = {number: log.expendable() for number, log in logs.items() if log is not None}
        return {number: offset for number, offset in told.items() if offset is not None}

    def used_up(self) -> dict[int, int]:
        """Return, by partition, up to which offset the source may be deleted: a source is not ours."""
        return {}

    @staticmethod
    def _changes(partition: OpenPartition) -> dict[bytes, bytes | None]:
        return {**partition.judge.changes(), POSITION_KEY: partition.position.encode()}

    def _changelog_batches(self, values: Mapping[bytes, bytes | None]) -> list[EncodedBatch]:
        if not values:
            return []
        now_ms = int(time.time() * 1000)
        return [plain_batch([(key, value, now_ms, ()) for key, value in values.items()])]

    def _count(self, moved: Iterable[OpenPartition]) -> None:
        metrics = self._metrics
        for partition in moved:
            for verdict in Verdict:
                if partition.counts[verdict]:
                    metrics.records.labels(self.name, verdict.label).inc(int(partition.counts[verdict]))
            partition.counts[:] = 0
            for code in np.flatnonzero(partition.faults[1:]) + 1:
                metrics.quarantined.labels(self.name, Fault(int(code)).code).inc(int(partition.faults[code]))
            partition.faults[:] = 0
            labels = (self.name, str(partition.number))
            metrics.last_commit.labels(*labels).set(time.time())
            position = partition.position.next_offset
            metrics.position.labels(*labels).set(position)
            metrics.lag.labels(*labels).set(max(0, partition.stable - position))
            for watermark in partition.judge.watermarks():
                metrics.watermark.labels(*labels).set(watermark)
            count, size = partition.judge.size()
            clock = partition.judge.take_clock_stats()
            if clock is None:
                metrics.scopes.labels(*labels).set(count)
            else:
                metrics.ids.labels(*labels).set(count)
                metrics.records_behind.labels(self.name).inc(clock.behind)
                metrics.records_ahead.labels(self.name).inc(clock.ahead)
                if clock.clock_ms is not None:
                    metrics.clock.labels(*labels).set(clock.clock_ms / 1000)
                if clock.false_positive_rate is not None:
                    metrics.false_positive_rate.labels(*labels).set(clock.false_positive_rate)
            metrics.state_bytes.labels(*labels).set(size)


_DETAILS = {
    Fault.NONE: "",
    Fault.TOO_LARGE: "the record alone makes a batch above the {limit} bytes that {sink} takes",
    Fault.HEADER_MISSING: "the record lacks a header that it is judged by",
    Fault.HEADER_MALFORMED: "a header that the record is judged by has no value, or not of its form",
    Fault.KEY_MISSING: "the record has no key",
    Fault.VALUE_MISSING: "the record has no value",
    Fault.VALUE_NOT_JSON: "the value is not valid JSON",
    Fault.FIELD_MISSING: "the value has no such field",
    Fault.FIELD_TYPE: "the field has another type",
    Fault.OUT_OF_RANGE: "sequence or epoch does not fit 64 bits",
    Fault.SCOPE_TOO_LARGE: f"the key or header that scopes the record is above {MOST_SCOPE_BYTES:,} bytes",
}


def _settle(partition: OpenPartition, now_s: float | None = None) -> None:
    """Write what is held.

    Raises:
        RebuildError: The local state is not whole, and has been thrown away. Opened again it might look
            whole, for not all of it is read then, and fail at the same place, again and again.
    """
    try:
        partition.table.settle(now_s)
    except CorruptStoreError as error:
        partition.table.clear()
        raise RebuildError("local", f"local state: {error}") from error


def new_position(next_offset: int, definition: bytes, state_id: bytes, slots: int) -> Position:
    """Return the position of a partition without state."""
    return Position(next_offset, NO_BATCH, 0, definition, state_id, slots)


def before(piece: Piece, row: int) -> Piece:
    """Return the part of a piece before ``row``; the position after it is that record's offset."""
    count = int(np.searchsorted(piece.first_row, row, side="left"))
    first_row = np.append(piece.first_row[:count], row) if count else np.zeros(1, np.int64)
    whole = piece.whole[:count].copy()
    if count and first_row[-1] != piece.first_row[count]:
        whole[count - 1] = False
    return Piece(
        piece.columns.rows(0, row),
        piece.raw,
        piece.batches[:count],
        first_row,
        whole,
        int(piece.columns.offset[row]),
    )
