"""Reads a query's checkpoint: who it is, which batches were planned, and which are done.

Spark's own files, in their order of a batch's life (Spark 4.0, `org.apache.spark.sql.execution.streaming`):

    metadata        {"id": UUID}                     once, at the first start: the query's id
    sources/0/0     ... {"topic": {"0": 12}}         once: the offsets it began at
    offsets/N       v1                               before batch N runs
                    {"batchWatermarkMs": W, ...}
                    {"topic": {"0": 40}}             its end; its beginning is the end of N - 1
    commits/N       v1 ...                           when batch N is done, its output included

Invariant: a batch is decided by `offsets/N` and `offsets/N-1`. Run again after a crash it has the same records
and the same watermarks. Events of batch N are late by the watermark of batch N - 1: that of N itself only
closes windows (`WatermarkPropagator.getInputWatermarkForLateEvents`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.errors import StopError
from spark_sink.files import Files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

Offsets = dict[str, dict[str, int]]
"""Topic to partition to offset, as Spark writes them."""
_BEGAN = "sources/0/0"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What a batch read, and by which watermark its events were late.

    Attributes:
        number: Counted from 0.
        start: First offsets; a partition that is missing here began at 0.
        end: One beyond the last offsets.
        late_watermark_ms: Rows of windows that end at or below it were dropped; 0 before there is one.
    """

    number: int
    start: Offsets
    end: Offsets
    late_watermark_ms: int

    @property
    def empty(self) -> bool:
        """Whether it read nothing: it only closed windows."""
        return all(
            self.start.get(topic, {}).get(partition, 0) >= end
            for topic, partitions in self.end.items()
            for partition, end in partitions.items()
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads back."""
        return {
            "batch": self.number,
            "start": self.start,
            "end": self.end,
            "late_watermark_ms": self.late_watermark_ms,
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> PlannedBatch:
        """Read what `as_json` gave."""
        return cls(written["batch"], written["start"], written["end"], written["late_watermark_ms"])


class Checkpoint:
    """A query's checkpoint."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._files = Files(spark, path)

    def query(self) -> str | None:
        """Return the query's id; None before its first start."""
        text = self._files.read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def planned(self) -> list[int]:
        """Return the batches that are planned and still known: Spark forgets those long done."""
        return self._files.numbers("offsets")

    def committed(self) -> int:
        """Return the last batch that is done, -1 for none."""
        return max(self._files.numbers("commits"), default=-1)

    def topic(self) -> str | None:
        """Return the topic that the last planned batch has read; None before the first one."""
        planned = self.planned()
        return next(iter(self._plan(planned[-1])[1]), None) if planned else None

    def batch(self, number: int) -> PlannedBatch:
        """Return one batch.

        Raises:
            StopError: Spark has forgotten it, or the checkpoint is damaged.
        """
        watermark, end = self._plan(number)
        del watermark
        if number == 0:
            return PlannedBatch(0, self._began(), end, 0)
        late_by, start = self._plan(number - 1)
        return PlannedBatch(number, start, end, late_by)

    def restart_at(self, first: Offsets) -> None:
        """Let the next batch begin at ``first``, the earliest records of a topic that was created again.

        A batch that is planned and not done keeps its number, for its output may have it, and reads nothing.
        Nobody else may use the checkpoint meanwhile. Done again after a crash it comes to the same.
        """
        done = self.committed()
        for number in self.planned():
            if number >= done:
                version, settings, _ = (self._files.read(f"offsets/{number}") or "").splitlines()
                self._files.write(f"offsets/{number}", "\n".join((version, settings, json.dumps(first))))
        text = self._files.read(_BEGAN)
        if done < 0 and text is not None:
            self._files.write(_BEGAN, text[: text.index("{")] + json.dumps(first))

    def _plan(self, number: int) -> tuple[int, Offsets]:
        text = self._files.read(f"offsets/{number}")
        try:
            # The first line is the version: of another one the lines would not be these.
            _, settings, offsets = (text or "").splitlines()
            return int(json.loads(settings)["batchWatermarkMs"]), json.loads(offsets)
        except (ValueError, KeyError) as error:
            raise StopError(
                f"checkpoint {self.path}: batch {number} is missing or cannot be read (offsets/{number}); "
                f"Spark keeps the last 100 batches"
            ) from error

    def _began(self) -> Offsets:
        text = self._files.read(_BEGAN)
        if text is None:
            raise StopError(f"checkpoint {self.path}: {_BEGAN} is missing")
        # A zero byte, the version and a line's end come before it (KafkaSourceInitialOffsetWriter).
        began: Offsets = json.loads(text[text.index("{") :])
        return began
