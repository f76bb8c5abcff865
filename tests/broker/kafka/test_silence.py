"""A worker that cannot work says so soon, once, and in words that help."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import CALL_S, open_transaction
from tests.support.worker.process import new, new_config, start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = pytest.mark.broker


def test_a_group_without_coordinator_is_said_with_its_cause(own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker(overrides={"offsets.topic.replication.factor": "3"})
    config = new_config(broker.bootstrap_servers, tmp_path)
    with start_worker(config) as worker:
        worker.wait_says("has no coordinator")
        status, page = worker.get("/ready")
        worker.terminate()
        assert worker.wait() == 0

    assert "offsets.topic.replication.factor" in worker.stderr
    assert status == 503
    assert "offsets.topic.replication.factor" in json.loads(page)["reason"]


def test_transactions_without_coordinator_are_said_with_their_cause(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker(overrides={"transaction.state.log.replication.factor": "3"})
    config = new_config(broker.bootstrap_servers, tmp_path)
    with start_worker(config) as worker:
        worker.wait_says("transaction.state.log.replication.factor")
        worker.terminate()
        assert worker.wait() == 0


def test_slots_that_stop_at_once_leave_no_traceback(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 8, slots=8)
    unjudgeable = new(1)._replace(headers=())
    with start_worker(config) as worker:
        worker.wait_ready()
        # All are seen at the same moment: that of the commit.
        producer = open_transaction(config.bootstrap_servers, config.source, [unjudgeable])
        for number in range(1, 8):
            producer.produce(config.source, value=b"no sequence", partition=number)
        producer.commit_transaction(CALL_S)

        assert worker.wait() == 1

    assert "the record cannot be judged" in worker.stderr
    assert "never retrieved" not in worker.stderr
    assert "Traceback" not in worker.stderr
