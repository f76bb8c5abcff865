"""How is a stopped pipeline set to another place, together with its state, or not at all?

The order is a worker's, so that it is safe against one:

    stopped   nobody in the group reads the source; asked again before each commit, and in it
    fence     the transactional ids of the slots: a zombie of theirs can write no more
    known     position and origin, from the changelog once no transaction is open on it
    decide    what becomes of each partition; all of them may be reset, or nothing is
    state     in memory: kept or recomputed from the source, or empty
    commit    one transaction a slot: origin, the whole state, position, and the group's offset

The state's id is new, so every local copy of the old state is thrown away when a worker next meets it. A
process that ends before a slot's commit has changed nothing of that slot.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError, reset_command
from processor.judges.definition import definition
from processor.judges.exact import ExactIds
from processor.judges.factory import make_reset_judge, renewals_said
from processor.kafka.changelog import ChangelogPartition
from processor.kafka.client import Client, KafkaError, TopicPartition, check_aiokafka
from processor.kafka.group.readers import readers
from processor.kafka.offsets import bounds, committed, offsets_at
from processor.kafka.options import client_options
from processor.kafka.origin import origin_at
from processor.kafka.source_identity import check_same_source
from processor.kafka.topics.ensure import ensure, is_compacted, look
from processor.kafka.transactions.coordinator import TransactionTimeoutError
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.kafka.transactions.producer import Producer, transactional_id
from processor.ops.fault_points import CommitStep as FaultStep
from processor.ops.fault_points import reached
from processor.pipeline.hop_kinds import topics_for
from processor.pipeline.hops import Hop
from processor.pipeline.ports import new_position
from processor.reset.decide import (
    PartitionFacts,
    PartitionStep,
    ResetState,
    ToTime,
    begin,
    decide,
    touched,
    wanted,
)
from processor.reset.records import replayed_source, too_large, window_end_ms
from processor.reset.replay import Replay, Replayed
from processor.state.belonging import SEE, require_own
from processor.state.changelog_head import ChangelogHead, read_head
from processor.state.clock_history import ClockHistory
from processor.state.kv.memory import MemoryStore
from processor.state.restore import restore, settled
from processor.state.table import Table
from processor.wire.decode import Decoder
from processor.wire.encode import Encoder, plain_batch
from schemas.changelog.position import NO_BATCH
from schemas.changelog.values import ORIGIN_KEY, POSITION_KEY
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

    from processor.judges.judge import Judge
    from processor.kafka.offsets import Bounds
    from processor.kafka.topics.plan import ClusterView
    from processor.pipeline.ports import Topics
    from processor.reset.decide import Target
    from schemas.changelog.position import Origin, Position
    from schemas.config import Pipeline, Settings

TIMEOUT_MS = 900_000
"""A transaction holds the whole state, which may be gigabytes: as long as brokers allow by default
(transaction.max.timeout.ms), and the worker's own time-out where one allows less."""
DEADLINE_S = 60.0
"""For each request, and for each 8 MiB of state."""


@dataclass(frozen=True, slots=True)
class ResetResult:
    """What was done to one partition."""

    step: PartitionStep
    replayed: Replayed


@dataclass(frozen=True, slots=True)
class _Made:
    """What a partition's changelog gets."""

    judge: Judge
    position: Position
    done: ResetResult


