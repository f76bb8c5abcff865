"""The life of one slot during one assignment: it opens, works, and reacts to what fails.

Its states and their order are those of `processor.worker.slot_state`. Whatever fails in a try ends in one of
three reactions: rebuild (drop producer and tables, begin the next try), rejoin (another holds the id, and the
group does not say that the slot is ours), stop (the worker ends, with what to do).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, SeqmarkError, StopError
from processor.kafka.client import METADATA_MAX_AGE_MS, KafkaError
from processor.kafka.transactions.fencing import SlotId
from processor.kafka.transactions.pace import Pace
from processor.ops.metrics import State
from processor.worker.drain_goal import DrainGoal
from processor.worker.open_slot import OpenSlot
from processor.worker.slot_state import SlotLife, SlotState
from processor.worker.slot_work import SlotWork
from processor.worker.standstill import Standstill

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.hops import Hop
    from processor.pipeline.ports import Topics
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.context import Context
    from processor.worker.slot_work import Event

# Partitions are added to the source and to the topics that are written to at different moments. Those that
# are in all of them go on; the others wait, and begin once they can.

log = logging.getLogger(__name__)

LOOK_S = min(METADATA_MAX_AGE_MS / 1000, 10.0)
SAY_S = 60.0


class LatePartitions:
    """Tells the partitions of a slot that wait from those that can be worked on; ``numbers`` are both."""

    def __init__(self, context: Context, hop: Hop, name: str, numbers: list[int]) -> None:
        self._context = context
        self._hop = hop
        self._name = name
        self._numbers = numbers
        self._late: list[int] = []
        self._said_at = -math.inf
        self.waits = ""
        """Which partitions wait for which topics; empty if none do."""

    async def able(self) -> tuple[HopKind, list[int]]:
        """Return the work as the topics are, and the partitions that can begin; waits while there are none.

        Raises:
            StopError: A topic is not as it must be.
            RebuildError: The broker does not say.
        """
        while True:
            kind = await self._context.work(self._hop)
            topics, width = kind.topics, kind.topics.width
            able = [number for number in self._numbers if number < width]
            self._late = [number for number in self._numbers if number >= width]
            self.waits = (
                f"partitions {self._late} of {topics.source} wait: one of {', '.join(topics.needed)} "
                f"has {width} partitions only; add partitions to it"
                if self._late
                else ""
            )
            self._say()
            if able:
                return kind, able
            await asyncio.sleep(LOOK_S)
            self._context.look_again()

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Have the slot rebuilt with the partitions that wait, once they can begin."""
        while self._late:
            await asyncio.sleep(LOOK_S)
            self._say()
            self._context.look_again()
            try:
                kind = await self._context.work(self._hop)
            except RebuildError:
                continue
            except SeqmarkError as error:
                fail(error)
                return
            if min(self._late) < kind.topics.width:
                fail(RebuildError("topics", f"partitions {self._late} need not wait any more"))
                return

    def _say(self) -> None:
        now = time.monotonic()
        if self.waits and now - self._said_at >= SAY_S:
            self._said_at = now
            log.warning("%s: %s", self._name, self.waits)


BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 5.0
FENCED_AGAIN_S = 60.0
"""Within it a slot that is fenced once more is given back: far longer than two rivals take to fence each
other, and a transaction's time-out is seldom shorter."""
WARN_AGAIN_S = 60.0
CLOSE_S = 4.0
"""How long giving a slot up may wait for its last commit; SIGTERM has 10 s in all."""


