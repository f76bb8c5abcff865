"""Runs the aggregates of a config, a query each, several in one process, until they end or are stopped.

The steps of a start, one aggregate after the other: 1. the checkpoint's lock; 2. what it has counted is
compared with the config, its topic with the one that is there, and how it reads is chosen, for which executors
may be asked; 3. what was left to be written aside, which also finds a checkpoint that is gone. Where none is
refused, again one after the other: 4. the output is prepared, and what is counted is written down; 5. the query
starts. After the last query has ended: 6. what is still to be written aside (with `available_now`), 7. Spark
stops. Where one query fails the others are stopped, and the process ends with its error: an operator sees a
process that is down, not an aggregate that is quiet.
Only one that does not begin in time, by Spark's own limit of 10 s, stops no other (`spark_sink.query.running`).

Whatever the main thread waits for, it follows the queries that run meanwhile.

With the trigger `availableNow` Spark makes one batch of Seqmark's own source. Where batches are bounded,
`available_now` is a query that reads what was there at its start, and is stopped when it has nothing to do.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from processor.errors import SeqmarkError, StopError
from schemas.config.values import duration_words
from schemas.event import EventModel, aggregate_columns
from spark_sink.failures import explain
from spark_sink.files import Files
from spark_sink.outputs import open_output
from spark_sink.outputs.output import OutputPlace, StoppedError
from spark_sink.query.aggregate import aggregate
from spark_sink.query.checkpoint import Checkpoint, checkpoint_lock
from spark_sink.query.definition import (
    Definition,
    meaning,
    read_definition,
    require_same,
    write_definition,
)
from spark_sink.query.events import BAD, bad_parts, judged, right
from spark_sink.query.executors import why_lacking
from spark_sink.query.job_options import Audience, SinkOptions
from spark_sink.query.partial_rows import DAEMON, ReadingWay, bounded, chosen_way, merged, stream_partials
from spark_sink.query.progress import OBSERVED, Progress, Reports, SinkMetrics, Totals
from spark_sink.query.records import stream_records
from spark_sink.query.running import JobStopping, Queries, RunningQuery
from spark_sink.query.topics import SourceTopic, is_another
from spark_sink.query.uncounted import FIRST
from spark_sink.session import LAKES, outlived, spark_session
from spark_sink.side_output import SideOutput, SideOutputAudience, Why, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.config import Settings, Sink
    from spark_sink.outputs.output import SinkOutput

__all__ = ["Audience", "SinkJob", "SinkOptions"]

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_IDLE_MS = ("spark.sql.streaming.noDataProgressEventInterval", "100")
"""How long a query has nothing to do before Spark says so, and how often."""


class _Opened(NamedTuple):
    """One aggregate after step 3."""

    sink: Sink
    model: EventModel
    topic: SourceTopic
    known: Definition
    way: ReadingWay


class SinkJob:
    """The queries of some aggregates, in this process."""

    def __init__(
        self, settings: Settings, sinks: Sequence[Sink], options: SinkOptions, audience: Audience
    ) -> None:
        self._settings = settings
        self._sinks = sinks
        self._options = options
        self._audience = audience
        self._asked_to_stop = False
        self._asides: dict[str, SideOutput] = {}
        self._lacking: Callable[[], str] = lambda: ""
        self.metrics = SinkMetrics()
        self.totals = {sink.name: Totals() for sink in sinks}
        self._topics = {sink.name: sink.topic for sink in sinks}
        self._queries = Queries(audience, self.metrics, self.totals)
        self._news = self._queries.news
        self._stopping = JobStopping(self._queries)

    def stop(self) -> None:
        """Ask the job to end soon; may be called from a signal's handler."""
        self._asked_to_stop = True
        # In this order: a query that gives up waiting is then no news any more.
        self._news.put(None)
        self._stopping.ask()

    def run(self, *, started: Callable[[], None] = lambda: None) -> None:
        """Run the queries until they have ended (`available_now`), one fails, or `stop` is called.

        Args:
            started: Called when Spark is up, before the first query.

        Raises:
            StopError: One failed; says which, why and what to do.
        """
        self._stopping.main = threading.get_ident()
        settings = {
            "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
            "spark.scheduler.mode": "FAIR",
            **DAEMON,
        }
        # With the changelog a commit writes what has changed, not the whole state.
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
        if self._options.available_now:
            settings |= [_IDLE_MS]
        with outlived(lambda: self._asked_to_stop, self._audience.say), ExitStack() as open_things:
            if self._options.metrics_port:
                open_things.callback(self.metrics.serve(self._options.metrics_host, self._options.metrics_port))
            spark = open_things.enter_context(
                spark_session(
                    "seqmark-aggregate",
                    master=self._options.master,
                    memory=self._options.memory,
                    settings={**settings, **self._options.conf},
                    lakes={sink.output.kind for sink in self._sinks} & LAKES.keys(),
                    say=self._audience.say,
                )
            )
            started()
            reports = Reports(self._reported, self._news.put, self._news.put)
            spark.streams.addListener(reports)
            open_things.callback(spark.streams.removeListener, reports)
            self._run(spark, open_things)

    def _run(self, spark: SparkSession, open_things: ExitStack) -> None:
        finished = False
        self._lacking = cache(lambda: why_lacking(spark, self._audience.say, lambda: self._asked_to_stop))
        try:
            # All of them first: where one is refused, none has begun.
            for each in [self._open(spark, sink, open_things) for sink in self._sinks]:
                self._queries.add(self._prepared(spark, each))
            finished = not self._queries.follow()
        except StoppedError as stopped:
            self._audience.say(str(stopped))
        finally:
            if not finished:
                # One that waits for a database does not hear that it is stopped.
                self._stopping.ask()
            self._queries.end(finish=finished and self._options.available_now)
        if finished:
            self._queries.require_all_begun()

    # ------------------------------------------------------------------ start

    def _open(self, spark: SparkSession, sink: Sink, open_things: ExitStack) -> _Opened:
        """Do steps 1 to 3."""
        try:
            model = EventModel.load(sink.event)
            open_things.enter_context(checkpoint_lock(spark, sink.checkpoint, sink.name))
            topic = open_things.enter_context(SourceTopic(spark, self._settings, sink))
            return _Opened(sink, model, topic, *self._open_state(spark, sink, model, topic))
        except (PySparkException, Py4JError) as error:
            raise explain(sink.name, sink.topic, error) from error

    def _prepared(self, spark: SparkSession, opened: _Opened) -> RunningQuery:
        """Do step 4."""
        sink, model, topic, known, way = opened
        try:
            place = OutputPlace(
                spark,
                sink,
                self._settings.kafka,
                self._settings.worker.create_topics,
                self._audience.say,
                self._stopping,
                lambda: topic.require(known.topic_id, partitions=1 if way.bound and not way.plan else None),
            )
            output = open_output(place)
            output.prepare(aggregate_columns(sink, model))
            write_definition(Files(spark, sink.checkpoint), known)
            until_idle = self._options.available_now and way.plan is not None and way.bound is not None

            def begin() -> StreamingQuery:
                # A pool per query: otherwise a long batch of one holds up the others.
                spark.sparkContext.setLocalProperty("spark.scheduler.pool", sink.name)
                rows = self._rows(spark, opened)
                return output.start(self._writer(rows, sink, output, until_idle=until_idle))

        except (PySparkException, Py4JError) as error:
            raise explain(sink.name, sink.topic, error) from error
        how = "summed up as it is read" if way.plan else f"read event by event by Spark: {way.why}"
        self._audience.say(f"{sink.name}: {sink.topic} to {sink.output.kind}, mode {output.mode}; {how}")
        aside = self._asides[sink.name]
        return RunningQuery(sink, aside, begin, lambda: topic.require(known.topic_id), until_idle)

    def _open_state(
        self, spark: SparkSession, sink: Sink, model: EventModel, topic: SourceTopic
    ) -> tuple[Definition, ReadingWay]:
        """Compare what the checkpoint and its neighbours hold with the config and the topic, and choose a way.

        Returns:
            What is to stand beside the checkpoint; how events are read.
        """
        checkpoint, files = Checkpoint(spark, sink.checkpoint), Files(spark, sink.checkpoint)
        means = meaning(sink, model)
        # Before its first start a checkpoint has counted nothing.
        started = checkpoint.query() is not None
        before = read_definition(files) if started else None
        if before is not None or (started and checkpoint.planned()):
            require_same(sink, means, before)
        began = None if before is None else before.by_kernels
        found = topic.now().id
        known = None if before is None else before.topic_id
        anew = is_another(known, found)
        if anew and not (self._options.accept_loss and sink.verdicts is None):
            topic.require(known)
        # Before anything is read: what was left to be written aside is read in the same way.
        way = chosen_way(sink, model, began=began, lacking=self._lacking)
        if way.bound is not None:
            way = bounded(sink, way, topic.now().partitions, self._audience.say)
        self._open_aside(spark, sink, model, forget=anew)
        if anew:
            checkpoint.restart_at({sink.topic: topic.earliest()}, found)
            self._audience.say(
                f"{sink.name}: topic {sink.topic} was made anew, and is read from its earliest record; what "
                f"the old one held and was not read is lost"
            )
        return Definition(means, found or known, by_kernels=way.plan is not None), way

    def _open_aside(self, spark: SparkSession, sink: Sink, model: EventModel, *, forget: bool) -> None:
        self.metrics.open(sink.name)

        def wrote(written: Written) -> None:
            self.totals[sink.name].late += written.late
            self.totals[sink.name].bad += written.bad
            self.metrics.late.labels(sink.name).inc(written.late)
            self.metrics.bad.labels(sink.name).inc(written.bad)

        aside = SideOutput(
            spark,
            self._settings.kafka,
            sink,
            model,
            accept_loss=self._options.accept_loss,
            audience=SideOutputAudience(self._audience.say, self._audience.warn, wrote, self._news.put),
            stopping=self._stopping,
        )
        aside.open(forget=forget)
        # Before the query starts: its first batch may be reported before `start` returns.
        self._asides[sink.name] = aside

    def _rows(self, spark: SparkSession, opened: _Opened) -> DataFrame:
        """Return the aggregates, as a stream."""
        sink, model, _, _, way = opened
        kafka, accept_loss = self._settings.kafka, self._options.accept_loss
        if way.plan is not None:
            now = self._options.available_now
            partials = stream_partials(spark, kafka, sink, way.plan, accept_loss=accept_loss, at_start=now)
            return merged(partials, sink, model, way.plan)
        records = stream_records(spark, kafka, sink, batch_records=way.bound, accept_loss=accept_loss)
        observed = judged(records, sink, model, max_ahead_ms=sink.max_ahead).observe(
            OBSERVED, sql.count_if(sql.col(BAD).isNotNull()).alias("bad"), bad_parts().alias("bad_parts")
        )
        return aggregate(right(observed), sink, model)

    def _writer(self, rows: DataFrame, sink: Sink, output: SinkOutput, *, until_idle: bool) -> DataStreamWriter:
        if sink.output.kind == "parquet":
            from spark_sink.outputs.parquet import dated  # noqa: PLC0415 - of this output only

            rows = dated(rows)
        writer = rows.writeStream.queryName(sink.name).outputMode(output.mode)
        writer = writer.option("checkpointLocation", sink.checkpoint)
        if until_idle:
            return writer.trigger(processingTime="0 seconds")
        if self._options.available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=duration_words(sink.trigger))

    # ------------------------------------------------------------------ while they run

    def _reported(self, progress: Progress) -> None:
        """Take a batch that is done; called by Spark, which would swallow what is raised here."""
        try:
            totals = self.totals[progress.sink]
            totals.batches += 1
            first = totals.rows < FIRST
            totals.rows += progress.input_rows
            totals.last = progress
            self.metrics.take(progress)
            bad = None if progress.bad is None else progress.bad > 0
            why = Why(progress.dropped_rows > 0, bad, totals.rows if first else None)
            self._asides[progress.sink].done(progress.batch, why, progress.parts)
            self._audience.progress(self.totals)
        except SeqmarkError as error:
            self._news.put(StopError(str(error)))
        except (PySparkException, Py4JError) as error:
            self._news.put(explain(progress.sink, self._topics[progress.sink], error))
        except Exception as error:  # noqa: BLE001 - see above: it would be lost
            self._news.put(StopError(f"aggregate {progress.sink}: {type(error).__name__}: {error}"))
