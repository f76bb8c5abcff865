"""Reports how far each query is: Spark's reports of batches, as Prometheus metrics and for people.

A report comes after each batch that was run; Spark calls from a thread of its own, in the order of batches.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from processor.errors import StopError
from spark_sink.source.spans import SpanPart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

ASK_S = 10.0
"""For who connects to the metrics and asks nothing."""
OBSERVED = "seqmark"
"""Name of what the query observes of itself: ``bad``, the records of the batch that are no events. Where what
Spark reads is summed up already, ``records``, how many there were, and ``parts``, what they hold; elsewhere
``bad_parts``, those with bad records."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch of one query, when it is done.

    Attributes:
        sink: Name of the aggregate.
        batch: Number of the batch.
        input_rows: Records it read.
        input_rate: Records per second since the batch before.
        processed_rate: Records per second of the time it took.
        seconds: How long it took.
        state_rows: Open windows and groups.
        state_bytes: Memory of the state.
        state_disk_bytes: Files of the state.
        watermark_s: Seconds since 1970, by which this batch closed windows; 0 before there is one.
        dropped_rows: Late rows, counted by Spark after those of one window and group were joined.
        bad: Records that are no events; None: not observed.
        parts: Those of its records among which is all that was not counted; none: not known.
    """

    sink: str
    batch: int
    input_rows: int
    input_rate: float
    processed_rate: float
    seconds: float
    state_rows: int
    state_bytes: int
    state_disk_bytes: int
    watermark_s: float
    dropped_rows: int
    bad: int | None
    parts: tuple[SpanPart, ...] = ()


def read_progress(text: str) -> Progress:
    """Read Spark's report of a batch (JSON, as in its documentation of StreamingQueryProgress)."""
    report = json.loads(text)
    states = report.get("stateOperators", [])
    watermark = report.get("eventTime", {}).get("watermark")
    observed: dict[str, Any] = report.get("observedMetrics", {}).get(OBSERVED, {})
    rows = int(report.get("numInputRows", 0))
    records = int(observed.get("records", rows))
    share = records / rows if rows else 1.0
    dropped = sum(each.get("numRowsDroppedByWatermark", 0) for each in states)
    return Progress(
        sink=report["name"],
        batch=report["batchId"],
        input_rows=records,
        input_rate=_finite(report.get("inputRowsPerSecond")) * share,
        processed_rate=_finite(report.get("processedRowsPerSecond")) * share,
        seconds=report.get("batchDuration", 0) / 1000,
        state_rows=sum(each.get("numRowsTotal", 0) for each in states),
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in states),
        state_disk_bytes=sum(each.get("customMetrics", {}).get("rocksdbSstFileSize", 0) for each in states),
        watermark_s=datetime.fromisoformat(watermark).timestamp() if watermark else 0.0,
        dropped_rows=dropped,
        bad=int(observed["bad"]) if "bad" in observed else None,
        parts=_parts(observed, late=dropped > 0),
    )


def _parts(observed: Mapping[str, Any], *, late: bool) -> tuple[SpanPart, ...]:
    """Return the parts among which is all that was not counted; none where that is not sure."""
    if "bad_parts" in observed:
        # They do not tell where late events are.
        return () if late else tuple(map(SpanPart.read, observed["bad_parts"]))
    parts = tuple(map(SpanPart.read, observed.get("parts", ())))
    # Spark logs what it could not take of a task's observations, and goes on with the others.
    bad, events = sum(each.bad for each in parts), sum(each.events for each in parts)
    return parts if parts and (bad, bad + events) == (observed["bad"], observed["records"]) else ()


def _finite(rate: float | str | None) -> float:
    """Spark leaves rates out, or writes "NaN" or "Infinity", where a batch took no time."""
    value = float(rate or 0)
    return value if math.isfinite(value) else 0.0


