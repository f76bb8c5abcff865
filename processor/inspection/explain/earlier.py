"""Tells of records that the run of now has not judged, and of those of which no receipt does.

They are still to come, or a run before a reset has judged them. As what one was dropped without a receipt is
inferred from the numbers that came before it in its scope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.engine.verdict import Fault
from processor.inspection.explain.lookup.clean import Sought
from processor.inspection.explain.lookup.eras import noun
from processor.inspection.explain.lookup.log import shown
from processor.inspection.explain.owner import OwnerFinder
from processor.inspection.explain.story import EarlierAnswer, JudgedBy, Outcome
from processor.inspection.read.sentences import time_text
from processor.wire.quarantine import QuarantineNote
from processor.wire.receipt_values import COLLISION, ReceiptValue, RecordRef

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.eras import PastState
    from processor.inspection.explain.lookup.finder import Entry
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import Story


@dataclass
class EarlierRuns:
    """Tells what runs before that of now have decided.

    Attributes:
        records: Finds what there is of records.
    """

    records: RecordFinder

    async def pending(self, story: Story, case: SourceCase) -> None:
        """Fill in the story of a record that nobody has taken in yet."""
        name = f"{case.source.topic}:{case.source.partition}"
        if case.facts.other_source:
            story.why = f"{case.source.topic} has been replaced since, and nothing of the new one was taken in"
        elif case.facts.position is None:
            story.why = f"no worker has committed anything of {name}"
        else:
            story.why = f"{name} is taken in up to offset {case.facts.position}"
        if case.record is None:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it was removed before it was judged: {story.why}"
            return
        self.records.ground(story, case)
        await self.note(story, case)

    async def before(self, story: Story, case: SourceCase) -> None:
        """Fill in the story of a record before the run of now: a run before it may have judged it."""
        found = await self.records.earlier(case, surely=True)
        origin = case.facts.origin
        since = f"the state of now begins at offset {case.low}"
        if origin is not None and origin.reset_ms:
            since += f", by the reset of {time_text(origin.reset_ms)}"
        if found:
            newest, entry = found[0]
            said = (
                ReceiptValue.at(entry.columns, entry.row) if newest.outcome is not Outcome.QUARANTINED else None
            )
            if said is not None:
                story.receipt = newest.ref
                self.records.say_receipt(story, said)
                if case.record is not None:
                    self.records.ground(story, case)
                if said.passed:
                    story.clean = await self.records.place_before(case, said)
                    past = await self.past(case)
                    if story.clean is None and past is not None and "sink" in past.elsewhere:
                        story.elsewhere["sink"] = noun("sink", past.elsewhere["sink"])
                if said.verdict == COLLISION:
                    copies = [each.ref for each, _ in found if each.outcome is Outcome.QUARANTINED]
                    story.quarantine = copies[0] if copies else None
                await OwnerFinder(self.records).find(story, case, said)
            else:
                await self._aside(story, case, newest.ref, entry)
            story.notes.append(f"a run before that of now has judged it: {since}")
            now = {story.receipt, story.quarantine}
            story.earlier = [each for each, _ in found if each.ref not in now]
            return
        places = await self._passed_before(case)
        if places:
            story.outcome, story.clean = Outcome.PASSED, places[0] if len(places) == 1 else None
            if len(places) > 1:
                story.notes.append(
                    f"{len(places)} equal records stand in {case.pipeline.clean_topic}: nothing says which "
                    "it is"
                )
            story.notes.append(f"a run before that of now has let it pass: {since}")
            self.records.ground(story, case)
            return
        await self._left_over(story, case, since)

    async def _aside(self, story: Story, case: SourceCase, ref: RecordRef, entry: Entry) -> None:
        """Fill in the story of a record that a run before has put into quarantine, or noted there."""
        story.quarantine, story.outcome = ref, Outcome.QUARANTINED
        copy = QuarantineNote.at(entry.columns, entry.row)
        story.grounds = JudgedBy() if copy is None else JudgedBy.of(copy)
        if copy is not None and copy.observed:
            story.observed, story.clean = True, await self.records.place_before(case, None)

    async def _passed_before(self, case: SourceCase) -> list[RecordRef]:
        """Return where a record without a receipt may stand in the clean topic; none: it did not pass."""
        places = await self.records.places_before(case, None)
        past = await self.past(case) if places and case.record is not None else None
        if past is None or case.record is None or "duplicates" not in past.elsewhere:
            return places
        # Its receipt may be gone. Of equal records the first passed, and others as far as there are so many.
        equals = await self.records.equals(case, Sought(shown(case.source, case.record)))
        rank = equals.index(case.offset) if case.offset in equals else 0
        return places[rank : rank + 1]

    async def past(self, case: SourceCase) -> PastState | None:
        """Return the newest state before that of now that has taken in a record of this source, or may have."""
        eras = self.records.eras
        found = await eras.before(case.pipeline, case.source.partition, case.facts, case.offset)
        mine = [each for each in found if not each.source]
        return next((each for each in mine if each.taken_in), mine[0] if mine else None)

    async def _left_over(self, story: Story, case: SourceCase, since: str) -> None:
        """Fill in the story of a record of which nothing from before is to be found."""
        past = await self.past(case)
        # Of verdicts alone the topic that said so may be another by now, or its records have expired.
        surely = past is not None and past.taken_in and not case.pipeline.writes_records
        if past is None or not (past.elsewhere or surely) or case.record is None:
            story.outcome = Outcome.NOT_RETAINED if case.record is None else Outcome.SKIPPED
            story.why = f"{since}, and nothing of it from before is in {', '.join(case.pipeline.outputs)}"
            return
        story.elsewhere = {kind: noun(kind, why) for kind, why in past.elsewhere.items()}
        told = self.records.reader(case.pipeline).of(case.record)
        story.notes.append(f"a run before that of now has judged it: {since}")
        if not past.taken_in:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"{since}, and what would say whether a run before took it in was in "
            story.why += " and ".join(story.elsewhere.values())
            story.notes.pop()
        elif told.fault is not Fault.NONE:
            story.outcome, story.grounds = Outcome.QUARANTINED, JudgedBy(code=told.fault.code)
            if "quarantine" in story.elsewhere:
                story.notes.append(f"its copy was in {story.elsewhere['quarantine']}")
        else:
            await self._passed_or_dropped(story, case, told.grounds)

    async def _passed_or_dropped(self, story: Story, case: SourceCase, own: JudgedBy) -> None:
        """Fill in the story of a record that a run before has judged, with a topic of that time gone."""
        pipeline, story.grounds = case.pipeline, own
        if not pipeline.writes_records:
            story.outcome = Outcome.NOT_RETAINED
            story.why = "it was judged, and what says so in the topics of now is not found"
            return
        unreceipted = pipeline.duplicates is None or "duplicates" in story.elsewhere
        if unreceipted and "sink" in story.elsewhere:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it was judged, and passed or was dropped: what says so was in {story.all_elsewhere()}"
        elif "sink" in story.elsewhere:
            if self.records.is_retained(case, pipeline.duplicates):
                story.outcome = Outcome.PASSED
                story.notes.append(f"its copy was in {story.elsewhere['sink']}")
            else:
                story.outcome = Outcome.NOT_RETAINED
                story.why = f"it was judged, and not all of {pipeline.duplicates} is retained"
        elif self.records.is_retained(case, pipeline.clean_topic):
            await infer(self.records, story, case, own)
        else:
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it was judged, and not all of {pipeline.clean_topic} is retained"

    async def note(self, story: Story, case: SourceCase) -> None:
        """Note what runs before a reset had decided of a record, as far as that is quickly found."""
        origin = case.facts.origin
        if origin is None or not origin.by_reset:
            return
        story.earlier = [each for each, _ in await self.records.earlier(case, surely=False)]
        place = None if story.earlier else await self.records.place_before(case, None)
        if place is None or case.record is None:
            return
        # Of records that are equal in all it is the first that stands there, if one does.
        equals = await self.records.equals(case, Sought(shown(case.source, case.record)))
        if not equals or equals[0] == case.offset:
            story.earlier = [EarlierAnswer(Outcome.PASSED, place)]


async def infer(records: RecordFinder, story: Story, case: SourceCase, own: JudgedBy) -> None:
    """Fill in the story of a record that is not in the clean topic: without receipts it was dropped."""
    none = f"there is no receipt: pipeline {case.pipeline.name} has no duplicates topic"
    if where := story.elsewhere.get("duplicates"):
        none = f"its receipt was in {where}"
    elif case.pipeline.duplicates is not None:
        none = "its receipt is not retained any more"
    dedup = case.pipeline.id_dedup
    collides = dedup is not None and dedup.fingerprint is not None and dedup.on_collision != "pass"
    if collides and story.verdict is None:
        story.outcome, story.why = Outcome.NOT_RETAINED, f"it was a duplicate, or collided, and {none}"
        return
    story.outcome, story.grounds = Outcome.DUPLICATE, own
    if own.sequence is not None:
        await _tell_late(records, story, case, own)
    missing = story.verdict or f"its not being in {case.pipeline.sink}"
    story.notes.append(f"{none}, so the verdict follows from {missing}")


async def _tell_late(records: RecordFinder, story: Story, case: SourceCase, own: JudgedBy) -> None:
    start, origin = case.facts.bounds[case.source].start, case.facts.origin
    # A reset makes the state again from there on; runs before it knew all.
    known = origin.known_from if origin is not None and case.is_judged else 0

    async def passed(offset: int) -> bool:
        ref = RecordRef(case.source.topic, case.source.partition, offset)
        return await records.standing(await records.case(case.pipeline, ref)) is not None

    span = max(known, start), case.offset
    late = await records.reader(case.pipeline).late(records.log, case.source, own, span, passed)
    if late:
        story.outcome = Outcome.LATE
    elif late is None:
        story.notes.append(
            "the number that it was compared with is not found: it may have been dropped as late"
        )
