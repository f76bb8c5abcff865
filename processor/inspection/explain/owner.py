"""Finds the record that had passed, which a dropped or colliding one was compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.inspection.explain.lookup.differences import differences
from processor.inspection.explain.lookup.entries import receipt_at
from processor.inspection.explain.lookup.eras import noun
from processor.inspection.explain.lookup.evidence import Carrier
from processor.inspection.explain.lookup.log import shown
from processor.inspection.explain.story import Outcome, PassedOwner, RecordRef

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.entries import SaidReceipt
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import JudgedBy, Story
    from processor.kafka.offsets import Bounds
    from schemas.changelog.position import Origin
    from schemas.config import Pipeline

_COMPARED = {Outcome.DUPLICATE, Outcome.LATE, Outcome.COLLISION}


@dataclass
class OwnerFinder:
    """Finds the owner of one record.

    Attributes:
        records: Finds what there is of records.
    """

    records: RecordFinder

    async def find(self, story: Story, case: SourceCase, receipt: SaidReceipt | None) -> None:
        """Put the owner into a story; ``receipt`` is the record's, None where it has none.

        Raises:
            StopError: Something cannot be read.
        """
        await self._times(story, case)
        if story.outcome not in _COMPARED:
            return
        if receipt is not None and receipt.backfill is not None:
            story.owner = PassedOwner(backfill=receipt.backfill, note="it came before the stream began")
        elif receipt is not None and receipt.owner is not None:
            story.owner = await self._shown(story, case, receipt.owner)
        elif case.pipeline.id_dedup is None:
            story.owner = await self._carrier(story, case)
        elif receipt is None:
            story.owner = await self._same_id(story)
        else:
            story.owner = PassedOwner(note="filters without confirmation do not know which record had passed")

    async def _times(self, story: Story, case: SourceCase) -> None:
        """Note what the clock read, as far as it follows."""
        dedup = case.pipeline.id_dedup
        if dedup is None:
            return
        if story.expires_ms is not None:
            story.clock_ms = story.expires_ms - dedup.window
        elif story.outcome is Outcome.PASSED and dedup.time == "record" and case.record is not None:
            timestamp = int(case.record.timestamp[0])
            if timestamp < 0 or story.why:
                return
            ahead = dedup.max_ahead
            if ahead is not None and timestamp > case.facts.since_ms + ahead:
                # It may have been ahead of the clock, which reads less then.
                after_ms = await self.records.judged_after_ms(case)
                if after_ms is None:
                    return
                timestamp = min(timestamp, after_ms + ahead)
            story.expires_ms, story.expires_least = timestamp + dedup.window, True

    async def _same_id(self, story: Story) -> PassedOwner:
        """Return what is known of the owner where there is no receipt."""
        return PassedOwner(
            note="no receipt names it; `seqmark explain --id` finds the records with this id"
            if story.grounds.id
            else "no receipt names it"
        )

    async def _shown(self, story: Story, case: SourceCase, ref: RecordRef) -> PassedOwner:
        """Return an owner that is known by its position."""
        if ref.topic != case.pipeline.source or ref.partition not in self.records.client.partitions(ref.topic):
            return PassedOwner(ref, note=f"{ref.topic}:{ref.partition} is no partition of the source")
        other = await self.records.case(case.pipeline, ref)
        if other.record is None:
            limits = other.facts.bounds[other.source]
            return PassedOwner(
                ref, note=f"it is not retained any more: the partition begins at offset {limits.start}"
            )
        record = shown(other.source, other.record)
        note, clean = "", None
        try:
            clean = await self.records.standing(other)
        except StopError as error:
            note = str(error)
        if clean is None and not note:
            note = await self._elsewhere(other)
        differs = None if story.record is None else differences(story.record, record)
        return PassedOwner(ref, record=record, clean=clean, differs=differs, note=note)

    async def _elsewhere(self, case: SourceCase) -> str:
        """Say that an owner passed to a topic that is not that of now; empty: it did not."""
        why = case.elsewhere(case.pipeline.sink)
        if not case.is_judged:
            found = await self.records.eras.before(
                case.pipeline, case.source.partition, case.facts, case.offset
            )
            why = next((each.elsewhere.get("sink", "") for each in found if not each.source), "")
        return f"it passed to {noun('sink', why)}" if why else ""

    async def _was_dropped(self, case: SourceCase) -> bool:
        """Whether a run before that of now says that it dropped a record."""
        found = [] if case.is_judged else await self.records.earlier(case, surely=True)
        said = [receipt_at(entry.columns, entry.row) for each, entry in found if each.outcome in _COMPARED]
        return any(each is not None and not each.passed for each in said)

    async def _carrier(self, story: Story, case: SourceCase) -> PassedOwner:
        """Return the record that carried the number which a receipt names, in the same scope."""
        wanted = self._wanted(story.outcome, story.grounds, case.pipeline)
        if case.record is None:
            return PassedOwner(note="the record itself is gone, so that its scope is not known")
        if wanted is None:
            return PassedOwner(note="nothing names the number that it was compared with")
        finder, limits = self.records, case.facts.bounds[case.source]
        origin = case.facts.origin
        # Runs before that of now knew more than it: who sets back makes the state again from there on.
        known = 0 if origin is None or case.offset < case.low else origin.known_from
        begin = max(limits.start, known)

        async def passed(offset: int) -> bool | None:
            said = await finder.passed(case, offset) if offset >= case.low else None
            if said is None:
                other = await finder.case(
                    case.pipeline, RecordRef(case.source.topic, case.source.partition, offset)
                )
                said = await finder.standing(other) is not None
                if not said and await self._elsewhere(other) and not await self._was_dropped(other):
                    return None
            return said

        reader = finder.reader(case.pipeline)
        offset, looked = await reader.newest(finder.log, case.source, wanted, (begin, case.offset), passed)
        if offset is None and origin is not None and origin.backfill and case.offset >= case.low:
            return self._of_backfill(origin, limits, looked, begin)
        if offset is None:
            gone = "retention has removed it, or it is older" if looked <= begin else "it is older"
            return PassedOwner(note=f"not found from offset {looked} on: {gone}")
        return await self._shown(story, case, RecordRef(case.source.topic, case.source.partition, offset))

    @staticmethod
    def _of_backfill(origin: Origin, limits: Bounds, looked: int, begin: int) -> PassedOwner:
        """Say that no record since a state's beginning carried the number: the backfill has brought it."""
        if looked <= begin and limits.start <= origin.known_from:
            return PassedOwner(backfill=origin.backfill, note="it came before the stream began")
        since = f"backfill {origin.backfill} has brought it, or a record that is not retained any more"
        return PassedOwner(note=f"not found from offset {looked} on: {since}")

    @staticmethod
    def _wanted(outcome: Outcome, grounds: JudgedBy, pipeline: Pipeline) -> Carrier | None:
        late = outcome is Outcome.LATE
        number = grounds.watermark if late else grounds.sequence
        if number is not None:
            return Carrier(number, grounds.epoch, late, grounds.scope)
        reorder_window: int = getattr(pipeline.dedup, "reorder_window", 0)
        if grounds.sequence is None or reorder_window:
            return None
        # No receipt names the watermark: without a reorder window the last that passed carried it.
        return Carrier(grounds.sequence, grounds.epoch, late, grounds.scope, above=True)
