"""Proves one partition: the engine judges its source again, and every record is looked for.

The judge is a new one: its verdicts rest on the source alone, not on any state that a worker has kept.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from processor.engine.verdict import RECEIPTED, Fault, Verdict
from processor.judges.dropped import PassedContents
from processor.judges.factory import mode_of
from processor.judges.redriving import Redriving
from processor.pipeline.collisions import CollisionWork
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from processor.verify.quarantine import QuarantineCheck
from processor.verify.receipts import ReceiptCheck, is_dropped
from processor.verify.recent import RecentRecords
from processor.verify.report import Rule
from processor.verify.sink import SinkCheck
from processor.verify.unproved import ROWS, InferredClock, TrustedReceipts
from processor.wire.edited import edited
from processor.wire.quarantine import QuarantineIndex, named_rows
from processor.wire.receipts import receipt_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.clock import PartitionClock
    from processor.engine.receipts import IdGrounds, ReceiptGrounds
    from processor.judges.ids import IdEvidence
    from processor.judges.judge import Evidence, Judge
    from processor.verify.align import Aligner, Stream
    from processor.verify.report import VerifyReport
    from processor.verify.unproved import KnownClock
    from processor.verify.verdicts import VerdictCheck
    from processor.wire.decode import Piece
    from processor.wire.quarantine import QuarantinedCopy
    from schemas.changelog.position import Origin
    from schemas.config import Pipeline
    from schemas.redriven import RedriveNote

MOST_ROWS = 65_536
"""Rows that are judged and compared at a time, whatever a piece holds: bounds what is held per row."""

ABSORBED_RECORDS = 16_384
"""Records of which ids are held as a transaction's, before they are packed into pages."""


