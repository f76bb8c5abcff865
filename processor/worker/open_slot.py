"""Opens a slot for one try, and gives up what the try holds.

In the order of docs/architecture.md ("Slots"): fence, restore, position (`processor.worker.open_partition`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.errors import RebuildError
from processor.kafka.client import Change, Client, TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.transactions.broker_time import BrokerTime, ClockMove
from processor.kafka.transactions.fencing import fenced
from processor.kafka.transactions.output import AtLeastOnceOutput, ExactlyOnceOutput
from processor.kafka.trim import Trimmer
from processor.ops.memory_limit import give_back
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.worker.open_partition import PartitionOpener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.fencing import SlotId
    from processor.kafka.transactions.pace import Pace
    from processor.kafka.transactions.producer import Producer
    from processor.pipeline.hop_kinds import HopKind
    from processor.worker.context import Context


class OpenSlot:
    """What a slot holds during one try, which works on the source partitions ``numbers``.

    Attributes:
        kind: Of its hop.
        pipeline: From `restore` to `drop`.
        failed: Raises what the try has failed for, from wherever that was noticed.
        busy: Held by whoever uses the pipeline.
    """

    def __init__(self, context: Context, slot: SlotId, kind: HopKind, numbers: list[int]) -> None:
        self._context = context
        self._id = slot
        self._numbers = numbers
        self._clients: list[Client] = []
        self._ids: dict[str, bytes] = {}
        self._producer: Producer | None = None
        self._trimmer = Trimmer()
        self._trim_client: Client | None = None
        self.kind = kind
        self.pipeline: SlotPipeline | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.busy = asyncio.Lock()

    @property
    def client(self) -> Client:
        """The one to fetch with, which is opened first."""
        return self._clients[0]

    async def contradiction(self) -> str:
        """Say in what a second broker does not confirm what the slot was opened with; empty: in nothing."""
        return await self._clients[0].contradiction() if self._clients else ""

    @property
    def usable(self) -> SlotPipeline | None:
        """The pipeline until something fails: what was judged and not sent must not be committed."""
        return None if self.failed.done() else self.pipeline

    def fail(self, error: Exception) -> None:
        """Make `failed` raise ``error``; the first call counts."""
        if not self.failed.done():
            self.failed.set_exception(error)
            # Nobody waits for it where the slot is being given up: what ended the worker has been said.
            self.failed.exception()

    async def connect(self, what: str, *topics: str) -> Client:
        """Open connections that know ``topics``, until `drop`."""
        client_id = f"{self._id.transactional_id}-{what}"
        if (throttling := self._context.options.get("throttling")) is not None:
            throttling.hops[client_id] = self._id.pipeline
        # All connections of a slot speak of the same topics, from when it was opened.
        client = await Client.open(self._context.options, client_id, topics, self._ids, self._topic_changed)
        self._clients.append(client)
        return client

    def _topic_changed(self, topic: str, change: Change) -> None:
        # The topics and their settings are looked at again, and the state says whether it fits them.
        self.fail(RebuildError("topics", f"{topic}: {change}"))

    async def fence(self) -> None:
        """Connect, and take the transactional id: whoever held it can write no more."""
        topics = self.kind.topics
        await self.connect("fetch", topics.source, *topics.written)
        if self.kind.deletes:
            # Of its own: a leader answers one request of a connection after the other, and one to delete waits
            # for its followers, which no fetch should.
            self._trim_client = await self.connect("trim", topics.changelog, topics.source)
        self._producer = await self._fenced(self._id, self._numbers)
        self._broker_time = BrokerTime(self._producer.beginning)

    async def _fenced(self, slot: SlotId, numbers: Sequence[int]) -> Producer:
        context, topics = self._context, self.kind.topics
        return await fenced(
            await self.connect("produce", *topics.written),
            slot.transactional_id if context.exactly_once else None,
            context.transaction_timeout_ms,
            [TopicPartition(*each) for each in topics.written_from(numbers)],
            failed=self.fail,
        )

    async def restore(
        self,
        ends_at: Callable[[Mapping[TopicPartition, Bounds]], None],
        stops_before: dict[int, int],
        pace: Pace,
    ) -> SlotPipeline:
        """Open all partitions, commit where they begin, and return what their chunks go through.

        First ``ends_at`` is told where a source ends; an internal topic is filled on. ``stops_before`` and
        ``pace`` are what the tries of the slot tell one another (`processor.pipeline.piece`).

        Raises:
            RebuildError: The local state is corrupt; it is thrown away.
            StopError: State and source do not fit each other, or the config.
        """
        assert self._producer is not None  # noqa: S101 - of `fence`
        context, topics = self._context, self.kind.topics
        pipeline = self.pipeline = SlotPipeline(
            self.kind,
            self._output(self._producer),
            context.decoder,
            context.encoders.of(topics.sink),
            context.metrics,
            turns=context.turns,
        )
        pipeline.failures = context.failures_of(self.kind.hop)
        pipeline.stops_before = stops_before
        pipeline.pace = pace
        opener = PartitionOpener(context, self._id, self.kind, self.client, self._fenced)
        limits = await bounds(self.client, [TopicPartition(topics.source, number) for number in self._numbers])
        if self.kind.upstream is None:
            ends_at(limits)
        for tp, found in limits.items():
            await opener.partition(pipeline, tp, found)
        # Nobody uses any more what the many small pieces of a restore lay in.
        await asyncio.to_thread(give_back)
        async with self.busy:
            await pipeline.commit()
        return pipeline

    async def _require_clock(self) -> None:
        """Keep a wrong clock of this machine from being committed as a partition's."""
        source, partitions = self.kind.topics.source, self.pipeline.partitions if self.pipeline else {}
        clocks = (
            (f"{source}:{number}", each.judge.clock_move) for number, each in partitions.items() if each.moved
        )
        await self._broker_time.require(ClockMove(where, *move) for where, move in clocks if move is not None)

    def _output(self, producer: Producer) -> ExactlyOnceOutput | AtLeastOnceOutput:
        context, source = self._context, self.kind.topics.source
        if context.exactly_once:
            return ExactlyOnceOutput(producer, context.application_id, source, self._require_clock)
        return AtLeastOnceOutput(producer, context.membership, source)

    def trim(self, pipeline: SlotPipeline) -> None:
        """Have deleted what the committed states need no more, from the changelogs and an internal topic."""
        topics = self.kind.topics
        for topic, offsets in (
            (topics.changelog, pipeline.take_changelog_trims()),
            (topics.source, pipeline.take_source_trims()),
        ):
            for number, offset in offsets.items():
                assert self._trim_client is not None  # noqa: S101 - of `fence`
                self._trimmer.want(self._trim_client, TopicPartition(topic, number), offset)

    async def settled(self) -> None:
        """Wait until what was committed last can be read; where that fails, the slot has."""
        if self._producer is not None:
            await self._producer.settled()

    async def drop(self, reason: str) -> None:
        """Give up producer, tables and connections; an open transaction is aborted or left to be fenced.

        The metric of aborted transactions has ``reason``.
        """
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None and pipeline.begun_at is not None:
            pipeline.pace.failed()
            self._context.metrics.transactions_aborted.labels(self.kind.hop.name, reason).inc()
        if self._producer is not None:
            # Only where nobody follows at once: a rebuild fences, which aborts too, and does so when the broker
            # is well: one that shuts down leaves markers out (see `processor.kafka.transactions.markers`).
            if reason in {"stop", "revoked"}:
                await self._producer.abort()
            await self._producer.close()
        await self._trimmer.close()
        # The agent may still be inside `SlotWork.handle`: a closed producer makes it come out.
        async with self.busy:
            for partition in (pipeline.partitions if pipeline else {}).values():
                partition.table.close()
        for client in self._clients:
            await client.close()