class SlotRun:
    """One slot during one assignment, with its source partitions; ``put`` puts an event into its channel."""

    def __init__(
        self,
        context: Context,
        hop: Hop,
        slot: int,
        partitions: list[int],
        put: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._id = SlotId(context.application_id, hop.name, slot, context.slots)
        self.partitions = tuple(partitions)
        """Of the source, those that wait for others included."""
        self.name = self._id.transactional_id
        """The transactional id, as the log names a slot."""
        self._context = context
        self._put = put
        self._life = SlotLife(self.name)
        self._task: asyncio.Task[None] | None = None
        self._slot: OpenSlot | None = None
        self._dropping: asyncio.Task[None] | None = None
        self._goal = DrainGoal(context, partitions)
        self._late = LatePartitions(context, hop, self.name, partitions)
        self._standstill = Standstill(hop.name, context.metrics)
        self._trouble = ""
        self._no_topics = False
        self._warned, self._warned_at = "", -math.inf
        self._fenced_at = -math.inf
        self._refused: Topics | None = None
        self._stops_before: dict[int, int] = {}
        self._pace = Pace(context.transaction_timeout_ms / 1000)

    @property
    def state(self) -> SlotState:
        """What it is doing."""
        return self._life.state

    @property
    def ready(self) -> bool:
        """Whether it works on all its partitions."""
        return self._life.state is SlotState.WORKING and not self._late.waits

    @property
    def working(self) -> SlotPipeline | None:
        """The pipeline while it works: its judges know what is committed; None: that is not known now."""
        if self._slot is None or self._life.state is not SlotState.WORKING:
            return None
        return self._slot.usable

    @property
    def reason(self) -> str:
        """Why it is not ready: what it was rebuilt for last, or what it waits for."""
        return self._trouble or self._late.waits or "restoring"

    @property
    def held_up(self) -> State | None:
        """What keeps it from working, if it is not a restore: partitions wait, or a try has failed."""
        if self._late.waits or (self._no_topics and self._life.state is not SlotState.WORKING):
            return State.WAITING
        failed = self._life.state in {SlotState.DROPPING, SlotState.PAUSING, SlotState.HALTED}
        return State.RETRYING if failed or (self._trouble and not self.ready) else None

    @property
    def drained(self) -> bool:
        """Whether all partitions are committed up to where they ended when they were assigned."""
        pipeline = None if self._slot is None else self._slot.pipeline
        return self.ready and pipeline is not None and self._goal.reached_by(pipeline)

    async def settled(self) -> None:
        """Wait until what was committed last can be read."""
        if self._slot is not None:
            await self._slot.settled()

    def start(self) -> None:
        """Begin to live; returns at once."""
        self._task = asyncio.create_task(self._live(), name=f"slot {self.name}")

    async def _live(self) -> None:
        pause = BACKOFF_FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._try()
            except Exception as error:  # noqa: BLE001 - each has its reaction
                if not await self._goes_on_after(error):
                    self._enter(SlotState.HALTED)
                    return
            self._enter(SlotState.PAUSING)
            pause = BACKOFF_FIRST_S if time.monotonic() - began > BACKOFF_LAST_S else pause * 2
            await asyncio.sleep(min(pause, BACKOFF_LAST_S))

    def _enter(self, state: SlotState) -> None:
        """Go on in life, unless it is being closed, and a library has swallowed that this was cancelled."""
        if self._life.state is SlotState.CLOSING:
            raise asyncio.CancelledError
        self._life.enter(state)

    async def _try(self) -> None:
        """Open the slot and work; raises what fails."""
        self._enter(SlotState.WAITING)
        kind, numbers = await self._late.able()
        slot = self._slot = OpenSlot(self._context, self._id, kind, numbers)
        self._enter(SlotState.FENCING)
        await slot.fence()
        self._enter(SlotState.RESTORING)
        pipeline = await slot.restore(self._goal.ends_at, self._stops_before, self._pace)
        self._enter(SlotState.WORKING)
        self._trouble = ""
        log.info("%s: ready, partitions %s", self.name, numbers)
        self._context.progressed()
        await self._work(slot, pipeline)

    async def _work(self, slot: OpenSlot, pipeline: SlotPipeline) -> None:
        work = SlotWork(self._context, self._life, slot, self._goal, self._standstill, self._put)
        fetching = asyncio.create_task(work.fetch(pipeline), name=f"fetch {self.name}")
        beside = (
            asyncio.create_task(self._goal.learn(slot), name=f"upstream {self.name}"),
            asyncio.create_task(self._late.watch(slot.fail), name=f"late {self.name}"),
        )
        try:
            await asyncio.wait({fetching, slot.failed}, return_when=asyncio.FIRST_COMPLETED)
            for done in (slot.failed, fetching):
                if done.done():
                    done.result()
        finally:
            work.stop()
            for task in (fetching, *beside):
                task.cancel()
            # What has failed is said even where the slot is closed meanwhile: `_enter` goes no further then.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(fetching, *beside, return_exceptions=True)

    # ---------------------------------------------------------------- reactions

    async def _goes_on_after(self, error: Exception) -> bool:
        """React to what a try has failed for, and drop what it held; return whether there is another try."""
        match error:
            case FencedError():
                # Said at once: a zombie's revocation may be next.
                log.warning("%s: %s; asking the group who owns it", self.name, error)
                await self._drop("fenced")
                if not await self._is_ours():
                    log.warning("%s: not known to be ours, joining the group again", self.name)
                    self._context.membership.rejoin()
                    return False
                log.warning("%s: ours by the group's word, rebuilding", self.name)
                self._context.look_again()
            case RebuildError():
                if error.reason == "too_large" and not self._limits_may_have_changed():
                    return await self._stop(StopError(f"{error}; limits were read again and have not changed"))
                self._trouble, self._no_topics = str(error), error.reason == "topics"
                self._warn(f"rebuilding: {error}")
                self._context.look_again()
                await self._drop(error.reason)
            case SeqmarkError():
                doubt = "" if self._slot is None else await self._slot.contradiction()
                if not doubt:
                    return await self._stop(error)
                # One broker's word is not the cluster's: a deposed leader tells of logs as they were.
                self._trouble = f"{doubt}; asking again before this counts: {error}"
                log.warning("%s: rebuilding: %s", self.name, self._trouble)
                self._context.look_again()
                await self._drop("leader")
            case KafkaError() | OSError():
                brokers = self._context.settings.kafka.bootstrap_servers
                self._trouble = f"cannot reach Kafka at {brokers}, retrying: {error!r}"
                self._warn(self._trouble)
                await self._drop("connection")
            case _:
                log.error("%s: unexpected", self.name, exc_info=error)
                await self._drop("unexpected")
                self._context.fail(StopError(f"{self.name}: unexpected {error!r}"))
                return False
        return True

    def _warn(self, text: str) -> None:
        """Log why a try has failed; not again soon what each try fails for, nor what the worker has said."""
        now_s = time.monotonic()
        is_new = text != self._warned or now_s - self._warned_at > WARN_AGAIN_S
        if is_new:
            self._warned, self._warned_at = text, now_s
        is_said = self._context.metrics.contact.lost or not is_new
        log.log(logging.DEBUG if is_said else logging.WARNING, "%s: %s", self.name, text)

    async def _stop(self, error: SeqmarkError) -> bool:
        await self._drop("stop")
        self._context.fail(error)
        return False

    def _limits_may_have_changed(self) -> bool:
        """Whether a topic that refuses a batch was not looked at since it last refused one."""
        topics = None if self._slot is None else self._slot.kind.topics
        before, self._refused = self._refused, topics
        return before is None or before != topics

    async def _is_ours(self) -> bool:
        """Whether the group says that the slot is still ours, though its transactional id was taken from us.

        The coordinator itself may: it forgets an id that was idle for `transactional.id.expiration.ms`, and
        raises the epoch when a transaction has timed out. To fence again is safe whoever is right, for nobody
        writes before he has fenced and restored. So that two do not do so in turns for ever, a second time soon
        after is left to the group.
        """
        last, self._fenced_at = self._fenced_at, time.monotonic()
        return self._fenced_at - last > FENCED_AGAIN_S and await self._context.membership.current()

    # ---------------------------------------------------------------- ending

    async def close(self) -> None:
        """Finish or abort what is in flight and give everything up; never raises, never hangs."""
        was_working = self._life.state is SlotState.WORKING
        self._life.enter(SlotState.CLOSING)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if was_working and self._slot is not None:
            await self._finish(self._slot)
        await self._let_go("revoked")
        self._life.enter(SlotState.CLOSED)

    async def _finish(self, slot: OpenSlot) -> None:
        try:
            async with asyncio.timeout(CLOSE_S), slot.busy:
                # Whoever held the lock may have failed.
                if (pipeline := slot.usable) is not None:
                    await pipeline.finish()
                elif slot.failed.done():
                    log.warning("%s: not committed: %s", self.name, slot.failed.exception())
        except (TimeoutError, SeqmarkError) as error:
            log.warning("%s: last commit: %r", self.name, error)

    async def _drop(self, reason: str) -> None:
        self._enter(SlotState.DROPPING)
        await self._let_go(reason)

    async def _let_go(self, reason: str) -> None:
        """Give up what the try holds, in a task of its own: who is cancelled must not leave a table open."""
        await self._let_gone()
        slot, self._slot = self._slot, None
        if slot is not None:
            self._dropping = asyncio.create_task(slot.drop(reason), name=f"drop {self.name}")
            await self._let_gone()

    async def _let_gone(self) -> None:
        if self._dropping is not None:
            await asyncio.shield(self._dropping)