class PartitionCheck:
    """Compares one source partition with its outputs.

    Args:
        pipeline: With the rules of judging.
        outputs: By topic.
        report: Where findings go; names the partition.
        clock: The partition's clock as it was recorded, in mode insert-id; None: timestamps alone say it.
        known: From where on the clock is known, where that is not so from the beginning, or where the state
            began with a backfill; outputs have receipts then.
        receipts_begin_late: The duplicates topic was added to a pipeline that had run before.
        secret: The partition's, by which receipts show content, and fingerprints and new ids are made; None:
            nobody knows it, or nothing has been judged.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        outputs: Mapping[str, Stream],
        report: VerifyReport,
        clock: PartitionClock | None = None,
        known: KnownClock | None = None,
        *,
        receipts_begin_late: bool = False,
        secret: bytes | None = None,
    ) -> None:
        self._source = source = f"{pipeline.source}:{report.partition}"
        mode = mode_of(pipeline)
        # With time = "arrival" something is always known, see `processor.verify.span`.
        clocked = mode.clocked_judge(lambda max_ahead: clock or InferredClock(source, max_ahead))
        self._judge: Judge = clocked or mode.judge()
        if clocked is not None:
            clocked.log.secret = secret
        self._judge.load(Table(MemoryStore(), self._judge.log))
        self._unproved = TrustedReceipts(clocked, known) if clocked is not None and known is not None else None
        self._report = report
        self._recent = RecentRecords()
        self._before = QuarantineIndex(pipeline.source, report.partition)
        self._redriven: dict[tuple[int, int], int] = {}
        self._numbers: set[Hashable] = set()
        self._passed: PassedContents | None = None
        dedup = pipeline.id_dedup
        action = dedup.on_collision if dedup is not None and dedup.fingerprint is not None else None
        # What only a tag or a new id may make too large is judged.
        self._editing = clocked if self._judge.editor(pipeline.source) is not None else None
        self._on_collision = action
        self._observes = pipeline.observe
        self._topic = pipeline.source
        self.verdicts: VerdictCheck | None = None
        """What compares verdicts; None: the pipeline writes none."""
        self._sink: SinkCheck | None = None
        if pipeline.writes_records:
            self._sink = SinkCheck(outputs[pipeline.clean_topic], report, self._recent, action or "pass")
        self._receipts: ReceiptCheck | None = None
        self._quarantine: QuarantineCheck | None = None
        self._all: list[Aligner] = [] if self._sink is None else [self._sink]
        if pipeline.duplicates is not None:
            named = self._judge.grounds, pipeline.name, pipeline.source, report.partition
            self._receipts = ReceiptCheck(
                outputs[pipeline.duplicates],
                report,
                self._recent,
                {each: receipt_text(*named, observed=each) for each in (False, True)},
                action,
                begins_late=receipts_begin_late,
                secret_known=secret is not None,
            )
            self._receipts.observing = pipeline.observe
            self._all.append(self._receipts)
        if pipeline.quarantine is not None:
            self._quarantine = QuarantineCheck(
                outputs[pipeline.quarantine], report, self._recent, source, action
            )
            self._all.append(self._quarantine)

    def begin_with(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin with blocks of scopes, key and value, that a backfill has brought; call it before all else."""
        self._judge.begin_with(blocks)

    def recall(self, columns: Columns) -> None:
        """Take records of the quarantine of before: what was too large then is no part of the state."""
        self._before.take(columns)

    def expect_redriven(self, copies: Iterable[QuarantinedCopy]) -> None:
        """Take note of what stands in quarantine and has been judged again: there it stays, by whatever rules.

        What collided is judged in its place, for it moved the clock and has a note.
        """
        faults = {fault.code: fault for fault in Fault if fault is not Fault.ID_COLLISION}
        self._redriven = {each.identity: faults[each.code] for each in copies if each.code in faults}

    def learn(self, columns: Columns) -> None:
        """Judge source records that the state only remembers: those before a reset. Call `recall` before."""
        evidence = self._judge.extract(columns)
        too_large = named_rows(columns, self._too_large)
        if self._unproved is not None:
            evidence.fault[too_large] = Fault.TOO_LARGE
            self._unproved.pass_over(evidence)
            return
        self._judge.learn(evidence, too_large)
        self._judge.take_brought()
        self._judge.absorb(ABSORBED_RECORDS)

    @cached_property
    def _too_large(self) -> set[tuple[int, int]]:
        return self._before.too_large()

    def note(self, piece: Piece) -> None:
        """Note whose records come next, before `take` gets them."""
        if self.verdicts is not None:
            self.verdicts.note_batches(piece)

    async def take(self, columns: Columns) -> None:
        """Judge source records, the next ones in offset order, and look for each."""
        if self._passed is None:  # what the state begins with has passed
            self._passed = PassedContents.of_one_reading()
            self._judge.compare_drops(self._passed, self._report.partition)
        start = 0
        while start < len(columns):
            stop = start + (MOST_ROWS if self._unproved is None else ROWS)
            some = columns.rows(start, stop)
            self._report.source += len(some)
            if not self._report.given_up:
                await self._take(some)
            start = stop

    async def take_again(
        self, columns: Columns, copies: Sequence[QuarantinedCopy], note: RedriveNote, origin: Origin
    ) -> None:
        """Judge records that a redrive has judged again, where it did, and look for each.

        Args:
            columns: As they came, in the order in which they were judged.
            copies: What they are in quarantine.
            note: Names them.
            origin: Of the state.
        """
        self._report.redriven += len(columns)
        if self._report.given_up:
            return
        trace = np.array([copy.has_own_trace(origin) for copy in copies])
        evidence = self._judge.extract(columns)
        for row in np.flatnonzero(evidence.fault).tolist():
            code = Fault(int(evidence.fault[row])).code
            detail = (
                f"cannot be judged ({code}), and a note at {self._source}'s quarantine says that it could be"
            )
            self._report.add(Rule.NOT_QUARANTINED, int(columns.offset[row]), detail)
        if self._unproved is not None:
            cast("IdEvidence", evidence).offset = np.full(len(columns), note.position)
            judged: ReceiptGrounds = await self._trusted(
                self._unproved, columns, cast("IdEvidence", evidence), note.position - 1
            )
        else:
            redriving = Redriving(note.position, note.limit_ms, trace, self._numbers)
            judged = self._judge.judge_again(evidence, redriving)
            self._judge.absorb(ABSORBED_RECORDS)
        await self._look_for(columns, evidence, judged, redriven=True)
        self._discount(copies, judged, origin)

    def _discount(self, copies: Sequence[QuarantinedCopy], judged: ReceiptGrounds, origin: Origin) -> None:
        """Count what was judged again once: out of quarantine, or, of before the span, not at all."""
        within = np.array([copy.offset >= origin.quarantine_offset for copy in copies])
        self._report.quarantine -= int(np.count_nonzero(within))
        self._report.sink -= int(np.count_nonzero(~within & (judged.stays == Verdict.PASS)))
        dropped = is_dropped(judged.verdict, self._on_collision)
        self._report.duplicates -= int(np.count_nonzero(~within & dropped))

    async def _take(self, columns: Columns) -> None:
        if self._quarantine is None:
            await self._compare(columns, np.zeros(0, np.int64), np.zeros(0, np.bool_))
            return
        too_large, passed = await self._quarantine.too_large(columns)
        if self._editing is None:
            await self._compare(columns, too_large, passed)
            return
        # Each that is named by itself: whether it was judged, only judging what comes before it tells.
        cuts = np.unique(np.concatenate(([0], too_large, too_large + 1, [len(columns)]))).tolist()
        for start, stop in itertools.pairwise(cuts):
            named = (too_large >= start) & (too_large < stop)
            await self._compare(columns.rows(start, stop), too_large[named] - start, passed[named])

    async def _compare(self, columns: Columns, too_large: NDArray[np.int64], passed: NDArray[np.bool_]) -> None:
        """Judge some records, and look for each; quarantine says that some were too large for the sink.

        Those of them that ``passed``, observed, were so with an edit only, which has to follow from judging.
        """
        evidence = self._judge.extract(columns)
        for row in named_rows(columns, self._redriven).tolist():
            known = int(columns.offset[row]), int(columns.timestamp[row])
            evidence.fault[row] = evidence.fault[row] or self._redriven[known]
        judged: ReceiptGrounds | None = None
        if self._editing is not None and too_large.size:
            judged = self._editing.judge_edited(cast("IdEvidence", evidence))
        if judged is None:
            evidence.fault[too_large[~passed]] = Fault.TOO_LARGE
            judged = await self._judged(columns, evidence)
        await self._look_for(columns, evidence, judged)

    async def _look_for(
        self, columns: Columns, evidence: Evidence, judged: ReceiptGrounds, *, redriven: bool = False
    ) -> None:
        self._recent.begin(columns, judged.verdict)
        observed = await self._dropped(columns, judged)
        await self._note_observed(columns, evidence.fault, observed)
        work = CollisionWork(self._judge, self._topic)
        edits = work.edits(self._report.partition, columns, evidence, judged, observed=observed)
        self._recent.pass_on(observed, None if edits is None else edited(columns, edits.row, edits))
        passes = (judged.stays == Verdict.PASS) | observed
        if self._sink is not None:
            await self._sink.expect(columns, np.flatnonzero(passes), edits)
        if self.verdicts is not None:
            await self.verdicts.expect(columns, passes, evidence.fault, judged.verdict)
        if not redriven:
            await self._unjudged(columns, evidence.fault, observed)
        self._recent.end(even=all(check.even for check in self._all), redriven=redriven)

    async def _judged(self, columns: Columns, evidence: Evidence) -> ReceiptGrounds:
        if self._unproved is not None:
            return await self._trusted(self._unproved, columns, cast("IdEvidence", evidence))
        judged = self._judge.judge(evidence)
        self._report.backfilled += self._judge.take_brought()
        self._judge.absorb(ABSORBED_RECORDS)
        return judged

    async def _trusted(
        self, receipts: TrustedReceipts, columns: Columns, evidence: IdEvidence, last: int | None = None
    ) -> IdGrounds:
        assert self._receipts is not None  # noqa: S101 - see `known`
        before, brought = receipts.trusted, receipts.backfilled
        last = int(columns.offset[-1]) if last is None else last
        judged = receipts.judge(evidence, await self._receipts.claims(columns, last))
        self._report.backfilled += receipts.backfilled - brought
        self._report.unproved += receipts.trusted - before - (receipts.backfilled - brought)
        self._report.judged_from = last + 1
        if receipts.over:
            self._unproved = None
        return judged

    async def _dropped(self, columns: Columns, judged: ReceiptGrounds) -> NDArray[np.bool_]:
        """Compare receipts; returns bool[n], which records have passed all the same, as their receipts say."""
        rows, observed = np.flatnonzero(RECEIPTED[judged.verdict]), np.zeros(len(columns), np.bool_)
        if self._receipts is not None:
            observed[rows] = await self._receipts.expect(columns, rows, judged)
            return observed
        self._report.collisions += int(np.count_nonzero(judged.verdict == Verdict.COLLISION))
        if self._observes:
            observed[rows] = True
            self._report.observed += rows.size
            self._report.observed_by_config |= bool(rows.size)
            return observed
        self._report.duplicates += int(np.count_nonzero(is_dropped(judged.verdict, self._on_collision)))
        return observed

    async def _note_observed(
        self, columns: Columns, fault: NDArray[np.uint8], observed: NDArray[np.bool_]
    ) -> None:
        """Find out which records have passed that cannot be judged, and note them in ``observed``."""
        rows = np.flatnonzero(fault)
        if not rows.size:
            return
        near = self._observes if self._receipts is None else await self._receipts.observes()
        if self._quarantine is not None:
            observed[rows] = self._quarantine.observed(columns, rows, near=near)
        elif near or self._observes:
            observed[rows] = True
            self._report.observed_by_config |= self._receipts is None

    async def _unjudged(self, columns: Columns, fault: NDArray[np.uint8], observed: NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(fault)
        if self._quarantine is not None:
            await self._quarantine.expect(columns, rows, fault)
            return
        self._report.observed += int(np.count_nonzero(observed[rows]))
        rows = rows[~observed[rows]]
        self._report.quarantine += rows.size
        for row in rows.tolist():
            code = Fault(int(fault[row])).code
            detail = f"cannot be judged ({code}), and the pipeline has no quarantine: a worker stops before it"
            self._report.add(Rule.NOT_QUARANTINED, int(columns.offset[row]), detail)

    async def settle(self) -> None:
        """Conclude what was expected so far: nothing more comes before the committed position."""
        if not self._report.given_up:
            for check in self._all:
                await check.settle(final=True)
            if self.verdicts is not None:
                await self.verdicts.settle()

    async def exhausted(self) -> bool:
        """Whether every record that was in the outputs at the start is explained."""
        done = [await check.exhausted() for check in self._all]
        done += [] if self.verdicts is None else [await self.verdicts.exhausted()]
        return not self._report.given_up and all(done)

    async def finish(self) -> None:
        """Report what nothing explains, and what was dropped that is new."""
        if self._passed is not None and (found := self._judge.take_compared()) is not None:
            looked_at, unseen = found.totals(self._passed.level)
            self._report.dropped_looked_at, self._report.dropped_unseen = looked_at, unseen
            self._report.unseen_at = found.unseen_at
        for check in self._all:
            await check.finish()
        if self.verdicts is not None and not self._report.given_up:
            await self.verdicts.finish()
