"""Computes what a worker is doing, how fast, and how long until it has caught up.

Pure: a `Metrics` and the time go in, a `StatusLine` of numbers per pipeline comes out. Nothing is counted here;
all numbers are those that Prometheus scrapes, and rates are differences between two looks at them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from processor.ops.metrics import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from processor.ops.metrics import Metrics

VERDICTS = ("pass", "duplicate", "late", "collision", "quarantine")
"""As they are shown."""
EVERYWHERE = tuple(verdict for verdict in VERDICTS if verdict != "collision")
"""Collisions are those of pipelines with a fingerprint only."""
KEEPS_UP_S = 1.0
"""A lag that is done in less is what is on its way to the next commit."""
HANGS_S = 300.0
"""An open transaction of the source's producers: they last 60 s by the default of all clients, and 15 min by
that of brokers."""


@dataclass(slots=True)
class Reading:
    """What the metrics say of one pipeline at one moment; dicts are by partition, but for the counts."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVERYWHERE, 0))
    """Records by verdict; those that the pipeline can have."""
    assigned: int = 0
    """Partitions; none before the group has answered for the first time."""
    restored: dict[str, float] = field(default_factory=dict)
    """Share of the changelog."""
    position: dict[str, int] = field(default_factory=dict)
    lag: dict[str, int] = field(default_factory=dict)
    scopes: int = 0
    ids: int | None = None
    """None where the pipeline has none."""
    state_bytes: int = 0
    commits: int = 0
    commit_s: float = 0.0
    """Seconds that all commits took."""
    held_s: float = 0.0
    """For how long an open transaction has held a partition of the source back."""
    source_partitions: int = 0
    false_positive_rate: float | None = None
    """The greatest of all partitions; None where there are no filters."""
    codes: dict[str, int] = field(default_factory=dict)
    """Quarantined records by code."""
    expired: int = 0
    """Offsets that retention has removed before they were read."""
    aborted: int = 0
    """Transactions."""

    @property
    def verdicts(self) -> list[str]:
        """The verdicts that the pipeline can have, as they are shown."""
        return [verdict for verdict in VERDICTS if verdict in self.counts]

    @property
    def records(self) -> int:
        """Source records in committed transactions."""
        return sum(self.counts.values())


class Look(NamedTuple):
    """All pipelines at one moment."""

    at_s: float
    joined: bool
    """Whether all that the group has assigned, if anything, is at work."""
    readings: Mapping[str, Reading]


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One pipeline's status; what is not known is None."""

    pipeline: str
    state: State
    reading: Reading
    """What was counted since the worker started, and what it holds."""
    ready: int
    """How many of the assigned partitions are restored."""
    restored: float | None
    """Share of the changelogs, while restoring."""
    drained: float | None
    """Share of what was there when it was assigned, while draining."""
    records_per_s: float
    passed_per_s: float
    lag: int | None
    catch_up_s: float | None
    """Until there is no lag; infinite while it does not shrink."""
    commit_s: float | None
    """What a commit took of late."""
    quiet_s: float | None
    """Since the last commit."""


class Status:
    """Looks at the metrics from time to time; all times are monotonic seconds.

    Rates are those of the last ``window_s`` seconds, or since the look before if that is longer ago.
    """

    def __init__(
        self, metrics: Metrics, pipelines: Sequence[str], now_s: float, window_s: float, *, drain: bool = False
    ) -> None:
        self._metrics = metrics
        self._pipelines = list(pipelines)
        self._window_s = window_s
        self._drain = drain
        self._began_s = now_s
        self._looks: deque[Look] = deque([read(metrics, self._pipelines, now_s)])
        self._committed: dict[str, tuple[int, float]] = {}
        self._was_assigned = False

    def look(self, now_s: float) -> list[StatusLine]:
        """Return the status now, one line per pipeline."""
        now = read(self._metrics, self._pipelines, now_s)
        self._looks.append(now)
        while len(self._looks) > 2 and self._looks[1].at_s <= now_s - self._window_s:
            self._looks.popleft()
        return [self._line(name, self._looks[0], now) for name in self._pipelines]

    def states(self, now_s: float) -> dict[str, State]:
        """Return what is done now about each pipeline."""
        now = read(self._metrics, self._pipelines, now_s)
        return {name: self._state(now, name) for name in self._pipelines}

    def uptime_s(self, now_s: float) -> float:
        """Return the seconds since the start."""
        return now_s - self._began_s

    def end(self, now_s: float) -> tuple[float, Mapping[str, Reading]]:
        """Return the seconds since the start and what was counted in them; partitions are forgotten by then."""
        return self.uptime_s(now_s), read(self._metrics, self._pipelines, now_s).readings

    def _line(self, name: str, then: Look, now: Look) -> StatusLine:
        before, reading = then.readings[name], now.readings[name]
        seconds = max(now.at_s - then.at_s, 1e-9)
        rate = (reading.records - before.records) / seconds
        ready = sum(ratio >= 1 for ratio in reading.restored.values())
        state = self._state(now, name)
        # What was seen last says nothing of now.
        lag = sum(reading.lag.values()) if reading.lag and state is not State.NO_CONTACT else None
        lag_before = sum(before.lag.values()) if before.lag.keys() == reading.lag.keys() else None
        commits = reading.commits - before.commits
        return StatusLine(
            name,
            state,
            reading,
            ready,
            sum(reading.restored.values()) / reading.assigned if state is State.RESTORING else None,
            self._drained(name, reading) if self._drain and reading.position else None,
            rate,
            (reading.counts["pass"] - before.counts["pass"]) / seconds,
            lag,
            _catch_up_s(lag, lag_before, rate, seconds),
            (reading.commit_s - before.commit_s) / commits if commits else None,
            self._quiet_s(name, reading, now.at_s),
        )

    def _state(self, now: Look, name: str) -> State:  # noqa: PLR0911 - the first that holds
        """Return the most important thing that there is to say; the one place that decides it."""
        metrics, reading = self._metrics, now.readings[name]
        self._was_assigned |= any(each.assigned for each in now.readings.values())
        if metrics.doing.text and not self._was_assigned:
            return metrics.doing.state
        if metrics.contact.lost:
            return State.NO_CONTACT
        if (held_up := metrics.held_up(name)) is not None:
            return held_up
        if not reading.assigned:
            if now.joined:
                return State.STANDING_BY
            return State.REBALANCING if self._was_assigned else State.STARTING
        if sum(ratio >= 1 for ratio in reading.restored.values()) < reading.assigned:
            return State.RESTORING
        if metrics.throttled_until_s.get(name, -math.inf) > now.at_s:
            return State.THROTTLED
        if reading.held_s >= HANGS_S:
            return State.HELD_BACK
        return State.DRAINING if self._drain else State.READY

    def _drained(self, name: str, reading: Reading) -> float:
        """Return the share done of what was there when each partition was assigned."""
        done = wanted = 0
        for partition, position in reading.position.items():
            begin, end = self._metrics.begun.get((name, partition), (position, position))
            done += max(min(position, end) - begin, 0)
            wanted += max(end - begin, 0)
        return done / wanted if wanted else 1.0

    def _quiet_s(self, name: str, reading: Reading, now_s: float) -> float | None:
        if not reading.commits:
            return None
        commits, at_s = self._committed.get(name, (0, 0.0))
        if commits != reading.commits:
            self._committed[name] = (reading.commits, now_s)
            return 0.0
        return now_s - at_s


