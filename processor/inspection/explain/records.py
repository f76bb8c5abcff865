"""Finds what the topics hold of a source record: the record, its receipt, its copy in quarantine, its place."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from processor.errors import StopError
from processor.inspection.explain.case import SourceCase
from processor.inspection.explain.lookup.clean import AS_IT_CAME, Bracket, CleanLog, PassedForm, Sought
from processor.inspection.explain.lookup.eras import EraFinder, is_to_come
from processor.inspection.explain.lookup.evidence import EvidenceReader
from processor.inspection.explain.lookup.finder import EntryFinder, RunOf, entry_span
from processor.inspection.explain.lookup.log import Missing, shown
from processor.inspection.explain.lookup.marked import LATE_MS, MarkLookup
from processor.inspection.explain.lookup.verdict_lookup import VerdictLookup
from processor.inspection.explain.story import EarlierAnswer, JudgedBy, Outcome
from processor.inspection.read.sentences import time_text
from processor.kafka.client import TopicPartition
from processor.wire.quarantine import QuarantineIndex, QuarantineNote, own_quarantined
from processor.wire.receipt_values import ReceiptValue, RecordRef, own_receipts

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.facts import FactFinder
    from processor.inspection.explain.lookup.finder import Entry
    from processor.inspection.explain.lookup.log import LogReader
    from processor.inspection.explain.story import Story
    from processor.inspection.marks import MarkFrame
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.wire.quarantine import PlacedNote
    from schemas.config import Pipeline, Settings

_TOLD = {Outcome.DUPLICATE, Outcome.LATE, Outcome.COLLISION}
"""What receipts and notes say."""


@dataclass
class RecordFinder:
    """Finds what there is of source records; keeps what it has read for the next.

    Attributes:
        client: To the brokers.
        log: Reads records.
        facts: Asks for positions and bounds.
        settings: The config.
        marks: Says between which places of the outputs a record is.
        eras: Says which outputs have been replaced.
    """

    client: Client
    log: LogReader
    facts: FactFinder
    settings: Settings
    marks: MarkLookup = field(init=False)
    eras: EraFinder = field(init=False)
    clean: CleanLog = field(init=False)
    receipts: EntryFinder = field(init=False)
    copies: EntryFinder = field(init=False)
    said: VerdictLookup = field(init=False)
    _readers: dict[str, EvidenceReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.marks = MarkLookup(self.client, self.log, self.settings)
        self.eras = EraFinder(self.client, self.settings, self.facts, self.marks)
        self.clean = CleanLog(self.client, self.log)
        self.receipts, self.copies = EntryFinder(self.log), EntryFinder(self.log)
        self.said = VerdictLookup(self.client, self.log)

    def forget(self) -> None:
        """Forget what was read."""
        for each in (self.log, self.facts, self.receipts, self.copies, self.marks, self.eras):
            each.forget()

    async def case(self, pipeline: Pipeline, source: RecordRef) -> SourceCase:
        """Return what is known of a source record before anything of it is looked for.

        Raises:
            StopError: There is no such partition.
        """
        there = self.client.partitions(pipeline.source)
        if source.partition not in there:
            what = f"has partitions 0 to {len(there) - 1}" if there else "does not exist"
            raise StopError(f"{source}: the topic {pipeline.source} {what}")
        tp = TopicPartition(pipeline.source, source.partition)
        facts = await self.facts.of(pipeline, source.partition)
        limits = facts.bounds[tp]
        record = None
        if limits.start <= source.offset < limits.stable:
            found = await self.log.record(tp, source.offset, limits.stable)
            record = None if isinstance(found, Missing) else found
        places = self._places(pipeline, tp, record)
        eras = await self.eras.of(pipeline, source.partition, facts, places)
        return SourceCase(pipeline, tp, source.offset, facts, places, record, eras)

    def reader(self, pipeline: Pipeline) -> EvidenceReader:
        """Return what reads the evidence of a pipeline's records."""
        if pipeline.name not in self._readers:
            self._readers[pipeline.name] = EvidenceReader(pipeline)
        return self._readers[pipeline.name]

    def _places(self, pipeline: Pipeline, source: TopicPartition, record: Columns | None) -> tuple[int, ...]:
        if not pipeline.routed:
            return (source.partition,)
        count = len(self.client.partitions(pipeline.clean_topic))
        if record is None:
            return tuple(range(count))
        target = self.reader(pipeline).target(record, source.partition, count)
        return (target,) if target >= 0 else ()

    async def receipt(
        self, case: SourceCase, *, anywhere: bool = False
    ) -> tuple[RecordRef, ReceiptValue] | None:
        """Return the receipt or note of a record in the run of now, ``anywhere`` its last; None: none."""
        for tp, run in self.runs(case, case.pipeline.duplicates, case.places):
            span = None if anywhere else partial(self._span, case, tp, "duplicates")
            entry = await self.receipts.now(tp, case.facts.bounds[tp], run, case.offset, span)
            if entry is not None and (said := ReceiptValue.at(entry.columns, entry.row)) is not None:
                return RecordRef(tp.topic, tp.partition, entry.offset), said
        return None

    async def copy(self, case: SourceCase) -> tuple[RecordRef, QuarantineNote] | None:
        """Return the quarantined copy of a record in the run of now; None: it has none."""
        for tp, run in self.runs(case, case.pipeline.quarantine, self.aside(case)):
            span = partial(self._span, case, tp, "quarantine")
            entry = await self.copies.now(tp, case.facts.bounds[tp], run, case.offset, span)
            if entry is not None and (said := QuarantineNote.at(entry.columns, entry.row)) is not None:
                return RecordRef(tp.topic, tp.partition, entry.offset), said
        return None

    async def redriven(self, case: SourceCase, copy: RecordRef) -> PlacedNote | None:
        """Return the note that names a copy in quarantine as judged again; None: none does."""
        tp = TopicPartition(copy.topic, copy.partition)
        # A redrive writes its notes at the end, however far that is.
        stop = case.facts.bounds[tp].stable
        index = QuarantineIndex(case.source.topic, case.source.partition)
        async with aclosing(self.log.stretches(tp, copy.offset, stop)) as stretches:
            async for stretch in stretches:
                index.take_notes(stretch.columns)
        return next((each for each in index.notes if each.note.names(copy.offset)), None)

    async def passed(self, case: SourceCase, offset: int) -> bool | None:
        """Return whether the run of now let a record of the partition pass; None: nothing says it."""
        form = await self.formed(case, offset)
        return form if form is None else form is not False

    async def formed(self, case: SourceCase, offset: int) -> PassedForm | Literal[False] | None:
        """Return in which form the run of now let a record pass; False: it did not; None: nothing says it."""
        other = replace(case, offset=offset, record=None)
        if (receipt := await self.receipt(other)) is not None:
            said = receipt[1]
            return PassedForm.of(said.action, said.new_id, observed=said.observed) if said.passed else False
        if (copy := await self.copy(other)) is not None:
            again = copy[1].observed or await self.redriven(other, copy[0]) is not None
            return AS_IT_CAME if again else False
        return (
            None
            if case.pipeline.duplicates is None or other.elsewhere(case.pipeline.duplicates)
            else AS_IT_CAME
        )

    async def earlier(self, case: SourceCase, *, surely: bool) -> list[tuple[EarlierAnswer, Entry]]:
        """Return what runs before that of now say of a record, newest first.

        Args:
            case: Of the record.
            surely: Also where no marks say where they are, which takes reading it all once.
        """
        found: list[tuple[EarlierAnswer, Entry]] = []
        for topic, finder in (
            (case.pipeline.duplicates, self.receipts),
            (case.pipeline.quarantine, self.copies),
        ):
            for tp, run in self.runs(case, topic, case.places):
                kind = "duplicates" if finder is self.receipts else "quarantine"
                spans, limits = partial(self._spans_before, case, kind), case.facts.bounds[tp]
                for entry in await finder.before(tp, limits, run, case.offset, spans, surely=surely):
                    if not entry.is_about(case.record):
                        continue  # It is about a record of a source that was replaced.
                    said = ReceiptValue.at(entry.columns, entry.row) if finder is self.receipts else None
                    outcome = Outcome.QUARANTINED if said is None else Outcome(said.verdict)
                    found.append(
                        (EarlierAnswer(outcome, RecordRef(tp.topic, tp.partition, entry.offset)), entry)
                    )
        return found

    async def standing(self, case: SourceCase) -> RecordRef | None:
        """Return where a record stands in the clean topic that passed, now or before a reset; None: nowhere."""
        if case.record is None or case.offset >= case.high:
            return None
        if not case.pipeline.writes_records:
            return await self.said.clean(case)
        if case.is_judged:
            receipt = await self.receipt(case)
            return await self.place(case, None if receipt is None else self.edited(case, receipt[1]))
        entries = [entry for each, entry in await self.earlier(case, surely=True) if each.outcome in _TOLD]
        said = ReceiptValue.at(entries[0].columns, entries[0].row) if entries else None
        return await self.place_before(case, said)

    async def place_before(self, case: SourceCase, said: ReceiptValue | None) -> RecordRef | None:
        """Return the one of `places_before`; None: there is none, or nothing says which of several it is."""
        found = await self.places_before(case, said)
        return found[0] if len(found) == 1 else None

    async def places_before(self, case: SourceCase, said: ReceiptValue | None) -> list[RecordRef]:
        """Return where the newest copy of a record stands in the clean topic before the run of now.

        Where other records are equal to it, all of them.

        Args:
            case: Of the record.
            said: Its receipt or note of that time; None: it had none.
        """
        begin = case.begin(case.pipeline.clean_topic) if case.pipeline.writes_records else None
        if case.record is None or begin is None or (said is not None and not said.passed):
            return []
        sought = Sought(shown(case.source, case.record)) if said is None else self.edited(case, said)
        for number in case.places:
            tp = TopicPartition(case.pipeline.clean_topic, number)
            if tp in case.facts.bounds:
                span = case.facts.bounds[tp].start, min(begin, case.facts.bounds[tp].stable)
                if is_to_come(case.eras.get(tp.topic)):
                    # The run of now has written nothing there: all is of before.
                    span = span[0], case.facts.bounds[tp].stable
                found = await self.clean.matches(tp, sought, span)
                many = len(found) > 1 and len(await self.equals(case, sought)) > 1
                newest = found if many else found[-1:]
                if newest:
                    return [RecordRef(tp.topic, tp.partition, each) for each in newest]
        return []

    async def equals(self, case: SourceCase, sought: Sought) -> list[int]:
        """Return the source offsets of all records that are equal to a record, its own included, rising."""

        async def formed(_: int) -> None:
            return None

        # A run before that of now may have come further than it.
        span = case.facts.bounds[case.source].start, case.facts.bounds[case.source].stable
        return await self.clean.source_of(case.source, sought.record, span, formed)

    @staticmethod
    def edited(case: SourceCase, said: ReceiptValue) -> Sought:
        """Return what a record looks like in the clean topic by its receipt or note; the record is retained."""
        assert case.record is not None  # noqa: S101 - the caller looked
        form = PassedForm.of(said.action, said.new_id, observed=said.observed)
        return Sought(shown(case.source, case.record), form)

    async def place(self, case: SourceCase, sought: Sought | None = None) -> RecordRef | None:
        """Return where a record that the run of now let pass stands in the clean topic; None: nowhere."""
        if case.record is None:
            return None
        sought = sought or Sought.of(case.source, case.record, copied=not case.pipeline.routed)
        for number in case.places:
            tp = TopicPartition(case.pipeline.clean_topic, number)
            era = case.eras.get(tp.topic)
            if tp not in case.facts.bounds or (era is not None and case.offset < era.maybe_from):
                continue
            bracket = await self._marked(case, tp)
            at = await self.clean.find(tp, case.source, sought, bracket, partial(self.formed, case))
            if at is not None:
                return RecordRef(tp.topic, tp.partition, at)
        return None

    async def elsewhere(self, case: SourceCase, topic: str | None) -> str:
        """Return why what became of a record may be in another topic than that of now; empty: it is not."""
        if topic is None:
            return ""
        return case.elsewhere(topic) or await self.eras.mixed(case, topic)

    async def _span(self, case: SourceCase, tp: TopicPartition, kind: str) -> tuple[int, int | None] | None:
        """Return between which offsets of an output the entry of a record stands; None: that is not known."""
        frame = await self._frame(case)
        if not case.pipeline.routed:
            return entry_span(case, tp, kind, frame)
        if frame is None or frame.before is None or kind == "quarantine":
            return None  # Both hops write to a quarantine.
        ends = await self.marks.ends_before(case.pipeline, tp.partition, frame.before.time_ms)
        return None if ends.duplicates < 0 else (max(ends.duplicates, case.facts.bounds[tp].start), None)

    async def _spans_before(self, case: SourceCase, kind: str) -> list[tuple[int, int]]:
        """Return between which offsets of an output states before that of now wrote a record's entry.

        Nothing, where that is not known of each of them.
        """
        if case.pipeline.routed:
            return []  # Marks speak of what the first hop wrote.
        found = await self.marks.around(case.pipeline, case.source.partition, case.offset)
        spans = []
        for each in found:
            if self._is_now(case, each):
                continue
            if each.before is None or each.after is None:
                return []
            spans.append((getattr(each.before.ends, kind), getattr(each.after.ends, kind)))
        return spans if all(min(each) >= 0 for each in spans) else []

    async def _frame(self, case: SourceCase) -> MarkFrame | None:
        """Return the marks of the run of now around a record; None: there are none."""
        found = await self.marks.around(case.pipeline, case.source.partition, case.offset)
        return next((each for each in found if self._is_now(case, each)), None)

    @staticmethod
    def _wide(case: SourceCase, tp: TopicPartition) -> Bracket:
        """Return all of the run of now."""
        limits, era = case.facts.bounds[tp], case.eras.get(tp.topic)
        source = max(case.low, case.facts.bounds[case.source].start, 0 if era is None else era.maybe_from)
        begin = min(max(case.begin(tp.topic) or 0, limits.start), limits.stable)
        return Bracket(source, begin, limits.stable)

    async def _marked(self, case: SourceCase, tp: TopicPartition) -> Bracket:
        """Return what marks say of where a record's neighbours stand."""
        wide, frame = self._wide(case, tp), await self._frame(case)
        before, after = (None, None) if frame is None else (frame.before, frame.after)
        routed = case.pipeline.routed
        if before is not None:
            at = before.ends.sink
            if routed:
                at = (await self.marks.ends_before(case.pipeline, tp.partition, before.time_ms)).sink
            if routed or at >= 0:
                source_from, clean_from = max(wide.source_from, before.next_offset), max(wide.clean_from, at)
                wide = wide._replace(source_from=source_from, clean_from=clean_from)
        if routed or frame is None or after is None or after.since_ms != frame.since_ms or after.ends.sink < 0:
            return wide
        clean_to = min(wide.clean_to, after.ends.sink)
        return wide._replace(source_to=after.next_offset, clean_to=clean_to, tight=before is not None)

    async def framed(self, case: SourceCase, tp: TopicPartition) -> Bracket | None:
        """Return what marks of the run of now say, as `_marked`; None: there are none for the record."""
        return None if await self._frame(case) is None else await self._marked(case, tp)

    @staticmethod
    def _is_now(case: SourceCase, frame: MarkFrame) -> bool:
        """Whether a frame is of the run of now."""
        return case.facts.since_ms in {0, frame.since_ms}

    def is_retained(self, case: SourceCase, topic: str | None) -> bool:
        """Whether all is still there that was ever written to the partitions of an output."""
        tps = [TopicPartition(topic or "", number) for number in case.places]
        return all(tp in case.facts.bounds and case.facts.bounds[tp].start == 0 for tp in tps)

    def is_whole(self, case: SourceCase, topic: str | None, numbers: tuple[int, ...]) -> bool:
        """Whether all that the run of now has written to an output is still there; true without one."""
        if topic is None:
            return True
        tps = [TopicPartition(topic, number) for number in numbers]
        return all(
            tp in case.facts.bounds and case.facts.bounds[tp].start <= (case.begin(topic) or 0) for tp in tps
        )

    async def is_compacted(
        self, case: SourceCase, topic: str | None, numbers: tuple[int, ...] | None = None
    ) -> bool:
        """Whether compaction has removed records that the run of now has written to an output."""
        for number in case.places if numbers is None else numbers:
            tp = TopicPartition(topic or "", number)
            if (limits := case.facts.bounds.get(tp)) is None:
                continue
            at = max(limits.start, case.begin(topic) or 0)
            async for each in self.log.stretches(tp, at, limits.stable):
                if each.has_gaps or each.is_late(at):
                    return True
                at = each.stop
        return False

    async def judged_after_ms(self, case: SourceCase) -> int | None:
        """Return a time before the run of now judged a record, the latest known; None: none is known."""
        frame = await self._frame(case)
        before = 0 if frame is None or frame.before is None else frame.before.time_ms - LATE_MS
        return max(before, case.facts.since_ms) or None

    def aside(self, case: SourceCase) -> tuple[int, ...]:
        """Return the partitions of the quarantine that a copy can be in."""
        topic = case.pipeline.quarantine
        if not case.pipeline.routed or topic is None:
            return (case.source.partition,)
        count = max(1, len(self.client.partitions(topic)))
        return tuple(dict.fromkeys(each % count for each in (case.source.partition, *case.places)))

    def runs(
        self, case: SourceCase, topic: str | None, numbers: tuple[int, ...]
    ) -> list[tuple[TopicPartition, RunOf]]:
        """Return the partitions of an output to look in, and whose entries are wanted there."""
        if topic is None:
            return []
        if topic == case.pipeline.duplicates:
            own = own_receipts(case.pipeline.name, case.source.topic, case.source.partition)
        else:
            own = own_quarantined(case.source.topic, case.source.partition)
        run = RunOf(case.source, own, case.begin(topic))
        tps = (TopicPartition(topic, number) for number in numbers)
        return [(tp, run) for tp in tps if tp in case.facts.bounds]

    async def say_removed(self, story: Story, tp: TopicPartition, limits: Bounds) -> None:
        """Put into a story where a partition begins from which a record has been removed."""
        first = await self.log.first_time(tp, limits.start, limits.stable)
        since = "" if first is None else f", of {time_text(first)}"
        story.earliest = limits.start, first
        story.why = f"{tp.topic}:{tp.partition} begins at offset {limits.start} now{since}"

    @staticmethod
    def say_receipt(story: Story, said: ReceiptValue) -> None:
        """Put what a receipt says into a story."""
        story.outcome, story.grounds, story.observed = Outcome(said.verdict), JudgedBy.of(said), said.observed
        story.expires_ms = said.expires_ms

    def ground(self, story: Story, case: SourceCase) -> None:
        """Add what the record itself says of what it was judged by."""
        assert case.record is not None  # noqa: S101 - the caller looked
        own = self.reader(case.pipeline).of(case.record).grounds
        known = {name: value for name, value in vars(story.grounds).items() if value is not None}
        story.grounds = JudgedBy(**{**vars(own), **known})
