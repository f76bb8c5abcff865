"""What does a worker do where a broker asks who it is, and what it may?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import ResourceType

from tests.support.guarded import FIRST, SECOND, Guarded, guarded_broker
from tests.support.topics import sequences
from tests.support.worker import (
    Ended,
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with guarded_broker() as broker:
        yield broker


def test_nothing_is_called_done_or_ready_while_the_groups_leader_does_not_see_the_source(
    guarded: Guarded, tmp_path: Path
) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path, 2)
    soon = {"SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}
    with start_worker(config, env={**guarded.env(FIRST), **soon}) as leader:
        leader.wait_ready()
        guarded.only(ResourceType.TOPIC, config.source, SECOND)
        until(lambda: config.source in leader.get("/ready")[1], "it says what it does not see")
        status, page = leader.get("/ready")
        assert status == 503
        assert "the group's leader sees no partition" in json.loads(page)["reason"]
        produce(guarded.bootstrap_servers, config.source, [new(1), new(2)])

        with start_worker(config, env={**guarded.env(SECOND), **soon}, drain=True) as drain:
            drain.wait_says(f"the group's leader sees no partition of {config.source}")
            guarded.anybody(ResourceType.TOPIC, config.source)
            leader.terminate()
            assert leader.wait() == 0
            assert drain.wait() == 0, drain.stderr

    assert sequences(read_topic(guarded.bootstrap_servers, config.sink)) == [1, 2]


def drained_by_first(guarded: Guarded, config: WorkerConfig) -> Ended:
    return run_drain(config, env=guarded.env(FIRST))


def test_a_group_that_may_not_be_joined_is_named_with_what_to_allow(guarded: Guarded, tmp_path: Path) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    guarded.only(ResourceType.GROUP, config.application_id, SECOND)

    ended = drained_by_first(guarded, config)

    assert ended.code == 1
    assert f"the consumer group {config.application_id} cannot be kept" in ended.stderr
    assert "allow this user READ on the group" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_transactional_id_that_may_not_be_used_is_named_with_what_to_allow(
    guarded: Guarded, tmp_path: Path
) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    name = f"{config.application_id}-p-0-of-4"
    guarded.only(ResourceType.TRANSACTIONAL_ID, name, SECOND)

    ended = drained_by_first(guarded, config)

    assert ended.code == 1
    assert name in ended.stderr
    assert "allow this user WRITE and DESCRIBE on transactional ids" in ended.stderr


@pytest.mark.parametrize("topic", ["source", "sink"])
def test_a_topic_that_may_not_be_used_any_more_is_named_with_what_to_allow(
    guarded: Guarded, tmp_path: Path, topic: str
) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    name = getattr(config, topic)
    with start_worker(config, env=guarded.env(FIRST)) as worker:
        worker.wait_ready()
        guarded.only(ResourceType.TOPIC, name, SECOND)
        produce(guarded.bootstrap_servers, config.source, [new(1), new(2)])
        worker.wait_says("allow this user")

        assert name in worker.stderr
        if worker.alive:
            guarded.anybody(ResourceType.TOPIC, name)
        else:
            assert worker.wait() == 1
        assert "Traceback" not in worker.stderr
