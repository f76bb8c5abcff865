"""Under a quota deadlines get the time that brokers hold back, one line says so, and transactions fit."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from processor.kafka.client import Client
from processor.kafka.protocol.connections import BrokerClient
from processor.kafka.protocol.internals import RequestTimedOutError
from processor.kafka.protocol.requests import NO_TAGS, DescribeTransactionsRequest
from processor.kafka.protocol.throttling import CALM_S, SAY_S, Throttling, Traffic
from processor.kafka.transactions.pace import FIRST_BYTES, LEAST_BYTES, WINDOW_S, Pace
from tests.unit.kafka.test_connections import DEFAULT, NODE, answered, talking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUOTA = 40_000.0
TIMEOUT_S = 60.0
REQUEST = DescribeTransactionsRequest(["app"])


class Seconds:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------- deadlines


@asynccontextmanager
async def throttled(mute_s: float, throttling: Throttling) -> AsyncIterator[Client]:
    """Connect to a broker that answers the first request at once, mutes the connection, and answers on."""
    muted_until = 0.0

    def answer(number: int) -> bytes:
        nonlocal muted_until
        muted_until = muted_until or asyncio.get_running_loop().time() + mute_s
        return answered(number, response(NO_TAGS, throttle_ms=int(mute_s * 1000)))

    def later_s() -> float:
        return max(0.0, muted_until - asyncio.get_running_loop().time())

    async with talking(answer, later_s=later_s) as made:
        made._versions = {REQUEST.API_KEY: (0, 0)}
        inner: Any = BrokerClient(bootstrap_servers="127.0.0.1:1", throttling=throttling)
        inner._conns[NODE, DEFAULT] = made
        made.muted = partial(inner._muted, NODE, DEFAULT)
        yield Client(inner, None, lambda _topic, _change: None)


def response(tags: Any, *, throttle_ms: int) -> bytes:
    kind = REQUEST.prepare({REQUEST.API_KEY: (0, 0)}).RESPONSE_TYPE
    encoded: bytes = kind(throttle_ms, [], tags).encode()
    return encoded


def test_a_muted_connection_is_waited_for_and_a_silent_one_is_not() -> None:
    throttling = Throttling()

    async def story() -> None:
        async with throttled(0.5, throttling) as client:
            # The second is sent before the broker says so, the third while the connection is muted.
            await asyncio.gather(*(client.request(NODE, REQUEST, timeout_s=0.2) for _ in range(2)))
            await client.request(NODE, REQUEST, timeout_s=0.2)
        async with throttled(0.0, throttling) as client:
            client.inner.mutes.note((NODE, DEFAULT), 0.1)
            client.inner._conns[NODE, DEFAULT]._writer.write = lambda _: None
            with pytest.raises(RequestTimedOutError):
                await client.request(NODE, REQUEST, timeout_s=0.1)

    asyncio.run(story())


def test_a_deadline_that_runs_already_moves_when_the_broker_mutes() -> None:
    async def story() -> float:
        mutes = BrokerClient(bootstrap_servers="127.0.0.1:1").mutes
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_soon(mutes.note, "key", 0.3)
        with pytest.raises(TimeoutError):
            async with mutes.within("key", 0.1):
                await asyncio.Event().wait()
        mutes.forget("key")
        assert mutes.left_s("key") == 0
        return loop.time() - began

    assert 0.39 < asyncio.run(story()) < 5


# ---------------------------------------------------------------- what is said


def test_an_episode_is_one_warning_with_the_word_quota_and_all_of_it_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seconds, registry = Seconds(), CollectorRegistry()
    counter = Counter("throttled_seconds", "-", ["request"], registry=registry)
    until_s: dict[str, float] = {}
    throttling = Throttling(counter, until_s, seconds)
    throttling.hops |= {"app-p": "orders", "app-f": "orders"}
    assert registry.get_sample_value("throttled_seconds_total", {"request": "fetch"}) == 0
    with caplog.at_level(logging.WARNING):
        throttling.saw(Traffic.PRODUCE, "app-p", 1, 0.5)
        assert not caplog.records
        assert not until_s
        for _ in range(50):
            throttling.saw(Traffic.PRODUCE, "app-p", 1, 15.0)
            seconds.now += 30
        throttling.saw(Traffic.FETCH, "app-f", 2, 9.0)
        assert [("quota" in each.message, each.message.count("app-")) for each in caplog.records] == [
            (True, 1)
        ] * 2
        seconds.now += CALM_S + 15
        throttling.saw(Traffic.PRODUCE, "app-p", 1, 15.0)
    assert len(caplog.records) == 3
    assert until_s == {"orders": seconds.now + 15 + SAY_S}
    assert registry.get_sample_value("throttled_seconds_total", {"request": "produce"}) == 765.5


# ---------------------------------------------------------------- transactions


class QuotaBroker:
    """Takes bytes as Kafka does: it looks at the last ten seconds, and holds back what is beyond the rate."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.clock = Seconds()
        self._taken: list[tuple[float, float]] = []

    def takes(self, size: float) -> float:
        """Take so many bytes; return how many seconds a client is held back for them."""
        now = self.clock.now
        self._taken = [(at, some) for at, some in self._taken if at > now - WINDOW_S] + [(now, size)]
        return max(0.0, sum(some for _, some in self._taken) / self.rate - WINDOW_S)


