"""A pipeline in memory whose quarantine is judged again: the worker's own slot, and the redrive's own commits.

world = World({"mode": "watermark", ...})
world.come([(b"k", 7, True)])          # key, number, whether it is too large for the sink by now
world.redrive()                        # by a sink that takes everything
assert world.numbers("clean") == [7]
assert world.certified().ok
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from processor.kafka.client import TopicPartition
from processor.kafka.topics.plan import TopicView, plan
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops_of
from processor.reset.redrive.work import RedriveChoice, RedriveReport, RedriveWork, opened_state
from processor.state.changelog import read_head
from processor.state.clock_history import ClockHistory
from processor.verify.certificate import RedrivenRecords
from processor.verify.partition import PartitionCheck
from processor.verify.report import VerifyReport
from processor.verify.span import VerifySpan
from processor.verify.streams import PartitionStreams
from processor.wire.decode import Decoder
from processor.wire.encode import plain_batch
from processor.wire.quarantine import QuarantineIndex, read_record
from schemas.config import Settings
from seqmark.in_memory.cluster import MemoryCluster
from seqmark.in_memory.ports import MemoryChangelog, MemoryProducer, Wire
from seqmark.in_memory.slot import Machine, MemorySlot
from tests.support.kafka.topics import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from processor.engine.batch.columns import Columns
    from processor.wire.decode import Piece

NOW_MS = 1_700_000_000_000
NARROW, WIDE = 400, 1_048_588
APPLICATION, FORMER = "a", "a-p-0-of-1"


class World:
    """One source partition of a pipeline.

    Args:
        dedup: Of the pipeline.
    """

    def __init__(self, dedup: dict[str, Any]) -> None:
        names = {"name": "p", "source": "s", "sink": "clean", "duplicates": "receipts", "quarantine": "bad"}
        given: dict[str, Any] = {
            "kafka": {"bootstrap_servers": "x:1"},
            "worker": {"application_id": APPLICATION, "slots": 1},
            "pipelines": [{**names, "dedup": dedup}],
        }
        self.settings = Settings.model_validate(given)
        self.now_ms = NOW_MS
        view = {"s": TopicView(1, 1, {"max.message.bytes": str(WIDE)})}
        topics = {topic.topic: topic for topic in plan(self.settings, view).topics}
        (self.pipeline,) = self.settings.pipelines
        (hop,) = hops_of(self.settings, self.pipeline)
        self.kind = kind_of(self.settings, hop, topics)
        self.cluster, self.wire = MemoryCluster(), Wire()
        states = itertools.count(1)
        self.machine = Machine(
            lambda: self.now_ms / 1000, lambda size: bytes([next(states)]) * size, lambda: self.now_ms
        )

    # ---------------------------------------------------------------- what happens

    def come(self, some: Iterable[tuple[bytes | None, int, bool]], at_ms: int | None = None) -> None:
        """Have records come that a worker takes in, which begins with the local state that it left."""
        for key, number, large in some:
            value = b"%d" % number + b"\n" + (bytes(range(256)) * 3 if large else b"")
            headers = [("n", number.to_bytes(8, "big", signed=True)), ("own", None)]
            batch = plain_batch([(key, value, at_ms or self.now_ms, headers)])
            self.cluster.log("s", 0).append(batch.build(-1, -1, -1, transactional=False))
        asyncio.run(self._work())

    async def _work(self) -> None:
        self._limit(NARROW)
        slot = MemorySlot(self.kind, APPLICATION, self.cluster, self.machine, self.wire)
        await slot.open([0])
        while await slot.take(0):
            pass
        await slot.pipeline.finish()
        slot.trim()

    def redrive(
        self, choice: RedriveChoice | None = None, limit_bytes: int = WIDE, *, dry: bool = False
    ) -> RedriveReport:
        """Judge again what a sink takes now."""
        self._limit(limit_bytes)
        return asyncio.run(self._redrive(choice or RedriveChoice(), dry=dry))

    def _limit(self, limit_bytes: int) -> None:
        self.kind.topics = replace(self.kind.topics, sink_limit_bytes=limit_bytes)

    async def _redrive(self, choice: RedriveChoice, *, dry: bool) -> RedriveReport:
        owner = self.cluster.fence(FORMER)
        changelog = self._changelog()
        limits = await changelog.bounds()
        head = await read_head(changelog, limits.start, limits.stable)
        if head.position is None or head.origin is None:
            return RedriveReport(0)
        index = QuarantineIndex("s", 0)
        reader = Reader(self, "bad")
        async for columns, _ in reader.columns(0, reader.end):
            index.take(columns)
        work = RedriveWork(self.kind, 0, index, head.position, head.origin, choice)
        if work.span[0] == work.span[1]:
            return work.report
        partition = await opened_state(self.kind, 0, head.position, changelog, 1.0, lambda: self.now_ms)
        partition.changelog_end = limits.end
        if self.pipeline.id_dedup is None:
            await work.learn(partition.judge, reader.columns)
        producer = MemoryProducer(self.cluster, owner, self.wire)
        output = None if dry else ExactlyOnceOutput(producer, APPLICATION, "s")
        async with aclosing(reader.pieces(*work.span)) as pieces:
            await work.run(pieces, partition, output, lambda _: None)
        return work.report

    def _changelog(self) -> MemoryChangelog:
        tp = TopicPartition(self.kind.topics.changelog, 0)
        return MemoryChangelog(self.cluster, tp, Decoder(), self.wire)

    # ---------------------------------------------------------------- what is there

    def records(self, topic: str) -> list[Record]:
        """Return all committed records of a topic."""
        return asyncio.run(self._records(topic))

    async def _records(self, topic: str) -> list[Record]:
        reader, found = Reader(self, topic), []
        async for columns, _ in reader.columns(0, reader.end):
            for row in range(len(columns)):
                key, value, at_ms, headers = read_record(columns, row)
                named = tuple((name.decode() if isinstance(name, bytes) else name, v) for name, v in headers)
                found.append(Record(0, int(columns.offset[row]), key, value, named, at_ms, True))
        return found

    # ---------------------------------------------------------------- what is proved

    def certified(self) -> VerifyReport:
        """Have a certificate compare everything."""
        return asyncio.run(self._certified())

    async def _certified(self) -> VerifyReport:
        changelog = self._changelog()
        limits = await changelog.bounds()
        head = await read_head(changelog, limits.start, limits.stable)
        assert head.position is not None
        assert head.origin is not None
        stop = head.position.next_offset
        history = None
        if self.pipeline.id_dedup is not None:
            history = ClockHistory(changelog, limits.start, arrival=self.pipeline.id_dedup.time == "arrival")
            await history.read(limits.stable)
            assert history.known_from == 0
        report = VerifyReport("p", 0, 0, stop)
        streams: Any = _Streams(self)
        outputs: Any = {topic: _Output(streams, topic) for topic in self.pipeline.outputs}
        check = PartitionCheck(
            self.pipeline,
            outputs,
            report,
            None if history is None else history.clock,
            secret=None if history is None else history.secret,
        )
        ends: Any = {topic: (0, (0, outputs[topic].floor, outputs[topic].floor)) for topic in outputs}
        bounds = _Limits(Reader(self, "bad").end)
        ends["bad"] = (0, bounds)
        span = VerifySpan(report, 0, committed=False, stable=stop, outputs=ends, origin=head.origin)
        again = RedrivenRecords(streams, span, check)
        await again.find()
        source = Reader(self, "s")
        async for columns, after in source.columns(0, stop):
            await again.take(columns, after)
        await again.take_up_to(stop)
        await check.settle()
        await check.finish()
        return report


class Reader:
    """Reads a topic of a world, as `PartitionReader` does."""

    def __init__(self, world: World, topic: str) -> None:
        self._world, self._topic = world, topic
        self._decoder = Decoder()

    @property
    def end(self) -> int:
        """Where what is committed ends."""
        return self._world.cluster.log(self._topic, 0).stable

    async def pieces(self, start: int, stop: int) -> AsyncGenerator[Piece]:
        at = start
        while at < stop:
            chunk = self._world.cluster.fetch(self._topic, 0, at, 600)
            for piece in self._decoder.pieces(chunk):
                at = piece.next_offset
                yield piece

    async def columns(self, start: int, stop: int) -> AsyncGenerator[tuple[Columns, int]]:
        async for piece in self.pieces(start, stop):
            yield piece.up_to(stop)


class _Limits:
    def __init__(self, stable: int) -> None:
        self.start, self.stable, self.end = 0, stable, stable


class _Streams:
    """What a certificate asks of `PartitionStreams`."""

    number = 0
    theirs: dict[str, Any] = {}  # noqa: RUF012 - nobody shares a topic

    def __init__(self, world: World) -> None:
        self.world, self.pipeline = world, world.pipeline

    def quarantine_again(self) -> Reader:
        return Reader(self.world, "bad")

    def own(self, topic: str, columns: Columns) -> Columns:
        return PartitionStreams.own(self, topic, columns)  # type: ignore[arg-type]  # all that it asks for


class _Output:
    """A topic as an `align.Stream`."""

    def __init__(self, streams: _Streams, topic: str) -> None:
        reader = Reader(streams.world, topic)
        self.name, self.floor = f"{topic}:0", reader.end
        self._streams, self._topic = streams, topic
        self._pieces = reader.columns(0, reader.end)

    async def next(self, *, wait: bool) -> Columns | None:
        del wait
        async for columns, _ in self._pieces:
            return self._streams.own(self._topic, columns)
        return None


def killed_after(steps: int) -> Callable[..., None]:
    """Return a listener that ends a redrive after so many steps of its commits."""
    left = itertools.count(1)

    def listen(_step: object, _name: str) -> None:
        if next(left) == steps:
            raise KeyboardInterrupt

    return listen
