"""Runs the escape gauges of a worker beside its work: each knows what this worker has judged since its start.

Invariant: nothing waits for them, and nothing fails with them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.judges.escapes.gauge import MOST_SLOTS, WAITING_ROWS, EscapeGauge
from processor.pipeline.hops import FirstHop, hops

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.pipeline.hops import Hop
    from schemas.config import Settings

KEEP_UP_S = 1.0


class EscapeWatch:
    """The gauges of all pipelines that have ids; none where ``worker.escape_gauge`` is off."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        some = hops(settings) if settings.worker.escape_gauge else []
        watched = {
            hop.name: dedup.window
            for hop in some
            if (dedup := hop.pipeline.id_dedup) is not None and not isinstance(hop, FirstHop)
        }
        halvings = max(0, len(watched) - 1).bit_length()
        most = MOST_SLOTS >> halvings, WAITING_ROWS >> halvings
        self._gauges = {name: EscapeGauge(name, window_ms, *most) for name, window_ms in watched.items()}
        self._show()

    def watch(self, hop: Hop, judge: Judge, partition: int) -> None:
        """Have what a judge lets pass sampled, where its hop has a gauge."""
        gauge = self._gauges.get(hop.name)
        if gauge is not None:
            judge.sample_for(gauge, partition)

    def start(self) -> None:
        """Take in what is committed, from time to time."""
        if self._gauges:
            self._task = asyncio.create_task(self._keep_up(), name="escape gauge")

    async def stop(self) -> None:
        """End; what was committed last is still counted."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for gauge in self._gauges.values():
            gauge.keep_up()
        self._show()

    def _show(self) -> None:
        for name, gauge in self._gauges.items():
            self._metrics.escapes.reports[name] = gauge.report()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(KEEP_UP_S)
            for gauge in self._gauges.values():
                gauge.keep_up()
                await asyncio.sleep(0)
            self._show()
