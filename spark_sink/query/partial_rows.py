"""Merges what Seqmark's own source has summed up, where every aggregate of a config can be merged.

A query goes on by the source that it began with: Spark's offsets and state are of that one. Seqmark's own is
read in Python, on the executors: those of a cluster are asked first whether they can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.config.aggregates import aggregate_call
from spark_sink.query.aggregate import FIELD, TIME, grouped
from spark_sink.query.progress import OBSERVED
from spark_sink.query.records import source_options, stream_options
from spark_sink.source.clean import register
from spark_sink.source.format import NAME
from spark_sink.source.judged import UncountedPlan
from spark_sink.source.options import AT_START, BOUND, PARTIALS, SPANS, UNCOUNTED
from spark_sink.source.partials import (
    DISTINCT,
    PartialCall,
    PartialPlan,
    numbers_of,
    pane_ms,
    value_type,
    why_by_rows,
)
from spark_sink.source.rules import rules_of, why_not
from spark_sink.source.spans import written_spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from schemas.config import Kafka, Sink
    from schemas.event import EventModel
    from spark_sink.query.checkpoint import PlannedBatch
    from spark_sink.source.rules import FieldRule

DAEMON = {"spark.python.daemon.module": "spark_sink.source.daemon"}
"""Of a session for aggregates: its Python workers begin with everything loaded."""


class ReadingWay(NamedTuple):
    """How a query reads its events."""

    plan: PartialPlan | None
    """What is summed up in the source; None: Spark reads and sums up each event."""
    why: str = ""
    """Why Spark does."""
    bound: int | None = None
    """How many records a batch may have; None: all there are."""


def chosen_way(sink: Sink, model: EventModel, *, began: bool | None, lacking: Callable[[], str]) -> ReadingWay:
    """Return how events are read.

    Args:
        sink: The aggregate.
        model: The events' model.
        began: Whether the checkpoint was begun by the kernels; None: it is new.
        lacking: Says why executors cannot read by Seqmark's own source; empty: they can. Called only where the
            answer decides, for it asks them.

    Raises:
        StopError: Only Seqmark's own source can go on, and it cannot; says why and what to do.
    """
    why = _why(sink, model) or ""
    if began:
        _require_checkable(sink, why)
    elif began is not None:
        why = "its checkpoint was begun so"
    if sink.verdicts is not None or not why:
        lack = lacking()
        _require_own_source(sink, lack, began=began)
        why = why or lack
    return ReadingWay(None if why else _plan(sink, rules_of(model)), why, sink.max_offsets_per_trigger)


def _require_own_source(sink: Sink, lack: str, *, began: bool | None) -> None:
    """Refuse an aggregate that nothing else can read, where executors cannot read by Seqmark's own source."""
    if not lack or not (began or sink.verdicts is not None):
        return
    needs, instead = f"only Seqmark's own source reads {sink.topic} by {sink.verdicts}", ""
    if sink.verdicts is None:
        needs = f"its checkpoint {sink.checkpoint} was begun by Seqmark's own source, which alone can go on"
        instead = "; or, to count anew from the topic's first record, name a new checkpoint and a new output"
    raise StopError(
        f"aggregate {sink.name}: {needs}, and {lack}. Nothing was read. Give them this Seqmark, as "
        f'docs/spark-source.md says under "On a cluster"{instead}'
    )


def _require_checkable(sink: Sink, why: str | None) -> None:
    if why:
        raise StopError(
            f"aggregate {sink.name}: its checkpoint {sink.checkpoint} was begun by Seqmark's own source, which "
            f"cannot go on: {why}. Set that back, or, to count anew from the topic's first record, name a new "
            f"checkpoint and a new output"
        )


def bounded(sink: Sink, way: ReadingWay, partitions: int, say: Callable[[str], None]) -> ReadingWay:
    """Return the way with the bound that it heeds, of a topic with so many partitions; says where it is none.

    Seqmark's own source cuts batches by event time (`spark_sink.source.planning.cut`). Spark's takes of each
    partition a part by the number of its records: what is left of one would come after an event-time watermark
    that another has moved. There a backlog is one batch, in which nothing is late.
    """
    if way.plan is not None or partitions == 1:
        return way
    say(
        f"{sink.name}: max_offsets_per_trigger is not used: {sink.topic} has {partitions} partitions, and "
        f"Spark reads them event by event. So a batch reads all there is, or events of one would be too late "
        f"for the event-time watermark of another"
    )
    return way._replace(bound=None)


