"""Frames a source offset between two marks: what became of it stands in the outputs between two places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import RebuildError, StopError
from processor.inspection.marks import Extent, MarkFrame, StoredMark, first_above, frames
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.topics.index import index_topic, route_index_topic
from processor.kafka.topics.plan import repartition_topic
from schemas.changelog.marks import MARK_KEY, IndexMark, MarkTags
from schemas.changelog.position import OutputEnds
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.log import LogReader
    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

MARK_BYTES = 4096
"""About 25 marks."""
LATE_MS = 5_000
"""By so much the clocks of two workers may differ: half of a commit's second, and what machines drift."""


@dataclass
class MarkLookup:
    """Frames source offsets by the marks of a pipeline.

    Attributes:
        client: Knows which topics there are.
        log: Reads them.
        settings: The config.
    """

    client: Client
    log: LogReader
    settings: Settings

    async def around(self, pipeline: Pipeline, number: int, offset: int) -> list[MarkFrame]:
        """Return the frames in which a source offset may have been taken in, of the newest state first.

        None are found where there are no marks, or they cannot be read. With ``route`` they are of the first
        hop, and say nothing of the clean topic.
        """
        topic = (route_index_topic if pipeline.routed else index_topic)(self.settings, pipeline)
        marks = self._marks(topic, number)
        if marks is None:
            return []
        try:
            found = await frames(marks, offset)
        except (StopError, RebuildError, CorruptStateError):
            return []
        tags = self._tags(pipeline, pipeline.source, number)
        said = (MarkFrame(each.since_ms, _told(each.before, tags), _told(each.after, tags)) for each in found)
        return [each for each in said if each.before is not None or each.after is not None]

    async def clean_before(self, pipeline: Pipeline, number: int, time_ms: int) -> int:
        """Return where a partition of a routed pipeline's clean topic ended at a time; 0: not known."""
        marks = self._marks(index_topic(self.settings, pipeline), number)
        if marks is None:
            return 0
        try:
            extent = await marks.extent()
            before, _ = await first_above(marks, extent, lambda mark: (mark.time_ms,), (time_ms - LATE_MS,))
        except (StopError, RebuildError, CorruptStateError):
            return 0
        told = _told(before, self._tags(pipeline, repartition_topic(self.settings, pipeline), number))
        return 0 if told is None else max(0, told.ends.sink)

    def _marks(self, topic: str, number: int) -> _IndexLog | None:
        if number not in self.client.partitions(topic):
            return None
        return _IndexLog(self.client, self.log, TopicPartition(topic, number))

    def _tags(self, pipeline: Pipeline, source: str, number: int) -> MarkTags:
        topics = source, pipeline.sink, pipeline.duplicates, pipeline.quarantine
        ids = (TopicId.of(topic, self.client.ids.get(topic or "", UNKNOWN_ID)) for topic in topics)
        return MarkTags(*(each.tag(number) for each in ids))


def _items(columns: Columns, first: int) -> list[tuple[bytes, bytes | None]]:
    return columns.items(np.arange(first, len(columns)))


def _told(mark: IndexMark | None, now: MarkTags) -> IndexMark | None:
    """Return a mark without what it says of topics that are others by now; None: all of it is."""
    if mark is None or mark.tags.source != now.source:
        return None
    same = (then == tag for then, tag in zip(mark.tags[1:], now[1:], strict=True))
    ends = (end if still else -1 for end, still in zip(mark.ends, same, strict=True))
    return replace(mark, ends=OutputEnds(*ends))


@dataclass(frozen=True)
class _IndexLog:
    """One partition of an index topic, for `processor.inspection.marks`."""

    client: Client
    log: LogReader
    tp: TopicPartition

    async def extent(self) -> Extent:
        found = (await bounds(self.client, [self.tp]))[self.tp]
        return Extent(found.start, found.stable)

    async def some_from(self, offset: int, stop: int) -> Sequence[StoredMark]:
        while offset < stop:
            found = await self.log.stretch(self.tp, offset, stop, MARK_BYTES)
            columns = found.columns
            first = int(columns.offset.searchsorted(offset))
            marks = [
                StoredMark(int(at), IndexMark.decode(value))
                for at, (key, value) in zip(columns.offset[first:], _items(columns, first), strict=True)
                if key == MARK_KEY and value is not None
            ]
            if marks:
                return marks
            offset = found.stop
        return []
