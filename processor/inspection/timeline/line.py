"""Tells what became of all records that were asked for, in the order of their timestamps.

The source says which records there are, one pass over it. What became of each is what `seqmark explain` says of
its position. Records that the source does not retain any more are told of by what the outputs still hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import EXIT_DONE, EXIT_FAILED, EXIT_VIOLATION, StopError
from processor.inspection.timeline.scan import SeenSources
from processor.kafka.topics.plan import Purpose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.explain.explainer import Explainer
    from processor.inspection.explain.story import Story
    from processor.inspection.timeline.held import HeldPartition
    from processor.inspection.timeline.scan import Sighting, Sightings
    from processor.wire.receipt_values import RecordRef


class ToldRecord(NamedTuple):
    """One record of the time line.

    Attributes:
        timestamp_ms: Its timestamp.
        story: What became of it.
    """

    timestamp_ms: int
    story: Story


@dataclass
class Timeline:
    """What became of the records that were asked for, of one pipeline.

    Attributes:
        pipeline: Its name.
        asked: What was asked for, for people.
        ambiguous: A word may have been a string or a number: both were looked for.
        events: In the order of their timestamps, the first ones and the last ones.
        left_out: How many records there are between the first and the last ones.
        seen: How many were seen, by topic.
        looked: How many records were looked at, by topic.
        since: Where the source begins, by partition: offset, and timestamp in ms where there is a record.
        bounded: Only a part of the topics was looked at, by time.
        state: What the state holds of it; None: it cannot be asked for that.
        notes: What could not be read.
    """

    pipeline: str
    asked: str
    ambiguous: bool = False
    events: list[ToldRecord] = field(default_factory=list)
    left_out: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    since: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    bounded: bool = False
    state: list[HeldPartition] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def since_ms(self) -> int | None:
        """The earliest timestamp with which a partition of the source was begun; None: it is empty."""
        return min((ms for _, ms in self.since.values() if ms is not None), default=None)

    @property
    def exit_code(self) -> int:
        """0 answered; 1 nothing that is retained has it, or some of it cannot be read; 3 a contradiction."""
        if any(event.story.exit_code == EXIT_VIOLATION for event in self.events):
            return EXIT_VIOLATION
        return EXIT_DONE if self.events and not self.notes else EXIT_FAILED


async def tell(
    line: Timeline,
    found: Sequence[Sightings],
    explainer: Explainer,
    most: int,
) -> None:
    """Fill a time line by what was seen; ``most`` of the first records are told of, and of the last."""
    for seen in found:
        topic = seen.tp.topic
        line.seen[topic] = line.seen.get(topic, 0) + seen.count
        line.looked[topic] = line.looked.get(topic, 0) + seen.records
        if seen.role is Purpose.SOURCE:
            line.since[seen.tp.partition] = seen.bounds.start, seen.since_ms
    told = sorted(_to_tell(found), key=lambda each: (each.timestamp_ms, each.ref))
    kept = told if len(told) <= 2 * most else [*told[:most], *told[-most:]]
    line.left_out = len(told) - len(kept) + sum(each.untold for each in found)
    known: set[RecordRef] = set()
    for each in kept:
        story = await _story(line, each.ref, explainer)
        if story is None:
            continue
        source = story.source or each.ref
        if source not in known:
            known.add(source)
            line.events.append(ToldRecord(each.timestamp_ms, story))
    await _tell_of_others(line, found, explainer)


async def _story(line: Timeline, ref: RecordRef, explainer: Explainer) -> Story | None:
    """Return what became of a record; None: it cannot be told, which is noted."""
    try:
        return await explainer.explain(ref, line.pipeline)
    except StopError as error:
        line.notes.append(f"{ref}: {error}")
        return None


async def _tell_of_others(line: Timeline, found: Sequence[Sightings], explainer: Explainer) -> None:
    """Tell of what stands in the clean topic and is the copy of no record that was told of: once too often."""
    known = {ref for event in line.events for ref in (event.story.clean, event.story.asked)}
    others = (
        seen for each in found if each.role is Purpose.SINK for seen in each.kept if seen.ref not in known
    )
    for each in others:
        story = await _story(line, each.ref, explainer)
        if story is None:
            continue
        if story.exit_code == EXIT_VIOLATION:
            line.events.append(ToldRecord(each.timestamp_ms, story))
    line.events.sort(key=lambda event: event.timestamp_ms)


def _to_tell(found: Sequence[Sightings]) -> Iterator[Sighting]:
    """Yield what there is to tell of: records of the source, and traces of those that it does not retain."""
    sources = SeenSources.of(found)
    traced: set[RecordRef] = set()
    for each in sources.by_number.values():
        yield from each.kept
    for each in found:
        if each.role in {Purpose.DUPLICATES, Purpose.QUARANTINE}:
            for seen in each.kept:
                if seen.source is not None and seen.source not in traced and sources.is_gone(seen):
                    traced.add(seen.source)
                    yield seen
    for each in found:
        if each.role is Purpose.SINK:
            yield from filter(sources.lacks, each.kept)
