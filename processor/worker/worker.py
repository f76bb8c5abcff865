"""Runs the slots that the group assigns to this worker.

It joins the group, makes a `SlotRun` for each slot it is given, gives them up at each rebalance, and ends when
it is asked to, when something cannot go on, or when it is drained.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from processor.engine.verdict import Fault
from processor.kafka.client import Client, TopicPartition, check_aiokafka
from processor.kafka.group.membership import Membership
from processor.kafka.options import client_options
from processor.kafka.protocol.throttling import Throttling
from processor.ops.memory_limit import watch
from processor.ops.metrics import OBSERVING, State
from processor.ops.status_text import duration
from processor.pipeline.hops import hops
from processor.state.home import Home
from processor.worker.context import Context
from processor.worker.slot import SlotRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from processor.kafka.group.assignor import WebAddress
    from processor.ops.metrics import Metrics
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.slot_work import Event
    from schemas.config import Settings

Found = TypeVar("Found")

log = logging.getLogger(__name__)

IDLE_LOOK_S = 1.0
IDLE_S = 5.0
"""A rebalance in good order takes less; a fresh broker makes its offsets topic in less, too."""
IDLE_AGAIN_S = 60.0
CONTACT_LOOK_S = 1.0
FAILURES_LOOK_S = 1.0


def _unseen(topics: list[str]) -> str:
    names = ", ".join(topics)
    return (
        f"the group's leader sees no partition of {names}: nobody works on it. The topic is gone, or the "
        "leader may not DESCRIBE it; it looks again every minute"
    )


def _count(client: Client, topic: str) -> int:
    """Return how many partitions a topic has, as far as this worker sees."""
    return len(client.partitions(topic))


class Worker:
    """One worker process's work.

    Args:
        settings: Checked already; topics exist.
        put: Puts an event into the channel of (pipeline name, slot number).
        drain: End once everything assigned is committed up to where it ended when it was assigned.
        take_over_sink: Commit at each assignment, so that the sinks are this application's.
        web: Where its web server listens, for the other workers of the group.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        put: Callable[[str, int, Event], Awaitable[None]],
        *,
        drain: bool = False,
        take_over_sink: bool = False,
        web: WebAddress | None = None,
    ) -> None:
        check_aiokafka()
        self._settings = settings
        self._metrics = metrics
        self._put = put
        self._drain = drain
        self._take_over_sink = take_over_sink
        self._web = web
        self._home = Home(settings.worker.state_dir, settings.worker.application_id)
        self._pipelines = {hop.source: hop for hop in hops(settings)}
        self._runs: dict[tuple[str, int], SlotRun] = {}
        self._partitions: dict[str, list[int]] = {}
        self._assigned = False
        self._membership: Membership | None = None
        self._context: Context | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group_says = ""
        self._settling: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # At scrape time: what is not ready any more makes no progress that could say so.
        metrics.ready.set_function(lambda: self.ready)
        metrics.held_up = self._held_up

    async def start(self) -> None:
        """Join the group.

        Raises:
            KafkaError: No broker answers.
        """
        worker = self._settings.worker
        # From the first restore on: that is where an index grows fastest.
        watching = watch(worker.memory_limit, self._metrics, self.end, self._waiting_bytes)
        self._tasks.append(asyncio.create_task(watching, name="memory"))
        options: dict[str, Any] = client_options(self._settings.kafka)
        options["throttling"] = Throttling(self._metrics.throttled, self._metrics.throttled_until_s)
        client = await Client.open(options, f"{worker.application_id}-group", list(self._pipelines))
        for pipeline in self._pipelines.values():
            codes = [fault.code for fault in Fault if fault]
            observes, name = pipeline.pipeline.observe, pipeline.pipeline.name
            self._metrics.expect(pipeline.name, codes, collisions=pipeline.has_collisions, observes=observes)
            if observes and name not in self._metrics.notes:
                self._metrics.notes[name] = OBSERVING
                log.info("pipeline %s: %s", name, OBSERVING)
            # Asked when somebody scrapes: partitions are added while nothing is assigned here.
            self._metrics.source_partitions.labels(pipeline.name).set_function(
                partial(_count, client, pipeline.source)
            )
        self._membership = Membership(
            client,
            worker.application_id,
            dict.fromkeys(self._pipelines, worker.slots),
            worker.session_timeout_ms,
            worker.group_instance_id,
            self._web,
            self._metrics.contact,
        )
        self._context = Context(
            self._settings,
            options,
            self._membership,
            self._home,
            self._metrics,
            self.end,
            self._progressed,
            self._drain,
            self._take_over_sink,
        )
        self._context.escapes.start()
        await self._membership.join(self)
        self._tasks += [
            asyncio.create_task(self._watch_group(self._membership), name="group"),
            asyncio.create_task(self._say_why_idle(self._membership), name="idle"),
            asyncio.create_task(self._watch_failures(self._context), name="failures"),
            asyncio.create_task(self._watch_contact(), name="contact"),
        ]

    async def _watch_group(self, membership: Membership) -> None:
        try:
            await membership.failed()
        except Exception as error:  # noqa: BLE001 - whatever the group says ends the worker
            self.end(error)

    async def _say_why_idle(self, membership: Membership) -> None:
        """Log why the group gives no work, within seconds, then sparingly: aiokafka asks on in silence."""
        said, said_at, idle_since = "", 0.0, time.monotonic()
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            now = time.monotonic()
            if self._assigned:
                idle_since = now
            unseen = membership.unseen() if self._assigned else []
            if unseen:
                why = _unseen(unseen)
            elif now - idle_since >= IDLE_S:
                why = await membership.cause()
            else:
                why = ""
            self._group_says = why
            if why and (why != said or now - said_at >= IDLE_AGAIN_S):
                log.warning("%s", why)
                said_at = now
            said = why

    async def _watch_failures(self, context: Context) -> None:
        """Have judged by what has come of each pipeline where nothing more comes, or comes slowly."""
        while True:
            await asyncio.sleep(FAILURES_LOOK_S)
            for failures in context.failures.values():
                failures.look()

    async def _watch_contact(self) -> None:
        """Log that brokers do not answer, and that they do again: one line each."""
        contact, lost_s = self._metrics.contact, 0.0
        while True:
            await asyncio.sleep(CONTACT_LOOK_S)
            if contact.lost:
                if not lost_s:
                    log.warning("%s, trying again", contact.words())
                lost_s = max(lost_s, contact.silent_s)
            elif lost_s:
                log.warning("brokers answer again, after %s", duration(lost_s))
                lost_s = 0.0

    def _held_up(self, hop: str) -> State | None:
        """Say what keeps slots of a hop from working, if it is not a restore."""
        unseen = [] if self._membership is None or not self._assigned else self._membership.unseen()
        if any(self._pipelines[topic].name == hop for topic in unseen):
            return State.WAITING
        found = {run.held_up for (name, _), run in list(self._runs.items()) if name == hop}
        return next((each for each in (State.WAITING, State.RETRYING) if each in found), None)

    def _waiting_bytes(self) -> int:
        return 0 if self._context is None else self._context.waiting_bytes()

    def end(self, error: Exception | None = None) -> None:
        """Make `wait` return, or raise ``error``; the first call counts."""
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
                self._ended.exception()  # nobody waits yet where the start fails for another reason as well

    async def wait(self) -> None:
        """Wait until the worker is to stop; raises what ended it."""
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Give up all slots, leave the group, release the state folder; within about 10 s."""
        self._drain = False
        for task in self._tasks:
            task.cancel()
        await self.revoked()
        for failures in self._context.failures.values() if self._context is not None else ():
            failures.end()
        if self._context is not None:
            await self._context.escapes.stop()
        if self._membership is not None:
            await self._membership.leave()
        self._home.release()

    # ------------------------------------------------- called by the membership

    async def revoked(self) -> None:
        """Give everything up; nothing of it is written afterwards."""
        self._assigned = False
        runs, self._runs = self._runs, {}
        await asyncio.gather(*(run.close() for run in runs.values()))
        for name, numbers in self._partitions.items():
            self._metrics.assigned.labels(name).set(0)
            for number in numbers:
                self._metrics.forget(name, number)
        self._partitions = {}

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start a run for each slot; fencing and restoring go on while the group polls."""
        context = self._context
        if context is None:
            return
        context.look_again()
        slots = self._settings.worker.slots
        by_slot: dict[tuple[str, int], list[int]] = defaultdict(list)
        for tp in sorted(partitions):
            by_slot[tp.topic, tp.partition % slots].append(tp.partition)
        for (topic, slot), numbers in by_slot.items():
            pipeline = self._pipelines[topic]
            self._partitions.setdefault(pipeline.name, []).extend(numbers)
            put = partial(self._put, pipeline.name, slot)
            self._runs[pipeline.name, slot] = SlotRun(context, pipeline, slot, numbers, put)
        for pipeline in self._pipelines.values():
            count = len(self._partitions.get(pipeline.name, ()))
            self._metrics.assigned.labels(pipeline.name).set(count)
        self._assigned = True
        for run in self._runs.values():
            run.start()
        self._progressed()

    # ------------------------------------------------- what others ask

    @property
    def ready(self) -> bool:
        """Whether the group has assigned something (or nothing), all of it is restored, and brokers answer.

        Nothing is nothing to do only where the group's leader sees the sources: then others have it all.
        """
        if not self._assigned or self._membership is None or self._membership.unseen():
            return False
        return all(run.ready for run in self._runs.values()) and not self._metrics.contact.lost

    @property
    def reason(self) -> str:
        """Why it is not ready; empty if it is."""
        if self.ready:
            return ""
        if self._metrics.contact.lost:
            return self._metrics.contact.words()
        if not self._assigned or self._membership is None:
            return self._metrics.doing.text or self._group_says or "the group is rebalancing"
        if unseen := self._membership.unseen():
            return _unseen(unseen)
        return "; ".join(sorted(f"{run.name}: {run.reason}" for run in self._runs.values() if not run.ready))

    async def look_up(self, name: str, look: Callable[[list[SlotPipeline]], Found]) -> Found | None:
        """Look something up in the committed states of a hop, in a turn between two pieces; None: not begun.

        Args:
            name: The hop's.
            look: Called with the slots that work; reads, changes nothing, and awaits nothing.
        """
        context = self._context
        if context is None:
            return None

        def step() -> Found:
            runs = (run.working for (hop, _), run in sorted(self._runs.items()) if hop == name)
            return look([slot for slot in runs if slot is not None])

        return await context.turns.take(step, long=False)

    @property
    def runs(self) -> Mapping[tuple[str, int], SlotRun]:
        """The slots that it has now, by hop and number."""
        return self._runs

    @property
    def membership(self) -> Membership | None:
        """Its place in the group; None before it asks for one."""
        return self._membership

    def _progressed(self) -> None:
        if self._is_drained and self._settling is None:
            self._settling = asyncio.create_task(self._end_drained(), name="drained")
            self._tasks.append(self._settling)

    @property
    def _is_drained(self) -> bool:
        if not self._drain or not self.ready or self._membership is None:
            return False
        # Partitions that the leader does not know of yet are nobody's: they would be left.
        return not self._membership.undealt() and all(run.drained for run in self._runs.values())

    async def _end_drained(self) -> None:
        """End once what was committed can be read: `EndTxn` is answered before its markers are everywhere."""
        await asyncio.gather(*(run.settled() for run in self._runs.values()))
        self._settling = None
        if self._is_drained:
            log.info("drained: %s slots", len(self._runs))
            self.end()
