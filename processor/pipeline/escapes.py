"""Runs the escape gauges of a worker beside its work, and has workers share their samples.

A task takes in what was committed, once a second, and another per pipeline writes what is new into the
pipeline's sample topic every few seconds and reads what others have written. From the topic's beginning, at
first: so the sample outlives a worker, and a partition that moves is known where it comes to.

Invariant: nothing waits for any of it, and nothing fails with it. Without the topic each worker knows its
own partitions since its start, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.engine.bytes.siphash import words_of_key
from processor.errors import SeqmarkError
from processor.judges.escapes.gauge import MOST_SLOTS, WAITING_ROWS, EscapeGauge
from processor.judges.escapes.message import SENDER_BYTES, messages, read_message
from processor.kafka.client import KafkaError
from processor.kafka.topics.board import BoardTopic
from processor.kafka.topics.sample import sample_topic
from processor.pipeline.hops import FirstHop, hops
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.judges.escapes.statements import Covered
    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.pipeline.hops import Hop
    from schemas.config import Settings

log = logging.getLogger(__name__)

KEEP_UP_S = 1.0
SHARE_S = 5.0
"""Between two rounds: three small requests, about 3 ms of CPU."""
AGAIN_S = 60.0
"""After a failure; the sample goes on meanwhile."""
FIRST_S = 2.0
"""A broker that is well says in milliseconds which topic it has."""
LAST_S = 1.0
"""What stopping may wait for: one small request."""
PATIENCE_S = 30.0
"""So long the sample waits for what was written before: what it draws lies ready."""

AT_ONCE_ROWS = 1_024
AHEAD_MS = 60_000
"""Clocks of machines with NTP are apart by milliseconds."""


@dataclass(slots=True)
class _Reached:
    """How far which topic has been read."""

    topic_id: bytes = b""
    position: int = 0


class EscapeWatch:
    """The gauges of all pipelines that have ids; none where ``worker.escape_gauge`` is off.

    Args:
        settings: Checked.
        options: Keyword arguments of an aiokafka client.
    """

    def __init__(self, settings: Settings, options: Mapping[str, Any], metrics: Metrics) -> None:
        self._settings = settings
        self._options = options
        self._metrics = metrics
        # Its own: a thread may be opening records with that of the slots.
        self._decoder = Decoder()
        self._sender = os.urandom(SENDER_BYTES)
        # A test need not wait for a round.
        self._faster = float(os.environ.get("SEQMARK_TEST_SHARE_FASTER", "1"))
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._filled: set[str] = set()
        some = hops(settings) if settings.worker.escape_gauge else []
        self._hops = {
            hop.name: hop for hop in some if hop.pipeline.id_dedup is not None and not isinstance(hop, FirstHop)
        }
        halvings = max(0, len(self._hops) - 1).bit_length()
        most = MOST_SLOTS >> halvings, WAITING_ROWS >> halvings
        self._gauges = {
            name: EscapeGauge(
                name,
                dedup.window,
                words_of_key(os.urandom(16)),
                *most,
                scattered=not hop.pipeline.routed,
            )
            for name, hop in self._hops.items()
            if (dedup := hop.pipeline.id_dedup) is not None
        }
        self._keyed = {name: asyncio.Event() for name in self._gauges}
        self._show()

    def watch(self, hop: Hop, judge: Judge, partition: int) -> None:
        """Have what a judge lets pass sampled, where its hop has a gauge."""
        gauge = self._gauges.get(hop.name)
        if gauge is not None:
            judge.sample_for(gauge, partition)

    async def start(self) -> None:
        """Begin; waits a little until ids are hashed as others do: what was drawn before is of no use."""
        if not self._gauges:
            return
        self._tasks.append(asyncio.create_task(self._keep_up(), name="escape gauge"))
        for name, gauge in self._gauges.items():
            sharing = self._share(self._hops[name], gauge)
            self._tasks.append(asyncio.create_task(sharing, name=f"sample of {name}"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await asyncio.gather(*(each.wait() for each in self._keyed.values()))

    async def stop(self) -> None:
        """End; what was committed last is still counted, and told to others where that is done soon."""
        self._ending.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for gauge in self._gauges.values():
            gauge.keep_up()
        self._show()

    async def _ends_within(self, seconds: float) -> bool:
        """Wait, and say whether it ends."""
        try:
            async with asyncio.timeout(seconds / self._faster):
                await self._ending.wait()
        except TimeoutError:
            return False
        return True

    def _show(self) -> None:
        for name, gauge in self._gauges.items():
            self._metrics.escapes.reports[name] = gauge.report()

    async def _keep_up(self) -> None:
        waited = 0.0
        while not await self._ends_within(KEEP_UP_S):
            waited += KEEP_UP_S
            for name, gauge in self._gauges.items():
                if name in self._filled or waited > PATIENCE_S:
                    gauge.keep_up()
                    await asyncio.sleep(0)
            self._show()

    # ------------------------------------------------- the topic

    async def _share(self, hop: Hop, gauge: EscapeGauge) -> None:
        """Tell others what is sampled here, and hear them, for as long as the worker runs."""
        said, reached = "", _Reached()
        while not gauge.off and not self._ending.is_set():
            try:
                await self._share_until_it_fails(hop, gauge, reached)
            except (KafkaError, SeqmarkError, OSError, TimeoutError) as error:
                why = str(error) or repr(error)
                if why != said:
                    log.warning(
                        "%s: the escape gauge goes by what this worker alone has judged since its start: %s; "
                        "nothing else is different. See 'What escapes' in docs/operations.md",
                        hop.name,
                        why,
                    )
                said = why
            except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
                gauge.fail(error)
            finally:
                gauge.shared = False
                gauge.tell(tells=False)
                self._filled.add(hop.name)
                self._keyed[hop.name].set()
            await self._ends_within(AGAIN_S)

    async def _share_until_it_fails(self, hop: Hop, gauge: EscapeGauge, reached: _Reached) -> None:
        topic = sample_topic(self._settings, hop.pipeline)
        client_id = f"{self._settings.worker.application_id}-{hop.name}-sample"
        board = await BoardTopic.open(self._options, client_id, topic, hop.source, self._decoder)
        try:
            gauge.tell(tells=True)
            if board.topic_id != reached.topic_id:
                reached.topic_id, reached.position = board.topic_id, 0
                gauge.begin(words_of_key(_key(board.topic_id, topic)))
                self._keyed[hop.name].set()
                await self._fill(hop, board, gauge)
            else:
                board.position = reached.position
            self._filled.add(hop.name)
            gauge.shared = True
            ends = False
            while not gauge.off:
                for message in messages(self._sender, gauge.unsaid()):
                    await board.write(message)
                if ends:
                    return
                async for value in board.read():
                    await self._hear(hop, board, gauge, value)
                reached.position = board.position
                ends = await self._ends_within(SHARE_S)
        finally:
            await board.close()

    async def _fill(self, hop: Hop, board: BoardTopic, gauge: EscapeGauge) -> None:
        """Hear all that was written before."""
        levels: dict[int, int] = {}
        async for value in board.read():
            for covered in await self._hear(hop, board, gauge, value):
                levels[covered.partition] = covered.level
        gauge.resume(max(levels.values(), default=0))

    async def _hear(self, hop: Hop, board: BoardTopic, gauge: EscapeGauge, value: bytes) -> list[Covered]:
        """Take in a message, whoever has written it: between two awaits a thousand rows of it."""
        await asyncio.sleep(0)
        dedup = hop.pipeline.id_dedup
        ahead_ms = AHEAD_MS + (0 if dedup is None else dedup.max_ahead or 0)
        try:
            sender, said = read_message(value, board.partitions, int(time.time() * 1000) + ahead_ms)
        except ValueError:
            return []  # of a later version, or somebody else's
        if sender == self._sender:
            return []
        for covered in said:
            for part in covered.parts(AT_ONCE_ROWS):
                gauge.hear(part)
                await asyncio.sleep(0)
        return said


def _key(topic_id: bytes, topic: str) -> bytes:
    """Return the key of hashes: equal for all who share the topic, and unknown to whoever may not see it."""
    return hashlib.blake2b(topic.encode(), digest_size=16, key=topic_id, person=b"seqmark escapes").digest()
