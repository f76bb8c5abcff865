"""Tells of records that the run of now has not judged: they are still to come, or a run before a reset did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.inspection.explain.lookup.entries import quarantined, receipt_at
from processor.inspection.explain.owner import OwnerFinder
from processor.inspection.explain.story import EarlierAnswer, JudgedBy, Outcome
from processor.inspection.read.sentences import time_text

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
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
        if case.facts.position is None:
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
            said = receipt_at(entry.columns, entry.row) if newest.outcome is not Outcome.QUARANTINED else None
            if said is not None:
                story.receipt = newest.ref
                self.records.say_receipt(story, said)
                if case.record is not None:
                    self.records.ground(story, case)
                if said.passed:
                    story.clean = await self.records.place_before(case, said)
                if said.outcome is Outcome.COLLISION:
                    copies = [each.ref for each, _ in found if each.outcome is Outcome.QUARANTINED]
                    story.quarantine = copies[0] if copies else None
                await OwnerFinder(self.records).find(story, case, said)
            else:
                story.quarantine, story.outcome = newest.ref, Outcome.QUARANTINED
                copy = quarantined(entry.columns, entry.row)
                story.grounds = JudgedBy() if copy is None else copy.grounds
            story.notes.append(f"a run before that of now has judged it: {since}")
            now = {story.receipt, story.quarantine}
            story.earlier = [each for each, _ in found if each.ref not in now]
            return
        places = await self.records.places_before(case, None)
        if places:
            story.outcome, story.clean = Outcome.PASSED, places[0] if len(places) == 1 else None
            if len(places) > 1:
                story.notes.append(
                    f"{len(places)} equal records stand in {case.pipeline.sink}: nothing says which it is"
                )
            story.notes.append(f"a run before that of now has let it pass: {since}")
            self.records.ground(story, case)
            return
        story.outcome = Outcome.NOT_RETAINED if case.record is None else Outcome.SKIPPED
        story.why = f"{since}, and nothing of it from before is in {', '.join(case.pipeline.outputs)}"

    async def note(self, story: Story, case: SourceCase) -> None:
        """Note what runs before a reset had decided of a record, as far as that is quickly found."""
        origin = case.facts.origin
        if origin is None or not origin.by_reset:
            return
        story.earlier = [each for each, _ in await self.records.earlier(case, surely=False)]
        if not story.earlier and (place := await self.records.place_before(case, None)) is not None:
            story.earlier = [EarlierAnswer(Outcome.PASSED, place)]
