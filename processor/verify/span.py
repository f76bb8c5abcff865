"""Finds from where to where a partition is compared.

The span begins where the pipeline's state begins: the origin in its changelog says so, for the source and each
output. Without an origin everything counts, from the beginning. It ends at the position beside the origin;
where that is not a position in this source, at what the group has committed, and without a group at the
source's last stable offset. A changelog without a position and empty outputs say that no worker has come to the
partition yet.

The position is read first and the outputs' ends after it, so that all that belongs to the first is below the
second.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.engine.ids.clock import NEVER
from processor.errors import RebuildError, StopError
from processor.judges.factory import mode_of
from processor.kafka.reader import ChangelogPartition
from processor.kafka.source_identity import check_same_source
from processor.state.changelog import ChangelogHead, read_brought, read_head
from processor.state.clock_history import ClockHistory
from processor.verify.report import VerifyReport
from processor.verify.unproved import KnownClock
from schemas.changelog.position import NO_TOPIC, Origin, Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId
from schemas.verdicts.record import begun_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.kafka.offsets import Bounds
    from processor.verify.streams import PartitionStreams
    from schemas.config import Pipeline

ATTEMPTS = 5
"""To read a changelog while a worker deletes from its front, at most once per second."""
NO_ORIGIN = Origin(0, 0, 0, 0)
"""Everything counts, from the beginning."""


@dataclass(frozen=True, slots=True)
class VerifySpan:
    """What is compared of one partition.

    Attributes:
        report: Nothing is found yet; says from which source offset on up to which.
        known_from: Where the state's knowledge begins: after a reset it remembers records before the span.
        committed: Whether the span ends at what is committed, not at the end of what is there.
        stable: The source's last stable offset.
        outputs: By topic: where to begin, and the log's bounds.
        receipts_begin_late: The duplicates topic was added after the origin.
        history: What is known of the partition's clock, in mode insert-id; None where no worker has said.
        brought: Key and value of the blocks of scopes that the state began with, in mode watermark.
        origin: Where the state begins.
        verdicts: Where to begin in the topic of verdicts, and its bounds; None: nothing is compared.
        verdicts_from: The first source offset that they have to speak of.
    """

    report: VerifyReport
    known_from: int
    committed: bool
    stable: int
    outputs: dict[str, tuple[int, Bounds]]
    receipts_begin_late: bool = False
    history: ClockHistory | None = None
    brought: Sequence[tuple[bytes, bytes]] = ()
    origin: Origin = NO_ORIGIN
    verdicts: tuple[int, Bounds] | None = None
    verdicts_from: int = 0

    @property
    def clock_known(self) -> KnownClock | None:
        """From where on the clock, and all that is remembered, is known; None: as far as is needed."""
        history = self.history
        if history is None or history.known_from is None:
            return None
        if history.known_from <= self.known_from and not _brought(history):
            return None
        return KnownClock(history.known_from, history.before_ms, history.backfill)


def _brought(history: ClockHistory) -> bool:
    """Whether the state began with ids that stand in no source."""
    return bool(history.backfill) and history.before_ms != NEVER


async def find_span(streams: PartitionStreams) -> VerifySpan:
    """Find out what to compare of one partition.

    Raises:
        StopError: What has to be compared is not retained any more.
    """
    pipeline = streams.pipeline
    offset = await streams.committed()
    state, history, brought = await _read_changelog(streams)
    limits = await streams.bounds(pipeline.source, *pipeline.outputs, *filter(None, (pipeline.verdicts,)))
    source, position = limits[pipeline.source], state.position
    nobody_yet = streams.changelog is not None and position is None and offset is None
    if nobody_yet and not await _any_record(streams, limits):
        # No worker has come to it yet: a partition that was added, a pipeline that is just starting.
        at = source.start
        report = VerifyReport(pipeline.name, streams.number, at, at, judged_from=at)
        nothing = {topic: (limits[topic].end, limits[topic]) for topic in pipeline.outputs}
        return VerifySpan(report, at, committed=False, stable=source.stable, outputs=nothing)
    state_id = b""
    if position is None or not await _is_of(streams, position, source):
        # The state is of another source, and so are its origin and its clock: here everything counts.
        origin, history, brought = None, None, []
        stop, known = _stop_of_group(pipeline, offset, source, has_state=position is not None)
    else:
        # Not the group's: brokers forget it when the group has been away for a week, at least once it may lag,
        # and it was not read together with the origin.
        origin, stop, known = state.origin, position.next_offset, True
        state_id = position.state_id
    span = _span(streams, limits, origin or NO_ORIGIN, stop, history, committed=known)
    span.report.state_id = state_id
    span.report.other_rules = position is not None and position.definition != mode_of(pipeline).definition()
    span.report.backfill = _backfill(origin, history)
    if brought and span.report.other_rules:
        raise StopError(
            f"{pipeline.source}:{streams.number}: the state began with backfill {span.report.backfill}, under "
            "another dedup definition than that of the config: set pipelines.dedup back"
        )
    if position is not None and origin is not None and pipeline.verdicts is not None:
        span = await with_verdicts(streams, span, position, limits[pipeline.verdicts])
    return replace(span, brought=brought)


async def with_verdicts(
    streams: PartitionStreams, span: VerifySpan, position: Position, limits: Bounds
) -> VerifySpan:
    """Return a span that says from where on verdicts are compared: from the last record on that begins.

    Raises:
        StopError: It is not retained any more.
    """
    topic = streams.pipeline.verdicts or ""
    now = TopicId.of(topic, streams.client.ids.get(topic, UNKNOWN_ID))
    known = position.verdicts
    if not known.name_crc or (not known.is_same(now) and limits.start == limits.end):
        # No commit has written any, or not into this topic: what stands there is of before.
        return replace(span, verdicts=(limits.end, limits), verdicts_from=span.report.stop)
    at, base = limits.start, None
    async with aclosing(streams.reader(topic).columns(limits.start, limits.stable)) as pieces:
        async for columns, _ in pieces:
            for row in range(len(columns)):
                start, size = int(columns.value[row]), max(0, int(columns.value_length[row]))
                begins = begun_at(columns.data[start : start + size].tobytes())
                if begins is not None:
                    at, base = int(columns.offset[row]), begins
    if base is None and limits.start > 0:
        raise StopError(
            f"{topic}:{streams.number} begins at offset {limits.start}: the verdict record with which the "
            "ranges began is no longer retained, so that nothing can be proved of them"
        )
    begin = span.report.start if base is None else max(span.report.start, base)
    return replace(span, verdicts=(at, limits), verdicts_from=begin)


def _backfill(origin: Origin | None, history: ClockHistory | None) -> str:
    """Return the name of the backfill that a state began with; of ids every state says it, too."""
    if history is not None and history.backfill:
        return history.backfill
    return "" if origin is None else origin.backfill


def _span(
    streams: PartitionStreams,
    limits: Mapping[str, Bounds],
    origin: Origin,
    stop: int,
    history: ClockHistory | None,
    *,
    committed: bool,
) -> VerifySpan:
    """Return the span from ``origin`` to ``stop``, if all of it can be compared."""
    pipeline, number = streams.pipeline, streams.number
    source, start, known_from = limits[pipeline.source], origin.source_offset, origin.known_from
    if stop > source.end:
        raise StopError(
            f"{pipeline.source}:{number} ends at {source.end}, but {stop} has been committed: the topic was "
            "deleted and made anew, or has lost records"
        )
    if pipeline.writes_records and origin.sink_offset == NO_TOPIC:
        raise StopError(
            f'{pipeline.source}:{number}: its state began with output "verdicts": nothing says from where on '
            f'{pipeline.sink} holds what passed. Prove it with output = "verdicts", or reset the pipeline to '
            "where it stands: what is written from there on can be proved"
        )
    late = pipeline.duplicates is not None and origin.duplicates_offset == NO_TOPIC
    if stop > start:
        _require_secret(streams, history)
    if stop > known_from or history is not None:
        _require_clock(streams, known_from, history, receipts_late=late)
    begins = _output_starts(pipeline, origin)
    for topic, first in {pipeline.source: min(known_from, stop), **begins}.items():
        if limits[topic].start > first:
            raise StopError(
                f"{topic}:{number} begins at offset {limits[topic].start}: what was there from offset {first} "
                "on is no longer retained, so that nothing can be proved of it"
            )
    report = VerifyReport(pipeline.name, number, start, max(start, stop), judged_from=start)
    report.unjudged = max(0, known_from - source.start)
    report.reset_ms = origin.reset_ms if origin.by_reset else None
    outputs = {topic: (first, limits[topic]) for topic, first in begins.items()}
    return VerifySpan(report, known_from, committed, source.stable, outputs, late, history, origin=origin)


def _stop_of_group(
    pipeline: Pipeline, offset: int | None, source: Bounds, *, has_state: bool
) -> tuple[int, bool]:
    """Return where to stop where no state says so, and whether the group may be followed from there on."""
    if offset is None:
        return source.stable, False
    # With ids and a state of another source, what follows would be judged by a clock of which nothing is known.
    return offset, pipeline.id_dedup is None or not has_state


async def _read_changelog(
    streams: PartitionStreams,
) -> tuple[ChangelogHead, ClockHistory | None, list[tuple[bytes, bytes]]]:
    """Return what a changelog says: its head, the clock, and what a backfill has brought of scopes.

    No history: there is no changelog, or this mode has no clock.
    """
    dedup = streams.pipeline.id_dedup
    if streams.changelog is None:
        return ChangelogHead(), None, []
    log = ChangelogPartition(streams.client, streams.decoders[0], streams.changelog, streams.number)
    for attempt in range(1, ATTEMPTS + 1):
        there = await log.bounds()
        try:
            head = await read_head(log, there.start, there.stable)
            if dedup is None:
                begun = head.origin is not None and head.origin.backfill
                return head, None, await read_brought(log, there.start, there.stable) if begun else []
            history = ClockHistory(log, there.start, arrival=dedup.time == "arrival")
            await history.read(there.stable)
        except RebuildError:
            if attempt == ATTEMPTS or (await log.bounds()).start == there.start:
                raise
        else:
            return head, history, []
    raise AssertionError("the last attempt has returned or raised")


def _require_clock(
    streams: PartitionStreams, known_from: int, history: ClockHistory | None, *, receipts_late: bool
) -> None:
    """Look whether the partition's clock is known from where the state begins, or receipts can help.

    Raises:
        StopError: Neither, and timestamps alone do not say it.
    """
    pipeline, name = streams.pipeline, f"{streams.pipeline.source}:{streams.number}"
    dedup = pipeline.id_dedup
    if dedup is None:
        return
    if history is None:
        if dedup.time == "arrival":
            raise StopError(f"{name}: nothing says when its records arrived: there is no changelog of them")
        return
    reason = ""
    if pipeline.duplicates is None:
        reason = "there are no receipts to go by: the pipeline has no duplicates topic"
    elif receipts_late:
        reason = "there are no receipts of before the duplicates topic was added"
    elif dedup.refresh:
        reason = "with refresh ids may still be remembered from then"
    elif dedup.fingerprint is not None:
        reason = "receipts do not say with which content ids are remembered from then"
    if reason and history.known_from is not None and history.known_from <= known_from and _brought(history):
        raise StopError(
            f"{name}: the state began with backfill {history.backfill}, which the source does not hold; and "
            f"{reason}. So nothing can be proved"
        )
    if reason and history.known_from is not None and history.known_from > known_from:
        raise StopError(
            f"{name}: what the partition's clock read before source offset {history.known_from} is no "
            "longer known: a worker's clock mattered there, and what the changelog said of it was deleted "
            f"with the ids that have expired; and {reason}. So nothing can be proved"
        )


def _require_secret(streams: PartitionStreams, history: ClockHistory | None) -> None:
    """Look whether what new ids are made with is known.

    Raises:
        StopError: It is needed, and nothing says it.
    """
    dedup = streams.pipeline.id_dedup
    if dedup is None or dedup.rename is None or (history is not None and history.secret is not None):
        return
    raise StopError(
        f"{streams.pipeline.source}:{streams.number}: nothing says by which secret the new ids of records that "
        "collide were made: there is no changelog of it. So nothing can be proved"
    )


async def _any_record(streams: PartitionStreams, limits: Mapping[str, Bounds]) -> bool:
    """Whether there is a committed record in an output: it has to be explained, whoever wrote it."""
    for topic in streams.pipeline.outputs:
        records = streams.reader(topic).columns(limits[topic].start, limits[topic].stable)
        async with aclosing(records) as pieces:
            async for columns, _ in pieces:
                if len(streams.own(topic, columns)):
                    return True
    return False


async def _is_of(streams: PartitionStreams, position: Position, limits: Bounds) -> bool:
    """Whether a position was made from this source: not from one before it, nor from another of before."""
    topic = streams.source.topic
    if position.topics.source.is_other(TopicId.of(topic, streams.client.ids.get(topic, UNKNOWN_ID))):
        return False
    compacted = streams.compacted
    try:
        await check_same_source(streams.client, streams.source, position, limits, compacted=compacted)
    except StopError:
        return False
    return True


def _output_starts(pipeline: Pipeline, origin: Origin) -> dict[str, int]:
    sink = pipeline.sink if pipeline.writes_records else None
    starts = {
        sink: max(0, origin.sink_offset),
        pipeline.duplicates: max(0, origin.duplicates_offset),
        pipeline.quarantine: max(0, origin.quarantine_offset),
    }
    return {topic: start for topic, start in starts.items() if topic is not None}
