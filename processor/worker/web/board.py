"""Says what one worker is doing, as JSON: `/status.json`, which docs/dashboard.md describes field by field.

Invariant: nothing of a record is in it, no id, key or value. It is made when somebody asks; while nobody does,
a look at the counters every ten seconds is all that it costs, for the last ten minutes have to be known when
somebody comes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import socket
import time
from collections import deque
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.ops.memory_limit import resident_bytes
from processor.ops.status import KEEPS_UP_S, StateSeries, Status
from processor.pipeline.hops import hops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.ops.escaped import EscapeReport
    from processor.ops.metrics import Metrics
    from processor.ops.status import StatusLine
    from processor.ops.troubles import Troubles
    from processor.pipeline.hops import Hop
    from processor.worker.worker import Worker
    from schemas.config import Settings

log = logging.getLogger(__name__)

FORM = 1
"""Of what `/status.json` says: raised where a field goes or changes its meaning, not where one is added."""
STEP_S = float(os.environ.get("SEQMARK_TEST_HISTORY_S", "10"))
STEPS = 60
"""Ten minutes."""
RATE_S = 10.0
"""Rates are those of so many seconds: commits come in steps of up to half a second at full load."""
FRESH_S = 0.2
"""Who asks more often hears the same again: a hundred pages cost as much as five."""


class _Count(NamedTuple):
    """What was counted up to a moment, by hop and verdict."""

    at_s: float
    by_hop: Mapping[str, Mapping[str, int]]


class Board:
    """The status of one worker."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        worker: Worker,
        troubles: Troubles,
        *,
        drain: bool = False,
        explains: bool = False,
    ) -> None:
        self._settings = settings
        self._explains = explains
        self._metrics = metrics
        self._worker = worker
        self._troubles = troubles
        self._hops = hops(settings)
        now_s = time.monotonic()
        names = [hop.name for hop in self._hops]
        self._status = Status(metrics, names, now_s, RATE_S, drain=drain)
        metrics.registry.register(StateSeries(self._status))
        self._counts: deque[_Count] = deque(maxlen=STEPS + 1)
        self._began_ms = int(time.time() * 1000)
        self._said: dict[str, Any] = {}
        self._said_s = -math.inf
        self.tick(now_s)

    async def keep(self) -> None:
        """Look at the counters from time to time, for ever; what fails there is logged and ends nothing."""
        while True:
            await asyncio.sleep(STEP_S)
            try:
                self.tick(time.monotonic())
            except Exception:
                log.exception("the counters cannot be looked at")

    def tick(self, now_s: float) -> list[StatusLine]:
        """Note what is counted until now."""
        lines = self._status.look(now_s)
        if not self._counts or now_s - self._counts[-1].at_s >= STEP_S * 0.9:
            by_hop = {line.pipeline: dict(line.reading.counts) for line in lines}
            self._counts.append(_Count(now_s, by_hop))
        return lines

    def fields(self) -> dict[str, Any]:
        """Return the status now, or what it was a moment ago."""
        now_s = time.monotonic()
        if now_s - self._said_s >= FRESH_S:
            self._said, self._said_s = self._made(self.tick(now_s)), now_s
        return self._said

    def _made(self, lines: Sequence[StatusLine]) -> dict[str, Any]:
        worker, used = self._worker, resident_bytes()
        limit = self._settings.worker.memory_limit
        membership = worker.membership
        return {
            "form": FORM,
            "at_ms": int(time.time() * 1000),
            "application": self._settings.worker.application_id,
            "worker": {
                "name": None if membership is None else membership.name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started_ms": self._began_ms,
                "ready": worker.ready,
                "reason": worker.reason,
                "doing": self._metrics.doing.text,
            },
            "versions": {"seqmark": self._metrics.version, "python": platform.python_version()},
            "memory": {
                "used_bytes": used,
                "limit_bytes": limit,
                "share": None if used is None or limit is None else round(used / limit, 4),
            },
            "shows_receipts": self._settings.worker.web_receipts,
            "explains": self._explains,
            "pipelines": [self._pipeline(*each) for each in zip(self._hops, lines, strict=True)],
            "troubles": [asdict(trouble) for trouble in self._troubles.newest()],
        }

    def _pipeline(self, hop: Hop, line: StatusLine) -> dict[str, Any]:
        metrics, reading = self._metrics, line.reading
        dedup = hop.pipeline.id_dedup
        return {
            "name": hop.name,
            "pipeline": hop.pipeline.name,
            "source": hop.source,
            "sink": hop.pipeline.sink
            if hop.name == hop.pipeline.name and hop.pipeline.writes_records
            else None,
            "verdicts": hop.pipeline.verdicts,
            "duplicates": hop.duplicates,
            "mode": hop.pipeline.dedup.mode,
            "id_parts": None if dedup is None else len(dedup.id),
            "scoped": dedup is None and hop.pipeline.dedup.unscoped_by is None,
            "backend": None if dedup is None else dedup.backend,
            "window_ms": None if dedup is None else dedup.window,
            "observe": hop.pipeline.observe,
            "state": line.state,
            "source_partitions": reading.source_partitions or None,
            "partitions": reading.assigned,
            "partitions_ready": line.ready,
            "restored": _rounded(line.restored),
            "drained": _rounded(line.drained),
            "records": {verdict: reading.counts[verdict] for verdict in reading.verdicts},
            "records_per_s": round(line.records_per_s, 1),
            "passed_per_s": round(line.passed_per_s, 1),
            "history": self._history(hop.name),
            "lag": line.lag,
            "catch_up_s": None if line.catch_up_s == math.inf else _rounded(line.catch_up_s),
            "falls_behind": line.catch_up_s == math.inf,
            "keeps_up": None if line.catch_up_s is None else line.catch_up_s < KEEPS_UP_S,
            "commit": _commits(sorted(metrics.recent_commits.get(hop.name, ()))),
            "quiet_s": _rounded(line.quiet_s),
            "held_s": reading.held_s or None,
            "ids": reading.ids,
            "scopes": reading.scopes,
            "state_bytes": reading.state_bytes,
            "false_positive_rate": reading.false_positive_rate,
            "escaped": _escaped(metrics.escapes.reports.get(hop.name)),
            "quarantined": dict(reading.codes),
            "expired": reading.expired,
            "aborted": reading.aborted,
            "note": metrics.notes.get(hop.pipeline.name, ""),
            "slots": self._slots(hop.name, line),
        }

    def _slots(self, hop: str, line: StatusLine) -> list[dict[str, Any]]:
        reading = line.reading
        return [
            {
                "slot": number,
                "state": run.state.value,
                "reason": "" if run.ready else run.reason,
                "partitions": [
                    {
                        "partition": partition,
                        "position": reading.position.get(str(partition)),
                        "lag": reading.lag.get(str(partition)),
                        "restored": _rounded(reading.restored.get(str(partition))),
                    }
                    for partition in run.partitions
                ],
            }
            for (name, number), run in sorted(self._worker.runs.items())
            if name == hop
        ]

    def _history(self, hop: str) -> dict[str, Any]:
        """Return what was counted in each step of the last ten minutes, the oldest first."""
        counts = list(self._counts)
        pairs = list(pairwise(counts))
        verdicts = counts[-1].by_hop[hop]
        return {
            "seconds_ago": round(time.monotonic() - counts[-1].at_s, 1),
            "seconds": [round(now.at_s - then.at_s, 2) for then, now in pairs],
            "records": {
                verdict: [
                    now.by_hop[hop].get(verdict, 0) - then.by_hop[hop].get(verdict, 0) for then, now in pairs
                ]
                for verdict in verdicts
            },
        }


def _commits(seconds: Sequence[float]) -> dict[str, Any]:
    """Return quantiles of sorted seconds, by nearest rank."""

    def quantile(share: float) -> float | None:
        return round(1000 * seconds[math.ceil(share * len(seconds)) - 1], 2) if seconds else None

    return {"p50_ms": quantile(0.5), "p99_ms": quantile(0.99), "of": len(seconds)}


def _escaped(report: EscapeReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        **{
            str(reason): {"estimate": round(count.estimate, 1), "lower": round(count.lower, 1)}
            for reason, count in report.counts.items()
        },
        "window_s": _rounded(report.window_to_catch_s),
        "sample_ratio": 0.0 if report.off else report.sample_ratio,
        "says": report.sentences(),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
