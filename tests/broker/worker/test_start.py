"""What a worker says and answers before it serves, and what it refuses before it starts anything."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import unique
from tests.support.worker.process import (
    PipelineConfig,
    WorkerConfig,
    new,
    new_config,
    produce,
    run_drain,
    start_worker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
NOWHERE = "no-such-host.invalid:9092"


def test_a_host_that_nobody_knows_is_said_at_once_and_health_is_answered_meanwhile(tmp_path: Path) -> None:
    pipeline = PipelineConfig("p", "raw", "clean")
    config = WorkerConfig(tmp_path, NOWHERE, unique("nowhere"), (pipeline,), {"group_instance_id": "one"})
    with start_worker(config) as worker:
        worker.wait_says("cannot resolve host no-such-host.invalid of kafka.bootstrap_servers")
        assert worker.get("/health")[0] == 200
        status, text = worker.get("/ready")
        assert status == 503
        assert "cannot resolve host no-such-host.invalid" in json.loads(text)["reason"]
        worker.terminate()
        assert worker.wait() == 0
    (line,) = worker.stderr.splitlines()
    assert " ERROR " in line
    assert "Retrying" in line
    assert worker.stdout == ""


def test_a_worker_goes_on_when_the_name_is_known(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(1)])

    ended = run_drain(replace(config, bootstrap_servers=f"{NOWHERE},{broker.bootstrap_servers}"))

    assert ended.code == 0
    assert "aiokafka" not in ended.stderr
    assert "Unable connect" not in ended.stderr


def test_an_address_where_nobody_listens_is_said_in_one_message(tmp_path: Path) -> None:
    config = WorkerConfig(tmp_path, "127.0.0.1:9", unique("nobody"), (PipelineConfig("p", "raw", "clean"),))

    ended = run_drain(config)

    assert ended.code == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        "seqmark: no broker at 127.0.0.1:9: is it running, and is kafka.bootstrap_servers right?"
    )
    assert ended.stdout == ""


def test_a_definition_that_was_changed_over_a_state_is_said_from_what_to_what(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(1)])
    assert run_drain(config).code == 0

    scoped = replace(config.pipelines[0], dedup={"scope": "key"})
    ended = run_drain(replace(config, pipelines=(scoped,)))

    assert ended.code == 1
    assert 'was made with (scope was not set and is "key")' in ended.stderr

    other = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}
    ended = run_drain(replace(config, pipelines=(replace(config.pipelines[0], dedup=other),)))

    assert ended.code == 1
    assert "holds the state of mode watermark" in ended.stderr
    assert "the pipeline has mode insert-id now" in ended.stderr
    assert "give the pipeline another name" in ended.stderr
