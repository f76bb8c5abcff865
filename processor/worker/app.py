"""The Faust application that holds a worker together. The only importer of faust.

Faust supervises: the agents (one per hop and slot, each on a channel of its own, so that a slot that waits for
its commit does not hold up another), the web server. Its own Kafka path is switched off (docs/decisions/0006):
per record, it is a hundred times slower, and its tables lead what Kafka committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from aiohttp.web import AppRunner  # of Faust's own web server

from processor.errors import SeqmarkError, StopError, ending_signals
from processor.kafka.client import KafkaError
from processor.kafka.group.assignor import WebAddress
from processor.kafka.topics.writers import require_own_sinks
from processor.ops.metrics import Doing, State
from processor.ops.push import pushed
from processor.ops.status_text import COMPILING, duration
from processor.ops.troubles import Troubles, secrets_of
from processor.ops.web_port import address_of, listen, machine
from processor.pipeline.hops import hops
from processor.pipeline.warm import compiled, compiling_alone, warm
from processor.worker.web.connections import Connections
from processor.worker.web.guard import SERVER
from processor.worker.web.site import Answers, Site
from processor.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Collection

    from processor.ops.metrics import Metrics

# Once per machine and version it takes a minute or two, which looks like a worker that hangs; afterwards
# kernels are loaded, within a second or two. It is done in a thread: the event loop answers `/health`
# meanwhile. Of several first workers on a machine one compiles, and the others wait for it.

log = logging.getLogger(__name__)

LOOK_S = 0.5
SAY_S = 10.0
WAITING = "waiting for another process, which compiles kernels for this machine"


async def compile_kernels(modes: Collection[str], metrics: Metrics) -> None:
    """Compile or load the kernels of these modes; ``metrics.doing`` and the log say how far it is."""
    with compiling_alone(modes) as is_turn:
        while not is_turn():
            if metrics.doing.text != WAITING:
                metrics.doing = Doing(WAITING, state=State.COMPILING)
                log.info(WAITING)
            await asyncio.sleep(LOOK_S)
        await _compile(modes, metrics)


async def _compile(modes: Collection[str], metrics: Metrics) -> None:
    before, began_s, said_s = compiled(), time.monotonic(), -SAY_S
    parts = [(0, 0)]
    metrics.doing = Doing("loading kernels", state=State.COMPILING)
    work = asyncio.ensure_future(asyncio.to_thread(warm, modes, lambda *part: parts.append(part)))
    while not (await asyncio.wait([work], timeout=LOOK_S))[0]:
        done, total = parts[-1]
        if not (kernels := compiled() - before):
            continue
        metrics.doing = Doing(COMPILING, done, total, State.COMPILING)
        if (now_s := time.monotonic() - began_s) - said_s >= SAY_S:
            said_s = now_s
            log.info(
                "%s, which takes a minute or two: %s%s compiled in %s",
                COMPILING,
                f"part {done} of {total}, " if total else "",
                kernels,
                duration(now_s),
            )
    work.result()
    if kernels := compiled() - before:
        took = duration(time.monotonic() - began_s)
        log.info("%s kernels compiled in %s; the next start loads them", kernels, took)


with contextlib.ExitStack() as _restored:
    # `import faust` reads --datadir, -L and --loop from sys.argv: ours are none of its business.
    _given, sys.argv = sys.argv, sys.argv[:1]
    _restored.callback(setattr, sys, "argv", _given)
    import faust
    from faust.app import BootStrategy
    from faust.web.base import BlueprintManager

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterable, Sequence

    from processor.ops.metrics import Metrics
    from processor.worker.slot_work import Event
    from schemas.config import Settings


STOP_S = 7.0
"""SIGTERM ends the worker within 10 s whatever hangs, the end of the process itself included, which takes one
or two where the cores are taken; what was in flight is then aborted by the next owner's fence."""


class _NoKafka(BootStrategy):  # type: ignore[misc]  # faust is untyped
    """Start agents, services and the web server, but not Faust's consumer, producer and tables."""

    enable_kafka = False


class _Sites:
    """What Faust's web server serves: sockets that listen already."""

    def __init__(self, runner: Any, sockets: Sequence[socket.socket], connections: Connections) -> None:
        self._sites = [connections.site(runner, each) for each in sockets]

    async def start(self) -> None:
        """Answer from here on."""
        for site in self._sites:
            await site.start()


