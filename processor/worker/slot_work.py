"""Works on a slot that is ready: fetches chunks, passes them to its agent, commits when it is due.

Chunks go through the slot's Faust channel, so that a slot that waits for its commit does not hold up another;
its agent calls `SlotWork.handle`, one event at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import RebuildError, SeqmarkError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds
from processor.state.kv.store import CorruptStoreError
from processor.wire.decode import Chunk
from processor.worker.slot_state import SlotLife, SlotState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.context import Context
    from processor.worker.drain_goal import DrainGoal
    from processor.worker.open_slot import OpenSlot
    from processor.worker.standstill import Standstill

log = logging.getLogger(__name__)

ROOM = 4
"""Chunks fetched ahead: at 1 MiB each, times slots, a bound for memory."""
LOOK_AGAIN_S = 0.1
"""Where a position is out of range by one answer of the broker's, and within by the next."""


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

    slot: SlotWork
    work: Chunk | Skip | Tick


class SlotWork:
    """The work on a slot during one try.

    Args:
        life: The slot's; nothing is done but in `SlotState.WORKING`.
        slot: Restored.
        goal: Told of partitions in which there is nothing more.
        standstill: Told of every fetch.
        put: Puts an event into the slot's channel.
    """

    def __init__(
        self,
        context: Context,
        life: SlotLife,
        slot: OpenSlot,
        goal: DrainGoal,
        standstill: Standstill,
        put: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._context = context
        self._name = slot.kind.hop.name
        self._life = life
        self._slot = slot
        self._goal = goal
        self._standstill = standstill
        self._put = put
        self._room = asyncio.Semaphore(ROOM)
        self._tick: asyncio.TimerHandle | None = None
        self._puts: set[asyncio.Future[None]] = set()

    async def fetch(self, pipeline: SlotPipeline) -> None:
        """Fetch from where the partitions stand, until something fails; raises that."""
        source = self._slot.kind.topics.source
        positions = {
            TopicPartition(source, number): partition.position.next_offset
            for number, partition in pipeline.partitions.items()
        }
        contact = self._context.metrics.contact
        leaders = {tp: f"the leader of {tp.topic}:{tp.partition}" for tp in positions}

        def owed(asked: Iterable[TopicPartition]) -> None:
            contact.asked(leaders[tp] for tp in asked)

        def heard(answered: Iterable[TopicPartition]) -> None:
            for tp in answered:
                contact.answered(leaders[tp])

        with contextlib.ExitStack() as held:
            held.callback(contact.forget, leaders.values())
            fetcher = Fetcher(self._slot.client, self._standstill.saw, owed, heard)
            held.enter_context(contextlib.closing(fetcher))
            while True:
                try:
                    chunks = await fetcher.fetch(positions)
                except OutOfRangeError as error:
                    heard([error.partition])
                    await self._out_of_range(error, positions)
                    continue
                for chunk in chunks:
                    after = self._context.decoder.next_offset(chunk)
                    if after is None:
                        self._idle(chunk)
                        continue
                    await self._room.acquire()
                    # A batch that cannot be walked over leaves the position: the agent stops at it.
                    positions[TopicPartition(chunk.topic, chunk.partition)] = after
                    await self._put(Event(self, chunk))

    def _idle(self, chunk: Chunk) -> None:
        self._goal.nothing_in(chunk)
        lag = self._context.metrics.lag.labels(self._name, str(chunk.partition))
        lag.set(max(0, chunk.last_stable_offset - chunk.position))
        self._context.progressed()

    async def _out_of_range(self, error: OutOfRangeError, positions: dict[TopicPartition, int]) -> None:
        tp = error.partition
        limits = (await bounds(self._slot.client, [tp]))[tp]
        if error.position > limits.end:
            raise StopError(
                f"{tp.topic}:{tp.partition} ends at {limits.end}, but {error.position} has been read "
                "already: the topic was deleted and made anew, or lost records. Its state does not "
                "fit; see 'A source made anew' in docs/operations.md."
            )
        if error.position < limits.start:
            await self._room.acquire()
            positions[tp] = limits.start
            await self._put(Event(self, Skip(tp.partition, limits.start)))
        else:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def handle(self, work: Chunk | Skip | Tick) -> None:
        """Do one event's work. Never raises."""
        slot = self._slot
        async with slot.busy:
            pipeline = slot.usable
            if self._life.state is not SlotState.WORKING or pipeline is None:
                return
            try:
                match work:
                    case Chunk():
                        await pipeline.take(work)
                    case Skip():
                        pipeline.skip(work.partition, work.offset)
                    case Tick():
                        self._tick = None
                await self._commit_if_due(pipeline)
            except CorruptStoreError as error:
                slot.fail(RebuildError("local", f"local state: {error}"))
            except SeqmarkError as error:
                slot.fail(error)
            except Exception as error:
                log.exception("%s: unexpected", self._life.name)
                slot.fail(StopError(f"{self._life.name}: unexpected {error!r}"))
            finally:
                if not isinstance(work, Tick):
                    self._room.release()

    async def _commit_if_due(self, pipeline: SlotPipeline) -> None:
        due_at = pipeline.due_at(self._context.commit_interval_s)
        if due_at is None:
            return
        left = due_at - time.monotonic()
        if left <= 0:
            await pipeline.commit()
            self._slot.trim(pipeline)
            self._context.progressed()
        elif self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(left, self._put_tick)

    def _put_tick(self) -> None:
        put = asyncio.ensure_future(self._put(Event(self, Tick())))
        self._puts.add(put)
        put.add_done_callback(self._puts.discard)

    def stop(self) -> None:
        """Put no tick any more."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
