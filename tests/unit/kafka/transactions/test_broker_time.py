"""A worker's clock that is wrong by a window is not committed, and a right one never stops it."""

from __future__ import annotations

import asyncio

import pytest

from processor.errors import StopError
from processor.kafka.transactions.broker_time import AGAIN_S, SAY_S, Beginning, BrokerTime, ClockMove

WINDOW_MS = 3_600_000
NOW_MS = 1_800_000_000_000


class Case:
    """A slot's commits, with clocks that are set by hand: the brokers' reads `NOW_MS` at 0 s."""

    def __init__(self, *, slow_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.ahead_ms = 0
        self.asked = 0
        self._slow_s = slow_s
        self._time = BrokerTime(self._began, self.worker_ms, lambda: self.now_s)

    def worker_ms(self) -> int:
        return NOW_MS + int(self.now_s * 1000) + self.ahead_ms

    async def _began(self) -> Beginning:
        self.asked += 1
        return Beginning(NOW_MS + int(self.now_s * 1000), self.now_s - self._slow_s, self.now_s)

    def commit(self, at_s: float, *, ahead_ms: int = 0, moved_ms: int | None = None) -> None:
        """Commit at a time, with a worker's clock so far ahead; it has read ``moved_ms`` before, at most."""
        self.now_s, self.ahead_ms = at_s, ahead_ms
        moved = None if moved_ms is None else self.worker_ms() + moved_ms
        asyncio.run(self._time.require([ClockMove("raw:0", WINDOW_MS, moved)]))


def test_clocks_that_agree_are_compared_once_a_minute() -> None:
    case = Case()
    for tenth in range(int(AGAIN_S * 30)):
        case.commit(tenth / 10, moved_ms=0)
    assert case.asked == 3


@pytest.mark.parametrize("ahead_ms", [WINDOW_MS + 2_000, -WINDOW_MS - 2_000])
@pytest.mark.parametrize("before", [0, 1])
def test_a_clock_that_is_wrong_by_more_than_a_window_stops_the_worker(ahead_ms: int, before: int) -> None:
    case = Case()
    for number in range(before):
        case.commit(number)
    which = "1 h 0 min ahead of the brokers'" if ahead_ms > 0 else "1 h 0 min behind the brokers'"
    with pytest.raises(
        StopError, match=f"raw:0: the clock of this machine .* {which}, .*more than the window of 1 h"
    ):
        case.commit(10, ahead_ms=ahead_ms)


def test_a_moment_that_is_over_by_the_commit_counts() -> None:
    case = Case()
    case.commit(0)
    with pytest.raises(StopError, match="is, or was a moment ago, 2 h 0 min ahead"):
        case.commit(1, moved_ms=2 * WINDOW_MS)


def test_a_difference_of_a_tenth_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    for second in range(int(2 * SAY_S)):
        case.commit(second, ahead_ms=WINDOW_MS // 5)
    assert len(caplog.messages) == 2
    assert (
        "12 min 0 s ahead of the brokers', which reads 2027-01-15 08:00:00 UTC, more than a tenth"
        in caplog.text
    )


def test_what_lies_between_question_and_answer_is_no_difference() -> None:
    Case(slow_s=WINDOW_MS / 500).commit(0, ahead_ms=WINDOW_MS + 2_000)


def test_brokers_that_cannot_be_asked_stop_nothing() -> None:
    async def nobody_knows() -> None:
        return None

    time = BrokerTime(nobody_knows)
    asyncio.run(time.require([ClockMove("raw:0", 1, 0)]))
