"""Traces a position in the clean, duplicates or quarantine topic back to its source record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from processor.inspection.explain.lookup.log import Missing, shown
from processor.inspection.explain.story import Outcome, Story
from processor.inspection.explain.twice import TwiceFinder
from processor.inspection.explain.verdict import patiently
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.topics.plan import Purpose
from processor.wire.quarantine import QuarantineNote
from processor.wire.receipt_values import ReceiptValue, RecordRef

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.ask import Question
    from processor.inspection.explain.lookup.clean import PassedForm
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import ShownRecord
    from processor.inspection.explain.verdict import VerdictFinder
    from processor.kafka.offsets import Bounds
    from schemas.config import Pipeline

_PLACES = {Purpose.SINK: "clean", Purpose.DUPLICATES: "receipt", Purpose.QUARANTINE: "quarantine"}


@dataclass
class Tracer:
    """Traces positions in outputs back.

    Attributes:
        verdicts: Tells the rest.
    """

    verdicts: VerdictFinder

    @property
    def records(self) -> RecordFinder:
        """Finds what there is of records."""
        return self.verdicts.records

    async def tell(self, question: Question) -> Story:
        """Return the story of the source record that a position in an output is about.

        Raises:
            StopError: Something cannot be read.
            RebuildError: The brokers do not answer.
        """

        async def look() -> tuple[Story, bool]:
            story = await self._tell(question)
            return story, not story.problems or await self._is_settled(question, story)

        return await patiently(look, self.records.facts.forget)

    async def _is_settled(self, question: Question, story: Story) -> bool:
        """Whether all that was written is to be seen, of the source partitions that were looked at."""
        pipeline = next(each for each in question.sharing if each.name == story.pipeline)
        numbers = self._sources(pipeline, question.ref.partition)
        if story.source is not None:
            numbers = [story.source.partition]
        return all([(await self.records.facts.of(pipeline, each)).settled for each in numbers])

    async def _tell(self, question: Question) -> Story:
        ref = question.ref
        tp = TopicPartition(ref.topic, ref.partition)
        limits = (await bounds(self.records.client, [tp]))[tp]
        story = Story(ref, question.role.value, question.pipeline.name, mode=question.pipeline.dedup.mode)
        story.wraps = question.pipeline.sequences_wrap
        record = await self._record(story, tp, limits)
        if record is None:
            return story
        if question.role is Purpose.SINK:
            return await self._from_sink(story, question, tp, record)
        return await self._from_entry(story, question, record)

    async def _record(self, story: Story, tp: TopicPartition, limits: Bounds) -> Columns | None:
        """Return the record; None: there is none, and the story says why."""
        offset = story.asked.offset
        if story.is_to_come(story.asked, limits):
            return None
        if offset < limits.start:
            story.outcome = Outcome.NOT_RETAINED
            await self.records.say_removed(story, tp, limits)
        else:
            found = await self.records.log.record(tp, offset, limits.stable)
            if not isinstance(found, Missing):
                return found
            story.outcome, story.why = Outcome.NO_RECORD, str(found)
        return None

    async def _from_entry(self, story: Story, question: Question, record: Columns) -> Story:
        """A receipt and a quarantined record name their source."""
        entry = ReceiptValue if question.role is Purpose.DUPLICATES else QuarantineNote
        said = entry.at(record, 0)
        if said is None:
            what = "receipt" if question.role is Purpose.DUPLICATES else "quarantined record"
            story.contradict(f"it is no {what} that a worker wrote")
            return story
        name = said.pipeline if isinstance(said, ReceiptValue) else None
        pipeline = next((each for each in question.sharing if _wrote(each, said.source.topic, name)), None)
        if pipeline is None:
            what = "a copy in quarantine of" if name is None else f"a receipt of pipeline {name}, of"
            story.outcome = Outcome.FOREIGN
            story.why = f"{what} {said.source}, and by this config no such pipeline writes there"
            return story
        if said.source.partition not in self.records.client.partitions(pipeline.source):
            story.contradict(f"it names {said.source}, and there is no such partition")
            return story
        story = replace(story, pipeline=pipeline.name)
        if await self._is_of_another_source(pipeline, said.source, record):
            story.outcome = Outcome.NOT_RETAINED
            story.why = f"it is about {said.source} of a source topic that has been replaced since"
            return story
        told, _ = await self.verdicts.once(story, pipeline, said.source)
        place = _PLACES[question.role]
        if getattr(told, place) != story.asked and not told.problems:
            if any(each.ref == story.asked for each in told.earlier) or await self._is_earlier(told, question):
                told.notes.append(_of_before(story.asked))
            else:
                told.contradict(f"{story.asked} is about {said.source}, of which that is not so")
        return told

    async def _is_of_another_source(self, pipeline: Pipeline, source: RecordRef, entry: Columns) -> bool:
        """Whether an entry is about a record of a topic that had the source's name before it."""
        case = await self.records.case(pipeline, source)
        if case.record is not None and int(case.record.timestamp[0]) == int(entry.timestamp[0]):
            return False
        if case.record is None and source.offset < case.facts.bounds[case.source].end:
            return False
        return case.facts.other_source or await self.records.eras.source_before(pipeline, source.partition)

    async def _is_earlier(self, told: Story, question: Question) -> bool:
        """Whether an entry is of a run before that of now."""
        assert told.source is not None  # noqa: S101 - it was traced back
        pipeline = next(each for each in question.sharing if each.name == told.pipeline)
        case = await self.records.case(pipeline, told.source)
        begin = case.begin(question.ref.topic)
        return begin is not None and question.ref.offset < begin

    async def _from_sink(self, story: Story, question: Question, tp: TopicPartition, record: Columns) -> Story:
        """A clean record is found in the source by its bytes: what passed keeps its order."""
        pipeline, found = question.pipeline, shown(tp, record)
        for number in self._sources(pipeline, tp.partition):
            source = await self._source_of(pipeline, tp, number, story, record)
            if source is not None:
                told, _ = await self.verdicts.once(story, pipeline, source)
                if told.clean != story.asked and not told.problems:
                    case = await self.records.case(pipeline, source)
                    if story.asked.offset < (case.begin(tp.topic) or 0):
                        told.notes.append(_of_before(story.asked))
                        if any(each.ref == story.asked for each in told.earlier):
                            return told
                    elif await TwiceFinder(self.records).passed(case, found):
                        there = f"; that of {source} is {told.clean}" if told.clean else ""
                        told.contradict(f"{story.asked} stands there once more than its record passed{there}")
                        return told
                    told.notes.append(
                        f"records of the same bytes passed; the one at {story.asked} may be another"
                    )
                return told
        renamed = await self._renamed(story, pipeline, tp, found)
        if renamed is not None:
            return renamed
        story.record = found
        story.clean = story.asked
        gone = await self._source_begins(pipeline, tp.partition)
        if gone:
            story.outcome, story.why = Outcome.NOT_RETAINED, gone
        else:
            story.contradict(f"no record of {pipeline.source} passes that has its bytes")
        return story

    async def _renamed(
        self, story: Story, pipeline: Pipeline, tp: TopicPartition, record: ShownRecord
    ) -> Story | None:
        """Return what became of the source record that got a new id on its way here; None: there is none."""
        dedup = pipeline.id_dedup
        if dedup is None or dedup.rename is None:
            return None
        for number in self._sources(pipeline, tp.partition):
            source = TopicPartition(pipeline.source, number)
            limits = (await bounds(self.records.client, [source]))[source]
            span = limits.start, limits.stable
            for offset in await self.records.clean.before_rename(source, record, span):
                again = Story(story.asked, story.role, story.pipeline)
                told, _ = await self.verdicts.once(again, pipeline, RecordRef(source.topic, number, offset))
                if told.clean == story.asked or await self._was_renamed(told, pipeline):
                    return told
        return None

    async def _was_renamed(self, told: Story, pipeline: Pipeline) -> bool:
        """Whether a run before that of now wrote what was asked for of a record that is judged again by now."""
        assert told.source is not None  # noqa: S101 - it was asked for by it
        case = await self.records.case(pipeline, told.source)
        receipt = await self.records.receipt(case) if case.is_judged else None
        if receipt is None or await self.records.place_before(case, receipt[1]) != told.asked:
            return False
        told.notes.append(_of_before(told.asked))
        return True

    def _sources(self, pipeline: Pipeline, partition: int) -> list[int]:
        there = sorted(self.records.client.partitions(pipeline.source))
        return there if pipeline.routed else [each for each in there if each == partition]

    async def _source_of(
        self, pipeline: Pipeline, tp: TopicPartition, number: int, story: Story, record: Columns
    ) -> RecordRef | None:
        records = self.records
        source = TopicPartition(pipeline.source, number)
        limits = (await bounds(records.client, [source]))[source]
        case = await records.case(pipeline, RecordRef(source.topic, number, limits.start))
        begin, span = case.begin(tp.topic), (max(case.low, limits.start), min(limits.stable, case.high))
        before = begin is None or story.asked.offset < begin
        if before:
            # A run before that of now may have taken in any record.
            span = limits.start, limits.stable

        async def formed(offset: int) -> PassedForm | Literal[False] | None:
            return await records.formed(case, offset) if case.low <= offset < case.high else None

        async def unknown(_: int) -> None:
            return None

        found = await records.clean.source_of(source, shown(tp, record), span, formed)
        if before and not found:
            # What the run of now has dropped one before it may have let pass.
            found = await records.clean.source_of(source, shown(tp, record), span, unknown)
        for offset in found:
            ref = RecordRef(source.topic, number, offset)
            if len(found) == 1:
                return ref
            other = await records.case(pipeline, ref)
            if await records.standing(other) == story.asked:
                return ref
        return RecordRef(source.topic, number, found[0]) if found else None

    async def _source_begins(self, pipeline: Pipeline, partition: int) -> str:
        """Return what is not retained any more of sources; empty: all that ever was in them is there."""
        said = []
        for number in self._sources(pipeline, partition):
            tp = TopicPartition(pipeline.source, number)
            limits = (await bounds(self.records.client, [tp]))[tp]
            case = await self.records.case(pipeline, RecordRef(tp.topic, number, limits.start))
            if case.facts.other_source or await self.records.eras.source_before(pipeline, number):
                said.append(f"the topic {tp.topic} has been replaced since")
            elif limits.start > 0:
                said.append(f"{tp.topic}:{tp.partition} begins at offset {limits.start} now")
            elif await self._is_compacted(tp, limits):
                said.append(f"compaction has removed records of {tp.topic}:{tp.partition}")
        return "; ".join(said)

    async def _is_compacted(self, tp: TopicPartition, limits: Bounds) -> bool:
        async for each in self.records.log.stretches(tp, limits.start, limits.stable):
            if each.has_gaps:
                return True
        return False


def _wrote(pipeline: Pipeline, source: str, name: str | None) -> bool:
    """Whether an entry about a topic is of a pipeline; ``name`` is that which the entry gives, if it does."""
    return pipeline.source == source and name in {None, pipeline.name}


def _of_before(ref: RecordRef) -> str:
    return f"{ref} is of a run before a reset; what follows is of the run of now"
