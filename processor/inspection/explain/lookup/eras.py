"""Tells from where on the topic of now is the one that a pipeline's output went to: before it was another.

A sink, a duplicates topic or a quarantine can be deleted and made anew, and the config can name another one. A
position says to which topics the state has written last, and marks say it of every second before
(`schemas.changelog.topic_ids`). Where an output began with the state then says nothing of the topic of now.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from processor.inspection.explain.lookup.facts import NEVER, OutputEra
from processor.kafka.topics.plan import changelog_topic
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.facts import FactFinder, SourceFacts
    from processor.inspection.explain.lookup.marked import MarkLookup
    from processor.inspection.marks import MarkFrame
    from processor.kafka.client import Client
    from schemas.changelog.marks import IndexMark
    from schemas.changelog.position import Position
    from schemas.config import Pipeline, Settings

KINDS = ("sink", "duplicates", "quarantine")
REPLACED = "that has been replaced since"
UNNAMED = "that the config does not name any more"
NOT_YET = "that the pipeline has got since"
"""It had none at all then."""
NAMES = {"sink": "clean", "duplicates": "duplicates", "quarantine": "quarantine"}
FRESH_S = 10.0


class PastState(NamedTuple):
    """A state before that of now, which a reset has ended.

    Attributes:
        taken_in: It has surely taken in the record that was asked for.
        elsewhere: By kind of output, what has become of the topic that it went to; none: it is that of now.
        source: Its source was another topic.
    """

    taken_in: bool
    elsewhere: Mapping[str, str]
    source: bool


def noun(kind: str, why: str) -> str:
    """Return how a topic is called that is not that of now."""
    return f"a {NAMES[kind]} topic {why}"


def is_to_come(era: OutputEra | None) -> bool:
    """Whether the pipeline has got an output since its last commit, and has written nothing to it yet."""
    return era is not None and (era.maybe_from, era.why) == (NEVER, NOT_YET)


@dataclass
class EraFinder:
    """Finds the eras of the outputs of source partitions; keeps them for a while.

    Attributes:
        client: Knows the ids of now.
        settings: The config.
        facts: Reads positions.
        marks: Reads marks.
    """

    client: Client
    settings: Settings
    facts: FactFinder
    marks: MarkLookup
    _known: dict[tuple[str, int, int, tuple[int, ...]], tuple[dict[str, OutputEra], float]] = field(
        default_factory=dict
    )

    def forget(self) -> None:
        """Look again next time."""
        self._known.clear()

    async def of(
        self, pipeline: Pipeline, number: int, facts: SourceFacts, places: tuple[int, ...]
    ) -> dict[str, OutputEra]:
        """Return by topic the eras of those outputs that have not always been what they are now.

        Args:
            pipeline: Whose.
            number: The source partition.
            facts: Of it; the run of now counts.
            places: The partitions of sink and duplicates.
        """
        key = pipeline.name, number, facts.since_ms, places
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[1] < FRESH_S:
            return known[0]
        found: dict[str, OutputEra] = {}
        lasts = [facts.last] if facts.last is not None else []
        if pipeline.routed:
            states = [await self.facts.state(changelog_topic(self.settings, pipeline), each) for each in places]
            lasts += [each.last for each in states if each.last is not None]
        for kind, topic in self._outputs(pipeline):
            # The first of two hops has an internal topic for a sink.
            of = lasts[1:] if pipeline.routed and kind != "quarantine" and facts.last is not None else lasts
            era = self._by_position(kind, topic, of)
            if era is None and not pipeline.routed:
                era = await self._by_marks(pipeline, number, facts, kind)
            if era is not None:
                found[topic] = era
        self._known[key] = found, time.monotonic()
        return found

    async def before(self, pipeline: Pipeline, number: int, facts: SourceFacts, offset: int) -> list[PastState]:
        """Return the states before that of now that may have taken in a source offset, the newest first."""
        tags = self.marks.tags(pipeline, number)
        found = []
        for frame in await self.marks.raw_around(pipeline, number, offset):
            mark = frame.before or frame.after
            if mark is None or frame.since_ms == facts.since_ms:
                continue
            elsewhere = {
                kind: REPLACED if getattr(mark.tags, kind) else NOT_YET
                for kind, _ in self._outputs(pipeline)
                if getattr(mark.tags, kind) != getattr(tags, kind)
            }
            found.append(PastState(self._has_taken_in(frame), elsewhere, mark.tags.source != tags.source))
        return found

    @staticmethod
    def _has_taken_in(frame: MarkFrame) -> bool:
        """Whether the record that a frame is around was surely taken in by its state.

        What lies before a state's first mark it may have begun behind: at a backfill's cut, or after a reset.
        """
        return frame.before is not None and frame.after is not None and frame.after.since_ms == frame.since_ms

    async def mixed(self, case: SourceCase, topic: str) -> str:
        """Return what marks beside a record say of another topic that its output may be in; empty: nothing.

        This is for topics that were changed more than once, and for ``route``, where the oldest mark counts.
        """
        kind = next(kind for kind, name in self._outputs(case.pipeline) if name == topic)
        number = case.source.partition
        beside: list[tuple[IndexMark | None, int]] = []
        if case.pipeline.routed:
            for each in case.places if kind != "quarantine" else ():
                tag = getattr(self.marks.tags(case.pipeline, each, second=True), kind)
                beside.append((await self.marks.oldest(case.pipeline, each), tag))
        else:
            tag = getattr(self.marks.tags(case.pipeline, number), kind)
            for frame in await self.marks.raw_around(case.pipeline, number, case.offset):
                if frame.since_ms == case.facts.since_ms:
                    beside += [(frame.before, tag), (frame.after, tag)]
        others = any(mark is not None and getattr(mark.tags, kind) != tag for mark, tag in beside)
        return UNNAMED if others else ""

    async def source_before(self, pipeline: Pipeline, number: int) -> bool:
        """Return whether marks speak of another source partition than that of now."""
        oldest = None if pipeline.routed else await self.marks.oldest(pipeline, number)
        return oldest is not None and oldest.tags.source != self.marks.tags(pipeline, number).source

    @staticmethod
    def _outputs(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
        for kind in KINDS:
            topic = getattr(pipeline, kind)
            if topic is not None and (kind != "sink" or pipeline.writes_records):
                yield kind, topic

    def _by_position(self, kind: str, topic: str, lasts: list[Position]) -> OutputEra | None:
        """Return the era of an output whose topic of now nothing was written to yet."""
        now = TopicId.of(topic, self.client.ids.get(topic, UNKNOWN_ID))
        for last in lasts:
            then: TopicId = getattr(last.topics, kind)
            if then.made_anew(now):
                return OutputEra(NEVER, NEVER, REPLACED)
            if then.name_crc != now.name_crc and any(each.name_crc for each in last.topics):
                return OutputEra(NEVER, NEVER, UNNAMED if then.name_crc else NOT_YET)
        return None

    async def _by_marks(
        self, pipeline: Pipeline, number: int, facts: SourceFacts, kind: str
    ) -> OutputEra | None:
        """Return the era of an output whose topic was changed while the state of now went on."""
        tag = getattr(self.marks.tags(pipeline, number), kind)

        def key(mark: IndexMark) -> tuple[int, int]:
            return mark.since_ms, int(getattr(mark.tags, kind) == tag)

        found = await self.marks.first_above(pipeline, number, key, (facts.since_ms, 0))
        last = found.before
        if last is None or last.since_ms != facts.since_ms or key(last)[1]:
            return None
        since = found.after
        surely = NEVER if since is None or since.since_ms != facts.since_ms else since.next_offset
        why = UNNAMED if getattr(last.tags, kind) else NOT_YET
        return OutputEra(last.next_offset, surely, why)
