"""Says what of a topic is read: offsets of it, or verdict records. As text, what a batch is read again by.

What parts of that hold a task notes as it reads: what was not counted is then looked for only where it may be.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark.sql import types as spark

from processor.kafka.plain.topic_log import LogSpan
from processor.kafka.plain.verdict_log import NOWHERE, VerdictSpan

__all__ = [
    "NOWHERE",
    "LogSpan",
    "SourceSpan",
    "SpanPart",
    "SpanParts",
    "VerdictSpan",
    "read_spans",
    "written_spans",
]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SourceSpan = LogSpan | VerdictSpan


def written_spans(spans: Sequence[SourceSpan]) -> str:
    """Return spans as text."""
    return json.dumps(spans)


def read_spans(text: str) -> list[SourceSpan]:
    """Return what `written_spans` was given."""
    return [_read(fields) for fields in json.loads(text)]


def _read(fields: list[Any]) -> SourceSpan:
    return VerdictSpan(*fields) if len(fields) == len(VerdictSpan._fields) else LogSpan(*fields)


PART_RECORDS = 1 << 14
"""Records of a part, more or less: so many are read again for one that is late or no event."""
MOST_PARTS = 64
"""Of what a task gives at a time, before neighbours become one: they travel with Spark's report of a batch."""


class SpanPart(NamedTuple):
    """What some records that follow each other hold."""

    partition: int
    first: int
    """Offset of its first record."""
    last: int
    """Offset of its last record."""
    oldest: int | None
    """Time of its oldest event, µs since 1970; None: it has no event."""
    bad: int
    """How many of its records are no events."""
    events: int
    """How many are."""

    @staticmethod
    def schema() -> spark.StructType:
        """Return the type of the column."""
        return (
            spark.StructType()
            .add("partition", spark.IntegerType())
            .add("first", spark.LongType())
            .add("last", spark.LongType())
            .add("oldest", spark.LongType())
            .add("bad", spark.LongType())
            .add("events", spark.LongType())
        )

    @classmethod
    def read(cls, reported: Mapping[str, Any]) -> SpanPart:
        """Read one of Spark's report, which leaves a null out."""
        return cls(**{"oldest": None, **reported})

    def joined(self, after: SpanPart) -> SpanPart:
        """Return this one and the next of its partition as one."""
        oldest = min((each for each in (self.oldest, after.oldest) if each is not None), default=None)
        bad, events = self.bad + after.bad, self.events + after.events
        return SpanPart(self.partition, self.first, after.last, oldest, bad, events)


class SpanParts:
    """The parts of one task, in the order in which it reads."""

    def __init__(self) -> None:
        self.found: list[SpanPart] = []
        self._records = 0
        self._full = PART_RECORDS

    def add(
        self, partition: int, offsets: NDArray[np.int64], good: NDArray[np.bool_], times: NDArray[np.generic]
    ) -> None:
        """Note records.

        Args:
            partition: Theirs.
            offsets: int64[n], in order.
            good: bool[n]; False: no event that is summed up.
            times: int64[n], µs since 1970; without a meaning where it is no event.
        """
        if not offsets.size:
            return
        events = int(np.count_nonzero(good))
        oldest = int(times[good].min()) if events else None
        new = SpanPart(partition, int(offsets[0]), int(offsets[-1]), oldest, offsets.size - events, events)
        goes_on = self.found and self.found[-1].partition == partition and self._records < self._full
        if goes_on:
            self.found[-1] = self.found[-1].joined(new)
        else:
            self.found.append(new)
            self._records = 0
        self._records += offsets.size
        # Those of different partitions stay apart.
        if len(self.found) > MOST_PARTS and len(self.found) > 2 * len({each.partition for each in self.found}):
            self._halve()

    def _halve(self) -> None:
        self._full *= 2
        halved: list[SpanPart] = []
        joins = False
        for each in self.found:
            joins = not joins and bool(halved) and halved[-1].partition == each.partition
            if joins:
                halved[-1] = halved[-1].joined(each)
            else:
                halved.append(each)
        self.found = halved

    def clear(self) -> None:
        """Begin again."""
        self.found, self._records = [], 0
