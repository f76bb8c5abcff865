"""The data source ``seqmark``: plans ranges of offsets, and reads them as Arrow batches.

Spark keeps in its checkpoint which ranges a batch has before it runs it; run again after a crash it has the
same records. A batch is all that was committed when it was planned, so batches grow with the backlog; a task
holds a few thousand records at a time, whatever its range.

Invariant: what is planned from one offset to the next is read without a gap or an overlap, of the topic with
the id that stands in both. By verdicts it is what the verdict records from one to the next let pass.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from typing_extensions import override

from processor.kafka.plain.topic_log import LogSpan, TopicLog
from processor.kafka.plain.verdict_log import VerdictLog
from spark_sink.source.options import SourceOptions
from spark_sink.source.place import SourcePlace
from spark_sink.source.planning.cut import EventTimeCut
from spark_sink.source.planning.planner import StreamPlanner, VerdictPlanner
from spark_sink.source.planning.times import TopicTimes
from spark_sink.source.rules import column_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from processor.kafka.plain.verdict_log import VerdictBounds, VerdictSpan
    from spark_sink.source.spans import SourceSpan

NAME = "seqmark"
RAW_SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
"""Columns of records as they are: those of Spark's Kafka source that a clean topic needs."""


@dataclass
class SpanPartition(InputPartition):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """What one task reads."""

    topic_id: str
    spans: tuple[SourceSpan, ...]
    verdicts_id: str = ""


class SeqmarkSource(DataSource):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """The source as Spark knows it; `spark_sink.register` makes it known."""

    @classmethod
    @override
    def name(cls) -> str:
        return NAME

    @override
    def schema(self) -> spark.StructType | str:
        """Return the columns: those of the model, of the partial aggregates, or of records as they are."""
        options = SourceOptions.of(self.options)
        if options.uncounted is not None:
            return options.uncounted.schema()
        if options.partials is not None:
            return options.partials.schema()
        if options.rules is None:
            return RAW_SCHEMA
        fields = [spark.StructField(rule.name, column_type(rule)) for rule in options.rules]
        if options.metadata or options.unreadable == "keep":
            fields += [
                spark.StructField("_partition", spark.IntegerType()),
                spark.StructField("_offset", spark.LongType()),
                spark.StructField("_timestamp", spark.TimestampType()),
                spark.StructField("_key", spark.BinaryType()),
            ]
        if options.unreadable == "keep":
            fields += [
                spark.StructField("_unreadable", spark.StringType()),
                spark.StructField("_value", spark.BinaryType()),
            ]
        return spark.StructType(fields)

    @override
    def reader(self, schema: spark.StructType) -> DataSourceReader:
        return TopicReader(SourceOptions.of(self.options))

    @override
    def streamReader(self, schema: spark.StructType) -> DataSourceStreamReader:
        options = SourceOptions.of(self.options)
        return TopicStreamReader(options) if options.verdicts is None else VerdictStreamReader(options)


class TopicReader(DataSourceReader):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """Reads all that is committed when the query is planned, or the spans that are asked for."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @override
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        _warm(options)
        spans: list[SourceSpan] | None = options.spans
        if options.verdicts is not None:
            both = VerdictLog.open(options.kafka, options.topic, options.verdicts)
            if spans is None:
                stream = VerdictStreamReader(options._replace(latest=False))
                spans = [*stream.spans(stream.initialOffset(), stream.latestOffset())]
            ids = both.source.id, both.verdicts.id
        else:
            log = TopicLog.open(options.kafka, options.topic)
            if spans is None:
                spans = [LogSpan(number, each.start, each.stable) for number, each in log.bounds().items()]
            ids = log.id, ""
        return dealt_out(ids[0], spans, options.tasks, ids[1]) or [SpanPartition(ids[0], (), ids[1])]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_spans(self._options, partition)


class SpansStreamReader(DataSourceStreamReader):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """What both kinds of stream have in common: where they begin, and how a task reads its spans."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @override
    def initialOffset(self) -> dict[str, Any]:
        return SourcePlace(self._options.topic, "", {}, {}, {}, initial=True).as_json()

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_spans(self._options, partition)

    @override
    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the positions, and no group is told of them."""


class TopicStreamReader(SpansStreamReader):
    """Plans a stream's batches, and reads them."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._planner = StreamPlanner(latest=options.latest, accept_loss=options.accept_loss)
        bound = options.bound
        self._cut = None if bound is None else EventTimeCut(bound.offsets, at_start=bound.at_start)

    @override
    def latestOffset(self) -> dict[str, Any]:
        log = self._log()
        bounds = _bounds(log)
        end = self._planner.end(log.topic, log.id, bounds)
        if self._cut is not None and self._options.bound is not None:
            starts = {each: max(at, bounds[each][0]) for each, at in self._planner.goes_on().items()}
            times = TopicTimes(log, self._options.bound.events, accept_loss=self._options.accept_loss)
            end = end._replace(next=self._cut.ends(times, starts, end.next))
        return end.as_json()

    @override
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        begins, ends = SourcePlace.read(start), SourcePlace.read(end)
        begins.require_same(ends)
        log = self._log()
        ends.require_same(_place(log))
        return dealt_out(ends.id, self._planner.spans(begins, ends), self._options.tasks)

    def _log(self) -> TopicLog:
        _warm(self._options)
        return TopicLog.open(self._options.kafka, self._options.topic)


