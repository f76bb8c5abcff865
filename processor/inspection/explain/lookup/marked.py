"""Frames a source offset between two marks: what became of it stands in the outputs between two places."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import RebuildError, StopError
from processor.inspection.marks import Extent, MarkFrame, Neighbours, StoredMark, first_above, frames
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.topics.index import index_topic, route_index_topic
from processor.kafka.topics.plan import repartition_topic
from schemas.changelog.marks import MARK_KEY, IndexMark, MarkTags
from schemas.changelog.position import OutputEnds
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.log import LogReader
    from processor.inspection.marks import Key
    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

MARK_BYTES = 4096
"""About 25 marks."""
LATE_MS = 5_000
"""By so much the clocks of two workers may differ: half of a commit's second, and what machines drift."""


FRESH_S = 1.0
"""For so long frames are used again: a reset makes others."""


class _RecentFrames(NamedTuple):
    """The frames of the source offset that was asked for last: one question asks several times."""

    offset: int
    found: list[MarkFrame]
    at_s: float

    def holds(self, offset: int) -> bool:
        return self.offset == offset and time.monotonic() - self.at_s < FRESH_S


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
    _recent: dict[TopicPartition, _RecentFrames] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget what was found."""
        self._recent.clear()

    async def around(self, pipeline: Pipeline, number: int, offset: int) -> list[MarkFrame]:
        """Return the frames in which a source offset may have been taken in, of the newest state first.

        None are found where there are no marks, or they cannot be read. With ``route`` they are of the first
        hop, and say nothing of the clean topic.
        """
        tags = self.tags(pipeline, number)
        said = (
            MarkFrame(each.since_ms, _told(each.before, tags), _told(each.after, tags))
            for each in await self.raw_around(pipeline, number, offset)
        )
        return [each for each in said if each.before is not None or each.after is not None]

    async def raw_around(self, pipeline: Pipeline, number: int, offset: int) -> list[MarkFrame]:
        """Return the frames as `around`, whichever topics they speak of."""
        topic = (route_index_topic if pipeline.routed else index_topic)(self.settings, pipeline)
        marks = self._marks(topic, number)
        if marks is None:
            return []
        known = self._recent.get(marks.tp)
        if known is not None and known.holds(offset):
            return known.found
        try:
            found = await frames(marks, offset)
        except (StopError, RebuildError, CorruptStateError):
            return []
        self._recent[marks.tp] = _RecentFrames(offset, found, time.monotonic())
        return found

    async def first_above(
        self, pipeline: Pipeline, number: int, key: Callable[[IndexMark], Key], above: Key
    ) -> Neighbours:
        """Return the first mark whose key is above another one, and the mark before it; not with ``route``."""
        return await self._first_above(index_topic(self.settings, pipeline), number, key, above)

    async def oldest(self, pipeline: Pipeline, number: int) -> IndexMark | None:
        """Return the oldest mark that is retained, with ``route`` of the second hop; None: there is none."""
        topic = index_topic(self.settings, pipeline)
        return (await self._first_above(topic, number, lambda _: (1,), (0,))).after

    async def _first_above(
        self, topic: str, number: int, key: Callable[[IndexMark], Key], above: Key
    ) -> Neighbours:
        marks = self._marks(topic, number)
        if marks is not None:
            with suppress(StopError, RebuildError, CorruptStateError):
                return await first_above(marks, await marks.extent(), key, above)
        return Neighbours(None, None)

    def tags(self, pipeline: Pipeline, number: int, *, second: bool = False) -> MarkTags:
        """Return those of the partitions that there are now; with ``route`` of the first hop, or the second."""
        source = repartition_topic(self.settings, pipeline) if second else pipeline.source
        return self._tags(pipeline, source, number)

    async def ends_before(self, pipeline: Pipeline, number: int, time_ms: int) -> OutputEnds:
        """Return where the outputs of a partition of a routed pipeline's second hop ended at a time."""
        topic = index_topic(self.settings, pipeline)
        found = await self._first_above(topic, number, lambda mark: (mark.time_ms,), (time_ms - LATE_MS,))
        told = _told(found.before, self.tags(pipeline, number, second=True))
        return OutputEnds() if told is None else told.ends

    def _marks(self, topic: str, number: int) -> _IndexLog | None:
        if number not in self.client.partitions(topic):
            return None
        return _IndexLog(self.client, self.log, TopicPartition(topic, number))

    def _tags(self, pipeline: Pipeline, source: str, number: int) -> MarkTags:
        sink = pipeline.sink if pipeline.writes_records else None
        topics = source, sink, pipeline.duplicates, pipeline.quarantine
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
