"""How does a slot come to work, and what happens when it cannot go on?

A `SlotRun` is one slot during one assignment. Its life, in the order of docs/architecture.md:

    fence     take the transactional id: the previous owner's open transaction ends, it can write no more
    restore   each partition's table, to the last stable offset of its changelog
    position  the state says where the source goes on; the source is checked against it
    fetch     chunks go through the slot's Faust channel to its agent, which calls `handle`

Whatever fails inside a transaction ends in one of three reactions: rebuild (drop producer and tables, begin at
"fence"), rejoin (the id is held by another: ask the group), stop (the worker ends, with what to do).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.dedup import definition, judged_by, make_judge
from processor.errors import FencedError, RebuildError, SeqmarkError, StopError
from processor.hops import FirstHop, SecondHop, route_definition
from processor.insert_id import IdJudge
from processor.kafka.changelog import ChangelogPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds, committed
from processor.kafka.output import AtLeastOnceOutput, ExactlyOnceOutput
from processor.kafka.producer import Producer
from processor.kafka.seam import KafkaError, Link, TopicPartition
from processor.kafka.source import check_same_source
from processor.kafka.trim import Trimmer
from processor.kafka.upstream import taken_in
from processor.pipeline import Partition, SlotPipeline, Topics, new_position
from processor.router import FirstHopPipeline, RouteJudge, RouteTopics, SecondHopPipeline
from processor.state.head import read_head
from processor.state.restore import restore
from processor.state.rocks import open_store
from processor.state.store import CorruptStoreError
from processor.state.table import Table
from processor.wire.decode import Chunk
from schemas.changelog import NO_TOPIC, CorruptStateError, Origin
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from processor.context import Context
    from processor.judge import Judge
    from processor.kafka.offsets import Bounds
    from schemas.changelog import Position
    from schemas.config import Pipeline

log = logging.getLogger(__name__)

ROOM = 4
"""Chunks fetched ahead: at 1 MiB each, times slots, a bound for memory."""
BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 5.0
ID_PIECE_BYTES = 1024 * 1024
"""Of ids, so many bytes of records are judged at a time: each that is known is confirmed by a page, which takes
up to 8 us, and 6,000 of them 50 ms, for which the event loop answers nobody."""
SOME_OFFSETS = 1000
"""At the end of a topic of positions: some 500 commits, of which one that has not been aborted is enough."""
CLOSE_S = 4.0
"""How long giving a slot up may wait for its last commit; SIGTERM has 10 s in all."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Retention has passed the position: go on at ``offset``."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A commit is due, whether or not more has come."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a slot's channel carries."""

    run: SlotRun
    epoch: int
    work: Chunk | Skip | Tick


def transactional_id(application_id: str, pipeline: str, slot: int, slots: int) -> str:
    """Return the id that fences a slot's owners: it always names the same partitions.

    With another number of slots a slot has other partitions, so the number is in the id: fencing those
    who worked with another number must not fence ourselves.
    """
    return f"{application_id}-{pipeline}-{slot}-of-{slots}"


async def origin_at(link: Link, topics: Topics, number: int, source_offset: int) -> Origin:
    """Return where source and outputs stand before what is taken in from ``source_offset`` on.

    Nothing moves while it is asked: all who could write to partition ``number`` of the outputs are fenced.
    """
    names = [topics.sink, *filter(None, (topics.duplicates, topics.quarantine))]
    ends = await bounds(link, [TopicPartition(name, number) for name in names])
    offsets = {tp.topic: limits.end for tp, limits in ends.items()}
    return Origin(
        source_offset,
        offsets[topics.sink],
        offsets.get(topics.duplicates or "", NO_TOPIC),
        offsets.get(topics.quarantine or "", NO_TOPIC),
    )


def _judge(config: Pipeline) -> Judge:
    """Return a judge for one partition of a hop, with no state yet."""
    if isinstance(config, FirstHop):
        assert isinstance(config.dedup, InsertIdDedup)  # noqa: S101 - there is no other with route
        return RouteJudge(config.dedup)
    return make_judge(config)


