"""Bears what brokers hold back because of a quota: gives deadlines the time, counts it, and warns once.

A broker answers at once what goes beyond a quota, says for how long it will read nothing more from that
connection, and keeps to it (KIP-219). A muted connection is not a broken one: what waits there gets that time
as well, whether it was sent before the broker said so or afterwards.

Invariant: no deadline moves by more than what a broker has said, and by no more than `MOST_S`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import Counter

log = logging.getLogger(__name__)

MOST_S = 300.0
"""A transaction of 1 MiB at 4 kB/s; whatever says more is not waited for."""
CALM_S = 60.0
"""So long after the last time an episode is over: who writes in bursts is held back with pauses."""
SAY_S = 1.0
"""Of less nothing is said."""


class Mutes:
    """Which connections are muted until when, by whatever key, on the clock of the event loop."""

    def __init__(self) -> None:
        self._until: dict[Any, float] = {}
        self._waits: defaultdict[Any, dict[asyncio.Timeout, float]] = defaultdict(dict)

    def left_s(self, key: Any) -> float:
        """Return for how long a connection is still muted; 0: it is not."""
        until = self._until.get(key)
        return 0.0 if until is None else max(0.0, until - asyncio.get_running_loop().time())

    def note(self, key: Any, seconds: float) -> None:
        """Note that a broker mutes a connection from now on for so long."""
        until = asyncio.get_running_loop().time() + min(seconds, MOST_S)
        self._until[key] = max(until, self._until.get(key, 0.0))
        for limit, own_s in self._waits[key].items():
            if not limit.expired():
                limit.reschedule(max(limit.when() or 0.0, self._until[key] + own_s))

    def forget(self, key: Any) -> None:
        """Note that the connection is another one."""
        self._until.pop(key, None)

    @asynccontextmanager
    async def within(self, key: Any, seconds: float) -> AsyncIterator[None]:
        """Limit how long the block waits for a connection: raises `TimeoutError` as `asyncio.timeout` does."""
        async with asyncio.timeout(self.left_s(key) + seconds) as limit:
            waits = self._waits[key]
            waits[limit] = seconds
            try:
                yield
            finally:
                del waits[limit]


class Traffic(StrEnum):
    """What a broker holds back; values of the metric's label."""

    PRODUCE = "produce"
    FETCH = "fetch"
    OTHER = "other"


_WORDS = {
    Traffic.PRODUCE: ("writes", "Transactions are made as small as their time-out asks for"),
    Traffic.FETCH: (
        "reads",
        "Where nothing comes at all, raise it: brokers never send a batch larger than ten seconds of the quota",
    ),
    Traffic.OTHER: ("asks", "It goes on as fast as it may"),
}


class Throttling:
    """What brokers have held back in this process.

    Args:
        seconds: Counts for how long, by `Traffic`; None: nobody counts.
        until_s: Takes until when, by the hop that a client is of; None: nobody looks.
        clock: Monotonic seconds.

    Attributes:
        hops: By client id, the hop that a client is of; those of others are not in it.
    """

    def __init__(
        self,
        seconds: Counter | None = None,
        until_s: dict[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hops: dict[str, str] = {}
        self._until_s = {} if until_s is None else until_s
        self._seconds = {} if seconds is None else {what: seconds.labels(what) for what in Traffic}
        self._clock = clock
        self._until = dict.fromkeys(Traffic, -math.inf)
        self._sum = dict.fromkeys(Traffic, 0.0)

    def saw(self, what: Traffic, client_id: str, node: object, seconds: float) -> None:
        """Note that a broker holds back a client for so long from now on."""
        if what in self._seconds:
            self._seconds[what].inc(seconds)
        now = self._clock()
        before = self._sum[what] if now < self._until[what] + CALM_S else 0.0
        self._sum[what] = before + seconds
        self._until[what] = max(self._until[what], now + seconds)
        if self._sum[what] >= SAY_S and (hop := self.hops.get(client_id)) is not None:
            self._until_s[hop] = max(self._until_s.get(hop, -math.inf), now + seconds + SAY_S)
        if before < SAY_S <= self._sum[what]:
            does, then = _WORDS[what]
            log.warning(
                "brokers hold back what this process %s, because of a quota for its user or client id: broker "
                "%s has just muted a connection of client %s for %.1f s. %s; see 'A quota' in "
                "docs/operations.md",
                does,
                node,
                client_id,
                seconds,
                then,
            )
