"""Asks what has to be known of a partition before one of its records is explained.

How far it has been judged says the last position of its changelog, as `seqmark verify` has it: brokers forget a
group's offset once it has been away for a week. It is asked before where the outputs end, so that all that was
written of what is judged is below those ends. The origin says which part of the outputs belongs to the state of
now. It stands anywhere in a changelog, so it is looked for where it is cheap: at the end, at the beginning, and
where the state's id changes. Where it is not found, nothing is assumed of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import RebuildError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds, committed
from processor.kafka.topics.plan import changelog_topic, positions_topic, repartition_topic
from schemas.changelog.ids import ORIGIN_COPY_KEY
from schemas.changelog.position import Origin, Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.inspection.explain.lookup.log import LogReader
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from schemas.config import Pipeline, Settings

FRESH_S = 1.0
"""For so long answers are used again: who asks about many records does not ask the brokers each time."""
EMPTY_FRESH_S = 10.0
"""Likewise that a changelog has no position, as while a backfill is loaded: looking for one takes longest."""
TAIL_OFFSETS = (3, 16, 256, 4096, 65_536)
"""Offsets of a changelog's end that are read for its last position. Mostly the first will do: it stands right
before the end of its transaction. The last are for what was aborted behind it, of 65,000 scopes at most."""
SMALL_BYTES = 1024
"""Records that are smaller than that on average are worth reading so many of; blocks of ids are up to 1 MiB."""
HEAD_OFFSETS = 512
"""Offsets of a changelog that are read to find the origin, at its beginning: about 1 MiB at most."""
COPY_OFFSETS = 64
"""Offsets at its end that are read for a copy of the origin: blocks of ids are up to 1 MiB each."""
_STEPS = 64
NEVER = 2**63 - 1


@dataclass(frozen=True)
class SourceFacts:
    """What is known of one source partition at one moment.

    Attributes:
        position: The first offset that is not taken out of the source; None: nobody has begun, or in another
            topic by this name.
        bounds: Of the partitions that were asked for; those of topics that do not exist are left out.
        origin: Where the state begins; None: not known.
        since_ms: When the state was made; 0: not known.
        asked_s: When, by the monotonic clock.
        settled: No transaction was open in the outputs, nor in the changelog that says the position.
        last: The last position in the changelog, of the first hop where there are two; None: not known.
        other_source: The state is of another topic than the source is now.
    """

    position: int | None
    bounds: dict[TopicPartition, Bounds]
    origin: Origin | None
    since_ms: int
    asked_s: float
    settled: bool = True
    last: Position | None = None
    other_source: bool = False


class OutputEra(NamedTuple):
    """From which source offset on an output went to the topic of now.

    Attributes:
        maybe_from: What lies before it went to another topic.
        surely_from: What lies from it on went to the topic of now; `NEVER`: nothing yet.
        why: What has become of the other topic, as the end of a noun phrase.
    """

    maybe_from: int
    surely_from: int
    why: str


class StateFacts(NamedTuple):
    """What a partition of a changelog says of its state, as far as it is known.

    Attributes:
        origin: Where it begins.
        since_ms: When it was made; 0: not known.
        last: Its last position.
        settled: No transaction was open in it.
    """

    origin: Origin | None = None
    since_ms: int = 0
    last: Position | None = None
    settled: bool = True

    def is_other(self, topic: str, topic_id: bytes) -> bool:
        """Whether the state is of another topic than the one that has a name now."""
        return self.last is not None and self.last.topics.source.is_other(TopicId.of(topic, topic_id))


class FactFinder:
    """Asks for the facts of partitions, and keeps them for a second."""

    def __init__(self, client: Client, log: LogReader, settings: Settings) -> None:
        self._client = client
        self._log = log
        self._settings = settings
        self._known: dict[tuple[str, int], SourceFacts] = {}
        self._states: dict[TopicPartition, tuple[StateFacts, float]] = {}

    def forget(self) -> None:
        """Ask again next time."""
        self._known.clear()
        self._states.clear()

    async def of(self, pipeline: Pipeline, number: int) -> SourceFacts:
        """Return the facts of a source partition.

        Raises:
            RebuildError: The brokers do not answer.
        """
        known = self._known.get((pipeline.name, number))
        if known is not None and time.monotonic() - known.asked_s < FRESH_S:
            return known
        source = TopicPartition(pipeline.source, number)
        topic = changelog_topic(self._settings, pipeline)
        if pipeline.routed:
            topic = positions_topic(self._settings, pipeline.name)
        state = await self.state(topic, number)
        position, other = await self._position(state, source)
        found = await bounds(self._client, [source, *self.outputs(pipeline, number)])
        settled = state.settled and all(each.stable >= each.end for tp, each in found.items() if tp != source)
        if other:
            state = StateFacts()
        elif pipeline.routed:
            state = StateFacts(last=state.last)  # Where the second hop began, no first one says.
        facts = SourceFacts(
            position,
            found,
            state.origin,
            state.since_ms,
            time.monotonic(),
            settled,
            state.last,
            other,
        )
        self._known[pipeline.name, number] = facts
        return facts

    async def routed(self, pipeline: Pipeline, number: int) -> tuple[int | None, Bounds]:
        """Return how far a partition of the internal topic is judged, and its bounds."""
        tp = TopicPartition(repartition_topic(self._settings, pipeline), number)
        state = await self.state(changelog_topic(self._settings, pipeline), number)
        position, _ = await self._position(state, tp)
        return position, (await bounds(self._client, [tp]))[tp]

    async def _position(self, state: StateFacts, source: TopicPartition) -> tuple[int | None, bool]:
        """Return how far a partition is taken in, and whether its state is of another topic.

        Where no state says it, the group does.
        """
        source_id = self._client.ids.get(source.topic, UNKNOWN_ID)
        if state.last is not None:
            other = state.is_other(source.topic, source_id)
            return None if other else state.last.next_offset, other
        known = await committed(self._client, self._settings.worker.application_id, [source])
        return known.get(source), False

    def outputs(self, pipeline: Pipeline, number: int) -> Iterable[TopicPartition]:
        """Return the partitions in which there can be something of a source partition, as far as they exist."""
        alone = () if pipeline.writes_records else (pipeline.verdicts or "",)
        for topic in (*pipeline.outputs, *alone):
            there = self._client.partitions(topic)
            yield from (
                TopicPartition(topic, each) for each in sorted(there) if pipeline.routed or each == number
            )

    async def state(self, topic: str, number: int) -> StateFacts:
        """Return what a changelog says of a partition's state."""
        tp = TopicPartition(topic, number)
        known = self._states.get(tp)
        if known is not None:
            fresh_s = EMPTY_FRESH_S if known[0].last is None else FRESH_S
            if time.monotonic() - known[1] < fresh_s:
                return known[0]
        found, asked_s = StateFacts(), time.monotonic()
        if number in self._client.partitions(tp.topic):
            try:
                limits = (await bounds(self._client, [tp]))[tp]
                search = _OriginSearch(self._log, tp, limits, known[0] if known is not None else found)
                origin = await search.run()
                found = StateFacts(origin, search.since_ms, search.last, limits.stable >= limits.end)
            except (CorruptStateError, RebuildError):
                pass  # nothing is assumed of it
        self._states[tp] = found, asked_s
        return found


