"""``seqmark simulate`` predicts what a worker then does, and touches nothing in Kafka."""

from __future__ import annotations

import asyncio
import json
import random
import time
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from processor.commands.cli import main
from processor.config.load import load
from processor.inspection.audit.read import ReadExtent
from processor.inspection.simulate.forecast import IdForecast
from processor.inspection.simulate.ways import simulate
from tests.support.kafka.topics import New, produce, unique
from tests.support.worker import forks
from tests.support.worker.process import WorkerConfig, new_config, read_topic, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
PARTITIONS = 3
RECORDS = 12_000
HEADER = {"from": "header", "name": "id"}
CLICK = {"from": "value", "pointer": "/event_id"}
SEQUENCE = {"from": "header", "name": "seq", "format": "int64"}
WAYS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "collisions": ({}, {"mode": "insert-id", "id": [CLICK], "window": "40m", "fingerprint": {}}),
    "sequences": (SEQUENCE, {"scope": "partition", "reorder_window": 50}),
}
"""What other ways do is predicted in `test_simulate_grid`."""


def config_of(broker: Broker, folder: Path, sequence: dict[str, str], **dedup: Any) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, PARTITIONS).with_quarantine()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, sequence=sequence, dedup=dedup),))


def call(*arguments: str) -> Result:
    ended = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert ended.exit_code == 0, ended.stderr
    return ended


def simulated(path: Path, *more: str) -> dict[str, Any]:
    (line,) = call("simulate", "-c", str(path), "--json", *more).stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.drawn("judged")
@pytest.mark.parametrize("judged", WAYS)
def test_it_predicts_what_a_worker_then_does_within_one_percent(
    broker: Broker, tmp_path: Path, judged: str
) -> None:
    sequence, dedup = WAYS[judged]
    config = config_of(broker, tmp_path, sequence, **dedup)
    path = str(config.write())
    call("generate", "-c", path, "--records", str(RECORDS), "--malformed", "0.005", "--seed", "7")

    found = simulated(config.write())
    assert run_drain(config).code == 0

    way = found["ways"][0]
    records = len(read_topic(config.bootstrap_servers, config.source))
    passed = len(read_topic(config.bootstrap_servers, config.sink))
    quarantined = len(read_topic(config.bootstrap_servers, config.quarantine))
    assert way["records"] == records == RECORDS
    assert sum(way["quarantined"].values()) == quarantined > 0
    dropped = records - passed - quarantined
    assert dropped > RECORDS / 100
    if "windows" in way:
        (row,) = [each for each in way["windows"] if each["configured"]]
        predicted = row["caught"]["value"]
    else:
        (row,) = [each for each in way["reorder_windows"] if each["configured"]]
        predicted = row["duplicates"] + row["late"]
    assert abs(predicted - dropped) <= RECORDS / 100