def _definition(config: Pipeline, topics: Topics) -> bytes:
    """Return 16 bytes that change when the meaning of a hop's stored state changes."""
    if isinstance(config, FirstHop) and isinstance(topics, RouteTopics):
        return route_definition(config, topics.internal_partitions)
    return definition(config)


class SlotRun:
    """One slot during one assignment.

    Args:
        context: The worker's.
        pipeline: Its config.
        slot: Number.
        partitions: Source partitions of the slot.
        put: Puts an event into the slot's channel.
    """

    def __init__(
        self,
        context: Context,
        pipeline: Pipeline,
        slot: int,
        partitions: list[int],
        put: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._context = context
        self._config = pipeline
        self._slot = slot
        self._numbers = partitions
        self._put = put
        self._id = transactional_id(context.application_id, pipeline.name, slot, context.slots)
        self._busy = asyncio.Lock()
        self._room = asyncio.Semaphore(ROOM)
        self._epoch = 0
        self._closing = False
        self._failed: asyncio.Future[None] | None = None
        self._links: list[Link] = []
        self._producer: Producer | None = None
        self._pipeline: SlotPipeline | None = None
        self._topics: Topics | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._targets: dict[int, int] = {}
        self._nothing_until: dict[int, tuple[int, int]] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._puts: set[asyncio.Task[None]] = set()
        self._life: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None
        self._trimmer = Trimmer()
        self._trim_link: Link | None = None
        self.ready = False

    def start(self) -> None:
        """Begin to live; returns at once."""
        self._life = asyncio.create_task(self._live(), name=f"slot {self._id}")

    async def _live(self) -> None:
        pause = BACKOFF_FIRST_S
        refused: Topics | None = None
        while not self._closing:
            opened = time.monotonic()
            try:
                await self._open()
                await self._work()
            except FencedError as error:
                log.warning("%s: %s; asking the group who owns it", self._id, error)
                await self._drop("fenced")
                self._context.rejoin()
                return
            except RebuildError as error:
                if error.reason == "too_large":
                    if refused is not None and refused == self._topics:
                        await self._drop("stop")
                        self._context.fail(StopError(f"{error}; limits were read again and have not changed"))
                        return
                    refused = self._topics
                log.warning("%s: rebuilding: %s", self._id, error)
                self._context.look_again()
                await self._drop(error.reason)
            except SeqmarkError as error:
                await self._drop("stop")
                self._context.fail(error)
                return
            except (KafkaError, TimeoutError, OSError) as error:
                log.warning("%s: Kafka is not to be had: %r", self._id, error)
                await self._drop("connection")
            except Exception as error:
                log.exception("%s: unexpected", self._id)
                await self._drop("unexpected")
                self._context.fail(StopError(f"{self._id}: unexpected {error!r}"))
                return
            pause = BACKOFF_FIRST_S if time.monotonic() - opened > BACKOFF_LAST_S else pause * 2
            await asyncio.sleep(min(pause, BACKOFF_LAST_S))

    # ---------------------------------------------------------------- opening

    async def _open(self) -> None:
        self._epoch += 1
        self._failed = asyncio.get_running_loop().create_future()
        self._room = asyncio.Semaphore(ROOM)
        topics = self._topics = await self._context.topics(self._config)
        link = await self._link("fetch", topics.source, *topics.written)
        if isinstance(self._config.dedup, InsertIdDedup) and not isinstance(self._config, FirstHop):
            # Of its own: a leader answers one request of a connection after the other, and one to delete waits
            # for its followers, which no fetch should.
            self._trim_link = await self._link("trim", topics.changelog, topics.source)
        self._producer = await self._fenced(self._id, topics, self._numbers)
        pipeline = self._pipeline = self._hop(topics, self._output(self._producer, topics))
        source = [TopicPartition(topics.source, number) for number in self._numbers]
        limits = await bounds(link, source)
        for tp in source:
            # The target of a drain is where the partition ended when it was assigned, not when rebuilt. That of
            # an internal topic is not known before all is in it: see `_upstream`.
            if not isinstance(self._config, SecondHop):
                self._targets.setdefault(tp.partition, limits[tp].stable)
            await self._open_partition(pipeline, link, tp, limits[tp])
        async with self._busy:
            await pipeline.commit()
        self._positions = {tp: pipeline.partitions[tp.partition].position.next_offset for tp in source}
        self.ready = True
        log.info("%s: ready, partitions %s", self._id, self._numbers)
        self._context.progressed()

    def _hop(self, topics: Topics, output: ExactlyOnceOutput | AtLeastOnceOutput) -> SlotPipeline:
        context = self._context
        shared = context.decoder, context.encoder, context.metrics
        if isinstance(topics, RouteTopics):
            return FirstHopPipeline(self._config.name, topics, output, *shared)
        if isinstance(self._config, SecondHop):
            return SecondHopPipeline(self._config, topics, output, *shared)
        return SlotPipeline(self._config.name, topics, output, *shared)

    async def _link(self, what: str, *topics: str) -> Link:
        link = await Link.open(self._context.options, f"{self._id}-{what}", topics)
        self._links.append(link)
        return link

    async def _fenced(self, identity: str, topics: Topics, numbers: list[int]) -> Producer:
        exactly = self._context.exactly_once
        producer = Producer(
            await self._link("produce", *topics.written),
            identity if exactly else None,
            self._context.transaction_timeout_ms,
            # Below the transaction's time-out, so that we know of a failure before the coordinator acts.
            self._context.transaction_timeout_ms / 1000 * 0.8,
            self._fail,
        )
        await producer.fence([TopicPartition(*each) for each in topics.written_from(numbers)])
        return producer

    def _output(self, producer: Producer, topics: Topics) -> ExactlyOnceOutput | AtLeastOnceOutput:
        if self._context.exactly_once:
            return ExactlyOnceOutput(producer, self._context.application_id, topics.source)
        return AtLeastOnceOutput(producer, self._context.membership, topics.source)

    async def _open_partition(
        self, pipeline: SlotPipeline, link: Link, tp: TopicPartition, limits: Bounds
    ) -> None:
        name = self._config.name
        folder = self._context.home.partition(name, tp.partition)
        # Those that the pipeline works by: what it means has to be told by the same.
        topics = self._topics
        assert topics is not None  # noqa: S101 - `_open` has asked
        meaning = _definition(self._config, topics)
        judge = _judge(self._config)
        gauge = self._context.metrics.restore_ratio.labels(name, str(tp.partition))
        changelog = ChangelogPartition(link, self._context.decoder, topics.changelog, tp.partition)
        store, damage = open_store(folder)
        table = Table(store, judge.log)
        try:
            if damage:
                log.error("local state of %s:%s is damaged, reading it anew: %s", name, tp.partition, damage)
            self._forget_foreign(table, tp, meaning)
            position = await self._restored(table, changelog, gauge.set, topics)
            started = position or await self._first_position(link, tp, limits, meaning)
            if self._context.exactly_once:
                # Whose ids wrote this state: the next to restore it has to fence them, and no others.
                started = replace(started, slots=self._context.slots)
            self._check_definition(tp, started, meaning)
            # Not before: under a mark there must be no state that was read as something else than it is.
            table.settle()
            judge.load(table)
            partition = Partition(tp.partition, table, judge, started, stable=limits.stable)
            if isinstance(judge, IdJudge):
                partition.piece_bytes = ID_PIECE_BYTES
            if position is None and not isinstance(self._config, FirstHop):
                partition.origin = await origin_at(link, topics, tp.partition, started.next_offset)
            pipeline.partitions[tp.partition] = partition
        except CorruptStoreError as error:
            # Where the restore has not looked: all of it is read from the changelog next time.
            table.clear()
            table.close()
            raise RebuildError("local", f"local state: {error}") from error
        except BaseException:
            table.close()
            raise
        self._context.metrics.begin(name, tp.partition, started.next_offset, limits.stable)
        if position is None:
            pipeline.begin_at(partition)
        elif position.next_offset < limits.start:
            pipeline.skip(tp.partition, limits.start)
        else:
            await check_same_source(
                link, tp, position, limits, compacted=await self._context.compacted(tp.topic)
            )
            # A first hop commits where it stands at each assignment: whoever drains the second one with another
            # worker looks for it, and a group's offsets are forgotten after a week without members.
            if started != position or isinstance(self._config, FirstHop):
                pipeline.begin_at(partition)

    async def _restored(
        self,
        table: Table,
        changelog: ChangelogPartition,
        show: Callable[[float], None],
        topics: Topics,
    ) -> Position | None:
        def progress(done: int, total: int) -> None:
            show(done / total if total else 1.0)

        timeout_s = self._context.transaction_timeout_ms / 1000
        position = await restore(table, changelog, timeout_s, progress)
        if position is None or position.slots in (0, self._context.slots) or not self._context.exactly_once:
            return position
        # The state was written by workers with another number of slots: their id for this partition is
        # another, so ours has not fenced them.
        number = int(changelog.name.rpartition(":")[2])
        other = transactional_id(
            self._context.application_id, self._config.name, number % position.slots, position.slots
        )
        log.warning("%s was written with slots = %s: fencing %s", changelog.name, position.slots, other)
        every = sorted(self._links[0].partitions(topics.source))
        await (await self._fenced(other, topics, every[number % position.slots :: position.slots])).close()
        return await restore(table, changelog, timeout_s, progress)

    async def _first_position(self, link: Link, tp: TopicPartition, limits: Bounds, meaning: bytes) -> Position:
        group = self._context.application_id
        known = await committed(link, group, [tp])
        if tp in known:
            anew = self._reset(f"--to-offset {tp.partition}:{known[tp]}")
            raise StopError(
                f"{tp.topic}:{tp.partition}: the group {group} has committed offset {known[tp]}, but the "
                "changelog holds no state: it was deleted, or the pipeline was renamed. Going on would "
                "judge without memory. Restore the changelog, or set the name back; or have the state "
                f"recomputed from the source: {anew}; to begin anew at worker.start see 'Beginning anew' in "
                "docs/operations.md."
            )
        if isinstance(self._config, FirstHop):
            await self._require_same_route(link, tp, meaning)
        # All that is in an internal topic has been taken out of the source.
        earliest = self._context.start == "earliest" or isinstance(self._config, SecondHop)
        offset = limits.start if earliest else limits.end
        return new_position(offset, meaning, os.urandom(16), self._context.slots)

    async def _require_same_route(self, link: Link, tp: TopicPartition, meaning: bytes) -> None:
        """Look whether ids go where the source's other partitions send them: a new one has no state to say so.

        Raises:
            StopError: They do not. Whoever works on the others stops for that, too, but maybe later.
        """
        assert self._topics is not None  # noqa: S101 - `_open` has asked
        positions = self._topics.changelog
        numbers = sorted(link.partitions(positions) - {tp.partition})
        for other, ends in (await bounds(link, [TopicPartition(positions, each) for each in numbers])).items():
            changelog = ChangelogPartition(link, self._context.decoder, positions, other.partition)
            # Each commit writes a position, and all that are there mean the same.
            head = await read_head(changelog, max(ends.start, ends.stable - SOME_OFFSETS), ends.stable)
            if head.position is not None:
                self._check_definition(TopicPartition(tp.topic, other.partition), head.position, meaning)
                return

    def _forget_foreign(self, table: Table, tp: TopicPartition, meaning: bytes) -> None:
        """Throw a local state of another definition away: `_check_definition` sees the changelog's."""
        with contextlib.suppress(CorruptStateError, CorruptStoreError):  # the restore finds that too
            position = table.position()
            if position is not None and position.definition != meaning:
                log.warning("local state of %s:%s is of another definition", tp.topic, tp.partition)
                table.clear()

    def _check_definition(self, tp: TopicPartition, position: Position, meaning: bytes) -> None:
        if position.definition != meaning:
            keys, anew = ", ".join(judged_by(self._config)), self._reset("--to-earliest")
            if isinstance(self._config, FirstHop):
                keys = f"id, on_missing, the number of partitions of {self._config.internal}"
            raise StopError(
                f"pipeline {self._config.name}: its dedup definition differs from the one that its state of "
                f"{tp.topic}:{tp.partition} was made with ({keys}). State of one definition means nothing "
                f"under another: set the definition back, or have the state made anew: {anew}; see "
                "'Reprocessing' and 'Beginning anew' in docs/operations.md."
            )

    def _reset(self, to: str) -> str:
        """Return how a state is made anew from the source, where that can be done."""
        if isinstance(self._config, FirstHop | SecondHop):
            return "no command does that yet with route"
        return f"seqmark reset --pipeline {self._config.name} {to}"

    # ---------------------------------------------------------------- working

    async def _work(self) -> None:
        """Fetch until something fails; what fails is raised here."""
        fetching = asyncio.create_task(self._fetch(), name=f"fetch {self._id}")
        upstream = asyncio.create_task(self._upstream(), name=f"upstream {self._id}")
        failed = self._failed
        if failed is None:
            return
        try:
            await asyncio.wait({fetching, failed}, return_when=asyncio.FIRST_COMPLETED)
            for done in (failed, fetching):
                if done.done():
                    done.result()
        finally:
            for task in (fetching, upstream):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _upstream(self) -> None:
        """Of a second hop that is to be drained: learn its target, once the first hop's source is taken in.

        The target is the log's end then, not its last stable offset: what the group has committed may be on its
        way to being committed here, and lies below the end all the same.
        """
        hop = self._config
        if not self._context.drain or not isinstance(hop, SecondHop) or self._targets:
            return
        try:
            link = await self._link("upstream", hop.routed_from, hop.source)
            await taken_in(link, self._context.application_id, hop.routed_from)
            here = [TopicPartition(hop.source, number) for number in self._numbers]
            ends = await bounds(link, here)
        except (SeqmarkError, KafkaError, TimeoutError, OSError) as error:
            self._fail(error)
            return
        self._targets = {tp.partition: limits.end for tp, limits in ends.items()}
        self._context.progressed()

    async def _fetch(self) -> None:
        fetcher = Fetcher(self._links[0])
        while True:
            try:
                chunks = await fetcher.fetch(self._positions)
            except OutOfRangeError as error:
                await self._out_of_range(error)
                continue
            for chunk in chunks:
                after = self._context.decoder.next_offset(chunk)
                if after is None:
                    self._idle(chunk)
                    continue
                await self._room.acquire()
                # A batch that cannot be walked over leaves the position: the agent stops at it.
                self._positions[TopicPartition(chunk.topic, chunk.partition)] = after
                await self._put(Event(self, self._epoch, chunk))

    def _idle(self, chunk: Chunk) -> None:
        """Note that there is nothing between the position and the last stable offset."""
        self._nothing_until[chunk.partition] = (chunk.position, chunk.last_stable_offset)
        labels = (self._config.name, str(chunk.partition))
        self._context.metrics.lag.labels(*labels).set(max(0, chunk.last_stable_offset - chunk.position))
        self._context.progressed()

    async def _out_of_range(self, error: OutOfRangeError) -> None:
        tp = error.partition
        limits = (await bounds(self._links[0], [tp]))[tp]
        if error.position > limits.end:
            raise StopError(
                f"{tp.topic}:{tp.partition} ends at {limits.end}, but {error.position} has been read "
                "already: the topic was deleted and made anew, or lost records. Its state does not "
                "fit; see 'A source made anew' in docs/operations.md."
            )
        if error.position < limits.start:
            await self._room.acquire()
            self._positions[tp] = limits.start
            await self._put(Event(self, self._epoch, Skip(tp.partition, limits.start)))
        else:
            await asyncio.sleep(BACKOFF_FIRST_S)

    async def handle(self, event: Event) -> None:
        """Do one event's work; called by the slot's agent, one event at a time. Never raises."""
        async with self._busy:
            pipeline = self._pipeline
            # After a failure nothing more is done: what was judged and not sent must not be committed.
            failed = self._failed is None or self._failed.done()
            if event.epoch != self._epoch or self._closing or pipeline is None or failed:
                return
            try:
                match event.work:
                    case Chunk():
                        await pipeline.take(event.work)
                    case Skip():
                        pipeline.skip(event.work.partition, event.work.offset)
                    case Tick():
                        self._tick = None
                await self._commit_if_due(pipeline)
            except CorruptStoreError as error:
                self._fail(RebuildError("local", f"local state: {error}"))
            except SeqmarkError as error:
                self._fail(error)
            except Exception as error:
                log.exception("%s: unexpected", self._id)
                self._fail(StopError(f"{self._id}: unexpected {error!r}"))
            finally:
                if not isinstance(event.work, Tick):
                    self._room.release()

    def _fail(self, error: Exception) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _commit_if_due(self, pipeline: SlotPipeline) -> None:
        due_at = pipeline.due_at(self._context.commit_interval_s)
        if due_at is None:
            return
        left = due_at - time.monotonic()
        if left <= 0:
            await pipeline.commit()
            self._trim(pipeline)
            self._context.progressed()
        elif self._tick is None:
            loop = asyncio.get_running_loop()
            self._tick = loop.call_later(left, self._put_tick, self._epoch)

    def _trim(self, pipeline: SlotPipeline) -> None:
        """Have deleted what the committed states need no more, from the changelogs and an internal topic."""
        for number, offset in pipeline.expendable().items():
            assert self._topics is not None and self._trim_link is not None  # noqa: S101, PT018 - of `_open`
            self._trimmer.want(self._trim_link, TopicPartition(self._topics.changelog, number), offset)
        for number, offset in pipeline.used_up().items():
            assert self._topics is not None and self._trim_link is not None  # noqa: S101, PT018 - of `_open`
            self._trimmer.want(self._trim_link, TopicPartition(self._topics.source, number), offset)

    def _put_tick(self, epoch: int) -> None:
        async def put() -> None:
            await self._put(Event(self, epoch, Tick()))

        task = asyncio.create_task(put())
        self._puts.add(task)
        task.add_done_callback(self._puts.discard)

    # ---------------------------------------------------------------- ending

    def drained(self) -> bool:
        """Whether all partitions are committed up to where they ended when they were assigned."""
        pipeline = self._pipeline
        if not self.ready or pipeline is None or pipeline.begun_at is not None:
            return False
        if len(self._targets) < len(self._numbers):
            return False  # of a second hop, while the first is at work
        return all(self._reached(number, target) for number, target in self._targets.items())

    def _reached(self, number: int, target: int) -> bool:
        assert self._pipeline is not None  # noqa: S101 - `drained` has looked
        position = self._pipeline.partitions[number].position.next_offset
        empty_at, until = self._nothing_until.get(number, (-1, -1))
        return position >= target or (empty_at == position and until >= target)

    async def close(self) -> None:
        """Finish or abort what is in flight and give everything up; never raises, never hangs."""
        self._closing = True
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._life
        if self.ready and self._failed is not None and not self._failed.done():
            try:
                async with asyncio.timeout(CLOSE_S), self._busy:
                    # Whoever held the lock may have failed: see `handle`.
                    if self._pipeline is not None and not self._failed.done():
                        await self._pipeline.finish()
            except (TimeoutError, SeqmarkError) as error:
                log.warning("%s: last commit: %r", self._id, error)
        await self._drop("revoked")

    async def _drop(self, reason: str) -> None:
        """Let go of producer, tables and connections; an open transaction is aborted or left to be fenced.

        Runs as a task of its own: a revocation that cancels a rebuild must not leave a table open.
        """
        await self._dropped()
        self._dropping = asyncio.create_task(self._let_go(reason), name=f"drop {self._id}")
        await self._dropped()

    async def _dropped(self) -> None:
        if self._dropping is not None:
            await asyncio.shield(self._dropping)

    async def _let_go(self, reason: str) -> None:
        self.ready = False
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        pipeline, self._pipeline = self._pipeline, None
        producer, self._producer = self._producer, None
        links, self._links = self._links, []
        if pipeline is not None and pipeline.begun_at is not None:
            labels = (self._config.name, reason)
            self._context.metrics.transactions_aborted.labels(*labels).inc()
        if producer is not None:
            # Only where nobody follows at once: a rebuild fences, which aborts too, and does so when the broker
            # is well: one that shuts down leaves markers out (see `processor.kafka.markers`).
            if reason in {"stop", "revoked"}:
                await producer.abort()
            await producer.close()
        await self._trimmer.close()
        # The agent may still be inside `handle`: a closed producer makes it come out.
        async with self._busy:
            for partition in (pipeline.partitions if pipeline else {}).values():
                partition.table.close()
        for link in links:
            await link.close()