@dataclass
class _OriginSearch:
    """Looks for the origin of the state of now in a changelog."""

    log: LogReader
    tp: TopicPartition
    limits: Bounds
    known: StateFacts
    """What it said when it was read before: a state keeps its origin."""
    since_ms: int = 0
    """When the state was made, once it has run; 0: not known."""
    last: Position | None = None
    """Its last position, once it has run."""
    _after: int = 0
    """How far the last read has come."""
    _bytes: int = 0
    """How much it has read."""

    async def run(self) -> Origin | None:
        """Return it; None: it is not where it would be cheap to find."""
        start, stop = self.limits.start, self.limits.stable
        now: Position | None = None
        for count in TAIL_OFFSETS:
            _, now, origin = await self._read(max(start, stop - count), stop)
            self.last = now
            if origin is not None:
                self.since_ms = 0 if now is None else now.since_ms
                return origin
            if now is not None or stop - count <= start:
                break
            if count >= TAIL_OFFSETS[2] and self._bytes > SMALL_BYTES * count:
                break
        if now is None:
            return None
        self.since_ms = now.since_ms
        before = self.known
        if before.origin is not None and before.last is not None and before.last.state_id == now.state_id:
            return before.origin
        first, _, origin = await self._read(start, min(start + HEAD_OFFSETS, stop), until_position=True)
        if first is not None and first.state_id != now.state_id:
            return await self._between(start, stop, now.state_id)
        if origin is not None:
            return origin
        # Of a changelog whose beginning was deleted: it is repeated with each deletion.
        _, _, origin = await self._read(max(start, stop - COPY_OFFSETS), stop)
        return origin

    async def _between(self, low: int, high: int, state_id: bytes) -> Origin | None:
        """Return what stands where the first position with this state id is: between two offsets."""
        for _ in range(_STEPS):
            if high - low <= HEAD_OFFSETS:
                break
            middle = (low + high) // 2
            first, _, _ = await self._read(middle, high, until_position=True)
            if first is None or first.state_id == state_id:
                high = middle
            else:
                low = middle
        stop = min(low + 2 * HEAD_OFFSETS, self.limits.stable)
        while low < stop:
            first, _, origin = await self._read(low, stop, until_position=True)
            if first is None or first.state_id == state_id:
                return origin
            low = self._after
        return None

    async def _read(
        self, start: int, stop: int, *, until_position: bool = False
    ) -> tuple[Position | None, Position | None, Origin | None]:
        """Return the first position, the last one, and the last origin between two offsets.

        With ``until_position`` what stands up to the first position, with which a transaction ends.
        """
        first = last = None
        origin: Origin | None = None
        self._bytes = 0
        async for some in self.log.stretches(self.tp, start, stop):
            columns = some.columns
            self._bytes += columns.data.size
            for row in (columns.key_length == 1).nonzero()[0].tolist():
                if not start <= columns.offset[row] < stop:
                    continue
                [(key, value)] = columns.items(np.array([row]))
                if value is None:
                    continue
                if key == POSITION_KEY:
                    last = Position.decode(value)
                    first = first or last
                    if until_position:
                        self._after = int(columns.offset[row]) + 1
                        return first, last, origin
                elif key == ORIGIN_KEY:
                    origin, last = Origin.decode(value), None
                elif key == ORIGIN_COPY_KEY:
                    origin = origin or Origin.decode(value)
            self._after = some.stop
        return first, last, origin
