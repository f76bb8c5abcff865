"""Counts what a worker does, for Prometheus; each worker has one object.

Names follow Prometheus' conventions: a unit at the end, ``_total`` for counters. docs/operations.md says what
each means and what to alert on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from processor.ops.escaped import EscapeMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OBSERVING = "observing: every record passes, verdicts say what would become of it"
"""What whoever looks at the table must not miss."""
CHUNK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
COMMIT_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
RECENT_COMMITS = 1_000
"""The p99 of so many is the tenth longest; half a minute of four slots at full load, and 32 kB."""


class Doing(NamedTuple):
    """What a worker does before it can be ready, for people."""

    text: str
    done: int = 0
    total: int = 0
    """Parts; 0: nobody can say how many there are."""


class Metrics:
    """All metrics of one worker, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._of_partitions: list[Gauge] = []

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def per_partition(name: str, text: str) -> Gauge:
            self._of_partitions.append(gauge(name, text, "pipeline", "partition"))
            return self._of_partitions[-1]

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, text, ("pipeline",), buckets=buckets, registry=registry)

        self.records = counter(
            "seqmark_records", "Source records in committed transactions, by verdict.", "pipeline", "verdict"
        )
        self.quarantined = counter(
            "seqmark_quarantined_records",
            "Records that committed transactions put into quarantine, by the code of what is wrong with them.",
            "pipeline",
            "code",
        )
        self.observing = gauge(
            "seqmark_observing",
            "1 while the pipeline observes: verdicts are counted as judged, and every record passes.",
            "pipeline",
        )
        self.bytes_in = counter("seqmark_source_bytes", "Bytes of source batches fetched.", "pipeline")
        self.bytes_out = counter("seqmark_sink_bytes", "Bytes of sink batches written.", "pipeline")
        self.chunk_seconds = histogram(
            "seqmark_chunk_seconds", "Time to decode, judge and encode one chunk.", CHUNK_BUCKETS
        )
        self.commit_seconds = histogram(
            "seqmark_commit_seconds",
            "Time from asking for a commit until the local state is written.",
            COMMIT_BUCKETS,
        )
        self.last_commit = per_partition(
            "seqmark_last_commit_timestamp_seconds", "When this partition was committed last, in Unix time."
        )
        self.transactions_aborted = counter(
            "seqmark_transactions_aborted", "Transactions that did not commit, by reason.", "pipeline", "reason"
        )
        self.records_expired = counter(
            "seqmark_records_expired", "Offsets that retention removed before they were read.", "pipeline"
        )
        self.throttled = counter(
            "seqmark_throttled_seconds",
            "Seconds for which brokers muted connections because of a quota, by what had been asked.",
            "request",
        )
        self.lag = per_partition(
            "seqmark_lag_records",
            "Offsets between the committed position and the last stable offset last seen.",
        )
        self.open_records = per_partition(
            "seqmark_source_open_transaction_records",
            "Source offsets behind the last stable offset: an open transaction holds them back.",
        )
        self.open_seconds = per_partition(
            "seqmark_source_open_transaction_seconds",
            "For how long the source's last stable offset has stood still before an open transaction; 0: none.",
        )
        self.position = per_partition("seqmark_position", "Committed source position.")
        self.watermark = per_partition("seqmark_watermark", "Sequence watermark: the last that passed.")
        self.scopes = per_partition("seqmark_scopes", "Scopes with a sequence watermark of their own.")
        self.ids = per_partition(
            "seqmark_ids", "Ids in the index, including expired ones that are not swept yet."
        )
        self.variants = per_partition(
            "seqmark_id_variants",
            "Records that are remembered of ids that collided, expired ones that are not swept yet included.",
        )
        self.state_bytes = per_partition(
            "seqmark_state_bytes", "Memory of scopes, or of the index of ids and of those that collided."
        )
        self.clock = per_partition(
            "seqmark_clock_seconds", "The partition's clock at the last commit, in Unix time (mode insert-id)."
        )
        self.false_positive_rate = per_partition(
            "seqmark_false_positive_rate",
            "Rate at which the Bloom filters take a new id for an old one, by the bits that are set.",
        )
        self.records_behind = counter(
            "seqmark_records_behind_clock",
            "Records with a timestamp below their partition's clock (mode insert-id); judged like any other.",
            "pipeline",
        )
        self.records_ahead = counter(
            "seqmark_records_ahead_of_clock",
            "Records further ahead than max_ahead allows (mode insert-id); judged, but their timestamp is not "
            "believed.",
            "pipeline",
        )
        self.memory = gauge("seqmark_memory_bytes", "Memory that the process has in use.")
        self.memory_pressure = gauge(
            "seqmark_memory_pressure_ratio", "Share of worker.memory_limit in use; 0 without one."
        )
        self.restore_ratio = per_partition("seqmark_restore_ratio", "Share of the changelog restored.")
        self.assigned = gauge("seqmark_assigned_partitions", "Partitions assigned.", "pipeline")
        self.source_partitions = gauge(
            "seqmark_source_partitions", "Partitions of the source, of all workers together.", "pipeline"
        )
        self.begun: dict[tuple[str, str], tuple[int, int]] = {}
        """Position and last stable offset that each partition had when it was assigned. No series: only
        `processor.ops.status` has a use for it."""
        self.recent_commits: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT_COMMITS))
        """By pipeline, what its newest commits took, in seconds: quantiles of a histogram are as coarse as its
        buckets. No series."""
        self.notes: dict[str, str] = {}
        """By pipeline, what whoever looks at the table must not miss. No series either."""
        self.doing = Doing("starting")
        """What the worker does before it asks for partitions; no text: it has done all of it."""
        self.escapes = EscapeMetrics()
        """What the escape gauge says; its series are named there."""
        registry.register(self.escapes)
        self.ready = gauge("seqmark_ready", "1 while everything assigned is restored.")
        self.version = _version()
        Info("seqmark_build", "The version of Seqmark.", registry=registry).info({"version": self.version})

    def expect(
        self, pipeline: str, codes: Iterable[str], *, collisions: bool = False, observes: bool = False
    ) -> None:
        """Show at 0 the counters of alerts, so that their first event is an increase.

        Args:
            pipeline: Its name.
            codes: What can be wrong with a record.
            collisions: Whether the pipeline has a fingerprint: then it shows collisions, and else none.
            observes: Whether it lets pass whatever it judges.
        """
        self.observing.labels(pipeline).set(observes)
        self.records_expired.labels(pipeline)
        if collisions:
            self.records.labels(pipeline, "collision")
        for code in codes:
            self.quarantined.labels(pipeline, code)

    def committed(self, pipeline: str, seconds: float) -> None:
        """Count a commit, which took so long."""
        self.commit_seconds.labels(pipeline).observe(seconds)
        self.recent_commits[pipeline].append(seconds)

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
        for gauge in self._of_partitions:
            with suppress(KeyError):
                gauge.remove(pipeline, str(partition))

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self.registry)


def _version() -> str:
    try:
        return version("seqmark")
    except PackageNotFoundError:  # run from a folder of sources
        return "unknown"