def test_a_sample_that_is_too_small_for_all_ids_says_between_what_the_truth_lies(
    broker: Broker, tmp_path: Path
) -> None:
    records = [each for _ in range(8) for each in stream(0)]
    records = [
        New(b"u", b"{}", (("id", b"%d" % (n - n % 20 // 19)),), now.timestamp) for n, now in enumerate(records)
    ]
    settings = load(own(broker, tmp_path, records))

    found = asyncio.run(
        simulate(
            settings, settings.pipelines[0], [60_000], ReadExtent(), lambda _: lambda _: None, most_rows=400
        )
    )

    forecast = found.forecasts[0]
    assert isinstance(forecast, IdForecast)
    assert not forecast.exact
    assert len(records) / 20 in forecast.configured[-1].caught
    assert forecast.configured[-1].caught.high < len(records) / 2


def everything(bootstrap: str) -> dict[str, Any]:
    """Return all topics with their ends, and all groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("looks")})
    topics = admin.list_topics(timeout=30).topics
    ends = {
        f"{name}:{number}": consumer.get_watermark_offsets(TopicPartition(name, number), timeout=30)
        for name, topic in topics.items()
        for number in topic.partitions
    }
    consumer.close()
    groups = sorted(each.group_id for each in admin.list_consumer_groups().result().valid)
    return {"ends": ends, "groups": groups}


def stream(copies: int = 5) -> list[New]:
    """Return 200 records with an id each, then some of them again."""
    now = 1_795_420_800_000
    values = [b'{"event_id": "%016x", "at": %d}' % (n * n + 7, n) for n in range(200)]
    new = [New(b"u", value, (("id", value[14:30]),), now + 1_000 * n) for n, value in enumerate(values)]
    return new + [each._replace(timestamp=now + 300_000) for each in new[:copies]]


def own(broker: Broker, folder: Path, records: list[New], **dedup: Any) -> Path:
    """Return a config over a topic of one partition with these records."""
    config = new_config(broker.bootstrap_servers, folder, 1).with_quarantine()
    (pipeline,) = config.pipelines
    given = {"mode": "insert-id", "id": [HEADER], "window": "1h", **dedup}
    config = replace(config, pipelines=(replace(pipeline, sequence={}, dedup=given),))
    if records:
        produce(config.bootstrap_servers, config.source, records)
    return config.write()


def test_it_writes_nothing_into_kafka_and_joins_no_group(broker: Broker, tmp_path: Path) -> None:
    path = own(broker, tmp_path, stream())
    everything(broker.bootstrap_servers)  # the first look at a fresh broker makes the topic of offsets
    before = everything(broker.bootstrap_servers)

    found = simulated(path)

    assert found["ways"][0]["records"] == 205
    assert everything(broker.bootstrap_servers) == before


def test_what_it_writes_runs_and_catches_what_it_says(broker: Broker, tmp_path: Path) -> None:
    path, better, page = (
        own(broker, tmp_path, stream(9), window="1m"),
        tmp_path / "better.toml",
        tmp_path / "p.html",
    )

    ended = call("simulate", "-c", str(path), "--windows", "1m,1h", "--write", str(better), "--html", str(page))

    assert 'window = "1h"' in ended.stdout
    dedup = tomllib.loads(better.read_text())["pipelines"][0]["dedup"]
    assert dedup == {"mode": "insert-id", "id": [HEADER], "window": "1h"}
    call("check", "-c", str(better))
    ran = forks.run(
        "worker", "-c", str(better), "--drain", folder=tmp_path, env={"SEQMARK_WORKER__WEB_PORT": "0"}
    )
    assert ran.returncode == 0, ran.stderr
    (line, total) = call("verify", "-c", str(better), "--json").stdout.splitlines()
    assert json.loads(total)["ok"]
    assert json.loads(line)["duplicates"] == 9
    again = CliRunner().invoke(main, ["simulate", "-c", str(path), "--write", str(better)])
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert "<svg" in page.read_text()


def test_a_topic_without_records_is_refused_with_the_reason(broker: Broker, tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["simulate", "-c", str(own(broker, tmp_path, []))])

    assert ended.exit_code == 1
    assert "has no records" in ended.stderr


def test_it_reads_only_what_came_since_a_time_or_the_newest_records(broker: Broker, tmp_path: Path) -> None:
    path = own(broker, tmp_path, stream())

    since = simulated(path, "--since", str(1_795_420_800_000 + 100_000))
    newest = simulated(path, "--records", "50")

    assert since["ways"][0]["records"] == 105
    assert newest["ways"][0]["records"] == 50


def test_with_a_route_the_interval_holds_what_a_worker_drops_that_reads_the_partitions_in_its_order(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, {}, mode="insert-id", id=[HEADER], window="40m", route="by-id")
    drawn, now = random.Random(5), int(time.time() * 1000) - 6 * 3_600_000
    came: list[tuple[bytes, int]] = []
    streams: list[list[New]] = [[] for _ in range(PARTITIONS)]
    for n in range(3_000):
        now += drawn.randrange(10_000)
        name, partition, late = b"%d" % n, drawn.randrange(PARTITIONS), 0
        if came and drawn.random() < 0.15:
            name, before = drawn.choice(came[-800:])
            partition = before if drawn.random() < 0.7 else partition
            late = drawn.randrange(3_600_000) if drawn.random() < 0.3 else 0
        came.append((name, partition))
        streams[partition].append(New(b"u", b"{}", (("id", name),), now - late))
    for partition, records in enumerate(streams):
        produce(config.bootstrap_servers, config.source, records, partition=partition)

    way = simulated(config.write())["ways"][0]
    told = call("simulate", "-c", str(config.write())).stdout
    assert run_drain(config).code == 0

    (row,) = [each for each in way["windows"] if each["configured"]]
    dropped = len(came) - len(read_topic(config.bootstrap_servers, config.sink))
    assert row["caught"]["low"] <= dropped <= row["caught"]["high"], (row, dropped)
    assert (way["exact"], way["order_matters"]) == (False, True)
    assert "the order in which a worker reads the partitions" in told