def run(broker: QuotaBroker, pace: Pace, total: float, timeout_s: float = TIMEOUT_S) -> tuple[int, int]:
    """Bring bytes through in transactions, of which there are always more; returns commits and failures."""
    commits = failures = 0
    while total > 0:
        pace.begin()
        size = int(min(pace.most_bytes, 16 * FIRST_BYTES, total))
        pace.took(size)
        wait = broker.takes(size) + 0.02
        fails = wait > 0.8 * timeout_s
        with pace.waiting():
            broker.clock.now += min(wait, 0.8 * timeout_s)
        if fails:
            pace.failed()
            failures += 1
        else:
            pace.committed()
            commits += 1
            total -= size
        assert commits + failures < 5_000, "a livelock"
    return commits, failures


@pytest.mark.parametrize("timeout_s", [10.0, 20.0, 60.0])
@pytest.mark.parametrize("rate", [1_000.0, 10_000.0, 40_000.0, 100_000.0, 400_000.0, 10e6])
def test_transactions_come_to_fit_whatever_the_quota_is(rate: float, timeout_s: float) -> None:
    broker = QuotaBroker(rate)
    commits, failures = run(broker, Pace(timeout_s, broker.clock), 100 * WINDOW_S * rate, timeout_s)
    # The first one is halved until it fits; from then on none is begun in vain.
    assert failures <= max(0.0, math.log2(FIRST_BYTES / rate / timeout_s) + 2)
    assert commits > failures


def test_a_quota_that_is_set_later_costs_a_few_transactions() -> None:
    broker = QuotaBroker(1e9)
    pace = Pace(TIMEOUT_S, broker.clock)
    run(broker, pace, 1e9)
    assert pace.most_bytes > 16 * FIRST_BYTES
    broker.rate = QUOTA
    _, failures = run(broker, pace, 100 * WINDOW_S * QUOTA)
    assert failures <= 5


def test_without_a_wait_each_may_be_larger_and_what_trickles_in_is_no_measure() -> None:
    seconds = Seconds()
    pace = Pace(TIMEOUT_S, seconds)
    for _ in range(8):
        pace.begin()
        pace.took(math.ceil(pace.most_bytes))
        assert pace.full
        seconds.now += 0.05
        pace.committed()
    grown = pace.most_bytes
    assert grown > 100 * FIRST_BYTES
    pace.begin()
    pace.took(100)
    seconds.now += 300  # a long interval, and little came
    pace.committed()
    assert pace.most_bytes == grown


def test_what_failed_at_once_says_nothing_and_what_is_least_has_an_end() -> None:
    seconds = Seconds()
    pace = Pace(TIMEOUT_S, seconds)
    pace.begin()
    pace.took(100)
    pace.failed()
    assert pace.most_bytes == FIRST_BYTES
    for _ in range(20):
        pace.begin()
        pace.took(int(pace.most_bytes))
        seconds.now += 48
        pace.failed()
    assert pace.most_bytes == pace.piece_bytes == LEAST_BYTES