class StateSeries(Collector):
    """The series of what is done about each pipeline: 1 for the state that it is in, 0 for all others."""

    def __init__(self, status: Status | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._clock = clock

    @override
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "seqmark_state", "1 for what the worker does about a pipeline.", labels=("pipeline", "state")
        )
        for name, state in self._status.states(self._clock()).items() if self._status is not None else ():
            for each in State:
                family.add_metric((name, each.value), float(each is state))
        yield family

    def describe(self) -> Iterator[Metric]:
        """Tell the registry the name alone."""
        yield from StateSeries(None).collect()


def read(metrics: Metrics, pipelines: Sequence[str], now_s: float) -> Look:
    """Read from the metrics what is shown."""
    found: dict[str, dict[str, list[tuple[dict[str, str], float]]]] = {name: {} for name in pipelines}
    for metric, key, suffix in (
        (metrics.records, "records", "_total"),
        (metrics.assigned, "assigned", ""),
        (metrics.restore_ratio, "restored", ""),
        (metrics.position, "position", ""),
        (metrics.lag, "lag", ""),
        (metrics.scopes, "scopes", ""),
        (metrics.ids, "ids", ""),
        (metrics.state_bytes, "state_bytes", ""),
        (metrics.commit_seconds, "commits", "_count"),
        (metrics.commit_seconds, "commit_s", "_sum"),
        (metrics.open_seconds, "held_s", ""),
        (metrics.source_partitions, "source_partitions", ""),
        (metrics.false_positive_rate, "false_positives", ""),
        (metrics.quarantined, "codes", "_total"),
        (metrics.records_expired, "expired", "_total"),
        (metrics.transactions_aborted, "aborted", "_total"),
    ):
        for labels, value in samples(metric, suffix):
            if (of := found.get(labels["pipeline"])) is not None:
                of.setdefault(key, []).append((labels, value))
    joined = any(value for _, value in samples(metrics.ready))
    return Look(now_s, joined, {name: _reading(of) for name, of in found.items()})


def _reading(of: Mapping[str, Sequence[tuple[dict[str, str], float]]]) -> Reading:
    """Return what the samples of one pipeline say, by what they are of."""

    def values(key: str) -> list[float]:
        return [value for _, value in of.get(key, ())]

    def total(key: str) -> int:
        return int(sum(values(key)))

    def counts(key: str, label: str) -> dict[str, int]:
        return {labels[label]: int(value) for labels, value in of.get(key, ())}

    return Reading(
        counts=dict.fromkeys(EVERYWHERE, 0) | counts("records", "verdict"),
        assigned=total("assigned"),
        restored={labels["partition"]: value for labels, value in of.get("restored", ())},
        position=counts("position", "partition"),
        lag=counts("lag", "partition"),
        scopes=total("scopes"),
        ids=total("ids") if "ids" in of else None,
        state_bytes=total("state_bytes"),
        commits=total("commits"),
        commit_s=sum(values("commit_s")),
        held_s=max(values("held_s"), default=0.0),
        source_partitions=total("source_partitions"),
        false_positive_rate=max(values("false_positives"), default=None),
        codes={code: number for code, number in counts("codes", "code").items() if number},
        expired=total("expired"),
        aborted=total("aborted"),
    )


def samples(metric: Any, suffix: str = "") -> Iterator[tuple[dict[str, str], float]]:
    """Yield labels and value of each sample of a metric; ``suffix`` is "_total" for counters."""
    for family in metric.collect():
        for sample in family.samples:
            if sample.name == family.name + suffix:
                yield sample.labels, sample.value


def _catch_up_s(lag: int | None, before: int | None, rate: float, seconds: float) -> float | None:
    """Estimate by how fast the lag shrinks: what is produced meanwhile is in it."""
    if lag is None:
        return None
    if not lag:
        return 0.0
    if lag <= rate * KEEPS_UP_S:
        return lag / rate
    if before is None:
        return None
    if before <= lag:
        return math.inf
    return lag / (before - lag) * seconds
