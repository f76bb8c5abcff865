"""A worker at a broker that asks who it is, and what it may."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourceType

from processor.commands.cli import main
from tests.support.kafka.security.guarded import FIRST, SECOND, SESSION_MS, Guarded, guarded_broker
from tests.support.kafka.topics import create_topic, sequences
from tests.support.worker.marks import index_of
from tests.support.worker.process import (
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


def test_a_topic_is_looked_at_with_the_security_that_the_environment_gives(
    guarded: Guarded, tmp_path: Path
) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    produce(guarded.bootstrap_servers, config.source, [new(number) for number in range(60)])
    env = guarded.env(FIRST)
    servers = env["SEQMARK_KAFKA__BOOTSTRAP_SERVERS"]

    done = CliRunner().invoke(main, ["init", "--bootstrap", servers, "--topic", config.source], env=env)

    assert done.exit_code == 0, done.stderr
    assert 'security_protocol = "SASL_PLAINTEXT"' in done.stdout
    assert env["SEQMARK_KAFKA__SASL_PLAIN_PASSWORD"] not in done.output
    path = tmp_path / "written.toml"
    path.write_text(done.stdout)
    assert CliRunner().invoke(main, ["check", "-c", str(path)], env=env).exit_code == 0


def drained_by_first(guarded: Guarded, config: WorkerConfig) -> Ended:
    return run_drain(config, env=guarded.env(FIRST))


def test_a_group_that_may_not_be_joined_is_named_with_what_to_allow(guarded: Guarded, tmp_path: Path) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    guarded.only(ResourceType.GROUP, config.application_id, SECOND)

    ended = drained_by_first(guarded, config)

    assert ended.code == 1
    assert f"the consumer group {config.application_id} cannot be kept" in ended.stderr
    assert "grant this principal READ on the group" in ended.stderr
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
    assert "grant this principal WRITE and DESCRIBE on transactional ids" in ended.stderr


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
        worker.wait_says("grant this principal")

        assert name in worker.stderr
        if worker.alive:
            guarded.anybody(ResourceType.TOPIC, name)
        else:
            assert worker.wait() == 1
        assert "Traceback" not in worker.stderr


@pytest.mark.parametrize("lacks", ["describe", "describe_configs", "write"])
def test_an_index_topic_that_may_not_be_used_is_named_and_done_without(
    guarded: Guarded, tmp_path: Path, lacks: str
) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path)
    index = index_of(config)
    if lacks == "describe":
        guarded.only(ResourceType.TOPIC, index, SECOND)
    else:
        create_topic(guarded.bootstrap_servers, index, 1)
        another = AclOperation.DESCRIBE_CONFIGS if lacks == "write" else AclOperation.WRITE
        guarded.only(ResourceType.TOPIC, index, FIRST, operation=AclOperation.READ, another=another)
    produce(guarded.bootstrap_servers, config.source, [new(1), new(2)])

    ended = drained_by_first(guarded, config)

    assert ended.code == 0, ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if f"{index}: " in line and "Without it" in line]
    assert ("grant this principal WRITE" if lacks == "write" else "may not DESCRIBE") in said
    assert sequences(read_topic(guarded.bootstrap_servers, config.sink)) == [1, 2]
    assert lacks == "describe" or read_topic(guarded.bootstrap_servers, index) == []


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_sessions_that_end_abort_nothing(guarded: Guarded, tmp_path: Path, guarantee: str) -> None:
    config = new_config(guarded.bootstrap_servers, tmp_path, 2, guarantee=guarantee)
    with start_worker(config, env=guarded.env(FIRST, short=True)) as worker:
        worker.wait_ready()
        # Load for so long, not a wait: three sessions of each connection.
        began_s, sent = time.monotonic(), 0
        while time.monotonic() < began_s + 3 * SESSION_MS / 1000:
            produce(guarded.bootstrap_servers, config.source, [new(sent + i) for i in range(20)])
            sent += 20
        position = "seqmark_position{partition=0,pipeline=p}"
        until(lambda: worker.metrics().get(position, 0) >= sent, f"all is in:\n{worker.stderr}")
        aborted = [name for name in worker.metrics() if name.startswith("seqmark_transactions_aborted_total")]
        worker.terminate()
        assert worker.wait() == 0

    assert aborted == []
    assert "rebuilding" not in worker.stderr
    assert "failed" not in worker.stderr.partition("stopping")[0]
    assert sequences(read_topic(guarded.bootstrap_servers, config.sink)) == list(range(sent))