class Reset:
    """One pipeline, made ready to be reset; made by `opened`.

    Args:
        settings: Of the pipeline alone; its topics exist and are right.
        client: Connections to all its topics.
        view: Those topics.
    """

    def __init__(self, settings: Settings, client: Client, view: ClusterView) -> None:
        (self._config,) = settings.pipelines
        self._settings = settings
        self._worker = settings.worker
        self._client = client
        self._view = view
        self._topics: Topics = topics_for(settings, Hop(self._config), view)
        self._decoder = Decoder()
        self._definition = definition(self._config)
        self._producers: dict[int, Producer] = {}
        self._positions: dict[int, Position | None] = {}
        self._least_ms: dict[int, int] = {}

    async def plan(self, target: Target, *, forget: bool, fence: bool) -> list[PartitionStep]:
        """Say what is to be done, by partition; with ``fence`` nobody else can write from now on.

        Raises:
            StopError: The pipeline is not stopped, or a partition cannot be reset; names every one.
            ConfigError: There is no such partition.
            RebuildError: The broker does not answer.
        """
        await self._require_stopped()
        topic = self._topics.source
        sources = [TopicPartition(topic, number) for number in range(self._view[topic].partitions)]
        limits = await bounds(self._client, sources)
        to = await self._wanted(target, limits)
        if fence:
            for slot in sorted({number % self._worker.slots for number in to}):
                identity = self._identity(slot, self._worker.slots)
                self._producers[slot] = await self._fenced(identity, self._numbers(slot, self._worker.slots))
        told = await committed(self._client, self._worker.application_id, sources)
        steps, refused = [], []
        for number in sorted(to):
            tp = TopicPartition(topic, number)
            head = await self._head(number, fence=fence)
            lost = head.position is None and tp in told
            if self._is_part(head):
                head, lost = ChangelogHead(), True
            said = renewals_said(self._config)
            known = PartitionFacts(f"{topic}:{number}", limits[tp], *head, lost, renewals_said=said)
            if limits[tp].start > begin(known):
                known = replace(known, spans_window=await self._spans_window(tp, limits[tp].start, to[number]))
            try:
                step = decide(number, known, to[number], self._definition, forget=forget)
                await self._require_same_source(tp, step, known)
            except StopError as error:
                refused.append(str(error))
                continue
            self._positions[number] = head.position
            steps.append(replace(step, written_anew=not self._names_now(head.position)))
        if refused:
            raise StopError("nothing was changed:\n" + "\n".join(refused))
        return steps

    async def apply(
        self, steps: Iterable[PartitionStep], advance: Callable[[int], None]
    ) -> AsyncGenerator[ResetResult]:
        """Do what `plan` has said, a slot at a time; yields what is committed.

        Args:
            steps: From `plan`, which has fenced.
            advance: Called with the number of source offsets judged since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known; says which partitions are done.
        """
        finished: list[int] = []
        for slot, some in touched(list(steps), self._worker.slots).items():
            for step in some:
                if step.stays:
                    yield ResetResult(step, Replayed())
            moving = [step for step in some if not step.stays]
            if not moving:
                continue
            numbers = [step.partition for step in moving]
            try:
                made = [await self._make(step, advance) for step in moving]
                await self._require_stopped()
                await self._commit(self._producers[slot], made)
            except (StopError, RebuildError, FencedError) as error:
                raise StopError(_unfinished(error, numbers, finished)) from error
            finished += numbers
            for each in made:
                yield each.done

    async def close(self) -> None:
        """Abort what is open and close all connections."""
        for producer in self._producers.values():
            await producer.abort()
            await producer.close()
        await self._client.close()

    # ---------------------------------------------------------------- before

    async def _require_stopped(self) -> None:
        group = self._worker.application_id
        found = await readers(self._client, group, self._topics.source)
        if found:
            names = "; ".join(map(str, found))
            raise StopError(
                f"pipeline {self._config.name} is not stopped: of the group {group}, {names} "
                f"read{'s' if len(found) == 1 else ''} {self._topics.source}. Stop its workers first; one that "
                "was killed, or that has a group_instance_id, counts until its session_timeout_ms is over"
            )

    async def _wanted(self, target: Target, limits: Mapping[TopicPartition, Bounds]) -> dict[int, int]:
        if not isinstance(target, ToTime):
            starts = {tp.partition: found.start for tp, found in limits.items()}
            return wanted(target, starts, self._topics.source)
        found = await offsets_at(self._client, limits, target.timestamp_ms)
        return {tp.partition: limits[tp].stable if offset is None else offset for tp, offset in found.items()}

    def _identity(self, slot: int, slots: int) -> str:
        return transactional_id(self._worker.application_id, self._config.name, slot, slots)

    def _numbers(self, slot: int, slots: int) -> list[int]:
        """Return all partitions of a slot, also those that are not reset: its id has written to them."""
        return list(range(slot, self._view[self._topics.source].partitions, slots))

    async def _fenced(self, identity: str, numbers: list[int]) -> Producer:
        try:
            return await self._fenced_for(identity, numbers, TIMEOUT_MS)
        except TransactionTimeoutError:
            return await self._fenced_for(identity, numbers, self._worker.transaction_timeout_ms)

    async def _fenced_for(self, identity: str, numbers: list[int], timeout_ms: int) -> Producer:
        options = client_options(self._settings.kafka)
        written = self._topics.written
        client = await Client.open(options, f"{identity}-reset", written)
        producer = Producer(client, identity, timeout_ms, min(DEADLINE_S, 0.8 * timeout_ms / 1000))
        try:
            await producer.fence([TopicPartition(name, number) for name in written for number in numbers])
        except BaseException:
            await producer.close()
            raise
        return producer

    def _changelog(self, number: int) -> ChangelogPartition:
        return ChangelogPartition(self._client, self._decoder, self._topics.changelog, number)

    async def _head(self, number: int, *, fence: bool) -> ChangelogHead:
        """Return position and origin; with ``fence`` after whoever wrote them is fenced and done."""
        changelog = self._changelog(number)
        limits = await changelog.bounds()
        head = await read_head(changelog, limits.start, limits.stable)
        if head.position is not None:
            require_own(head.position, self._worker.application_id, self._config.name, changelog.name)
        if not fence:
            return head
        slots = 0 if head.position is None else head.position.slots
        if slots not in {0, self._worker.slots}:
            # Its state was written with another number of slots: the id for this partition is another.
            slot = number % slots
            await (await self._fenced(self._identity(slot, slots), self._numbers(slot, slots))).close()
        settling = await settled(changelog, self._worker.transaction_timeout_ms / 1000)
        return await read_head(changelog, limits.stable, settling.stable, head)

    def _is_part(self, head: ChangelogHead) -> bool:
        """Whether a changelog has a part of a state: made anew under a worker without transactions."""
        now = self._topics.identified(self._client.ids)
        other = head.position is not None and head.position.topics.changelog.made_anew(now.changelog)
        return other and head.origin is None

    def _names_now(self, position: Position | None) -> bool:
        """Whether a position names the topics that there are now, and whose it is."""
        if position is None:
            return False
        topics = position.topics.kept(self._topics.identified(self._client.ids))
        return topics == position.topics and bool(position.application)

    async def _require_same_source(
        self, tp: TopicPartition, step: PartitionStep, known: PartitionFacts
    ) -> None:
        if step.state is not ResetState.EMPTY and known.position is not None:
            now = self._topics.identified(self._client.ids)
            if known.position.topics.source.is_other(now.source):
                raise StopError(
                    f"{known.name}: topic {tp.topic} was deleted and made anew, or is another than the one "
                    "that the state was made from: nothing of it can be kept. Begin it with an empty state: "
                    f"{reset_command(self._config.name, '--to-earliest')}; {SEE}"
                )
            compacted = is_compacted(self._view, tp.topic)
            await check_same_source(self._client, tp, known.position, known.limits, compacted=compacted)

    async def _spans_window(self, tp: TopicPartition, start: int, to: int) -> bool:
        """Whether the records from ``start`` to ``to`` last for a window, by their timestamps."""
        dedup = self._config.dedup
        # By arrival they are all of now.
        if not isinstance(dedup, InsertIdDedup) or dedup.time == "arrival" or start >= to:
            return False
        last_ms = await window_end_ms(self._client, self._decoder, tp, (start, to), dedup.window)
        if last_ms is None:
            return False
        self._least_ms[tp.partition] = last_ms
        return True

    # ---------------------------------------------------------------- state

    async def _make(self, step: PartitionStep, advance: Callable[[int], None]) -> _Made:
        judge = make_reset_judge(self._config)
        before = self._positions[step.partition]
        position = new_position(step.to_offset, self._definition, os.urandom(16), self._worker.slots)
        position = replace(
            position,
            topics=self._topics.identified(self._client.ids),
            application=self._worker.application_id,
            pipeline=self._config.name,
        )
        table = Table(MemoryStore(), judge.log)
        if step.state is ResetState.KEPT and before is not None:
            await restore(
                table,
                self._changelog(step.partition),
                self._worker.transaction_timeout_ms / 1000,
                lambda _done, _total: None,
            )
            table.flush()
            if isinstance(judge, ExactIds):
                judge.recall(await self._noted(step))
            position = replace(position, batch_offset=before.batch_offset, batch_crc=before.batch_crc)
        judge.load(table)
        tp = TopicPartition(self._topics.source, step.partition)
        source = replayed_source(self._client, self._decoder, tp, kept=step.state is ResetState.KEPT)
        skipped = await self._too_large(step)
        replay = Replay(source, Encoder(), self._topics.sink_limit_bytes, advance, skipped)
        done = await replay.run(step.judge_from, step.to_offset, judge)
        if done.batch_offset != NO_BATCH:
            position = replace(position, batch_offset=done.batch_offset, batch_crc=done.batch_crc)
        judge.restate()
        if step.state is ResetState.RECOMPUTED:
            self._require_window(step.partition, judge)
        return _Made(judge, position, ResetResult(step, done))

    async def _too_large(self, step: PartitionStep) -> set[tuple[int, int]]:
        if self._topics.quarantine is None or not step.offsets:
            return set()
        tp = TopicPartition(self._topics.quarantine, step.partition)
        return await too_large(self._client, self._decoder, tp, self._topics.source)

    async def _noted(self, step: PartitionStep) -> list[tuple[int, int]] | None:
        """Return what the changelog says of the clock since the state began; None: not all is there."""
        changelog = self._changelog(step.partition)
        limits = await changelog.bounds()
        noted = ClockHistory(changelog, limits.start, arrival=False)
        await noted.read(limits.stable)
        whole = noted.known_from is not None and noted.known_from <= step.known_from
        return noted.limits() if whole else None

    def _require_window(self, number: int, judge: Judge) -> None:
        least_ms, times = self._least_ms.get(number), judge.take_clock_stats()
        if least_ms is not None and (times is None or times.clock_ms is None or times.clock_ms < least_ms):
            raise StopError(
                f"{self._topics.source}:{number}: only timestamps further ahead than max_ahead say that what "
                "is retained lasts for a window. With --forget it begins with an empty state"
            )

    # ---------------------------------------------------------------- commit

    async def _commit(self, producer: Producer, made: list[_Made]) -> None:
        """Write a slot's partitions in one transaction; the steps are those of a worker's commit."""
        output = ExactlyOnceOutput(producer, self._worker.application_id, self._topics.source)
        origins = {each.done.step.partition: await self._origin(each.done.step) for each in made}
        output.begin()
        reached(FaultStep.BEGUN)  # 1
        for each in made:
            number = each.done.step.partition
            now_ms = int(time.time() * 1000)
            last = {**each.judge.changes(), POSITION_KEY: each.position.encode()}
            batches = [plain_batch([(ORIGIN_KEY, origins[number].encode(), now_ms, ())])]
            batches += each.judge.changelog_batches(self._topics.changelog_limit_bytes)
            batches.append(plain_batch([(key, value, now_ms, ()) for key, value in last.items()]))
            for batch in batches:
                # One at a time: the producer's deadline is for what is on its way, not for all of a state.
                await output.send(self._topics.changelog, number, [batch])
        await output.flush()
        reached(FaultStep.CHANGELOG)  # 3
        # Whoever joins from here on finds a transaction open on the changelog and waits for it. One that came
        # just before has not, and with at_least_once it does not fence us either.
        await self._require_stopped()
        offsets = {each.done.step.partition: each.done.step.to_offset for each in made}
        await output.commit(offsets, lambda: reached(FaultStep.OFFSETS))  # 4
        reached(FaultStep.ENDED)  # 5

    async def _origin(self, step: PartitionStep) -> Origin:
        outputs = self._topics.sink, self._topics.duplicates, self._topics.quarantine
        origin = await origin_at(self._client, *outputs, step.partition, step.to_offset)
        known_before = step.to_offset - step.known_from
        return replace(origin, known_before=known_before, reset_ms=int(time.time() * 1000))


