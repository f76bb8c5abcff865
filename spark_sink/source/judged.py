"""Gives what the sums of a batch did not count: records that are no events, and events that were late.

    key | value | topic | partition | offset | timestamp | seqmark_time | bad

``bad`` is the reason of a record that is no event, null of one that is; ``seqmark_time`` is an event's time.

Invariant: the kernels judge here as `spark_sink.source.partials` has judged the same records, so that each is
counted or given, and none is both.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql import types as spark

from processor.engine.events import EventReader
from spark_sink.source.partials import PartialPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.events import Columns

AHEAD = "ahead"
"""The reason of an event that is too far ahead of its record's Kafka timestamp."""


class UncountedPlan(NamedTuple):
    """Which records of some spans are looked for."""

    partials: PartialPlan
    """What was summed up."""
    watermark_ms: int
    """Events before it may have been late."""

    def written(self) -> str:
        """Return the plan as text."""
        return json.dumps([self.partials.written(), self.watermark_ms])

    @classmethod
    def read(cls, text: str) -> UncountedPlan:
        """Read what `written` gave."""
        partials, watermark_ms = json.loads(text)
        return cls(PartialPlan.read(partials), watermark_ms)

    @staticmethod
    def schema() -> spark.StructType:
        """Return the columns of the rows."""
        return (
            spark.StructType()
            .add("key", spark.BinaryType())
            .add("value", spark.BinaryType())
            .add("topic", spark.StringType())
            .add("partition", spark.IntegerType())
            .add("offset", spark.LongType())
            .add("timestamp", spark.TimestampType())
            .add("seqmark_time", spark.TimestampType())
            .add("bad", spark.StringType())
        )


class UncountedRows(NamedTuple):
    """Which of some records are given.

    Attributes:
        rows: int64[n], their numbers.
        time: int64[n], µs; without a meaning where there is a reason.
        reason: n of them; None: an event.
    """

    rows: NDArray[np.int64]
    time: NDArray[np.int64]
    reason: list[str | None]


class UncountedJudge:
    """Judges records by a plan."""

    def __init__(self, plan: UncountedPlan) -> None:
        self._plan = plan
        self._reader = EventReader(plan.partials.rules)

    def take(self, columns: Columns) -> UncountedRows:
        """Return which records are given."""
        events = self._reader.read(columns)
        time = events.fields[self._plan.partials.time].numbers
        good = self._plan.partials.counts(events, columns)
        rows = np.flatnonzero(~good | (time < self._plan.watermark_ms * 1000))
        reasons = [
            None if good[row] else self._reader.reasons[events.reason[row]] or AHEAD for row in rows.tolist()
        ]
        return UncountedRows(rows, time[rows].astype(np.int64), reasons)