class Application:
    """The Faust app around one `Worker`, whose arguments it takes; its web server serves ``sockets``."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        sockets: Sequence[socket.socket],
        *,
        answers: Answers | None = None,
        drain: bool = False,
        take_over_sink: bool = False,
    ) -> None:
        self._settings = settings
        self._take_over_sink = take_over_sink
        self._stopped = False
        self._keeping: asyncio.Task[None] | None = None
        self.metrics = metrics
        worker = settings.worker
        self._faust = faust.App(
            worker.application_id,
            broker="kafka://",
            store="memory://",
            # Otherwise Faust makes a folder `<id>-data` wherever the worker is started.
            datadir=str(worker.state_dir / worker.application_id / "faust"),
            autodiscover=False,
            topic_disable_leader=True,
            web_enabled=bool(sockets),
        )
        self._faust.boot_strategy = _NoKafka(self._faust)
        # Faust's own pages show its tables, routes and settings, which are not ours.
        web = self._faust.web
        web.blueprints = BlueprintManager()
        web._runner = AppRunner(web.web_app, access_log=None, **SERVER)  # noqa: SLF001 - Faust's has no bounds
        connections = Connections()
        connections.bound(web.web_app)
        web._create_site = lambda: _Sites(web._runner, sockets, connections)  # noqa: SLF001 - it would bind a port
        self._channels: dict[tuple[str, int], Any] = {}
        for hop in hops(settings):
            for slot in range(worker.slots):
                self._add_agent(hop.name, slot)
        where = address_of(sockets)
        self.worker = Worker(
            settings,
            self.metrics,
            self._put,
            drain=drain,
            take_over_sink=take_over_sink,
            web=None if where is None else WebAddress(*where, machine()),
        )
        self.troubles = Troubles(secrets_of(settings))
        self._site = Site(settings, metrics, self.worker, self.troubles, answers or Answers(), drain=drain)
        self._site.views().add_to(web.web_app)

    def _add_agent(self, pipeline: str, slot: int) -> None:
        channel = self._faust.channel()
        self._channels[pipeline, slot] = channel

        async def agent(events: AsyncIterable[Event]) -> None:
            async for event in events:
                await event.slot.handle(event.work)

        self._faust.agent(channel, name=f"{pipeline}.{slot}")(agent)

    async def _put(self, pipeline: str, slot: int, event: Event) -> None:
        await self._channels[pipeline, slot].put(event)

    async def serve(self) -> None:
        """Answer at the web server: alive, and not ready yet."""
        await self._faust.start()
        self._faust.flow_control.resume()
        if self._faust.conf.web_enabled:
            self._keeping = asyncio.create_task(self._site.board.keep(), name="board")

    async def run(self) -> None:
        """Run until asked to stop, drained, or something cannot go on.

        Raises:
            SeqmarkError: What ended it.
        """
        if not self._take_over_sink:
            await require_own_sinks(self._settings, self._settings.pipelines)
        # Before anything is assigned: nothing is compiled inside a commit.
        await compile_kernels({pipeline.dedup.mode for pipeline in self._settings.pipelines}, self.metrics)
        # What the libraries have made stays until the end. Each full collection would walk through all of it,
        # for about 50 ms in which no record moves.
        gc.collect()
        gc.freeze()
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in ending_signals():
                loop.add_signal_handler(number, self.worker.end)
        self.metrics.doing = Doing("")
        try:
            await self._join()
            await self.worker.wait()
        except SeqmarkError as error:
            # For the seconds in which everything is given up.
            self.troubles.add("error", str(error))
            raise
        finally:
            log.info("stopping")
            await self.stop()

    async def _join(self) -> None:
        try:
            await self.worker.start()
        except KafkaError as error:
            raise StopError(f"the consumer group cannot be joined: {error!r}") from error

    async def stop(self) -> None:
        """Give everything up, within `STOP_S`; once."""
        if self._stopped:
            return
        self._stopped = True
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            async with asyncio.timeout(STOP_S):
                await self.worker.stop()
                await self._faust.stop()
        except TimeoutError:
            log.warning("not everything could be given up in %s s", STOP_S)


async def run_worker(
    settings: Settings,
    metrics: Metrics,
    *,
    drain: bool = False,
    take_over_sink: bool = False,
    sockets: Sequence[socket.socket] | None = None,
    around: contextlib.AbstractAsyncContextManager[None] | None = None,
    answers: Answers | None = None,
) -> None:
    """Run a worker in this process until it ends, counting in ``metrics``.

    Args:
        settings: Checked already.
        metrics: Of this worker alone.
        drain: End once everything assigned is committed up to where it ended when it was assigned.
        take_over_sink: Write into a sink that another application owns (`processor.kafka.topics.writers`).
        sockets: From `processor.ops.web_port.listen`; None: it listens itself.
        around: Is entered when the web server answers, before anything else is done; the worker runs in it. Not
            given: the topics are right already.
        answers: What the program that runs it answers for its page.

    Raises:
        SeqmarkError: It could not go on.
    """
    try:
        listening = listen(settings.worker) if sockets is None else sockets
        application = Application(
            settings, metrics, listening, answers=answers, drain=drain, take_over_sink=take_over_sink
        )
        await application.serve()
        try:
            with application.troubles.heard():
                async with pushed(settings.worker, metrics), around or contextlib.nullcontext():
                    await application.run()
        finally:
            await application.stop()
    except SeqmarkError:
        raise
    except Exception as error:
        log.exception("unexpected")
        raise StopError(f"unexpected {error!r}") from error