def _unfinished(error: Exception, numbers: list[int], finished: list[int]) -> str:
    if isinstance(error, FencedError):
        text = f"a worker has started in between and taken the slot of partitions {numbers}: {error}"
    elif isinstance(error, RebuildError) and error.reason == "end":
        text = f"whether partitions {numbers} were reset is not known: {error}. Run the same reset again"
    else:
        text = f"partitions {numbers} were not reset: {error}"
    done = f"partitions {finished} are reset" if finished else "nothing was changed before"
    return f"{text}; {done}"


@asynccontextmanager
async def opened(settings: Settings, pipeline: Pipeline, *, create: bool) -> AsyncIterator[Reset]:
    """Connect, look at the pipeline's topics, and give what resets it.

    Args:
        settings: Checked already.
        pipeline: One of its pipelines.
        create: Create the topics that are missing: a state needs its changelog.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    check_aiokafka()
    alone = settings.model_copy(update={"pipelines": [pipeline]})
    report = await ensure(alone, create=create)
    report.require()
    view = await look(alone)
    try:
        client = await Client.open(
            client_options(settings.kafka), f"{settings.worker.application_id}-reset", list(view)
        )
    except KafkaError as error:
        raise StopError(f"{settings.kafka.bootstrap_servers}: {error!r}") from error
    reset = Reset(alone, client, view)
    try:
        yield reset
    except (KafkaError, TimeoutError) as error:
        raise StopError(f"{settings.kafka.bootstrap_servers}: {error!r}; run the same reset again") from error
    finally:
        await reset.close()
