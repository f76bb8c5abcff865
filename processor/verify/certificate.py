"""Proves all partitions of some pipelines, two at a time.

While one waits for its bytes the other is compared. Each has its own connections and buffers, so that memory
does not grow with the number of partitions.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import aclosing
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import bounds, committed
from processor.kafka.reader import StepOver
from processor.kafka.topics.ensure import connected, describe, is_compacted
from processor.kafka.topics.plan import changelog_topic
from processor.verify.partition import PartitionCheck
from processor.verify.span import find_span
from processor.verify.streams import DECODERS, LOST, PATIENCE_S, OutputStream, PartitionStreams
from processor.verify.verdicts import VerdictCheck
from processor.wire.decode import Decoder
from processor.wire.quarantine import QuarantineIndex
from schemas.verdicts.record import UNKNOWN_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client
    from processor.kafka.topics.plan import ClusterView
    from processor.verify.report import VerifyReport
    from processor.verify.span import VerifySpan
    from processor.wire.quarantine import PlacedNote
    from schemas.config import Pipeline, Settings

AT_ONCE = 2
CLIENT_ID = "seqmark-verify"
_AS_A_RESET = StepOver(damage="", loss=LOST, to_the_end=True)


class Certificate:
    """The comparison of some pipelines of ``settings``."""

    def __init__(self, settings: Settings, pipelines: Sequence[Pipeline]) -> None:
        self._settings = settings
        self._group = settings.worker.application_id
        self._pipelines = pipelines
        self._topics: set[str] = set()
        self._compacted: set[str] = set()
        self._work: list[tuple[Pipeline, int, str | None]] = []
        self._beyond: list[TopicPartition] = []
        self.topic_ids: dict[str, bytes] = {}
        """By name, of what is compared, from `open` on; zeros where brokers say none."""

    async def open(self) -> int:
        """Look at the topics; returns how many offsets there are to compare, about.

        Raises:
            StopError: No broker answers, or a topic is missing or does not fit its source.
        """
        check_aiokafka()
        changelogs = [changelog_topic(self._settings, pipeline) for pipeline in self._pipelines]
        named = {topic for each in self._pipelines for topic in (each.source, *_written(each))}
        async with connected(self._settings.kafka) as admin:
            view = await describe(admin, sorted({*named, *changelogs}))
        _require_topics(self._pipelines, view)
        self._topics = set(view)
        self._compacted = {each.source for each in self._pipelines if is_compacted(view, each.source)}
        sharing = Counter(topic for each in self._settings.pipelines for topic in _written(each))
        for pipeline, changelog in zip(self._pipelines, changelogs, strict=True):
            width = view[pipeline.source].partitions
            there = view[changelog].partitions if changelog in view else 0
            self._work += [(pipeline, number, changelog if number < there else None) for number in range(width)]
            # Partitions are added to the outputs first; nobody writes to them before the source has them, too.
            # Where pipelines share one, another's source may have them.
            self._beyond += [
                TopicPartition(topic, number)
                for topic in _written(pipeline)
                if sharing[topic] == 1
                for number in range(width, view[topic].partitions)
            ]
        return await self._offsets()

    async def _offsets(self) -> int:
        sources = [TopicPartition(pipeline.source, number) for pipeline, number, _ in self._work]
        async with self._connected() as client:
            known = await committed(client, self._group, sources)
            limits = await bounds(client, sources)
            beyond = await bounds(client, self._beyond)
            self.topic_ids = dict(client.ids)
        foreign = [f"{tp.topic}:{tp.partition}" for tp, each in beyond.items() if each.end > each.start]
        if foreign:
            raise StopError(
                f"{', '.join(foreign)}: holds records, and the source has no such partition: somebody else "
                "wrote them. Delete them (kafka-delete-records.sh), then prove again"
            )
        return sum(max(0, known.get(tp, limits[tp].stable) - limits[tp].start) for tp in sources)

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        return open_client(self._settings.kafka, CLIENT_ID, self._topics)

    async def run(
        self, done: Callable[[VerifyReport], None], advance: Callable[[int], None]
    ) -> list[VerifyReport]:
        """Compare all partitions; returns their reports in order.

        ``done`` is called with each report, in order, as soon as it is there; ``advance`` with the number of
        offsets compared since its last call.

        Raises:
            StopError: A source or output cannot be read.
        """
        reports: list[VerifyReport | None] = [None] * len(self._work)
        turn = iter(range(len(self._work)))
        reported = 0

        async def work() -> None:
            nonlocal reported
            async with self._connected() as client:
                decoders = [Decoder() for _ in range(DECODERS)]
                for index in turn:
                    reports[index] = await _compare(self._streams(client, decoders, index), advance)
                    while reported < len(reports) and (report := reports[reported]) is not None:
                        done(report)
                        reported += 1

        tasks = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(self._work)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [report for report in reports if report is not None]

    def _streams(self, client: Client, decoders: Sequence[Decoder], index: int) -> PartitionStreams:
        pipeline, number, changelog = self._work[index]
        everybody = self._settings.pipelines
        compacted = pipeline.source in self._compacted
        return PartitionStreams(
            client, decoders, self._group, pipeline, everybody, number, changelog, compacted=compacted
        )


async def _compare(streams: PartitionStreams, advance: Callable[[int], None]) -> VerifyReport:
    """Compare one partition; returns what was found."""
    source = streams.source
    span = await find_span(streams)
    report, at = span.report, span.report.start
    outputs = {topic: OutputStream(streams, topic, *place) for topic, place in span.outputs.items()}
    check = PartitionCheck(
        streams.pipeline,
        outputs,
        report,
        None if span.history is None else span.history.clock,
        span.clock_known,
        receipts_begin_late=span.receipts_begin_late,
        secret=None if span.history is None else span.history.secret,
    )
    check.verdicts = _verdicts(streams, span, outputs)
    if span.brought:
        check.begin_with(span.brought)
    if span.known_from < at:
        await _learn(streams, span, check)
    again = RedrivenRecords(streams, span, check)
    await again.find()
    while True:
        async with aclosing(streams.reader(source.topic).pieces(at, report.stop)) as pieces:
            async for piece in pieces:
                columns, after = piece.up_to(report.stop)
                check.note(piece)
                await again.take(columns, after)
                advance(after - at)
                at = after
        await again.take_up_to(report.stop)
        await check.settle()
        if report.given_up or not span.committed or await check.exhausted():
            break
        # A transaction becomes visible in one partition after the other: there may be output already whose
        # source offset is not committed yet.
        further = await streams.moved_on(report.stop)
        if further is None:
            break
        if span.history is not None and not await span.history.reach(further, PATIENCE_S):
            raise StopError(
                f"{source.topic}:{source.partition}: offset {further} is committed, and what the partition's "
                "clock read up to there does not appear in the changelog. Run it again"
            )
        at, report.stop = report.stop, further
        for stream in outputs.values():
            stream.go_on()
    await check.finish()
    for stream in outputs.values():
        await stream.close()
    report.pending = max(0, span.stable - report.stop)
    return report


def _verdicts(
    streams: PartitionStreams, span: VerifySpan, outputs: dict[str, OutputStream]
) -> VerdictCheck | None:
    """Return what compares verdicts, with its stream beside the others; None: the pipeline writes none."""
    topic, counts = streams.pipeline.verdicts, not streams.pipeline.writes_records
    if topic is None or span.verdicts is None:
        return None
    stream = outputs[topic] = OutputStream(streams, topic, *span.verdicts)
    source_id = streams.client.ids.get(streams.source.topic, UNKNOWN_TOPIC)
    return VerdictCheck(stream, span.report, source_id, span.verdicts_from, counts=counts)


class RedrivenRecords:
    """Puts what a redrive has judged again where it did: behind all that was taken in by then.

    Only what a note in quarantine names is accepted out of the source's order. It has to be in quarantine, to
    pass or be dropped by the rules as the redrive applies them, and to be in the sink, or have a receipt there.

    Args:
        streams: Of the partition.
        span: What is compared.
        check: Compares it.
    """

    def __init__(self, streams: PartitionStreams, span: VerifySpan, check: PartitionCheck) -> None:
        self._streams, self._span, self._check = streams, span, check
        self._index = QuarantineIndex(streams.pipeline.source, streams.number)
        self._left: deque[PlacedNote] = deque()

    async def find(self) -> None:
        """Read the notes, and where there are any, what they name.

        Raises:
            StopError: A note cannot be read, or what it names is not retained any more.
        """
        quarantine = self._streams.pipeline.quarantine
        if quarantine is None or quarantine not in self._span.outputs:
            return
        begin, limits = self._span.outputs[quarantine]
        reader = self._streams.quarantine_again()
        async with aclosing(reader.columns(begin, limits.stable)) as pieces:
            async for columns, _ in pieces:
                self._index.take_notes(columns)
        self._left.extend(self._index.notes)
        named = [
            copy
            for placed in self._left
            async for _, copies in self._index.records_of(placed, reader.columns)
            for copy in copies
        ]
        self._check.expect_redriven(named)

    async def take(self, columns: Columns, after: int) -> None:
        """Have the source records up to before ``after`` compared, and what was judged again among them."""
        while self._left and self._left[0].note.position < after:
            cut = int(columns.offset.searchsorted(self._left[0].note.position))
            await self._check.take(columns.rows(0, cut))
            columns = columns.rows(cut, len(columns))
            await self._again(self._left.popleft())
        await self._check.take(columns)

    async def take_up_to(self, stop: int) -> None:
        """Have compared what was judged again up to the position ``stop``: all before it is compared."""
        while self._left and self._left[0].note.position <= stop:
            await self._again(self._left.popleft())

    async def _again(self, placed: PlacedNote) -> None:
        reader = self._streams.quarantine_again()
        async for columns, copies in self._index.records_of(placed, reader.columns):
            await self._check.take_again(columns, copies, placed.note, self._span.origin)


async def _learn(streams: PartitionStreams, span: VerifySpan, check: PartitionCheck) -> None:
    """Judge what the state remembers of before a reset, as the reset did."""
    quarantine = streams.pipeline.quarantine
    if quarantine is not None:
        stop, held = span.outputs[quarantine]
        async with aclosing(streams.reader(quarantine).columns(held.start, stop)) as pieces:
            async for columns, _ in pieces:
                check.recall(columns)
    before = streams.reader(streams.source.topic, _AS_A_RESET).columns(span.known_from, span.report.start)
    async with aclosing(before) as pieces:
        async for columns, _ in pieces:
            check.learn(columns)


def _written(pipeline: Pipeline) -> list[str]:
    """Return the topics that are compared with the source."""
    return [*pipeline.outputs, *filter(None, (pipeline.verdicts,))]


def _require_topics(pipelines: Sequence[Pipeline], view: ClusterView) -> None:
    wrong = []
    for pipeline in pipelines:
        missing = [topic for topic in (pipeline.source, *_written(pipeline)) if topic not in view]
        wrong += [f"{topic}: there is no such topic (pipeline {pipeline.name})" for topic in missing]
        if missing:
            continue
        number = view[pipeline.source].partitions
        wrong += [
            f"{topic}: has {view[topic].partitions} partitions, its source {pipeline.source} has {number}"
            for topic in _written(pipeline)
            if view[topic].partitions < number
        ]
    if wrong:
        raise StopError("there is nothing to compare:\n" + "\n".join(wrong))
