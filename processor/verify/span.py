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

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.judges.definition import definition
from processor.kafka.changelog import ChangelogPartition
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds, committed
from processor.kafka.source_identity import check_same_source
from processor.state.changelog_head import ChangelogHead, read_head
from processor.state.clock_history import ClockHistory
from processor.verify.shared_topics import without
from processor.verify.streams import PATIENCE_S, reader
from schemas.changelog.position import NO_TOPIC, Origin, Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.verify.shared_topics import Others
    from processor.wire.decode import Decoder
    from schemas.config import Pipeline

POLL_S = 0.1
ATTEMPTS = 5
"""To read a changelog while a worker deletes from its front, at most once per second."""


@dataclass(frozen=True, slots=True)
class VerifySpan:
    """What is compared of one partition.

    Attributes:
        start: The first source offset.
        known_from: Where the state's knowledge begins: after a reset it remembers records before ``start``.
        stop: The committed source offset; the last stable one where nothing is known of one.
        committed: Whether it is a committed one.
        stable: The source's last stable offset.
        outputs: By topic: where to begin, and the log's bounds.
        receipts_begin_late: The duplicates topic was added after the origin.
        other_rules: The state was written under another definition than the config's.
        history: What is known of the partition's clock, in mode insert-id; None where no worker has said.
        unjudged: So many source offsets in front of what the state knows are retained: nobody has judged them.
        reset_ms: When the reset was that the state begins at, 0: not known; None: it begins at no reset.
    """

    start: int
    known_from: int
    stop: int
    committed: bool
    stable: int
    outputs: dict[str, tuple[int, Bounds]]
    receipts_begin_late: bool = False
    other_rules: bool = False
    history: ClockHistory | None = None
    unjudged: int = 0
    reset_ms: int | None = None

    @property
    def clock_known(self) -> tuple[int, int] | None:
        """From which source offset on the clock is known, and what it read there; None: as far as is needed."""
        history = self.history
        if history is None or history.known_from is None or history.known_from <= self.known_from:
            return None
        return history.known_from, history.before_ms


async def find_span(
    client: Client,
    decoder: Decoder,
    pipeline: Pipeline,
    partition: int,
    group: str,
    changelog: str | None,
    shared: Mapping[str, Others],
) -> VerifySpan:
    """Find out what to compare of one partition; nobody else may use the decoder meanwhile.

    ``changelog`` is None where there is none; ``shared`` is that of `processor.verify.shared_topics.others`.

    Raises:
        StopError: What has to be compared is not retained any more.
    """
    source = TopicPartition(pipeline.source, partition)
    offset = await committed_offset(client, group, source)
    state, history = ChangelogHead(), None
    if changelog is not None:
        log = ChangelogPartition(client, decoder, changelog, partition)
        state, history = await _read_changelog(log, pipeline)
    outputs = {topic: TopicPartition(topic, partition) for topic in pipeline.outputs}
    found = await bounds(client, [source, *outputs.values()])
    limits = found[source]
    if (
        changelog is not None
        and state.position is None
        and offset is None
        and not await _any_record(client, decoder, outputs.values(), found, shared)
    ):
        # No worker has come to it yet: a partition that was added, a pipeline that is just starting.
        nothing = {topic: (found[tp].end, found[tp]) for topic, tp in outputs.items()}
        at = limits.start
        return VerifySpan(at, at, at, committed=False, stable=limits.stable, outputs=nothing)
    position = state.position
    if position is None or not await _is_of(client, source, position, limits):
        # The state is of another source, and so are its origin and its clock: here everything counts.
        origin = history = None
        stop, known = _stop_of_group(pipeline, offset, limits, has_state=position is not None)
    else:
        # Not the group's: brokers forget it when the group has been away for a week, at least once it may lag,
        # and it was not read together with the origin.
        origin, stop, known = state.origin, position.next_offset, True
    if stop > limits.end:
        raise StopError(
            f"{pipeline.source}:{partition} ends at {limits.end}, but {stop} has been committed: the topic was "
            "deleted and made anew, or has lost records"
        )
    start, known_from = (0, 0) if origin is None else (origin.source_offset, origin.known_from)
    late = origin is not None and pipeline.duplicates is not None and origin.duplicates_offset == NO_TOPIC
    if stop > known_from or history is not None:
        history = _require_clock(pipeline, partition, known_from, history, receipts_late=late)
    begins = {
        topic: (start, found[outputs[topic]]) for topic, start in _output_starts(pipeline, origin).items()
    }
    _require(pipeline.source, partition, min(known_from, stop), limits)
    for topic, each in begins.items():
        _require(topic, partition, *each)
    return VerifySpan(
        start,
        known_from,
        max(start, stop),
        known,
        limits.stable,
        begins,
        late,
        position is not None and position.definition != definition(pipeline),
        history,
        0 if origin is None else max(0, known_from - limits.start),
        origin.reset_ms if origin is not None and origin.by_reset else None,
    )


