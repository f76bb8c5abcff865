"""How does a slot come to work, and what happens when it cannot go on?

A `SlotRun` is one slot during one assignment. Its life, in the order of docs/architecture.md:

    fence     take the transactional id: the previous owner's open transaction ends, it can write no more
    restore   each partition's table, to the last stable offset of its changelog
    position  the state says where the source goes on; the source is checked against it
    (`processor.worker.open_partition`) fetch     chunks go through the slot's Faust channel to its agent, which
    calls `handle`

Whatever fails inside a transaction ends in one of three reactions: rebuild (drop producer and tables, begin at
"fence"), rejoin (the id is held by another, and the slot not ours by the group's word), stop (the worker ends,
with what to do).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, SeqmarkError, StopError
from processor.kafka.client import METADATA_MAX_AGE_MS, Change, Client, KafkaError, TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.group.drain import taken_in
from processor.kafka.offsets import bounds
from processor.kafka.transactions.output import AtLeastOnceOutput, ExactlyOnceOutput
from processor.kafka.transactions.producer import Producer, transactional_id
from processor.kafka.trim import Trimmer
from processor.ops.memory_limit import give_back
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.state.kv.store import CorruptStoreError
from processor.wire.decode import Chunk
from processor.worker.open_partition import PartitionOpener
from processor.worker.standstill import Standstill

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.hops import Hop
    from processor.pipeline.ports import Topics
    from processor.worker.context import Context

log = logging.getLogger(__name__)

ROOM = 4
"""Chunks fetched ahead: at 1 MiB each, times slots, a bound for memory."""
BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 5.0
LATE_LOOK_S = min(METADATA_MAX_AGE_MS / 1000, 10.0)
"""How often partitions that wait for a wider topic look again."""
LATE_SAY_S = 60.0
FENCED_AGAIN_S = 60.0
"""Within it a slot that is fenced once more is given back: far longer than two rivals take to fence each
other, and a transaction's time-out is seldom shorter."""
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


