"""Behind quotas a worker goes on, as fast as they let it, says so once, and `seqmark doctor` shows them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.quotas import quotas
from tests.support.worker.process import new, new_config, produce, read_topic, run_drain, start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
RATE = 40_000.0
VALUE_BYTES = 1_000
SAID = {"produce": ("producer_byte_rate", "writes"), "fetch": ("consumer_byte_rate", "reads")}


@pytest.mark.parametrize(("what", "rate", "records"), [("produce", 100_000.0, 4_000), ("fetch", RATE, 800)])
def test_a_worker_goes_on_behind_a_quota(
    broker: Broker, tmp_path: Path, what: str, rate: float, records: int
) -> None:
    """Forty seconds of the quota are more than a transaction has; of twenty each fetch has to wait for ten."""
    config = new_config(broker.bootstrap_servers, tmp_path).but(transaction_timeout_ms=20_000, slots=1)
    some = [new(number, os.urandom(VALUE_BYTES // 2).hex().encode()) for number in range(records)]
    for start in range(0, records, 100):
        produce(config.bootstrap_servers, config.source, some[start : start + 100])
    client, (key, does) = f"{config.application_id}-{config.pipelines[0].name}-0-of-1-{what}", SAID[what]
    with quotas(config.bootstrap_servers, (client, key, rate)):
        ended = run_drain(config)

    assert ended.code == 0, ended.stderr
    passed = read_topic(config.bootstrap_servers, config.sink)
    assert [each.value for each in passed] == [each.value for each in some]
    (line,) = [line for line in ended.stderr.splitlines() if f"hold back what this process {does}" in line]
    assert " WARNING brokers hold back" in line
    assert "because of a quota" in line
    assert "rebuilding" not in ended.stderr
    assert "RequestTimedOut" not in ended.stderr


def test_the_doctor_names_quotas_and_a_worker_counts_what_they_take(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    assert rows_of(config.write()) == [("ok", "none")]
    fetching = f"{config.application_id}-{config.pipelines[0].name}-0-of-4-fetch"
    kept = (fetching, "consumer_byte_rate", RATE), ("another-client", "producer_byte_rate", 1.0)
    with quotas(config.bootstrap_servers, *kept):
        ((outcome, says),) = rows_of(config.write())
    assert outcome == "warning"
    assert says == f"consumer_byte_rate 40,000 for client-id {fetching}"
    with start_worker(config) as worker:
        worker.wait_ready()
        assert worker.metrics()["seqmark_throttled_seconds_total{request=fetch}"] == 0


def rows_of(config: Path) -> list[tuple[str, str]]:
    """Return outcome and words of what the doctor says of quotas."""
    result = CliRunner().invoke(main, ["doctor", "--json", "-c", str(config)])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["outcome"], row["says"]) for row in rows if row["tried"].startswith("quotas of ")]
