"""A worker's last push holds all that it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.suite.collector import Collector, histograms, numbers
from tests.support.worker.process import new, new_config, produce, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_a_collector_gets_what_a_worker_has_done(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 1)
    produce(config.bootstrap_servers, config.source, [new(1), new(2), new(2), new(1), new(3)])

    with Collector() as collector:
        ended = run_drain(config, env={"SEQMARK_WORKER__OTEL_ENDPOINT": collector.endpoint})

    assert ended.code == 0, ended.stderr
    sent = collector.metrics
    verdicts = {
        dict(labels)["verdict"]: value for labels, value in numbers(sent["seqmark_records_total"]).items()
    }
    assert {"pass": 3, "duplicate": 1, "late": 1}.items() <= verdicts.items()
    assert sum(point.count for point in histograms(sent["seqmark_commit_seconds"]).values()) >= 1
    assert collector.resource["service.name"] == config.application_id
