"""Compares a worker's clock with that of the brokers, before a commit makes lasting what the worker's has said.

A transaction's coordinator notes by its own clock when a transaction began (`DescribeTransactions`): that was
between the question that began it and the answer, and what lies inside is no difference. From there on this
machine's monotonic clock says what the brokers' reads, for `AGAIN_S`, so that few commits ask. A difference
that matters is believed only if it was asked for in this commit.
"""

from __future__ import annotations

import logging
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import StopError
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

AGAIN_S = 60.0
"""Quartz drifts by some ms in it."""
SAY_S = 60.0
WARN_SHARE = 0.1
"""Of the window."""


class Beginning(NamedTuple):
    """When the open transaction began, by the coordinator's clock, and between which monotonic seconds."""

    at_ms: int
    asked_s: float
    answered_s: float


class ClockMove(NamedTuple):
    """What a commit would make of one partition's clock.

    Attributes:
        where: The partition.
        window_ms: How long an id is remembered.
        worker_ms: What the worker's clock must have read, to have moved it there; None: it was not moved.
    """

    where: str
    window_ms: int
    worker_ms: int | None


class BrokerTime:
    """The brokers' clock as one slot knows it.

    Args:
        began: Returns when the open transaction began; None: nobody knows.
        now_ms: The worker's clock.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        began: Callable[[], Awaitable[Beginning | None]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._began = began
        self._now_ms = now_ms
        self._clock = clock
        self._known: Beginning | None = None
        self._said_s = -math.inf

    async def require(self, moves: Iterable[ClockMove]) -> None:
        """Refuse a commit where the worker's clock is, or was, further from the brokers' than a window.

        Raises:
            StopError: It is.
            RebuildError: No answer within the deadline.
        """
        every = list(moves)
        if not every:
            return
        fresh = self._known is None or self._clock() - self._known.answered_s > AGAIN_S
        if fresh:
            self._known = await self._began()
        if not fresh and any(self._share(move) >= WARN_SHARE for move in every):
            self._known = await self._began()
        worst = max(every, key=self._share)
        share = self._share(worst)
        if share <= WARN_SHARE:
            return
        apart = f"{worst.where}: {self._words(worst)}"
        if share > 1:
            raise StopError(
                f"{apart}, more than the window of {duration(worst.window_ms / 1000)}: committed, ids would be "
                "forgotten too early, or never. This transaction was not committed. Set both clocks right "
                "(NTP), then start the worker again; see 'A wrong clock' in docs/operations.md"
            )
        if self._clock() - self._said_s >= SAY_S:
            self._said_s = self._clock()
            log.warning(
                "%s, more than a tenth of the window: have both set by NTP; beyond the window the worker stops",
                apart,
            )

    def _share(self, move: ClockMove) -> float:
        return abs(self._apart_ms(move)) / move.window_ms

    def _apart_ms(self, move: ClockMove) -> int:
        """Return how far the worker's clock is ahead, below 0 behind; the larger of now and then."""
        if self._known is None:
            return 0
        now_s, worker_ms = self._clock(), self._now_ms()
        # The brokers' clock reads something between these two.
        low_ms = self._known.at_ms + int((now_s - self._known.answered_s) * 1000)
        high_ms = self._known.at_ms + int((now_s - self._known.asked_s) * 1000)
        now_ms = max(worker_ms - high_ms, 0) + min(worker_ms - low_ms, 0)
        then_ms = 0 if move.worker_ms is None else max(move.worker_ms - high_ms, 0)
        return now_ms if abs(now_ms) >= then_ms else then_ms

    def _words(self, move: ClockMove) -> str:
        apart_ms = self._apart_ms(move)
        which = "ahead of" if apart_ms > 0 else "behind"
        reads = datetime.fromtimestamp((self._now_ms() - apart_ms) / 1000, UTC)
        return (
            f"the clock of this machine is, or was a moment ago, {duration(abs(apart_ms) / 1000)} {which} the "
            f"brokers', which reads {reads:%Y-%m-%d %H:%M:%S} UTC"
        )
