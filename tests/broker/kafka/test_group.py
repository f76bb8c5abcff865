"""Several workers share the work, and handing it over loses and repeats nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import group_members, until
from tests.support.worker.process import (
    Worker,
    WorkerConfig,
    deduplicated,
    new,
    new_config,
    produce,
    read_topic,
    start_worker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

PARTITIONS = 4


def assigned(worker: Worker) -> int:
    """Return how many partitions a worker has, 0 while it has not answered."""
    return int(worker.metrics().get("seqmark_assigned_partitions{pipeline=p}", 0))


def complete(config: WorkerConfig) -> bool:
    """Whether the sink holds as much as it should."""
    source = deduplicated(read_topic(config.bootstrap_servers, config.source))
    return len(read_topic(config.bootstrap_servers, config.sink)) >= len(source)


def test_a_worker_that_leaves_is_replaced_at_once(broker: Broker, tmp_path: Path) -> None:
    # Longer than this waits: who had to wait for the session to end would fail. Members hear of the others with
    # their heartbeats, 15 a session: a longer one only makes that wait longer.
    config = new_config(broker.bootstrap_servers, tmp_path, 2, session_timeout_ms=90_000)
    with start_worker(config) as first, start_worker(config) as second:
        until(lambda: (assigned(first), assigned(second)) == (1, 1), "they share the partitions")
        second.terminate()
        assert second.wait() == 0

        until(lambda: assigned(first) == 2, "the first has both", 75)
        first.wait_ready()


def test_a_restart_of_a_static_member_moves_nothing(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, PARTITIONS, session_timeout_ms=20_000)
    one, other = config.but(group_instance_id="one"), config.but(group_instance_id="other")
    with start_worker(other) as stays:
        with start_worker(one) as restarted:
            until(lambda: (assigned(stays), assigned(restarted)) == (2, 2), "they share the partitions")
            stays.wait_ready()
            restarted.wait_ready()
            before = stays.stderr.count("ready, partitions")
            members = group_members(config.bootstrap_servers, config.application_id)
            restarted.terminate()
            assert restarted.wait() == 0
        for number in range(PARTITIONS):
            produce(config.bootstrap_servers, config.source, [new(1), new(1), new(2)], partition=number)
        with start_worker(one) as restarted:
            restarted.wait_ready()
            until(lambda: assigned(restarted) == 2, "it has its partitions again")
            until(lambda: complete(config), "all is out")

            assert stays.stderr.count("ready, partitions") == before
            assert assigned(stays) == 2
            assert len(group_members(config.bootstrap_servers, config.application_id)) == len(members) == 2


def test_two_workers_with_one_group_instance_id_do_not_both_run(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2, group_instance_id="same")
    with start_worker(config) as first:
        first.wait_ready()
        with start_worker(config) as second:
            until(lambda: not (first.alive and second.alive), "one of them ends")
            ended, goes_on = (second, first) if first.alive else (first, second)

            assert ended.wait() == 1
            assert "is another worker running with group_instance_id same?" in ended.stderr
            produce(config.bootstrap_servers, config.source, [new(1), new(1)])
            until(lambda: complete(config), "the other goes on")
            goes_on.terminate()
            assert goes_on.wait() == 0
