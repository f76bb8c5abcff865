"""How are all partitions of some pipelines proved?

Two at a time: while one waits for its bytes the other is compared. Each has its own connections and buffers, so
that memory does not grow with the number of partitions.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.client import Client, KafkaError, TopicPartition, check_aiokafka
from processor.kafka.offsets import bounds, committed
from processor.kafka.options import client_options
from processor.kafka.topics.ensure import changelog_topic, connected, describe
from processor.verify.partition import Outputs, PartitionCheck
from processor.verify.report import VerifyReport
from processor.verify.shared_topics import others
from processor.verify.span import find_limits, moved_on
from processor.verify.streams import PATIENCE_S, BrokenBatchError, OutputStream, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from processor.kafka.topics.ensure import ClusterView
    from processor.verify.span import VerifySpan
    from schemas.config import Pipeline, Settings

log = logging.getLogger(__name__)

AT_ONCE = 2
CLIENT_ID = "seqmark-verify"


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
        self._options: Mapping[str, Any] = {}
        self._work: list[tuple[Pipeline, int, str | None]] = []
        self._beyond: list[TopicPartition] = []

    async def open(self) -> int:
        """Look at the topics; returns how many offsets there are to compare, about.

        Raises:
            StopError: No broker answers, or a topic is missing or does not fit its source.
        """
        check_aiokafka()
        self._options = client_options(self._settings.kafka)
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
            everybodys = [topic for each in self._settings.pipelines for topic in _outputs(each)]
            self._beyond += [
                TopicPartition(topic, number)
                for topic in _outputs(pipeline)
                if everybodys.count(topic) == 1
                for number in range(len(numbers), view[topic].partitions)
            ]
        return await self._offsets()

    def _topics(self) -> Iterator[str]:
        for pipeline in self._pipelines:
            yield from _outputs(pipeline)
            yield pipeline.source
            yield changelog_topic(self._settings, pipeline)

    async def _offsets(self) -> int:
        sources = [TopicPartition(pipeline.source, number) for pipeline, number, _ in self._work]
        client = await self._connect()
        try:
            known = await committed(client, self._group, sources)
            limits = await bounds(client, sources)
            beyond = await bounds(client, self._beyond)
        finally:
            await client.close()
        foreign = [f"{tp.topic}:{tp.partition}" for tp, each in beyond.items() if each.end > each.start]
        if foreign:
            raise StopError(
                f"{', '.join(foreign)}: holds records, and the source has no such partition: somebody else "
                "wrote them. Delete them (kafka-delete-records.sh), then prove again"
            )
        return sum(max(0, known.get(tp, limits[tp].stable) - limits[tp].start) for tp in sources)

    async def _connect(self) -> Client:
        topics = {topic for pipeline in self._pipelines for topic in (pipeline.source, *_outputs(pipeline))}
        topics |= {changelog for _, _, changelog in self._work if changelog is not None}
        try:
            return await Client.open(self._options, CLIENT_ID, topics)
        except KafkaError as error:
            raise StopError(f"the broker does not answer: {error!r}") from error

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
        told = 0

        async def work() -> None:
            nonlocal told
            client = await self._connect()
            try:
                readers = [StreamReader(client) for _ in range(4)]
                for index in turn:
                    reports[index] = await self._compare(readers, *self._work[index], advance)
                    while told < len(reports) and (report := reports[told]) is not None:
                        done(report)
                        told += 1
            finally:
                await client.close()

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
        readers: Sequence[StreamReader],
        pipeline: Pipeline,
        partition: int,
        changelog: str | None,
        advance: Callable[[int], None],
    ) -> VerifyReport:
        shared = others(pipeline, self._settings.pipelines)
        limits = await find_limits(readers[0], pipeline, partition, self._group, changelog, shared)
        report = VerifyReport(pipeline.name, partition, limits.start, limits.stop, judged_from=limits.start)
        report.other_rules = limits.other_rules
        report.unjudged, report.reset_ms = limits.unjudged, limits.reset_ms
        source = TopicPartition(pipeline.source, partition)
        streams = {
            topic: OutputStream(
                reader, TopicPartition(topic, partition), *limits.outputs[topic], shared.get(topic)
            )
            for topic, reader in zip(_outputs(pipeline), readers[1:], strict=False)
        }
        outputs = Outputs(
            streams[pipeline.sink],
            streams[pipeline.duplicates] if pipeline.duplicates else None,
            streams[pipeline.quarantine] if pipeline.quarantine else None,
            limits.receipts_begin_late,
        )
        clock = None if limits.recording is None else limits.recording.clock
        check = PartitionCheck(pipeline, outputs, report, clock, limits.clock_known)
        if limits.known_from < limits.start:
            await _learn(readers, pipeline, limits, check)
        at = limits.start
        while True:
            async with aclosing(readers[0].pieces(source, at, report.stop)) as pieces:
                async for columns, after in pieces:
                    # What a fetch brings beyond the committed offset is not taken in yet.
                    await check.take(columns.rows(0, int(columns.offset.searchsorted(report.stop))))
                    advance(min(after, report.stop) - at)
                    at = min(after, report.stop)
            await check.settle()
            if report.given_up or not limits.committed or await check.exhausted():
                break
            # A transaction becomes visible in one partition after the other: there may be output already whose
            # source offset is not committed yet.
            further = await moved_on(readers[0].client, self._group, source, report.stop)
            if further is None:
                break
            if limits.recording is not None and not await limits.recording.reach(further, PATIENCE_S):
                raise StopError(
                    f"{source.topic}:{partition}: offset {further} is committed, and what the partition's "
                    "clock read up to there does not come to be seen in the changelog. Run it again"
                )
            at, report.stop = report.stop, further
            for stream in streams.values():
                stream.go_on()
        await check.finish()
        for stream in streams.values():
            await stream.close()
        report.pending = max(0, limits.stable - report.stop)
        return report


async def _learn(
    readers: Sequence[StreamReader], pipeline: Pipeline, limits: VerifySpan, check: PartitionCheck
) -> None:
    """Judge what the state remembers of before a reset, as the reset did."""
    partition = check.partition
    if pipeline.quarantine is not None:
        stop, held = limits.outputs[pipeline.quarantine]
        quarantine = TopicPartition(pipeline.quarantine, partition)
        async for columns, _ in readers[1].pieces(quarantine, held.start, stop):
            check.recall(columns.rows(0, int(columns.offset.searchsorted(stop))))
    source = TopicPartition(pipeline.source, partition)
    at = limits.known_from
    while at < limits.start:
        try:
            async with aclosing(readers[0].pieces(source, at, limits.start)) as pieces:
                async for columns, after in pieces:
                    check.learn(columns.rows(0, int(columns.offset.searchsorted(limits.start))))
                    at = after
            break
        except BrokenBatchError as error:
            # A reset has stepped over it: nothing of it is remembered.
            log.warning("%s; it lies before the last reset, and is stepped over", error)
            at = limits.start if error.next_offset is None else max(at + 1, error.next_offset)


def _outputs(pipeline: Pipeline) -> list[str]:
    return [topic for topic in (pipeline.sink, pipeline.duplicates, pipeline.quarantine) if topic is not None]


def _require_topics(pipelines: Sequence[Pipeline], view: ClusterView) -> None:
    wrong = []
    for pipeline in pipelines:
        missing = [topic for topic in (pipeline.source, *_outputs(pipeline)) if topic not in view]
        wrong += [f"{topic}: there is no such topic (pipeline {pipeline.name})" for topic in missing]
        if missing:
            continue
        number = view[pipeline.source].partitions
        wrong += [
            f"{topic}: has {view[topic].partitions} partitions, its source {pipeline.source} has {number}"
            for topic in _outputs(pipeline)
            if view[topic].partitions < number
        ]
    if wrong:
        raise StopError("there is nothing to compare:\n" + "\n".join(wrong))
