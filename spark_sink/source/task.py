"""Reads spans of a topic in a task of Spark: records, events, or partial aggregates, as Arrow batches."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from processor.engine.events import EventReader
from processor.errors import StopError
from processor.kafka.plain.topic_log import TopicLog
from processor.kafka.plain.verdict_log import VerdictLog, VerdictSpan
from spark_sink.source.arrow import bytes_array, field_array, number_array
from spark_sink.source.judged import UncountedJudge
from spark_sink.source.partials import PartialSums, micros

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.engine.events import Columns, EventColumns, FieldRule
    from spark_sink.source.options import SourceOptions
    from spark_sink.source.spans import SourceSpan

_UTC = pa.timestamp("us", "UTC")


def _columns(
    options: SourceOptions, ids: tuple[str, str], spans: Sequence[SourceSpan]
) -> Iterator[tuple[SourceSpan, Columns]]:
    """Yield the records that are read: all of a span, or those that verdicts let pass."""
    log = TopicLog.open(options.kafka, options.topic, ids[0])
    verdicts = None
    if options.verdicts is not None:
        verdicts = VerdictLog(log, TopicLog.open(options.kafka, options.verdicts, ids[1]))
    for span in spans:
        if isinstance(span, VerdictSpan):
            assert verdicts is not None  # noqa: S101 - such a span was planned by them
            found = verdicts.read(span, accept_loss=options.accept_loss)
        else:
            found = log.read(span, accept_loss=options.accept_loss)
        yield from ((span, columns) for columns in found if len(columns))


def task_batches(
    options: SourceOptions, topic_id: str, spans: Sequence[SourceSpan], verdicts_id: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield what one task reads.

    Raises:
        StopError: A span cannot be read, or an event, where those that are bad are refused.
    """
    sums = None if options.partials is None else PartialSums(options.partials)
    judge = None if options.uncounted is None else UncountedJudge(options.uncounted)
    reader = None if options.rules is None else EventReader(options.rules)
    for span, columns in _columns(options, (topic_id, verdicts_id), spans):
        if sums is not None:
            yield from sums.take(columns, span.partition)
        elif judge is not None:
            yield _uncounted(columns, span, options.topic, judge)
        elif reader is None:
            yield _records(columns, span, options.topic, np.arange(len(columns)))
        else:
            yield from _events(options, reader, columns, span)
    if sums is not None:
        yield from sums.left()
    _settle()


def _uncounted(columns: Columns, span: SourceSpan, topic: str, judge: UncountedJudge) -> pa.RecordBatch:
    found = judge.take(columns)
    records = _records(columns, span, topic, found.rows)
    event = np.array([each is None for each in found.reason], np.bool_)
    arrays = [*records.columns, number_array(_UTC, event, found.time), pa.array(found.reason, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, [*records.schema.names, "seqmark_time", "bad"])


def _records(columns: Columns, span: SourceSpan, topic: str, rows: np.ndarray) -> pa.RecordBatch:
    arrays = [
        bytes_array(columns, columns.key, columns.key_length, rows),
        bytes_array(columns, columns.value, columns.value_length, rows),
        pa.repeat(topic, rows.size),
        pa.repeat(pa.scalar(span.partition, pa.int32()), rows.size),
        pa.array(columns.offset[rows]),
        _times(columns, rows),
    ]
    names = ["key", "value", "topic", "partition", "offset", "timestamp"]
    return pa.RecordBatch.from_arrays(arrays, names)


def _times(columns: Columns, rows: np.ndarray) -> pa.Array:
    return number_array(_UTC, np.ones(rows.size, np.bool_), micros(columns.timestamp[rows]))


def _events(
    options: SourceOptions, reader: EventReader, columns: Columns, span: SourceSpan
) -> Iterator[pa.RecordBatch]:
    events = reader.read(columns)
    good = events.reason == 0
    if options.unreadable == "fail" and not good.all():
        row = int(np.flatnonzero(~good)[0])
        place = f"{options.topic}:{span.partition}:{columns.offset[row]}"
        raise StopError(
            f"{place} is no event ({reader.reasons[events.reason[row]]}): "
            f'.option("unreadable", "keep") gives such records with the reason, "skip" leaves them out'
        )
    keep = options.unreadable == "keep"
    rows = np.arange(good.size) if keep or good.all() else np.flatnonzero(good)
    if not rows.size:
        return
    rules: list[FieldRule] = options.rules or []
    arrays = [field_array(rule, events, at, rows, good[rows]) for at, rule in enumerate(rules)]
    names = [rule.name for rule in rules]
    if options.metadata or keep:
        arrays += _metadata(columns, rows, span)
        names += ["_partition", "_offset", "_timestamp", "_key"]
    if keep:
        arrays += _unreadable(reader, events, columns, rows)
        names += ["_unreadable", "_value"]
    yield pa.RecordBatch.from_arrays(arrays, names)


def _metadata(columns: Columns, rows: np.ndarray, span: SourceSpan) -> list[pa.Array]:
    return [
        pa.repeat(pa.scalar(span.partition, pa.int32()), rows.size),
        pa.array(columns.offset[rows]),
        _times(columns, rows),
        bytes_array(columns, columns.key, columns.key_length, rows),
    ]


def _unreadable(
    reader: EventReader, events: EventColumns, columns: Columns, rows: np.ndarray
) -> list[pa.Array]:
    reason = events.reason[rows]
    told = pa.array([reader.reasons[each] or None for each in reason.tolist()], pa.string())
    length = np.where(events.reason == 0, -1, columns.value_length)
    return [told, bytes_array(columns, columns.value, length, rows)]


_SETTLED: set[bool] = set()


def _settle() -> None:
    """Let a worker leave alone, from its first task on, what it has loaded.

    `pyspark.daemon` has its collector look at all of it after each task: 65 ms with numba.
    """
    if not _SETTLED:
        gc.collect()
        gc.freeze()
        _SETTLED.add(True)
