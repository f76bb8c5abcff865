"""Counts for Prometheus what a worker does.

Names follow Prometheus' conventions: a unit at the end, ``_total`` for counters. docs/operations.md says what
each means and what to alert on.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
COMMIT_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)


def _version() -> str:
    try:
        return version("seqmark")
    except PackageNotFoundError:  # run from a folder of sources
        return "unknown"


class Metrics:
    """All metrics of one worker, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        partition = ("pipeline", "partition")
        self.records = Counter(
            "seqmark_records",
            "Source records in committed transactions, by verdict.",
            ("pipeline", "verdict"),
            registry=registry,
        )
        self.quarantined = Counter(
            "seqmark_quarantined_records",
            "Records in quarantine by committed transactions, by the code of what is wrong with them.",
            ("pipeline", "code"),
            registry=registry,
        )
        self.bytes_in = Counter(
            "seqmark_source_bytes",
            "Bytes of source batches fetched.",
            ("pipeline",),
            registry=registry,
        )
        self.bytes_out = Counter(
            "seqmark_sink_bytes", "Bytes of sink batches written.", ("pipeline",), registry=registry
        )
        self.chunk_seconds = Histogram(
            "seqmark_chunk_seconds",
            "Time to decode, judge and encode one chunk.",
            ("pipeline",),
            buckets=CHUNK_BUCKETS,
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "seqmark_commit_seconds",
            "Time from asking for a commit until the local state is written.",
            ("pipeline",),
            buckets=COMMIT_BUCKETS,
            registry=registry,
        )
        self.last_commit = Gauge(
            "seqmark_last_commit_timestamp_seconds",
            "When this partition was committed last, in Unix time.",
            partition,
            registry=registry,
        )
        self.transactions_aborted = Counter(
            "seqmark_transactions_aborted",
            "Transactions that did not commit, by reason.",
            ("pipeline", "reason"),
            registry=registry,
        )
        self.records_expired = Counter(
            "seqmark_records_expired",
            "Offsets that retention removed before they were read.",
            ("pipeline",),
            registry=registry,
        )
        self.lag = Gauge(
            "seqmark_lag_records",
            "Offsets between the committed position and the last stable offset last seen.",
            partition,
            registry=registry,
        )
        self.open_records = Gauge(
            "seqmark_source_open_transaction_records",
            "Offsets of the source behind its last stable offset: an open transaction holds them back.",
            partition,
            registry=registry,
        )
        self.open_seconds = Gauge(
            "seqmark_source_open_transaction_seconds",
            "For how long the source's last stable offset has stood still before an open transaction; 0: none.",
            partition,
            registry=registry,
        )
        self.position = Gauge("seqmark_position", "Committed source position.", partition, registry=registry)
        self.watermark = Gauge("seqmark_watermark", "Last sequence that passed.", partition, registry=registry)
        self.scopes = Gauge(
            "seqmark_scopes", "Scopes with a watermark of their own.", partition, registry=registry
        )
        self.ids = Gauge(
            "seqmark_ids",
            "Ids in the index, expired ones that are not swept yet included.",
            partition,
            registry=registry,
        )
        self.state_bytes = Gauge(
            "seqmark_state_bytes", "Memory of scopes, or of the index of ids.", partition, registry=registry
        )
        self.clock = Gauge(
            "seqmark_clock_seconds",
            "The partition's clock, of the last commit, in Unix time (mode insert-id).",
            partition,
            registry=registry,
        )
        self.false_positive_rate = Gauge(
            "seqmark_false_positive_rate",
            "Rate at which a new id is taken for an old one by the Bloom filters, by the bits that are set.",
            partition,
            registry=registry,
        )
        self.records_behind = Counter(
            "seqmark_records_behind_clock",
            "Records with a timestamp below their partition's clock (mode insert-id); judged like any other.",
            ("pipeline",),
            registry=registry,
        )
        self.records_ahead = Counter(
            "seqmark_records_ahead_of_clock",
            "Records further ahead than max_ahead allows (mode insert-id); judged, and not believed.",
            ("pipeline",),
            registry=registry,
        )
        self.memory = Gauge("seqmark_memory_bytes", "Memory that the process has in use.", registry=registry)
        self.memory_pressure = Gauge(
            "seqmark_memory_pressure_ratio",
            "Share of worker.memory_limit in use; 0 without one.",
            registry=registry,
        )
        self.restore_ratio = Gauge(
            "seqmark_restore_ratio",
            "Share of the changelog restored.",
            partition,
            registry=registry,
        )
        self.assigned = Gauge(
            "seqmark_assigned_partitions", "Partitions assigned.", ("pipeline",), registry=registry
        )
        self.source_partitions = Gauge(
            "seqmark_source_partitions",
            "Partitions of the source, whoever they are assigned to.",
            ("pipeline",),
            registry=registry,
        )
        self.begun: dict[tuple[str, str], tuple[int, int]] = {}
        """Position and last stable offset that each partition had when it was assigned. No series: only
        `processor.ops.status` has a use for it."""
        self.ready = Gauge("seqmark_ready", "1 while everything assigned is restored.", registry=registry)
        self.build = Info("seqmark_build", "Which Seqmark this is.", registry=registry)
        self.build.info({"version": _version()})

    def expect(self, pipeline: str, codes: Iterable[str]) -> None:
        """Show counters at 0 that somebody is alerted by: their first event is an increase then."""
        self.records_expired.labels(pipeline)
        for code in codes:
            self.quarantined.labels(pipeline, code)

    def begin(self, pipeline: str, partition: int, position: int, stable: int) -> None:
        """Show that a partition is restored, where it goes on, and how much lies before it."""
        labels = (pipeline, str(partition))
        self.begun.setdefault(labels, (position, stable))
        self.restore_ratio.labels(*labels).set(1.0)
        self.position.labels(*labels).set(position)
        self.lag.labels(*labels).set(max(0, stable - position))

    def forget(self, pipeline: str, partition: int) -> None:
        """Drop the series of a partition that is not ours any more."""
        self.begun.pop((pipeline, str(partition)), None)
        gauges = (
            self.lag,
            self.open_records,
            self.open_seconds,
            self.last_commit,
            self.position,
            self.watermark,
            self.restore_ratio,
            self.scopes,
            self.ids,
            self.state_bytes,
            self.clock,
            self.false_positive_rate,
        )
        for gauge in gauges:
            try:
                gauge.remove(pipeline, str(partition))
            except KeyError:
                continue

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self.registry)
