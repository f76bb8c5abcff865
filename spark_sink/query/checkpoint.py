"""Reads a query's checkpoint: who it is, which batches were planned, and which are done.

Spark's own files, in their order of a batch's life (Spark 4.0, `org.apache.spark.sql.execution.streaming`):

    metadata        {"id": UUID}                     once, at the first start: the query's id
    sources/0/0     ... {"topic": {"0": 12}}         once: the offsets it began at
    offsets/N       v1                               before batch N runs
                    {"batchWatermarkMs": W, ...}
                    {"topic": {"0": 40}}             its end; its beginning is the end of N - 1
                    {"topic": NAME, "next": ...}     the same by Seqmark's own source, with where batch 0
                                                     began, and by verdicts with the place in their topic
                                                     (`spark_sink.source.place`)
    commits/N       v1 ...                           when batch N is done, its output included

Invariant: a batch is decided by `offsets/N` and `offsets/N-1`. Run again after a crash it has the same records
and the same watermarks. Events of batch N are late by the watermark of batch N - 1: that of N itself only
closes windows (`WatermarkPropagator.getInputWatermarkForLateEvents`).

Two queries on one checkpoint would write the same batches side by side, so it is locked. The JVM holds the
lock, not Python: when Python is killed its JVM may still be at work for a moment, and the lock is free only
when that has ended. For checkpoints on this machine's file systems; elsewhere Spark itself ends the second
query when it meets the first one's batch, which is later.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none

from processor.errors import StopError
from spark_sink.files import Files
from spark_sink.source.spans import NOWHERE, LogSpan, VerdictSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from spark_sink.source.spans import SourceSpan, SpanPart

Offsets = dict[str, dict[str, int]]
"""Topic to partition to offset, as Spark writes them."""
_BEGAN = "sources/0/0"
# A JVM whose Python was killed ends within a few seconds: it stops its queries first.
WAIT_S = 20.0
_ASK_S = 0.2


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
    fresh: Sequence[str] = ()
    """Of a topic that is read by verdicts: the partitions with which the stream begins."""

    def narrowed(self, parts: Iterable[SpanPart], verdicts: str | None, *, late: bool) -> PlannedBatch:
        """Return what has all parts that may have what was not counted; all of the batch where none is known.

        That is a stretch of each partition, by ``verdicts`` all of it.

        Args:
            parts: Of all of the batch, or those that have bad records.
            verdicts: The topic of verdicts by which it has read.
            late: Whether events that were late are looked for, too.
        """
        firsts: dict[str, int] = {}
        stops: dict[str, int] = {}
        for each in parts:
            old = late and each.oldest is not None and each.oldest < self.late_watermark_ms * 1000
            if not each.bad and not old:
                continue
            number = str(each.partition)
            firsts[number] = min(each.first, firsts.get(number, each.first))
            stops[number] = max(each.last + 1, stops.get(number, 0))
        start: Offsets = {}
        end: Offsets = {}
        for topic, places in self.end.items():
            if not firsts.keys() <= places.keys():
                return self
            began = self.start.get(topic, {})
            held = [number for number in places if number in firsts]
            start[topic] = {number: began[number] for number in held if number in began}
            end[topic] = {number: places[number] for number in held}
            if verdicts is None:
                start[topic] = {number: max(firsts[number], began.get(number, 0)) for number in held}
                end[topic] = {number: min(stops[number], places[number]) for number in held}
        fresh = tuple(number for number in self.fresh if number in firsts)
        made = replace(self, start=start, end=end, fresh=fresh)
        return self if made.empty else made

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
            "fresh": list(self.fresh),
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> PlannedBatch:
        """Read what `as_json` gave."""
        places = written["start"], written["end"]
        return cls(written["batch"], *places, written["late_watermark_ms"], tuple(written["fresh"]))

    def spans(self, topic: str, verdicts: str | None) -> list[SourceSpan]:
        """Return what it has read of ``topic``, by the topic of verdicts where there is one.

        A partition that is missing in ``start`` began at 0.
        """
        start, end = self.start.get(topic, {}), self.end[topic]
        if verdicts is None:
            return [LogSpan(int(number), start.get(number, 0), stop) for number, stop in end.items()]
        first, after = self.start.get(verdicts, {}), self.end[verdicts]
        return [
            VerdictSpan(int(each), start[each], end[each], first[each], after[each], fresh=each in self.fresh)
            for each in end
        ]


class OffsetsFile(NamedTuple):
    """What stands in a file of `offsets`."""

    watermark_ms: int
    end: Offsets
    began: Offsets | None
    """Where batch 0 began; None: it is told elsewhere."""
    first: Offsets
    """Where partitions begin that the batch before it lacks; a partition that is missing here begins at 0.
    By verdicts it is `NOWHERE` of the source, as `spark_sink.source.planning.planner` has it."""

    @classmethod
    def read(cls, text: str) -> OffsetsFile:
        """Read a file.

        Raises:
            ValueError: It is of another version, or damaged; KeyError too.
        """
        # The first line is the version: of another one the lines would not be these.
        _, settings, offsets = text.splitlines()
        watermark_ms, end = int(json.loads(settings)["batchWatermarkMs"]), json.loads(offsets)
        if not _is_of_source(end):
            return cls(watermark_ms, end, None, {})
        places = [end, end["verdicts"]] if "verdicts" in end else [end]
        after, began, first = (
            {each["topic"]: each[name] for each in places} for name in ("next", "began", "first")
        )
        if "verdicts" in end:
            first[end["topic"]] = dict.fromkeys(end["next"], NOWHERE)
        return cls(watermark_ms, after, began, first)

    def start(self, before: Offsets) -> Offsets:
        """Return where the batch begins, after one that has ended at ``before``."""
        topics = {**self.first, **before}
        return {topic: {**self.first.get(topic, {}), **before.get(topic, {})} for topic in topics}

    def partitions(self) -> tuple[str, ...]:
        """Return the partitions that it has."""
        return tuple({number: None for topic in self.end for number in self.end[topic]})


def _of_source(offsets: Offsets, topic_id: str | None) -> dict[str, Any]:
    """Return offsets of one topic as `spark_sink.source.place` has them."""
    topic, places = next(iter(offsets.items()))
    return {"topic": topic, "id": topic_id or "", "next": places, "began": places, "first": places}


def _is_of_source(end: Mapping[str, Any]) -> bool:
    """Return whether offsets are those of `spark_sink.source.place`; a topic may have the name of a key."""
    return isinstance(end.get("topic"), str) and "next" in end and "began" in end


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

    def batch(self, number: int) -> PlannedBatch:
        """Return one batch.

        Raises:
            StopError: Spark has forgotten it, or the checkpoint is damaged.
        """
        plan = self._plan(number)
        if number == 0:
            return PlannedBatch(0, plan.began or self._began(), plan.end, 0, plan.partitions())
        before = self._plan(number - 1)
        return PlannedBatch(number, plan.start(before.end), plan.end, before.watermark_ms)

    def restart_at(self, first: Offsets, topic_id: str | None) -> None:
        """Let the next batch begin at ``first``, the earliest records of a topic that was created again.

        A batch that is planned and not done keeps its number, for its output may have it, and reads nothing.
        Nobody else may use the checkpoint meanwhile. Done again after a crash it comes to the same.
        """
        done = self.committed()
        for number in self.planned():
            if number >= done:
                version, settings, was = (self._files.read(f"offsets/{number}") or "").splitlines()
                now = json.dumps(_of_source(first, topic_id) if _is_of_source(json.loads(was)) else first)
                self._files.write(f"offsets/{number}", f"{version}\n{settings}\n{now}")
        text = self._files.read(_BEGAN)
        if done < 0 and text is not None:
            self._files.write(_BEGAN, text[: text.index("{")] + json.dumps(first))

    def _plan(self, number: int) -> OffsetsFile:
        try:
            return OffsetsFile.read(self._files.read(f"offsets/{number}") or "")
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


@contextmanager
def checkpoint_lock(spark: SparkSession, path: str, name: str) -> Iterator[None]:
    """Hold the lock of the checkpoint at ``path`` while the block runs.

    Raises:
        StopError: Another process has held it for 20 s.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
    scheme = jvm.org.apache.hadoop.fs.Path(path).toUri().getScheme()
    if scheme not in {None, "file"}:
        yield
        return
    folder = jvm.java.io.File(jvm.org.apache.hadoop.fs.Path(path).toUri().getPath())
    folder.mkdirs()
    file = jvm.java.io.RandomAccessFile(jvm.java.io.File(folder, ".seqmark.lock"), "rw")
    try:
        _wait_for(file.getChannel(), path, name)
        yield
    finally:
        # Closing the file gives the lock back.
        file.close()


def _wait_for(channel: Any, path: str, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    asking = threading.Event()
    while not _locked(channel):
        if time.monotonic() > deadline:
            raise StopError(
                f"aggregate {name}: another process runs on its checkpoint {path}; an aggregate runs once at a "
                f"time"
            )
        asking.wait(_ASK_S)


def _locked(channel: Any) -> bool:
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as error:
        # Held by this same JVM.
        if "OverlappingFileLockException" in str(error.java_exception):
            return False
        raise