def _stop_of_group(
    pipeline: Pipeline, offset: int | None, limits: Bounds, *, has_state: bool
) -> tuple[int, bool]:
    """Return where to stop where no state says so, and whether the group may be followed from there on."""
    if offset is None:
        return limits.stable, False
    # With ids and a state of another source, what follows would be judged by a clock of which nothing is known.
    return offset, pipeline.id_dedup is None or not has_state


async def _read_changelog(
    log: ChangelogPartition, pipeline: Pipeline
) -> tuple[ChangelogHead, ClockHistory | None]:
    """Return what a changelog says; None: this mode has no clock."""
    dedup = pipeline.id_dedup
    for attempt in range(1, ATTEMPTS + 1):
        there = await log.bounds()
        try:
            head = await read_head(log, there.start, there.stable)
            if dedup is None:
                return head, None
            history = ClockHistory(log, there.start, arrival=dedup.time == "arrival")
            await history.read(there.stable)
        except RebuildError:
            if attempt == ATTEMPTS or (await log.bounds()).start == there.start:
                raise
        else:
            return head, history
    raise AssertionError("the last attempt has returned or raised")


def _require_clock(
    pipeline: Pipeline,
    partition: int,
    known_from: int,
    history: ClockHistory | None,
    *,
    receipts_late: bool,
) -> ClockHistory | None:
    """Look whether the partition's clock is known from where the state begins, or receipts can help.

    Raises:
        StopError: Neither, and timestamps alone do not say it.
    """
    dedup = pipeline.id_dedup
    if dedup is None:
        return None
    name = f"{pipeline.source}:{partition}"
    if history is None:
        if dedup.time == "arrival":
            raise StopError(f"{name}: nothing says when its records arrived: there is no changelog of them")
        return None
    if history.known_from is not None and history.known_from > known_from:
        reason = ""
        if pipeline.duplicates is None:
            reason = "there are no receipts to go by: the pipeline has no duplicates topic"
        elif receipts_late:
            reason = "there are no receipts of before the duplicates topic was added"
        elif dedup.refresh:
            reason = "with refresh ids may still be remembered from then"
        if reason:
            raise StopError(
                f"{name}: what the partition's clock read before source offset {history.known_from} is no "
                "longer known: a worker's clock mattered there, and what the changelog said of it was deleted "
                f"with the ids that have expired; and {reason}. So nothing can be proved"
            )
    return history


async def _any_record(
    client: Client,
    decoder: Decoder,
    outputs: Iterable[TopicPartition],
    limits: Mapping[TopicPartition, Bounds],
    shared: Mapping[str, Others],
) -> bool:
    """Whether there is a committed record in one of ``outputs``: it has to be explained, whoever wrote it."""
    for tp in outputs:
        async with aclosing(reader(client, decoder, tp).columns(limits[tp].start, limits[tp].stable)) as pieces:
            async for columns, _ in pieces:
                theirs = shared.get(tp.topic)
                if len(columns if theirs is None else without(columns, theirs)):
                    return True
    return False


async def _is_of(client: Client, source: TopicPartition, position: Position, limits: Bounds) -> bool:
    """Whether a position was made from this source: not from one before it, nor from another of before."""
    if position.topics.source.is_other(TopicId.of(source.topic, client.ids.get(source.topic, UNKNOWN_ID))):
        return False
    try:
        await check_same_source(client, source, position, limits, compacted=False)
    except StopError:
        return False
    return True


def _output_starts(pipeline: Pipeline, origin: Origin | None) -> dict[str, int]:
    if origin is None:
        origin = Origin(0, 0, 0, 0)
    starts = {pipeline.sink: origin.sink_offset}
    if pipeline.duplicates is not None:
        starts[pipeline.duplicates] = max(0, origin.duplicates_offset)
    if pipeline.quarantine is not None:
        starts[pipeline.quarantine] = max(0, origin.quarantine_offset)
    return starts


def _require(topic: str, partition: int, start: int, limits: Bounds) -> None:
    if limits.start > start:
        raise StopError(
            f"{topic}:{partition} begins at offset {limits.start}: what was there from offset {start} on is no "
            "longer retained, so that nothing can be proved of it"
        )


async def committed_offset(client: Client, group: str, source: TopicPartition) -> int | None:
    """Return what the group has committed; None where nothing."""
    return (await committed(client, group, [source])).get(source)


async def moved_on(client: Client, group: str, source: TopicPartition, beyond: int) -> int | None:
    """Wait until the group has committed more than ``beyond``; None where it does not within seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        offset = await committed_offset(client, group, source)
        if offset is not None and offset > beyond:
            return offset
        if time.monotonic() >= deadline:
            return None
        await asyncio.sleep(POLL_S)