class SlotRun:
    """One slot during one assignment.

    Args:
        context: The worker's.
        pipeline: The hop that it works on.
        slot: Number.
        partitions: Source partitions of the slot.
        put: Puts an event into the slot's channel.
    """

    def __init__(
        self,
        context: Context,
        pipeline: Hop,
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
        self._fenced_at = -math.inf
        self._failed: asyncio.Future[None] | None = None
        self._clients: list[Client] = []
        self._ids: dict[str, bytes] = {}
        self._producer: Producer | None = None
        self._pipeline: SlotPipeline | None = None
        self._hop: HopKind | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._targets: dict[int, int] = {}
        self._nothing_until: dict[int, tuple[int, int]] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._puts: set[asyncio.Task[None]] = set()
        self._life: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None
        self._trimmer = Trimmer()
        self._standstill = Standstill(pipeline.name, context.metrics)
        self._trim_client: Client | None = None
        self.ready = False
        self._able: list[int] = []
        self._late: list[int] = []
        self._said_late_at = -math.inf
        self.waits = ""
        """Which of its partitions wait for a place in a topic, and in which; empty if none do."""
        self.trouble = ""
        """What it was built anew for last, until it is ready again."""

    @property
    def name(self) -> str:
        """The transactional id, as the log names a slot."""
        return self._id

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
                # Said at once: a zombie's revocation may be next.
                log.warning("%s: %s; asking the group who owns it", self._id, error)
                await self._drop("fenced")
                if not await self._is_ours():
                    log.warning("%s: not known to be ours, joining the group anew", self._id)
                    self._context.rejoin()
                    return
                log.warning("%s: ours by the group's word, rebuilding", self._id)
                self._context.look_again()
            except RebuildError as error:
                if error.reason == "too_large":
                    topics = None if self._hop is None else self._hop.topics
                    if refused is not None and refused == topics:
                        await self._drop("stop")
                        self._context.fail(StopError(f"{error}; limits were read again and have not changed"))
                        return
                    refused = topics
                log.warning("%s: rebuilding: %s", self._id, error)
                self.trouble = str(error)
                self._context.look_again()
                await self._drop(error.reason)
            except SeqmarkError as error:
                await self._drop("stop")
                self._context.fail(error)
                return
            except (KafkaError, TimeoutError, OSError) as error:
                log.warning("%s: Kafka is not to be had: %r", self._id, error)
                self.trouble = f"Kafka is not to be had: {error!r}"
                await self._drop("connection")
            except Exception as error:
                log.exception("%s: unexpected", self._id)
                await self._drop("unexpected")
                self._context.fail(StopError(f"{self._id}: unexpected {error!r}"))
                return
            pause = BACKOFF_FIRST_S if time.monotonic() - opened > BACKOFF_LAST_S else pause * 2
            await asyncio.sleep(min(pause, BACKOFF_LAST_S))

    async def _is_ours(self) -> bool:
        """Whether the group says that the slot is still ours, though its transactional id was taken from us.

        The coordinator itself may: it forgets an id that was idle for `transactional.id.expiration.ms`, and
        raises the epoch when a transaction has timed out. To fence anew is safe whoever is right, for nobody
        writes before he has fenced and restored. So that two do not do so in turns for ever, a second time soon
        after is left to the group.
        """
        last, self._fenced_at = self._fenced_at, time.monotonic()
        return self._fenced_at - last > FENCED_AGAIN_S and await self._context.membership.current()

    # ---------------------------------------------------------------- opening

    async def _open(self) -> None:
        self._epoch += 1
        self._ids = {}
        self._failed = asyncio.get_running_loop().create_future()
        self._room = asyncio.Semaphore(ROOM)
        hop = self._hop = await self._wide_enough()
        topics = hop.topics
        client = await self._client("fetch", topics.source, *topics.written)
        if hop.deletes:
            # Of its own: a leader answers one request of a connection after the other, and one to delete waits
            # for its followers, which no fetch should.
            self._trim_client = await self._client("trim", topics.changelog, topics.source)
        self._producer = await self._fenced(self._id, topics, self._able)
        context = self._context
        output = self._output(self._producer, topics)
        pipeline = self._pipeline = SlotPipeline(
            hop, output, context.decoder, context.encoder, context.metrics, turns=context.turns
        )

        async def fence(identity: str, numbers: list[int]) -> Producer:
            return await self._fenced(identity, topics, numbers)

        opening = PartitionOpener(self._context, self._config.name, hop, client, fence)
        source = [TopicPartition(topics.source, number) for number in self._able]
        limits = await bounds(client, source)
        for tp in source:
            # The target of a drain is where the partition ended when it was assigned, not when rebuilt. That of
            # an internal topic is not known before all is in it: see `_upstream`.
            if hop.upstream is None:
                self._targets.setdefault(tp.partition, limits[tp].stable)
            await opening.partition(pipeline, tp, limits[tp])
        # Nobody uses any more what the many small pieces of a restore lay in.
        await asyncio.to_thread(give_back)
        async with self._busy:
            await pipeline.commit()
        self._positions = {tp: pipeline.partitions[tp.partition].position.next_offset for tp in source}
        self.ready, self.trouble = True, ""
        log.info("%s: ready, partitions %s", self._id, self._able)
        self._context.progressed()

    async def _wide_enough(self) -> HopKind:
        """Return the work as the topics are; waits while no partition has a place in all of them.

        Partitions are added to the source and to what is written to at different moments. Those that are
        everywhere go on; the others wait, and begin once they can.
        """
        while True:
            hop = await self._context.work(self._config)
            width = hop.topics.width
            self._able = [number for number in self._numbers if number < width]
            self._late = [number for number in self._numbers if number >= width]
            self.waits = (
                ""
                if not self._late
                else (
                    f"partitions {self._late} of {hop.topics.source} wait: one of "
                    f"{', '.join(hop.topics.written)} has {width} partitions only; add partitions to it"
                )
            )
            self._say_late()
            if self._able:
                return hop
            await asyncio.sleep(LATE_LOOK_S)
            self._context.look_again()

    def _say_late(self) -> None:
        now = time.monotonic()
        if self.waits and now - self._said_late_at >= LATE_SAY_S:
            self._said_late_at = now
            log.warning("%s: %s", self._id, self.waits)

    async def _grown(self) -> None:
        """While partitions wait, look whether they can begin: the slot is built anew with them then."""
        while self._late:
            await asyncio.sleep(LATE_LOOK_S)
            self._say_late()
            self._context.look_again()
            try:
                hop = await self._context.work(self._config)
            except RebuildError:
                continue
            except SeqmarkError as error:
                self._fail(error)
                return
            if min(self._late) < hop.topics.width:
                self._fail(RebuildError("topics", f"partitions {self._late} need not wait any more"))
                return

    async def _client(self, what: str, *topics: str) -> Client:
        client_id = f"{self._id}-{what}"
        # All connections of a slot speak of the same topics, from when it was opened.
        client = await Client.open(self._context.options, client_id, topics, self._ids, self._topic_changed)
        self._clients.append(client)
        return client

    def _topic_changed(self, topic: str, change: Change) -> None:
        """Begin anew: the topics and their settings are looked at, and the state says whether it fits them."""
        self._fail(RebuildError("topics", f"{topic}: {change}"))

    async def _fenced(self, identity: str, topics: Topics, numbers: list[int]) -> Producer:
        exactly = self._context.exactly_once
        producer = Producer(
            await self._client("produce", *topics.written),
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

    # ---------------------------------------------------------------- working

    async def _work(self) -> None:
        """Fetch until something fails; what fails is raised here."""
        fetching = asyncio.create_task(self._fetch(), name=f"fetch {self._id}")
        upstream = asyncio.create_task(self._upstream(), name=f"upstream {self._id}")
        grown = asyncio.create_task(self._grown(), name=f"grown {self._id}")
        failed = self._failed
        if failed is None:
            return
        try:
            await asyncio.wait({fetching, failed}, return_when=asyncio.FIRST_COMPLETED)
            for done in (failed, fetching):
                if done.done():
                    done.result()
        finally:
            for task in (fetching, upstream, grown):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _upstream(self) -> None:
        """Of a second hop that is to be drained: learn its target, once the first hop's source is taken in.

        The target is the log's end then, not its last stable offset: what the group has committed may be on its
        way to being committed here, and lies below the end all the same.
        """
        upstream = None if self._hop is None else self._hop.upstream
        if not self._context.drain or upstream is None or self._targets:
            return
        try:
            client = await self._client("upstream", upstream, self._config.source)
            await taken_in(client, self._context.application_id, upstream)
            here = [TopicPartition(self._config.source, number) for number in self._numbers]
            ends = await bounds(client, here)
        except (SeqmarkError, KafkaError, TimeoutError, OSError) as error:
            self._fail(error)
            return
        self._targets = {tp.partition: limits.end for tp, limits in ends.items()}
        self._context.progressed()

    async def _fetch(self) -> None:
        with contextlib.closing(Fetcher(self._clients[0], self._standstill.saw)) as fetcher:
            while True:
                try:
                    chunks = await fetcher.fetch(self._positions)
                except OutOfRangeError as error:
                    await self._out_of_range(error)
                    continue
                for chunk in chunks:
                    await self._pass_on(chunk)

    async def _pass_on(self, chunk: Chunk) -> None:
        after = self._context.decoder.next_offset(chunk)
        if after is None:
            self._idle(chunk)
            return
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
        limits = (await bounds(self._clients[0], [tp]))[tp]
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
            # Nobody waits for it where the slot is being given up: what ended the worker has been said.
            self._failed.exception()

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
        changelog, source = pipeline.take_changelog_trims(), pipeline.take_source_trims()
        if not changelog and not source:
            return
        assert self._hop is not None and self._trim_client is not None  # noqa: S101, PT018 - of `_open`
        topics = self._hop.topics
        for topic, offsets in ((topics.changelog, changelog), (topics.source, source)):
            for number, offset in offsets.items():
                self._trimmer.want(self._trim_client, TopicPartition(topic, number), offset)

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
        clients, self._clients = self._clients, []
        if pipeline is not None and pipeline.begun_at is not None:
            labels = (self._config.name, reason)
            self._context.metrics.transactions_aborted.labels(*labels).inc()
        if producer is not None:
            # Only where nobody follows at once: a rebuild fences, which aborts too, and does so when the broker
            # is well: one that shuts down leaves markers out (see `processor.kafka.transactions.markers`).
            if reason in {"stop", "revoked"}:
                await producer.abort()
            await producer.close()
        await self._trimmer.close()
        # The agent may still be inside `handle`: a closed producer makes it come out.
        async with self._busy:
            for partition in (pipeline.partitions if pipeline else {}).values():
                partition.table.close()
        for client in clients:
            await client.close()