class VerdictStreamReader(SpansStreamReader):
    """Plans and reads a stream of what verdicts let pass of a source."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._planner = VerdictPlanner(latest=options.latest, accept_loss=options.accept_loss)
        self._known: dict[int, VerdictBounds] = {}

    @override
    def latestOffset(self) -> dict[str, Any]:
        log = self._log()
        bounds = log.bounds(self._known)
        return self._planner.end(_place(log.source), _place(log.verdicts), bounds).as_json()

    @override
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        ends = SourcePlace.read(end)
        return dealt_out(ends.id, self.spans(start, end), self._options.tasks, ends.in_verdicts().id)

    def spans(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[VerdictSpan]:
        """Return what is read from one place to the next.

        Raises:
            StopError: A topic is another one by now, or is read in another way.
        """
        begins, ends = SourcePlace.read(start), SourcePlace.read(end)
        log = self._log()
        begins.require_same(ends)
        ends.require_same(_place(log.source)._replace(verdicts=_place(log.verdicts)))
        return self._planner.spans(begins, ends)

    def _log(self) -> VerdictLog:
        _warm(self._options)
        assert self._options.verdicts is not None  # noqa: S101 - it is the reader of those
        return VerdictLog.open(self._options.kafka, self._options.topic, self._options.verdicts)


def _place(log: TopicLog) -> SourcePlace:
    return SourcePlace(log.topic, log.id, {}, {}, {})


def _bounds(log: TopicLog) -> dict[int, tuple[int, int]]:
    return {number: (each.start, each.stable) for number, each in log.bounds().items()}


def _warm(options: SourceOptions) -> None:
    """Compile the kernels once before there are tasks, which would each compile all of them."""
    if any(each is not None for each in (options.rules, options.partials, options.uncounted)):
        from processor.engine.events import events_are_warm, warm_events  # noqa: PLC0415 - slow to import

        if not events_are_warm():
            warm_events()


def dealt_out(
    topic_id: str, spans: Sequence[SourceSpan], tasks: int | None, verdicts_id: str = ""
) -> list[SpanPartition]:
    """Return what each task reads: a span, or with fewer tasks several, about equally many records."""
    full = sorted((span for span in spans if span.offsets), key=lambda span: span.offsets, reverse=True)
    if tasks is None or len(full) <= tasks:
        return [SpanPartition(topic_id, (span,), verdicts_id) for span in full]
    hands: list[tuple[int, int, list[SourceSpan]]] = [(0, number, []) for number in range(tasks)]
    for span in full:
        records, number, mine = heapq.heappop(hands)
        heapq.heappush(hands, (records + span.offsets, number, [*mine, span]))
    return [SpanPartition(topic_id, tuple(mine), verdicts_id) for _, _, mine in sorted(hands)]


def read_spans(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read what one task has, in an executor."""
    # Kernels and pyarrow: of tasks only.
    from spark_sink.source.task import task_batches  # noqa: PLC0415 - see above

    yield from task_batches(options, partition.topic_id, partition.spans, partition.verdicts_id)
