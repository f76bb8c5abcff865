"""Judges the quarantined records of one source partition again, and says what of each commit is written.

What is judged here leaves quarantine, or nothing of it happens: a record that still cannot be judged, or that
judging itself would put there again, changes no state and is not written again.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from typing_extensions import override

from processor.engine.verdict import Verdict
from processor.judges.ids import worker_clock_ms
from processor.judges.judge import Judge
from processor.judges.redriving import Redriving
from processor.ops.metrics import Metrics
from processor.pipeline.piece import PieceWork
from processor.pipeline.ports import OpenPartition
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.decode import Decoder
from processor.wire.encode import Encoder, plain_batch
from processor.wire.quarantine import came_piece
from schemas.changelog.position import LocalMark
from schemas.redriven import RedriveNote, runs_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.collision_edits import CollisionEditor
    from processor.engine.receipts import ReceiptGrounds
    from processor.judges.judge import Evidence
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.piece import PieceOutcome
    from processor.pipeline.ports import TransactionOutput
    from processor.state.changelog import Changelog
    from processor.wire.decode import Piece
    from processor.wire.quarantine import QuarantinedCopy, QuarantineIndex, Read
    from schemas.changelog.position import Origin, Position

MOST_ROWS = 4_096
"""Records of a commit: its note names each run of them, at most 24 bytes long, 98 KB."""


@dataclass(frozen=True, slots=True)
class RedriveChoice:
    """Which records are judged again.

    Attributes:
        code: Only those with this code; None: any.
        since_ms: Only those with at least this timestamp; None: any.
    """

    code: str | None = None
    since_ms: int | None = None

    def takes(self, copy: QuarantinedCopy) -> bool:
        """Whether a record is among them."""
        return self.code in {None, copy.code} and copy.timestamp >= (self.since_ms or copy.timestamp)


@dataclass(slots=True)
class CodeCounts:
    """What became of the records with one code: how many there were, and how many passed or were dropped."""

    before: int = 0
    passed: int = 0
    dropped: int = 0

    @property
    def after(self) -> int:
        """How many are left."""
        return self.before - self.passed - self.dropped


@dataclass(slots=True)
class RedriveReport:
    """What was done in one partition.

    Attributes:
        partition: Its number.
        codes: By code.
        commits: How many transactions there were.
        superseded: Records that were left because a reset had the workers judge them once more.
    """

    partition: int
    codes: dict[str, CodeCounts] = field(default_factory=lambda: defaultdict(CodeCounts))
    commits: int = 0
    superseded: int = 0

    def total(self) -> CodeCounts:
        """Return the counts of all codes together."""
        counts = self.codes.values()
        return CodeCounts(*(sum(getattr(each, name) for each in counts) for name in CodeCounts.__slots__))


@dataclass(frozen=True, slots=True)
class RedriveOutcome:
    """What one commit makes last.

    Attributes:
        made: What is written: for the sink, receipts, and the note into quarantine.
        copies: What has left quarantine.
        passes: bool[n], which of them pass.
    """

    made: PieceOutcome
    copies: Sequence[QuarantinedCopy]
    passes: NDArray[np.bool_]


class RedriveWork:
    """One partition's records to be judged again.

    Args:
        kind: Of the hop.
        number: The partition.
        index: All that its quarantine holds.
        position: Of the state.
        origin: Likewise.
        choice: Which records are wanted.

    Attributes:
        report: What has become of them so far.
    """

    def __init__(
        self,
        kind: HopKind,
        number: int,
        index: QuarantineIndex,
        position: Position,
        origin: Origin,
        choice: RedriveChoice,
    ) -> None:
        self._kind, self._number, self._index = kind, number, index
        self._position, self._origin = position, origin
        self._encoder = Encoder()
        self._work = PieceWork(kind, self._encoder)
        self._numbers: set[Hashable] = set()
        self.report = RedriveReport(number)
        self._wanted: dict[int, QuarantinedCopy] = {}
        known = set(index.redriven)
        for copy in index.copies:
            if copy.observed or copy.identity in known or not choice.takes(copy):
                continue
            if copy.is_superseded(origin) or copy.source >= position.next_offset:
                self.report.superseded += 1
                continue
            known.add(copy.identity)
            self._wanted[copy.offset] = copy
            self.report.codes[copy.code].before += 1

    @property
    def span(self) -> tuple[int, int]:
        """Between which offsets of the quarantine they stand; equal: there are none."""
        return (min(self._wanted), max(self._wanted) + 1) if self._wanted else (0, 0)

    async def learn(self, judge: Judge, read: Read) -> None:
        """Learn by which numbers records were judged again before; ``read``: see `records_of`."""
        for placed in self._index.notes:
            if placed.offset >= self._origin.quarantine_offset:
                async for columns, _ in self._index.records_of(placed, read):
                    self._numbers.update(judge.numbers(judge.extract(columns)))

    def _outcomes(self, judge: Judge, piece: Piece) -> Iterator[RedriveOutcome]:
        """Judge a piece of the quarantine again, and stage the state.

        Each outcome has to be committed before the next is asked for: else a record that judging puts aside
        could not be taken back alone.
        """
        offsets = piece.columns.offset.tolist()
        rows = [row for row, offset in enumerate(offsets) if offset in self._wanted]
        for start in range(0, len(rows), MOST_ROWS):
            some = rows[start : start + MOST_ROWS]
            found = self._outcome(judge, piece, some, [self._wanted[offsets[row]] for row in some])
            if found is not None:
                yield found

    async def run(
        self,
        pieces: AsyncIterator[Piece],
        partition: OpenPartition,
        output: TransactionOutput | None,
        advance: Callable[[int], None],
    ) -> None:
        """Judge what stands in some pieces of the quarantine, and commit it.

        Args:
            pieces: Each good until the next is asked for.
            partition: As it is committed.
            output: Where to; None: nothing is written, and the state goes on as if it were.
            advance: Called with the number of offsets read since the last call.
        """
        # By this clock a mark is due with each commit: one before the first frames what is written here.
        seconds = map(float, itertools.count())
        at = self.span[0]
        pipeline: SlotPipeline | None = None
        if output is not None:
            pipeline = SlotPipeline(
                self._kind, output, Decoder(), self._encoder, Metrics(), clock=seconds.__next__
            )
            pipeline.partitions[self._number] = partition
            pipeline.begin_at(partition)
            await pipeline.commit()
        async for piece in pieces:
            for outcome in self._outcomes(partition.judge, piece):
                if pipeline is None:
                    _keep(partition, self._kind.topics.changelog_limit_bytes)
                else:
                    await pipeline.put(self._number, outcome.made)
                    await pipeline.commit()
                self._count(outcome)
            advance(piece.next_offset - at)
            at = piece.next_offset

    def _count(self, done: RedriveOutcome) -> None:
        self.report.commits += 1
        for copy, passes in zip(done.copies, done.passes.tolist(), strict=True):
            counts = self.report.codes[copy.code]
            counts.passed += passes
            counts.dropped += not passes

    def _outcome(
        self, judge: Judge, piece: Piece, rows: list[int], copies: list[QuarantinedCopy]
    ) -> RedriveOutcome | None:
        came = came_piece(piece, rows, copies)
        evidence = judge.extract(came.columns)
        self._kind.mark_too_large(self._encoder, self._number, came, evidence)
        fit = np.flatnonzero(evidence.fault == 0).tolist()
        while fit:
            rows, copies = [rows[at] for at in fit], [copies[at] for at in fit]
            trace = np.array([copy.has_own_trace(self._origin) for copy in copies])
            redriving = Redriving(self._position.next_offset, judge.limit_ms(), trace, self._numbers)
            again = RedriveJudge(judge, redriving)
            made = self._work.outcome(self._number, again, came_piece(piece, rows, copies), {}, committed=True)
            fit = np.flatnonzero(made.fault == 0).tolist()
            if len(fit) == len(rows):
                return self._left(made, copies, redriving, again.judged.stays == Verdict.PASS)
            # What judging itself puts aside stays where it is: the others are judged as if it were not there.
            judge.undo()
        return None

    def _left(
        self,
        made: PieceOutcome,
        copies: list[QuarantinedCopy],
        redriving: Redriving,
        passes: NDArray[np.bool_],
    ) -> RedriveOutcome:
        passed = int(np.count_nonzero(passes))
        note = RedriveNote(
            self._kind.named_source,
            self._number,
            redriving.position,
            redriving.limit_ms,
            passed,
            len(copies) - passed,
            runs_of([copy.offset for copy in copies]),
        )
        batch = plain_batch([(None, note.value(), worker_clock_ms(), note.headers())])
        return RedriveOutcome(replace(made, quarantine=[batch]), copies, passes)


class RedriveJudge(Judge):
    """A judge whose records stood in quarantine; made anew for each piece of them.

    Attributes:
        judged: What it has said; from `judge` on.
    """

    judged: ReceiptGrounds

    def __init__(self, judge: Judge, redriving: Redriving) -> None:
        self._judge, self._redriving = judge, redriving

    @override
    def extract(self, columns: Columns) -> Evidence:
        return cast("Evidence", self._judge.extract(columns))

    @override
    def judge(self, evidence: Evidence) -> ReceiptGrounds:
        self.judged = self._judge.judge_again(evidence, self._redriving)
        return self.judged

    @override
    def editor(self, topic: str) -> CollisionEditor | None:
        return self._judge.editor(topic)


async def opened_state(
    kind: HopKind,
    number: int,
    position: Position,
    changelog: Changelog,
    timeout_s: float,
    now_ms: Callable[[], int] = worker_clock_ms,
) -> OpenPartition:
    """Restore a partition, whose changelog is fenced, into memory; ``timeout_s`` is that of transactions.

    Raises what `restore` does.
    """
    judge = kind.judge(now_ms)
    table = Table(MemoryStore(), judge.log)
    await restore(table, changelog, timeout_s, lambda _done, _total: None)
    table.flush()
    judge.load(table)
    return OpenPartition(number, table, judge, position)


def _keep(partition: OpenPartition, limit_bytes: int) -> None:
    """Take what is staged as committed, though nobody has written it."""
    partition.judge.changelog_batches(limit_bytes)
    changes = partition.judge.changes()
    partition.judge.committed()
    partition.table.hold(changes, LocalMark(partition.changelog_end, partition.position.state_id))
    partition.table.flush()
