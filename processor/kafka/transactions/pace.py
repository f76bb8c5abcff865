"""Bounds what a transaction holds by what brokers take in its time.

A transaction has a time-out, and brokers take as much in that time as a quota (KIP-219) or a slow line lets
them. One that is filled by records alone may never fit, and would be begun again for ever. So each commit tells
how many bytes of records have gone in how many seconds, whatever was written for them, and the next transaction
holds what goes in a fraction of the time-out, if it goes on like that.

Nobody knows of a quota before it bites, and brokers take ten seconds of it at once. So the first transaction is
a small one, and what came through without a wait counts as the work of ten seconds: at a time-out of a minute a
transaction is two and a half times as large as the one before at most, and fits whatever the quota is.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_BYTES = 1024 * 1024
"""At 25 kB/s it goes within 48 s, when a commit gives up by default; without a quota in some milliseconds."""
LEAST_BYTES = 4096
"""What a commit writes beside the records is about as much."""
WINDOW_S = 10.0
"""What brokers look at: eleven samples of a second, by default."""
SHARE = 1 / 4
"""Of the time-out: a step gives up after 0.8 of it, and what an estimate is wrong by is seldom threefold."""
CALM = 1 / 4
"""A transaction that waited for less of what it may wait lets the next one be larger."""
SHRINK = 1 / 4
"""At most, at once: a transaction may have waited for what was sent before it."""


class Pace:
    """How much the transactions of a slot hold, from one to the next.

    Args:
        timeout_s: After which the coordinator aborts a transaction.
        clock: Monotonic seconds.

    Attributes:
        most_bytes: Of source records, inflated, that one takes in before it is committed.
    """

    def __init__(self, timeout_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._aim_s = SHARE * timeout_s
        self._clock = clock
        self._recent_bytes, self._recent_s = 0.0, clock()
        self.most_bytes: float = FIRST_BYTES
        self._bytes = 0
        self.begin()

    @property
    def full(self) -> bool:
        """Whether the transaction is to be committed."""
        return self._bytes >= self.most_bytes

    @property
    def piece_bytes(self) -> float:
        """How many inflated bytes of records may come in at once: of a batch a part, where all may be too much.

        What is larger than the first transaction went without a wait before, and a piece more does no harm.
        """
        return self.most_bytes - self._bytes if self.most_bytes <= FIRST_BYTES else math.inf

    def begin(self) -> None:
        """Note that a transaction begins; it may have taken in records that nothing was sent of yet."""
        self._began_s = self._clock()
        self._waited_s = 0.0

    def took(self, size_bytes: int) -> None:
        """Note that it has taken in records."""
        self._bytes += size_bytes

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time that the block takes: it waits for brokers."""
        began = self._clock()
        try:
            yield
        finally:
            self._waited_s += self._clock() - began

    def committed(self) -> None:
        """Note that it has committed."""
        before_s, self._recent_s = self._recent_s, self._clock()
        self._recent_bytes *= math.exp((before_s - self._recent_s) / WINDOW_S)
        self._recent_bytes += self._bytes
        if self._waited_s > self._aim_s:
            fits = min(self._bytes * self._aim_s / self._waited_s, self.most_bytes)
            self.most_bytes = max(fits, self.most_bytes * SHRINK, LEAST_BYTES)
        elif self._waited_s < self._aim_s * CALM:
            self.most_bytes = max(self.most_bytes, self._recent_bytes * self._aim_s / WINDOW_S)
        self._bytes = 0

    def failed(self) -> None:
        """Note that it has not; one that took long is halved."""
        if self._clock() - self._began_s > self._aim_s:
            self.most_bytes = max(min(self._bytes, self.most_bytes) / 2, LEAST_BYTES)
        self._bytes = 0