class SinkMetrics:
    """All metrics of the process, by aggregate, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(f"seqmark_sink_{name}", meaning, ("sink",), registry=self.registry)

        def counter(name: str, meaning: str) -> Counter:
            return Counter(f"seqmark_sink_{name}", meaning, ("sink",), registry=self.registry)

        self.input_rate = gauge("input_rows_per_second", "Records that arrived a second, last batch.")
        self.processed_rate = gauge("processed_rows_per_second", "Records processed a second, last batch.")
        self.batch_seconds = gauge("batch_seconds", "Time that the last batch took.")
        self.state_rows = gauge("state_rows", "Open windows and groups.")
        self.state_bytes = gauge("state_bytes", "Memory of the state.")
        self.state_disk_bytes = gauge("state_disk_bytes", "Files of the state.")
        self.watermark = gauge("watermark_seconds", "Event time up to which windows are closed, since 1970.")
        self.last_batch = gauge("last_batch", "Number of the last batch that is done.")
        self.up = gauge("up", "1 while the query runs.")
        self.rows = counter("rows", "Records read since the process started.")
        self.late = counter("late_rows", "Late events that were written aside since the process started.")
        self.bad = counter("bad_rows", "Records that are no events, written aside since the process started.")

    def open(self, sink: str) -> None:
        """Show an aggregate before its first batch: a series that is missing raises no alert."""
        for counter in (self.rows, self.late, self.bad):
            counter.labels(sink)
        for gauge in (self.up, self.state_rows, self.state_bytes, self.state_disk_bytes, self.watermark):
            gauge.labels(sink)
        for gauge in (self.input_rate, self.processed_rate, self.batch_seconds):
            gauge.labels(sink)
        self.last_batch.labels(sink).set(-1)

    def take(self, progress: Progress) -> None:
        """Take in a batch that is done."""
        name = progress.sink
        self.input_rate.labels(name).set(progress.input_rate)
        self.processed_rate.labels(name).set(progress.processed_rate)
        self.batch_seconds.labels(name).set(progress.seconds)
        self.state_rows.labels(name).set(progress.state_rows)
        self.state_bytes.labels(name).set(progress.state_bytes)
        self.state_disk_bytes.labels(name).set(progress.state_disk_bytes)
        self.watermark.labels(name).set(progress.watermark_s)
        self.last_batch.labels(name).set(progress.batch)
        self.rows.labels(name).inc(progress.input_rows)

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Serve them for Prometheus on ``port``; return what ends that.

        Raises:
            StopError: The port is taken.
        """
        try:
            server, thread = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise StopError(f"--metrics-port {port}: cannot listen on {host}: {error.strerror}") from error
        # Each has a thread: one that says nothing would keep it for ever. Nothing is said of those that end so.
        vars(server)["handle_error"] = lambda *_: None
        handler: Any = server.RequestHandlerClass
        handler.timeout = ASK_S

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end


@dataclass(slots=True)
class Totals:
    """What an aggregate's query has done since it was started."""

    batches: int = 0
    rows: int = 0
    late: int = 0
    bad: int = 0
    left: int = 0
    """Batches of which what was not counted is written aside at the next start."""
    last: Progress | None = field(default=None)


@dataclass(frozen=True, slots=True)
class IdleQuery:
    """A query that has nothing to do: it has read what there is, and closed what could be closed by it."""

    run: str
    """Its ``runId``."""


class Reports(StreamingQueryListener):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """Hands Spark's reports on.

    Args:
        progress: Called with each batch that is done.
        ended: Called with the ``runId`` of a query that has ended; all its batches were handed on before. Its
            ``id`` would be that of each run from one checkpoint, and the end of the run before may come late.
        idle: Called with a query that has nothing to do, again and again as long as it is so; all its batches
            were handed on before.
    """

    def __init__(
        self,
        progress: Callable[[Progress], None],
        ended: Callable[[str], None],
        idle: Callable[[IdleQuery], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._progress = progress
        self._ended = ended
        self._idle = idle

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is to be done."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Hand on a batch."""
        report: Any = event.progress
        self._progress(read_progress(report.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Hand on that there is nothing to do."""
        self._idle(IdleQuery(str(event.runId)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Hand on an end."""
        self._ended(str(event.runId))
