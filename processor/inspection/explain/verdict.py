"""Finds out what became of one record of a source.

It is looked for in the order in which a worker writes: a receipt, a copy in quarantine, the clean topic. In
exactly one of them it must be, if it was judged: what is in none, or in two, contradicts the rules.

Of a pipeline that writes verdicts alone the verdict record says it, and receipt and copy have to agree.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.engine.verdict import Fault
from processor.inspection.explain.earlier import EarlierRuns, infer
from processor.inspection.explain.lookup.clean import PassedForm, Sought
from processor.inspection.explain.lookup.eras import noun
from processor.inspection.explain.lookup.log import Missing, shown
from processor.inspection.explain.lookup.verdict_lookup import DamagedVerdictError
from processor.inspection.explain.owner import OwnerFinder
from processor.inspection.explain.story import JudgedBy, Outcome
from processor.inspection.explain.twice import TwiceFinder
from processor.kafka.client import TopicPartition
from processor.kafka.topics.plan import repartition_topic
from processor.wire.receipt_values import COLLISION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.verdict_lookup import SaidVerdict
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import Story
    from processor.wire.quarantine import QuarantineNote
    from processor.wire.receipt_values import ReceiptValue, RecordRef
    from schemas.config import Pipeline

PATIENCE_S = 3.0
"""For how long what must be there may stay invisible, as `seqmark verify` has it."""
POLL_S = 0.1


async def patiently(look: Callable[[], Awaitable[tuple[Story, bool]]], forget: Callable[[], None]) -> Story:
    """Return the first story without a contradiction; else the last one.

    The end of a transaction reaches one partition after another, and a running worker goes on between two
    requests. So what is missing, or is there too soon, is looked at again, as long as `seqmark verify` waits.

    Args:
        look: Returns what became of a record, and whether all that was written is to be seen.
        forget: Called before another look: what was asked of the brokers is to be asked again.
    """
    begun = time.monotonic()
    while True:
        story, settled = await look()
        waited_s = time.monotonic() - begun
        if not story.problems or waited_s > (2 * POLL_S if settled else PATIENCE_S):
            return story
        await asyncio.sleep(POLL_S)
        forget()


@dataclass
class VerdictFinder:
    """Finds out what became of records.

    Attributes:
        records: Finds what there is of them.
    """

    records: RecordFinder

    async def tell(self, story: Story, pipeline: Pipeline, source: RecordRef) -> Story:
        """Return a story with what became of a source record.

        Raises:
            StopError: Something cannot be read.
            RebuildError: The brokers do not answer.
        """

        async def look() -> tuple[Story, bool]:
            return await self.once(story, pipeline, source)

        return await patiently(look, self.records.facts.forget)

    async def once(self, story: Story, pipeline: Pipeline, source: RecordRef) -> tuple[Story, bool]:
        """Return a story as `tell` after one look, and whether all that was written is to be seen."""
        told = replace(
            story, source=source, mode=pipeline.dedup.mode, wraps=pipeline.sequences_wrap, notes=[*story.notes]
        )
        told = replace(told, problems=[], earlier=[], elsewhere={})
        return told, await self._tell(told, pipeline, source)

    async def _tell(self, story: Story, pipeline: Pipeline, source: RecordRef) -> bool:
        """Fill in a story; returns whether all that was written is to be seen."""
        case = await self.records.case(pipeline, source)
        limits = case.facts.bounds[case.source]
        story.position = case.facts.position
        settled = case.facts.settled
        if story.is_to_come(source, limits):
            return settled
        if case.record is not None:
            story.record = shown(case.source, case.record)
        elif (gone := await self._gone(story, case)) is not None:
            story.outcome, story.why = Outcome.NO_RECORD, gone
            return settled
        if case.is_judged:
            await (self._judged if pipeline.writes_records else self._said)(story, case)
        elif source.offset >= case.high:
            await EarlierRuns(self.records).pending(story, case)
        else:
            await EarlierRuns(self.records).before(story, case)
            if not pipeline.writes_records:
                await self._said_before(story, case)
        return settled

    async def _gone(self, story: Story, case: SourceCase) -> str | None:
        """Note that a record is not there any more; return why there never was one."""
        limits = case.facts.bounds[case.source]
        if case.offset >= limits.start:
            found = await self.records.log.record(case.source, case.offset, limits.stable)
            if found in {Missing.CONTROL, Missing.ABORTED}:
                return str(found)
            story.notes.append(f"the record itself is not in {case.source.topic} any more: {found}")
            story.why = str(found)
            return None
        await self.records.say_removed(story, case.source, limits)
        story.notes.append(f"the record itself is not retained any more: {story.why}")
        return None

    def _note_entries(
        self,
        story: Story,
        receipt: tuple[RecordRef, ReceiptValue] | None,
        copy: tuple[RecordRef, QuarantineNote] | None,
    ) -> None:
        """Put a record's receipt and its copy in quarantine into a story."""
        if receipt is not None:
            story.receipt = receipt[0]
            self.records.say_receipt(story, receipt[1])
        if copy is not None:
            story.quarantine, said = copy
            story.observed |= said.observed
            if receipt is None:
                story.outcome, story.grounds = Outcome.QUARANTINED, JudgedBy.of(said)

    async def _complete(self, story: Story, case: SourceCase, receipt: ReceiptValue | None) -> None:
        """Add to the story of a judged record what it was compared with, and what else is to be known."""
        if case.record is not None and story.outcome is not Outcome.QUARANTINED:
            self.records.ground(story, case)
        await OwnerFinder(self.records).find(story, case, receipt)
        await EarlierRuns(self.records).note(story, case)
        self._note_disorder(story)

    # ---------------------------------------------------------------- judged by the run of now

    async def _judged(self, story: Story, case: SourceCase) -> None:
        receipt, copy = await self.records.receipt(case), await self.records.copy(case)
        self._note_entries(story, receipt, copy)
        if copy is not None and await self._redriven(story, case, copy[0], dropped=receipt is not None):
            return
        if receipt is not None and copy is not None and receipt[1].verdict != COLLISION:
            story.contradict(
                f"it has a receipt at {story.receipt} and a copy in quarantine at {story.quarantine}"
            )
            return
        if receipt is None and copy is None:
            receipt = await self._left_over(story, case)
        elif (receipt is None or receipt[1].passed) and (copy is None or story.observed):
            await self._passed_noted(story, case)
        elif receipt is not None and case.record is not None:
            await self._dropped_noted(story, case)
        await self._complete(story, case, None if receipt is None else receipt[1])

    async def _redriven(self, story: Story, case: SourceCase, copy: RecordRef, *, dropped: bool) -> bool:
        """Note what became of a record that was judged again out of quarantine; False: it was not."""
        placed = await self.records.redriven(case, copy)
        if placed is None:
            return False
        what = "was dropped then" if dropped else "passed then, behind all that had come"
        if not dropped and case.pipeline.duplicates is None:
            what = "passed or was dropped then"
        story.notes.append(
            f"it was judged again when the pipeline stood at offset {placed.note.position}, and {what}: the "
            f"note at {copy.topic}:{copy.partition}:{placed.offset} says so"
        )
        return True

    # ---------------------------------------------------------------- by verdicts alone

    async def _said(self, story: Story, case: SourceCase) -> None:
        """Fill in the story of a record by its verdict record."""
        receipt, copy = await self.records.receipt(case), await self.records.copy(case)
        try:
            said = await self.records.said.covering(case)
        except DamagedVerdictError as error:
            story.contradict(str(error))
            return
        if said is not None and receipt is None and copy is None and not said.passes(case.offset):
            receipt = await self.records.receipt(case, anywhere=True)
        self._note_entries(story, receipt, copy)
        if said is not None:
            story.verdict = said.ref
            await self._by_verdict(story, case, said)
        elif not (why := await self.records.said.untold(case)):
            story.contradict(f"it was judged, and no record of {case.pipeline.verdicts} speaks of it")
        elif receipt is None and copy is None:
            story.outcome, story.why = Outcome.NOT_RETAINED, f"it was judged, and {why}"
        else:
            story.notes.append(why)
        await self._complete(story, case, None if receipt is None else receipt[1])

    async def _said_before(self, story: Story, case: SourceCase) -> None:
        """Complete the story of a record that only a run before that of now can have judged."""
        said = await self.records.said.covering(case)
        if said is None:
            return
        story.verdict = said.ref
        if story.outcome in {Outcome.SKIPPED, Outcome.NOT_RETAINED}:
            story.outcome = Outcome.PENDING
            story.notes.append("a run before that of now has judged it, and a reset has begun behind it")
            await self._by_verdict(story, case, said)
        elif said.passes(case.offset) and case.record is not None:
            story.clean = story.source

    async def _by_verdict(self, story: Story, case: SourceCase, said: SaidVerdict) -> None:
        """Say what a verdict record says of a record, where receipt and copy do not say more."""
        action, fault = said.action(case.offset), said.fault(case.offset)
        alone = story.receipt is None and story.quarantine is None
        if said.passes(case.offset):
            if not alone and not (story.observed or story.grounds.action == action == "pass"):
                there = story.receipt or story.quarantine
                story.contradict(f"{said.ref} says that it passed, and it has a dropped one's entry at {there}")
            elif alone:
                story.outcome = Outcome.PASSED if action is None else Outcome.COLLISION
                story.grounds = JudgedBy(action=action)
                if case.record is not None and self.records.reader(case.pipeline).of(case.record).unjudged:
                    story.why = (
                        "a part of its id is missing, and pipelines.dedup.on_missing lets it pass unjudged"
                    )
            story.clean = None if case.record is None else story.source
        elif story.observed:
            story.contradict(
                f"{said.ref} skips it, and its entry says that it passed, for the pipeline observes"
            )
        elif fault is not Fault.NONE:
            await self._said_aside(story, case, said, fault)
        elif story.quarantine is not None or story.grounds.action not in {None, action}:
            there = story.quarantine or story.receipt
            story.contradict(f"{said.ref} says that it was dropped, and {there} says otherwise")
        elif alone:
            await self._said_dropped(story, case, said, action)

    async def _said_aside(self, story: Story, case: SourceCase, said: SaidVerdict, fault: Fault) -> None:
        """A record that verdicts say is in quarantine."""
        code = story.grounds.code
        if story.outcome in {Outcome.DUPLICATE, Outcome.LATE} or (code is not None and code != fault.code):
            there = story.receipt or story.quarantine
            story.contradict(f"{said.ref} says {fault.code} of quarantine, and {there} says otherwise")
        elif story.quarantine is None and case.is_judged:
            outcome, grounds = story.outcome, story.grounds
            await self._faulty(story, case, fault)
            if outcome is Outcome.COLLISION and not story.problems:
                story.outcome, story.grounds = outcome, grounds
        elif story.quarantine is None:
            story.outcome, story.grounds = Outcome.QUARANTINED, JudgedBy(code=fault.code)

    async def _said_dropped(
        self, story: Story, case: SourceCase, said: SaidVerdict, action: str | None
    ) -> None:
        """A record that verdicts say was dropped, and of which no receipt is found."""
        topic = case.pipeline.duplicates
        there = topic is not None and not await self._is_elsewhere(story, case, "duplicates")
        whole = there and case.is_judged and self.records.is_whole(case, topic, case.places)
        if whole and not await self.records.is_compacted(case, topic):
            story.contradict(f"{said.ref} skips it, and it has no receipt and no copy in quarantine")
            return
        if action is not None:
            story.outcome, story.grounds = Outcome.COLLISION, JudgedBy(action=action)
        elif case.record is not None:
            await infer(self.records, story, case, self.records.reader(case.pipeline).of(case.record).grounds)
        else:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"{said.ref} skips it, and neither the record nor its receipt is retained"

    def _note_disorder(self, story: Story) -> None:
        """Note where something was found in an output that does not lie in the order of the source."""
        for ref, finder in ((story.receipt, self.records.receipts), (story.quarantine, self.records.copies)):
            if ref is not None and TopicPartition(*ref[:2]) in finder.disordered:
                story.notes.append(
                    f"{ref.topic}:{ref.partition} is not in the order of the source: something stands there "
                    "twice, or others write to it. What stands where the worker wrote counts, if marks say that"
                )

    async def _passed_noted(self, story: Story, case: SourceCase) -> None:
        """Find the place of a record that passed though it has a receipt or a note."""
        if case.record is None:
            return
        observed = story.observed
        form = PassedForm.of(story.grounds.action, story.grounds.new_id, observed=observed)
        story.clean = await self.records.place(case, Sought(shown(case.source, case.record), form))
        if story.clean is None:
            await self._not_there(
                story, case, f"its {'receipt' if observed else 'note'} says that it passed, and"
            )

    async def _dropped_noted(self, story: Story, case: SourceCase) -> None:
        """What has a receipt must not stand in the clean topic as well."""
        at = await TwiceFinder(self.records).dropped(case)
        if at is not None:
            clean = f"{case.pipeline.clean_topic}:{case.source.partition}:{at}"
            story.contradict(
                f"it has a receipt at {story.receipt}, and {clean} has its bytes: "
                "no record of the source that passed accounts for that"
            )

    async def _left_over(self, story: Story, case: SourceCase) -> tuple[RecordRef, ReceiptValue] | None:
        """Fill in the story of a record with neither receipt nor copy: it passed, or one of them is gone.

        Returns a receipt that only reading all of them has found.
        """
        await self._unentered(story, case)
        receipt = await self.records.receipt(case, anywhere=True) if story.problems else None
        if receipt is not None:
            story.problems.clear()
            story.receipt = receipt[0]
            self.records.say_receipt(story, receipt[1])
            self.records.receipts.disordered.add(TopicPartition(*receipt[0][:2]))
        return receipt

    async def _unentered(self, story: Story, case: SourceCase) -> None:
        if case.record is None:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"{story.why}; and no receipt and no copy in quarantine speaks of it"
            return
        told = self.records.reader(case.pipeline).of(case.record)
        story.clean = await self.records.place(case)
        if story.clean is not None:
            story.outcome = Outcome.PASSED
            if told.unjudged:
                story.why = "a part of its id is missing, and pipelines.dedup.on_missing lets it pass unjudged"
            return
        if await self._on_its_way(story, case):
            return
        if told.fault is not Fault.NONE:
            await self._faulty(story, case, told.fault)
        elif case.pipeline.duplicates is None or await self._is_elsewhere(story, case, "duplicates"):
            await self._unreceipted(story, case, told.grounds)
        elif not self.records.is_whole(
            case, case.pipeline.duplicates, case.places
        ) or await self.records.is_compacted(case, case.pipeline.duplicates):
            story.outcome = Outcome.NOT_RETAINED
            story.why = "it was judged, but neither the clean topic nor the receipts of that time are retained"
            story.why += " completely, and it is in neither"
        else:
            await self._not_there(story, case, "it has no receipt and no copy in quarantine, and")

    async def _is_elsewhere(self, story: Story, case: SourceCase, kind: str) -> bool:
        """Whether an output of a record may have gone to a topic that is not that of now; the story says so."""
        why = await self.records.elsewhere(case, getattr(case.pipeline, kind))
        if why:
            story.elsewhere[kind] = noun(kind, why)
        return bool(why)

    async def _unreceipted(self, story: Story, case: SourceCase, own: JudgedBy) -> None:
        """Fill in the story of a record of which no receipt can speak: the clean topic tells, if it can."""
        sink = case.pipeline.clean_topic
        if await self._is_elsewhere(story, case, "sink"):
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it was judged, and passed or was dropped: what says so was in {story.all_elsewhere()}"
        elif self.records.is_whole(case, sink, case.places) and not (
            story.elsewhere and await self.records.is_compacted(case, sink)
        ):
            await infer(self.records, story, case, own)
        else:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it was judged, there are no receipts, and not all of {sink} is retained"

    async def _faulty(self, story: Story, case: SourceCase, fault: Fault) -> None:
        story.outcome, story.grounds = Outcome.QUARANTINED, JudgedBy(code=fault.code)
        if case.pipeline.quarantine is None:
            story.notes.append("the pipeline has no quarantine topic now")
        elif await self._is_elsewhere(story, case, "quarantine"):
            story.notes.append(f"its copy was in {story.elsewhere['quarantine']}")
        elif self.records.is_whole(case, case.pipeline.quarantine, self.records.aside(case)):
            story.contradict(f"it cannot be judged ({fault.code}), was taken in, and has no copy in quarantine")
        else:
            story.notes.append("its copy in quarantine is not retained any more")

    async def _not_there(self, story: Story, case: SourceCase, why: str) -> None:
        """A record that passed is not in the clean topic: it is not retained any more, or that contradicts."""
        removed = ""
        if await self._is_elsewhere(story, case, "sink"):
            if story.outcome is Outcome.PENDING:
                story.outcome = Outcome.PASSED
            story.notes.append(f"its copy was in {story.elsewhere['sink']}")
            return
        if self.records.is_whole(case, case.pipeline.clean_topic, case.places):
            if not await self.records.is_compacted(case, case.pipeline.clean_topic):
                story.contradict(f"{why} it is not in {case.pipeline.clean_topic}")
                return
            removed = ": compaction has removed records of it"
        if story.outcome is Outcome.PENDING:
            story.outcome = Outcome.PASSED
        story.notes.append(f"its copy in {case.pipeline.clean_topic} is not retained any more{removed}")

    async def _on_its_way(self, story: Story, case: SourceCase) -> bool:
        """Whether a routed record was not judged yet; the story says so then."""
        if not case.pipeline.routed:
            return False
        for number in case.places:
            position, limits = await self.records.facts.routed(case.pipeline, number)
            if limits.stable > max(position or 0, limits.start):
                name = repartition_topic(self.records.settings, case.pipeline)
                story.outcome = Outcome.PENDING
                story.why = (
                    f"it is on its way to partition {number} of its id, and {name}:{number} is not all judged"
                )
                return True
        return False
