"""Counts what a worker does, for Prometheus; each worker has one object.

Names follow Prometheus' conventions: a unit at the end, ``_total`` for counters. docs/operations.md says what
each means and what to alert on.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from processor.ops.escaped import EscapeMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

OBSERVING = "observing: every record passes, verdicts say what would become of it"
"""What whoever looks at the table must not miss."""
CHUNK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
COMMIT_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
RECENT_COMMITS = 1_000
"""The p99 of so many is the tenth longest; half a minute of four slots at full load, and 32 kB."""


CONTACT_S = float(os.environ.get("SEQMARK_TEST_CONTACT_S", "30"))
"""A leader answers a fetch within half a second, and a coordinator a heartbeat at once; a broker that restarts
has handed over what it leads by then."""
MOST_NAMED = 3


class State(StrEnum):
    """What a worker does about a pipeline; `processor.ops.status` says which it is, and nothing else does."""

    STARTING = "starting"
    COMPILING = "compiling"
    """Or loading what is compiled."""
    REBALANCING = "rebalancing"
    STANDING_BY = "standing by"
    NO_CONTACT = "no contact"
    """What is asked of brokers has no answer for `CONTACT_S`."""
    WAITING = "waiting"
    """For an address, a topic, its partitions, or a right."""
    RETRYING = "retrying"
    """A slot has failed, and begins again."""
    RESTORING = "restoring"
    THROTTLED = "throttled"
    """By a quota."""
    HELD_BACK = "held back"
    """A transaction of the source's producers hangs."""
    DRAINING = "draining"
    READY = "ready"


WORKS = frozenset({State.READY, State.DRAINING, State.STANDING_BY})
"""What needs no explanation."""


class Doing(NamedTuple):
    """What a worker does before it can be ready, for people."""

    text: str
    done: int = 0
    total: int = 0
    """Parts; 0: nobody can say how many there are."""
    state: State = State.STARTING


class Contact:
    """Knows what was asked of brokers and has no answer yet, by who owes it.

    Args:
        clock: Monotonic seconds.
        muted: By hop, until when a quota holds connections back: before that nobody owes an answer.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, muted: Mapping[str, float] | None = None
    ) -> None:
        self._clock = clock
        self._muted = {} if muted is None else muted
        self._since: dict[str, float] = {}
        self._heard_s = clock()

    def asked(self, whom: Iterable[str]) -> None:
        """Note that an answer is owed; what was asked before counts."""
        now_s = self._clock()
        for each in whom:
            self._since.setdefault(each, now_s)

    def answered(self, who: str) -> None:
        """Note an answer."""
        self._since.pop(who, None)
        self._heard_s = self._clock()

    def forget(self, whom: Iterable[str]) -> None:
        """Note that nobody is interested in the answers any more."""
        for each in whom:
            self._since.pop(each, None)

    @property
    def silent_s(self) -> float:
        """For how long the oldest question has had no answer."""
        now_s = self._clock()
        since_s = min([*self._since.values(), now_s])
        return max(0.0, now_s - max([since_s, *self._muted.values()]))

    @property
    def lost(self) -> bool:
        """Whether that is too long."""
        return self.silent_s > CONTACT_S

    def words(self) -> str:
        """Say who has not answered, and since when."""
        silent_s, now_s = self.silent_s, self._clock()
        since = f"{datetime.fromtimestamp(time.time() - silent_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if now_s - self._heard_s >= silent_s - 1:
            return f"no broker has answered since {since}"
        silent = sorted(who for who, since_s in self._since.items() if now_s - since_s > CONTACT_S)
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        return f"no answer since {since} from {', '.join(silent[:MOST_NAMED])}{more}"


@dataclass(eq=False)
class _Beside:
    """What a worker notes beside its series, for `processor.ops.status`."""

    begun: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Position and last stable offset that each partition had when it was assigned."""
    recent_commits: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=RECENT_COMMITS))
    )
    """By pipeline, what its newest commits took, in seconds: quantiles of a histogram are as coarse as its
    buckets."""
    notes: dict[str, str] = field(default_factory=dict)
    """By pipeline, what whoever looks at the table must not miss."""
    throttled_until_s: dict[str, float] = field(default_factory=dict)
    """By hop, until when on the monotonic clock a quota holds it up."""
    held_up: Callable[[str], State | None] = lambda _hop: None
    """Says of a hop what keeps slots that are assigned from working; None: nothing, or a restore."""
    contact: Contact = field(init=False)
    doing: Doing = field(default_factory=lambda: Doing("starting"))
    """What the worker does before it asks for partitions; no text: it has done all of it."""

    def __post_init__(self) -> None:
        self.contact = Contact(muted=self.throttled_until_s)


class Metrics(_Beside):
    """All metrics of one worker, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        super().__init__()
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
        self.dropped_looked_at = counter(
            "seqmark_dropped_looked_at",
            "Dropped records whose content was compared with what passed (mode watermark): a sample.",
            "pipeline",
        )
        self.dropped_unseen = counter(
            "seqmark_dropped_unseen", "Those of them with a content that never passed: new records.", "pipeline"
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
        self.escapes = EscapeMetrics()
        """What the escape gauge says; its series are named there."""
        registry.register(self.escapes)
        self.ready = gauge("seqmark_ready", "1 while everything assigned is restored, and brokers answer.")
        self.broker_contact = gauge(
            "seqmark_broker_contact_seconds",
            "For how long the group's coordinator, or the leader of an assigned partition, has not answered.",
        )
        self.broker_contact.set_function(lambda: self.contact.silent_s)
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
