"""Does ``route = "by-id"`` do what the contract says of it, on a real broker?"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.routed import RoutedRules, assert_routed, internal_topics, routed, routed_feed
from tests.support.topics import New, bounds, produce, read_topic, until
from tests.support.worker import new_config, run_drain, start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker import Broker
    from tests.support.worker import WorkerConfig

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000) - 7_200_000
HOUR_MS = 3_600_000
RULES = RoutedRules()


def record(name: bytes | None, later_ms: int = 0, value: bytes = b"value") -> New:
    headers = (("trace", None), ("id", name)) if name is not None else (("trace", None),)
    return New(b"key", value, headers, NOW_MS + later_ms)


def config_of(broker: Broker, folder: Path, partitions: int = 2, rules: RoutedRules = RULES) -> WorkerConfig:
    return routed(new_config(broker.bootstrap_servers, folder, partitions), rules)


def drain(config: WorkerConfig) -> None:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


def test_equal_ids_in_different_partitions_meet_and_the_receipt_names_where_they_were(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path)
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [record(b"a"), record(b"b"), record(b"a", 1)], partition=0)
    drain(config)
    produce(bootstrap, source, [record(b"c"), record(b"a", 2), record(None)], partition=1)
    drain(config)

    found = assert_routed(config, RULES)

    assert [(each["partition"], each["offset"], each["owner"]["offset"]) for each in found.receipts] == [
        (0, 2, 0),
        (1, 1, 0),
    ]
    assert {each["expires_at"] for each in found.receipts} == {NOW_MS + HOUR_MS}
    assert found.quarantined == [(1, 2)]


def test_a_mixed_stream_from_all_partitions_is_exactly_once_in_both_hops(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, 4)
    with contextlib.ExitStack() as stack:
        feed = routed_feed(config, 4, random.Random(7))
        feed.send(20_000)
        workers = [stack.enter_context(start_worker(config, drain=True)) for _ in range(2)]
        codes = [worker.wait() for worker in workers]

    assert codes == [0, 0], [worker.stderr for worker in workers]
    found = assert_routed(config, RULES)
    assert len(found.passed) > 10_000
    assert len(found.receipts) > 1_000
    assert len({each["owner"]["partition"] for each in found.receipts}) == 4
    assert len(found.quarantined) > 10


def test_what_is_taken_in_is_deleted_from_the_internal_topic(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    bootstrap, (internal, _) = config.bootstrap_servers, internal_topics(config)
    with start_worker(config) as worker:
        for turn in range(3):
            produce(bootstrap, config.source, [record(b"%d-%d" % (turn, n)) for n in range(100)])
            passed = 100 * (turn + 1)
            until(lambda: len(read_topic(bootstrap, config.sink)) == passed, "they have passed")  # noqa: B023
        until(lambda: min(bounds(bootstrap, internal, n)[0] for n in range(3)) > 0, "the front is deleted")
        worker.terminate()
        assert worker.wait() == 0

    drain(config)
    assert_routed(config, RULES)
