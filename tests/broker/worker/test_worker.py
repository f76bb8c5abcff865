"""What does an operator see of a worker, and what may he change under it?"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from processor.ops.logs import SPARING_S
from processor.ops.metrics import Metrics
from tests.support.kafka.topics import (
    CALL_S,
    add_partitions,
    delete_topic,
    open_transaction,
    sequences,
    until,
)
from tests.support.worker.process import (
    New,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker, OwnBroker
    from tests.support.worker.process import Worker

pytestmark = pytest.mark.broker


def test_partitions_added_to_the_source_are_picked_up(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 1)
    bootstrap = config.bootstrap_servers
    with start_worker(config, env={"SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}) as worker:
        worker.wait_ready()
        for topic in (config.sink, config.changelog, config.source):
            add_partitions(bootstrap, topic, 3)
        produce(bootstrap, config.source, [new(1), new(1), new(2)], partition=2)

        until(lambda: sequences(read_topic(bootstrap, config.sink), 2) == [1, 2], "partition 2 is out")
        worker.terminate()
        assert worker.wait() == 0


def test_a_sink_and_a_changelog_that_are_wider_than_the_source_stop_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 1)
    produce(config.bootstrap_servers, config.source, [new(1), new(1)])
    assert run_drain(config).code == 0
    for topic in (config.sink, config.changelog):
        add_partitions(config.bootstrap_servers, topic, 3)

    ended = run_drain(config)

    assert ended.code == 0, ended.stderr


def test_another_number_of_slots_goes_on_while_partitions_of_the_source_wait(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2, slots=1, transaction_timeout_ms=5_000)
    bootstrap = config.bootstrap_servers
    produce(bootstrap, config.source, [new(1)])
    assert run_drain(config).code == 0
    add_partitions(bootstrap, config.source, 3)
    produce(bootstrap, config.source, [new(1), new(2)])

    with start_worker(config.but(slots=2)) as worker:
        worker.wait_says("partitions [2]")
        until(
            lambda: sequences(read_topic(bootstrap, config.sink)) == [1, 2] or "rebuilding" in worker.stderr,
            "what has a place goes on",
        )
        worker.terminate()
        assert worker.wait() == 0

    assert "rebuilding" not in worker.stderr
    assert f"fencing {config.application_id}-p-0-of-1" in worker.stderr


def test_partitions_of_a_source_that_grew_first_wait_for_the_others_and_lose_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 1, slots=1)
    bootstrap = config.bootstrap_servers
    soon = {"SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}
    with start_worker(config, env=soon) as worker:
        worker.wait_ready()
        add_partitions(bootstrap, config.source, 2)
        produce(bootstrap, config.source, [new(1), new(1), new(2)], partition=1)
        produce(bootstrap, config.source, [new(7)])
        worker.wait_says(f"partitions [1] of {config.source} wait")
        until(
            lambda: sequences(read_topic(bootstrap, config.sink)) == [7],
            "the partition that is everywhere works",
        )
        assert worker.get("/ready")[0] == 503
        assert config.sink in worker.get("/ready")[1]
        for topic in (config.sink, config.changelog):
            add_partitions(bootstrap, topic, 2)
        until(lambda: sequences(read_topic(bootstrap, config.sink), 1) == [1, 2], "so does the new one")
        worker.wait_ready()
        worker.terminate()
        assert worker.wait() == 0

    assert sequences(read_topic(bootstrap, config.sink)) == [7]


def test_the_pages_tell_how_the_worker_is(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2).with_quarantine()
    began_s = time.time()
    bad = New(None, None, (), 1_700_000_000_000)
    records = [new(5), new(6), new(6), new(2), bad, new(9)]
    assert run_drain(config).code == 0  # creates the topics
    produce(config.bootstrap_servers, config.source, records, partition=1)
    # Restoring waits for the end of a transaction that somebody else has open on the changelog.
    foreign = open_transaction(config.bootstrap_servers, config.changelog, [New(b"P", b"never", (), 1)])
    with start_worker(config) as worker:
        worker.wait_says("waiting until it ends")
        until(lambda: worker.get("/ready")[0] == 503, "it says that it is not ready")
        foreign.abort_transaction(CALL_S)
        until(lambda: worker.get("/ready")[0] == 200, "the worker is ready")
        until(lambda: worker.metrics().get("seqmark_position{partition=1,pipeline=p}") == 6, "all is in")
        until(lambda: worker.metrics().get("seqmark_lag_records{partition=1,pipeline=p}") == 0, "no lag")
        metrics = worker.metrics()
        hangs = open_transaction(config.bootstrap_servers, config.source, [new(1), new(2)])
        behind = "seqmark_source_open_transaction_records{partition=0,pipeline=p}"
        until(lambda: worker.metrics().get(behind) == 2, "what an open transaction holds back is shown")
        lag = worker.metrics()["seqmark_lag_records{partition=0,pipeline=p}"]
        hangs.abort_transaction(CALL_S)
        until(lambda: worker.metrics().get(behind) == 0, "nothing is held back any more")
        health = worker.get("/health")
        fausts = ("/router/", "/table/", "/graph/", "/stats/", "/performance/", "/static/")
        unknown = {path: worker.get(path)[0] for path in fausts}
        worker.terminate()
        assert worker.wait() == 0

    assert health[0] == 200
    assert set(unknown.values()) == {404}, unknown
    counts = {
        verdict: metrics[f"seqmark_records_total{{pipeline=p,verdict={verdict}}}"]
        for verdict in ("pass", "duplicate", "late", "quarantine")
    }
    assert counts == {"pass": 3, "duplicate": 1, "late": 1, "quarantine": 1}
    assert metrics["seqmark_watermark{partition=1,pipeline=p}"] == 9
    assert metrics["seqmark_assigned_partitions{pipeline=p}"] == 2
    assert metrics["seqmark_ready"] == 1
    assert metrics["seqmark_restore_ratio{partition=0,pipeline=p}"] == 1
    assert metrics["seqmark_source_bytes_total{pipeline=p}"] > 61
    assert metrics["seqmark_sink_bytes_total{pipeline=p}"] > 61
    assert metrics["seqmark_chunk_seconds_count{pipeline=p}"] >= 1
    assert metrics["seqmark_commit_seconds_count{pipeline=p}"] >= 1
    assert metrics["seqmark_quarantined_records_total{code=header_missing,pipeline=p}"] == 1
    assert metrics["seqmark_quarantined_records_total{code=too_large,pipeline=p}"] == 0
    assert metrics["seqmark_source_partitions{pipeline=p}"] == 2
    assert metrics["seqmark_last_commit_timestamp_seconds{partition=1,pipeline=p}"] >= began_s
    assert [value for name, value in metrics.items() if name.startswith("seqmark_build_info{version=")] == [1]
    assert lag == 0


def state_of(worker: Worker) -> str:
    return str(json.loads(worker.get("/status.json")[1])["pipelines"][0]["state"])


def test_ready_is_said_by_the_metric_as_it_is_when_somebody_asks(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    with start_worker(config) as worker:
        worker.wait_ready()
        assert worker.metrics()["seqmark_ready"] == 1
        delete_topic(config.bootstrap_servers, config.sink)
        produce(config.bootstrap_servers, config.source, [new(1)])
        until(lambda: worker.get("/ready")[0] == 503, "the worker waits for its sink")

        assert worker.metrics()["seqmark_ready"] == 0
        waits = "seqmark_state{pipeline=p,state=waiting}"
        until(lambda: worker.metrics().get(waits) == 1, "it says what it waits for")
        until(lambda: state_of(worker) == "waiting", "the page says it, too")


def test_a_broker_that_is_gone_is_said_everywhere_once(own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker()
    config = new_config(broker.bootstrap_servers, tmp_path)
    env = {"SEQMARK_TEST_CONTACT_S": "5", "SEQMARK_TEST_STATUS_S": "1"}
    with start_worker(config, env=env, fresh=True) as worker:
        worker.wait_ready()
        assert worker.metrics()["seqmark_broker_contact_seconds"] < 5
        before = len(worker.stderr)
        broker.kill()
        killed_s = time.monotonic()
        until(lambda: worker.get("/ready")[0] == 503, "it is not ready")

        assert "no broker has answered since" in worker.get("/ready")[1]
        shown = worker.metrics()
        assert shown["seqmark_broker_contact_seconds"] > 5
        assert shown["seqmark_ready"] == 0
        assert shown["seqmark_state{pipeline=p,state=no contact}"] == 1
        assert state_of(worker) == "no contact"
        worker.wait_says("p: no contact")
        until(lambda: worker.metrics()["seqmark_broker_contact_seconds"] > 12, "it goes on")

        broker.start()
        worker.wait_ready()
        worker.wait_says("brokers answer again, after")
        produce(config.bootstrap_servers, config.source, [new(1)])
        passed = "seqmark_records_total{pipeline=p,verdict=pass}"
        until(lambda: worker.metrics().get(passed) == 1, "it works again")

    said = worker.stderr[before:]
    assert said.count("no broker has answered since") == 1
    assert said.count("brokers answer again, after") == 1
    assert " ERROR " not in said
    warnings = [
        re.sub(r"\d+", "N", line.split(" WARNING ")[1]) for line in said.splitlines() if " WARNING " in line
    ]
    most = max(Counter(warnings).values())
    assert most <= 1 + (time.monotonic() - killed_s) // SPARING_S, Counter(warnings)


def test_every_metric_that_is_declared_is_shown(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    with start_worker(config) as worker:
        worker.wait_ready()
        text = worker.get("/metrics")[1]

    for family in Metrics().registry.collect():
        assert f"# TYPE {family.name}" in text


def test_a_web_port_that_is_taken_is_said_with_what_to_do(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = run_drain(config.but(web_port=port))

    assert ended.code == 1
    (line,) = ended.stderr.splitlines()
    assert f"web server at 127.0.0.1:{port}: address already in use; nothing was started" in line
    assert "worker.web_port" in line
    assert ended.stdout == ""


def test_a_json_log_has_one_object_a_line(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, log_format="json")
    produce(config.bootstrap_servers, config.source, [new(1)])

    ended = run_drain(config)

    assert ended.code == 0
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert any("ready, partitions [0]" in line["message"] for line in lines)


@pytest.mark.drawn("signal")
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_stops_the_worker_with_exit_0_and_what_was_taken_in_is_committed(
    broker: Broker, tmp_path: Path, signal: str
) -> None:
    # A minute between commits: only the end itself can have committed.
    slow = {"commit_interval_ms": 50_000, "session_timeout_ms": 55_000}
    config = new_config(broker.bootstrap_servers, tmp_path).but(**slow)
    with start_worker(config) as worker:
        worker.wait_ready()
        produce(config.bootstrap_servers, config.source, [new(1), new(2), new(2)])
        fetched = "seqmark_source_bytes_total{pipeline=p}"
        until(lambda: worker.metrics().get(fetched, 0) > 0, "it is taken in")
        worker.signal(signal)
        assert worker.wait() == 0

    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [1, 2]