def _why(sink: Sink, model: EventModel) -> str | None:
    """Return why an aggregate cannot be made of partial ones; None: it can."""
    if sink.session_gap is not None:
        return "sessions are joined event by event"
    if (why := why_not(model)) is not None:
        return f"of its event model {why}"
    rules = rules_of(model)
    known = numbers_of(rules)
    for name, text in sink.aggregates.items():
        call = aggregate_call(text)
        rule = rules[known[call.column]] if call.column else None
        if (why := why_by_rows(call.function, rule)) is not None:
            return f"{name} is {why}"
    return None


def _plan(sink: Sink, rules: list[FieldRule]) -> PartialPlan:
    known = numbers_of(rules)
    calls = [aggregate_call(text) for text in sink.aggregates.values()]
    return PartialPlan(
        rules,
        known[sink.time_field],
        pane_ms(sink.window or 0, sink.slide),
        [known[path] for path in sink.group_by],
        [PartialCall(call.function, known[call.column] if call.column else 0) for call in calls],
        sink.max_ahead,
    )


def stream_partials(
    spark: SparkSession,
    kafka: Kafka,
    sink: Sink,
    plan: PartialPlan,
    *,
    accept_loss: bool,
    at_start: bool,
) -> DataFrame:
    """Return the partial aggregates of what an aggregate reads, as a stream from its earliest record on.

    Args:
        spark: The session.
        kafka: How the cluster is reached.
        sink: The aggregate.
        plan: What is summed up.
        accept_loss: Go on where retention has removed what was not read yet.
        at_start: Whether bounded batches end with what is there at the start.
    """
    register(spark)
    options = stream_options(spark, kafka, sink, accept_loss=accept_loss) | {PARTIALS: plan.written()}
    if sink.max_offsets_per_trigger is not None:
        options |= {BOUND: str(sink.max_offsets_per_trigger), AT_START: str(at_start).lower()}
    return spark.readStream.format(NAME).options(**options).load()


def read_uncounted(
    spark: SparkSession,
    kafka: Kafka,
    sink: Sink,
    model: EventModel,
    batch: PlannedBatch,
    *,
    max_ahead_ms: int,
    accept_loss: bool,
) -> DataFrame:
    """Return what a batch of partial aggregates did not count, as `spark_sink.query.events.uncounted` has it.

    Raises:
        StopError: The kernels cannot check the model any more.
    """
    _require_checkable(sink, _why(sink, model))
    partials = _plan(sink, rules_of(model))._replace(max_ahead_ms=max_ahead_ms)
    plan = UncountedPlan(partials, batch.late_watermark_ms).written()
    spans = written_spans(batch.spans(sink.topic, sink.verdicts))
    register(spark)
    options = source_options(kafka, sink, accept_loss=accept_loss)
    return spark.read.format(NAME).options(**options, **{UNCOUNTED: plan, SPANS: spans}).load()


def merged(partials: DataFrame, sink: Sink, model: EventModel, plan: PartialPlan) -> DataFrame:
    """Return the aggregates, as `spark_sink.query.aggregate` makes them of events."""
    bad, events = (sql.coalesce(sql.sum(name), sql.lit(0)) for name in ("bad", "events"))
    records, parts = (bad + events).alias("records"), sql.collect_list("part").alias("parts")
    observed = partials.observe(OBSERVED, bad.alias("bad"), records, parts)
    picked = observed.where(sql.col("time").isNotNull()).select(
        sql.col("time").alias(TIME),
        *(sql.col(f"g{number}").alias(FIELD + path) for number, path in enumerate(sink.group_by)),
        *(name for number in range(len(plan.calls)) for name in (f"v{number}", f"c{number}")),
    )
    made = [
        _merge(number, call, plan.rules).alias(f"out_{name}")
        for number, (name, call) in enumerate(zip(sink.aggregates, plan.calls, strict=True))
    ]
    return grouped(picked, sink, model, made)


def _merge(number: int, call: PartialCall, rules: list[FieldRule]) -> Column:
    value = sql.col(f"v{number}")
    if call.function == "min":
        return sql.min(value)
    if call.function == "max":
        return sql.max(value)
    if call.function == DISTINCT:
        # What fills its registers as all values do.
        return sql.approx_count_distinct(value)
    total = sql.sum(value).cast(value_type(call, rules))
    if call.function != "avg":
        return total
    return total / sql.nullif(sql.sum(f"c{number}"), sql.lit(0))
