"""Proves all partitions of some pipelines, two at a time.

While one waits for its bytes the other is compared. Each has its own connections and buffers, so that memory
does not grow with the number of partitions.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import bounds, committed
from processor.kafka.reader import PartitionReader, StepOver
from processor.kafka.topics.ensure import connected, describe
from processor.kafka.topics.plan import changelog_topic
from processor.verify.partition import Outputs, PartitionCheck
from processor.verify.report import VerifyReport
from processor.verify.shared_topics import others
from processor.verify.span import find_span, moved_on
from processor.verify.streams import LOST, PATIENCE_S, OutputStream, reader
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from processor.kafka.client import Client
    from processor.kafka.topics.plan import ClusterView
    from processor.verify.span import VerifySpan
    from schemas.config import Pipeline, Settings

AT_ONCE = 2
CLIENT_ID = "seqmark-verify"
_AS_A_RESET = StepOver(damage="", loss=LOST, to_the_end=True)


class Certificate:
    """The comparison of some pipelines.

    Args:
        settings: Checked already.
        pipelines: Which of them.
    """

    def __init__(self, settings: Settings, pipelines: Sequence[Pipeline]) -> None:
        self._settings = settings
        self._group = settings.worker.application_id
        self._pipelines = pipelines
        self._work: list[tuple[Pipeline, int, str | None]] = []
        self._beyond: list[TopicPartition] = []

    async def open(self) -> int:
        """Look at the topics; returns how many offsets there are to compare, about.

        Raises:
            StopError: No broker answers, or a topic is missing or does not fit its source.
        """
        check_aiokafka()
        async with connected(self._settings.kafka) as admin:
            view = await describe(admin, sorted(set(self._topics())))
        _require_topics(self._pipelines, view)
        for pipeline in self._pipelines:
            changelog = changelog_topic(self._settings, pipeline)
            numbers = range(view[pipeline.source].partitions)
            there = view[changelog].partitions if changelog in view else 0
            self._work += [(pipeline, number, changelog if number < there else None) for number in numbers]
            # Partitions are added to the outputs first; nobody writes to them before the source has them, too.
            # Where pipelines share one, another's source may have them.
            everybodys = [topic for each in self._settings.pipelines for topic in each.outputs]
            self._beyond += [
                TopicPartition(topic, number)
                for topic in pipeline.outputs
                if everybodys.count(topic) == 1
                for number in range(len(numbers), view[topic].partitions)
            ]
        return await self._offsets()

    def _topics(self) -> Iterator[str]:
        for pipeline in self._pipelines:
            yield from pipeline.outputs
            yield pipeline.source
            yield changelog_topic(self._settings, pipeline)

    async def _offsets(self) -> int:
        sources = [TopicPartition(pipeline.source, number) for pipeline, number, _ in self._work]
        async with self._connected() as client:
            known = await committed(client, self._group, sources)
            limits = await bounds(client, sources)
            beyond = await bounds(client, self._beyond)
        foreign = [f"{tp.topic}:{tp.partition}" for tp, each in beyond.items() if each.end > each.start]
        if foreign:
            raise StopError(
                f"{', '.join(foreign)}: holds records, and the source has no such partition: somebody else "
                "wrote them. Delete them (kafka-delete-records.sh), then prove again"
            )
        return sum(max(0, known.get(tp, limits[tp].stable) - limits[tp].start) for tp in sources)

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        topics = {topic for pipeline in self._pipelines for topic in (pipeline.source, *pipeline.outputs)}
        topics |= {changelog for _, _, changelog in self._work if changelog is not None}
        return open_client(self._settings.kafka, CLIENT_ID, topics)

    async def run(
        self, done: Callable[[VerifyReport], None], advance: Callable[[int], None]
    ) -> list[VerifyReport]:
        """Compare all partitions; returns their reports in order.

        Args:
            done: Called with each report, in order, as soon as it is there.
            advance: Called with the number of offsets compared since its last call.

        Raises:
            StopError: A source or output cannot be read.
        """
        reports: list[VerifyReport | None] = [None] * len(self._work)
        turn = iter(range(len(self._work)))
        reported = 0

        async def work() -> None:
            nonlocal reported
            async with self._connected() as client:
                decoders = [Decoder() for _ in range(4)]
                for index in turn:
                    reports[index] = await self._compare(client, decoders, *self._work[index], advance)
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

    async def _compare(
        self,
        client: Client,
        decoders: Sequence[Decoder],
        pipeline: Pipeline,
        partition: int,
        changelog: str | None,
        advance: Callable[[int], None],
    ) -> VerifyReport:
        shared = others(pipeline, self._settings.pipelines)
        span = await find_span(client, decoders[0], pipeline, partition, self._group, changelog, shared)
        report = VerifyReport(pipeline.name, partition, span.start, span.stop, judged_from=span.start)
        report.other_rules = span.other_rules
        report.unjudged, report.reset_ms = span.unjudged, span.reset_ms
        source = TopicPartition(pipeline.source, partition)
        streams = {
            topic: OutputStream(
                client, decoder, TopicPartition(topic, partition), *span.outputs[topic], shared.get(topic)
            )
            for topic, decoder in zip(pipeline.outputs, decoders[1:], strict=False)
        }
        outputs = Outputs(
            streams[pipeline.sink],
            streams.get(pipeline.duplicates or ""),
            streams.get(pipeline.quarantine or ""),
            span.receipts_begin_late,
        )
        clock = None if span.history is None else span.history.clock
        check = PartitionCheck(pipeline, outputs, report, clock, span.clock_known)
        if span.known_from < span.start:
            await _learn(client, decoders[0], pipeline, span, check)
        at = span.start
        while True:
            async with aclosing(reader(client, decoders[0], source).columns(at, report.stop)) as pieces:
                async for columns, after in pieces:
                    await check.take(columns)
                    advance(after - at)
                    at = after
            await check.settle()
            if report.given_up or not span.committed or await check.exhausted():
                break
            # A transaction becomes visible in one partition after the other: there may be output already whose
            # source offset is not committed yet.
            further = await moved_on(client, self._group, source, report.stop)
            if further is None:
                break
            if span.history is not None and not await span.history.reach(further, PATIENCE_S):
                raise StopError(
                    f"{source.topic}:{partition}: offset {further} is committed, and what the partition's "
                    "clock read up to there does not appear in the changelog. Run it again"
                )
            at, report.stop = report.stop, further
            for stream in streams.values():
                stream.go_on()
        await check.finish()
        for stream in streams.values():
            await stream.close()
        report.pending = max(0, span.stable - report.stop)
        return report


async def _learn(
    client: Client, decoder: Decoder, pipeline: Pipeline, span: VerifySpan, check: PartitionCheck
) -> None:
    """Judge what the state remembers of before a reset, as the reset did."""
    if pipeline.quarantine is not None:
        stop, held = span.outputs[pipeline.quarantine]
        quarantine = TopicPartition(pipeline.quarantine, check.partition)
        async with aclosing(reader(client, decoder, quarantine).columns(held.start, stop)) as pieces:
            async for columns, _ in pieces:
                check.recall(columns)
    source = TopicPartition(pipeline.source, check.partition)
    before = PartitionReader(client, decoder, source, _AS_A_RESET, ahead=True)
    async with aclosing(before.columns(span.known_from, span.start)) as pieces:
        async for columns, _ in pieces:
            check.learn(columns)


def _require_topics(pipelines: Sequence[Pipeline], view: ClusterView) -> None:
    wrong = []
    for pipeline in pipelines:
        missing = [topic for topic in (pipeline.source, *pipeline.outputs) if topic not in view]
        wrong += [f"{topic}: there is no such topic (pipeline {pipeline.name})" for topic in missing]
        if missing:
            continue
        number = view[pipeline.source].partitions
        wrong += [
            f"{topic}: has {view[topic].partitions} partitions, its source {pipeline.source} has {number}"
            for topic in pipeline.outputs
            if view[topic].partitions < number
        ]
    if wrong:
        raise StopError("there is nothing to compare:\n" + "\n".join(wrong))
