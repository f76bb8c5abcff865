"""Tells for how long the last stable offset of a source has stood still before an open transaction.

`read_committed` readers stop at the last stable offset, and lag is measured to it: a transaction of somebody
else that never ends holds everything behind it back, and the lag says 0. Most topics that transactions write to
have one open at any moment, so it is not the distance that tells but that the offset does not move.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from processor.ops.status import HANGS_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.kafka.client import TopicPartition
    from processor.ops.metrics import Metrics

log = logging.getLogger(__name__)


class _Held(NamedTuple):
    stable: int
    since_s: float
    say_s: float
    """How old it is when it is said next."""


class Standstill:
    """Watches the source partitions of one slot, by monotonic seconds."""

    def __init__(self, pipeline: str, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._clock = clock
        self._held: dict[int, _Held] = {}

    def saw(self, tp: TopicPartition, stable: int, end: int) -> None:
        """Note what a fetch tells of a partition: its last stable offset and its high watermark."""
        now_s = self._clock()
        held = self._held.get(tp.partition)
        if end <= stable:
            self._held.pop(tp.partition, None)
            age_s = 0.0
        elif held is None or held.stable != stable:
            self._held[tp.partition] = _Held(stable, now_s, HANGS_S)
            age_s = 0.0
        else:
            age_s = now_s - held.since_s
            if age_s >= held.say_s:
                self._held[tp.partition] = held._replace(say_s=held.say_s * 2)
                log.warning(
                    "%s:%s: a transaction of its producer is open at offset %s since %.0f s or longer and "
                    "holds back what comes behind it, %s offsets by now; see 'A transaction that hangs' in "
                    "docs/operations.md",
                    tp.topic,
                    tp.partition,
                    stable,
                    age_s,
                    end - stable,
                )
        labels = (self._pipeline, str(tp.partition))
        self._metrics.open_records.labels(*labels).set(max(0, end - stable))
        self._metrics.open_seconds.labels(*labels).set(age_s)
