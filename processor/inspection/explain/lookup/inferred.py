"""Infers what a record without a receipt was dropped as: from the numbers that came before it in its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.inspection.explain.story import Outcome, RecordRef

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import JudgedBy, Story


async def infer(records: RecordFinder, story: Story, case: SourceCase, own: JudgedBy) -> None:
    """Fill in the story of a record that is not in the clean topic: without receipts it was dropped."""
    story.outcome, story.grounds = Outcome.DUPLICATE, own
    if own.sequence is not None:
        await _tell_late(records, story, case, own)
    none = f"there is no receipt: pipeline {case.pipeline.name} has no duplicates topic"
    if where := story.elsewhere.get("duplicates"):
        none = f"its receipt was in {where}"
    elif case.pipeline.duplicates is not None:
        none = "its receipt is not retained any more"
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
