"""Finds out whether the clean topic holds a record more often than it passed.

What stands there is counted against the source's records of the same bytes that may have passed. Where that
cannot be known nothing is said: with `route`, `at_least_once` and `rename`, where the beginning of the run of
now or its marks are not known, and where retention or compaction may have removed one of those records. Nor
where it would take long: `seqmark verify` counts all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.inspection.explain.lookup.clean import COLLISION, MOST_ALIKE, NEAR, Bracket, Sought
from processor.kafka.client import TopicPartition

if TYPE_CHECKING:
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import ShownRecord

MOST_LOOKED = 2 * NEAR
"""Offsets that are read for a record that was dropped, at the most."""


@dataclass
class TwiceFinder:
    """Counts records of the same bytes.

    Attributes:
        records: Finds what there is of records.
    """

    records: RecordFinder

    async def dropped(self, case: SourceCase) -> int | None:
        """Return where the clean topic has a record that was dropped; None: nowhere, or it is not known.

        Raises:
            StopError: Something cannot be read.
        """
        frame = await self._frame(case)
        if frame is None or case.record is None:
            return None
        clean, source = self._clean(case), case.facts.bounds[case.source]
        whole = frame._replace(clean_to=case.facts.bounds[clean].stable, source_to=source.stable)
        frame = next((each for each in (whole, frame) if _is_short(each)), None)
        if frame is None:
            return None
        sought = Sought.of(case.source, case.record, copied=True)
        found = await self.records.clean.matches(clean, sought, (frame.clean_from, frame.clean_to))
        if not found or not await self._is_beyond(case, sought.record, frame, len(found)):
            return None
        return found[-1]

    async def passed(self, case: SourceCase, record: ShownRecord) -> bool:
        """Whether a record of the clean topic stands there once more than the source's records account for.

        Args:
            case: Of the source record that it seems to come from.
            record: As it stands in the clean topic.

        Raises:
            StopError: Something cannot be read.
        """
        frame, at = await self._frame(case), record.ref.offset
        begin = case.begin(case.pipeline.clean_topic)
        if frame is None or begin is None or not max(begin, frame.clean_from) <= at:
            return False
        count = len(
            await self.records.clean.matches(self._clean(case), Sought(record), (frame.clean_from, at + 1))
        )
        frame = frame._replace(source_to=case.facts.bounds[case.source].stable)
        return await self._is_beyond(case, record, frame, count)

    @staticmethod
    def _clean(case: SourceCase) -> TopicPartition:
        return TopicPartition(case.pipeline.clean_topic, case.source.partition)

    async def _frame(self, case: SourceCase) -> Bracket | None:
        """Return between which places to count; None: it would not be certain."""
        pipeline, guarantee = case.pipeline, self.records.settings.worker.guarantee
        clean, begin = self._clean(case), case.begin(pipeline.clean_topic)
        if pipeline.id_dedup is not None and pipeline.id_dedup.rename is not None:
            return None  # What got a new id may have come once more, as it stands in the clean topic.
        if pipeline.routed or pipeline.duplicates is None or guarantee != "exactly_once" or begin is None:
            return None
        if await self.records.elsewhere(case, pipeline.clean_topic):
            return None
        if clean not in case.facts.bounds or case.facts.bounds[clean].stable < begin:
            return None
        frame = await self.records.framed(case, clean)
        start = case.facts.bounds[case.source].start
        return None if frame is None or start > max(case.low, frame.source_from - 1) else frame

    async def _is_beyond(self, case: SourceCase, record: ShownRecord, frame: Bracket, count: int) -> bool:
        """Whether there are more copies than records between two places of the source that may have passed."""
        forms = [record.headers]
        if record.headers and record.headers[-1][0] == COLLISION:
            forms.append(record.headers[:-1])
        alike: set[int] = set()
        begin, end = frame.source_from, frame.source_to
        async for some in self.records.log.stretches(case.source, begin, end):
            if some.has_gaps:
                return False
            for headers in forms:
                rows = Sought(replace(record, headers=headers)).rows(some.columns, begin, end)
                alike |= {int(some.columns.offset[row]) for row in rows}
        if len(alike) > MOST_ALIKE:
            return False
        for each in sorted(alike):
            count -= await self.records.passed(case, each) is not False
        return count > 0


def _is_short(frame: Bracket) -> bool:
    """Whether looking at it takes a moment only."""
    if frame.source_to < 0:
        return False
    return max(frame.clean_to - frame.clean_from, frame.source_to - frame.source_from) <= MOST_LOOKED
