"""What ``seqmark simulate`` says of modes, scopes, windows and backends is what workers with them then do."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import New, create_topic, produce, read_topic, unique
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
RECORDS, HOUR_MS = 3_000, 3_600_000
BEGIN_MS = 1_795_420_800_000
BLOOM = {"bucket": "10m", "expected_per_bucket": 1_000}
BY_ID: dict[str, Any] = {
    "mode": "insert-id",
    "id": [{"from": "header", "name": "id"}],
    "window": "1h",
    "backend": "bloom",
    "bloom": BLOOM,
}


def stream(seed: int) -> list[New]:
    """Return records of six hours: some come again, some late, some with an id that another one has."""
    drawn, now = random.Random(seed), BEGIN_MS
    records: list[New] = []
    for n in range(RECORDS):
        now += drawn.randrange(2 * 6 * HOUR_MS // RECORDS)
        late = drawn.randrange(HOUR_MS // 2) if drawn.random() < 0.1 else 0
        chance = drawn.random()
        if records and chance < 0.12:
            (number, name), value = records[drawn.randrange(max(0, n - 1_500), n)].headers, records[-1].value
            again = next(each for each in records if each.headers[0] == number)
            value = json.dumps(json.loads(again.value or b"") | {"sent_at": now}).encode()
            records.append(New(again.key, value, (number, name), now - late))
            continue
        name = ("id", b"%d" % (drawn.randrange(n) if records and chance < 0.14 else n))
        number = ("seq", (10 * n - (15 if drawn.random() < 0.05 else 0)).to_bytes(8, "big", signed=True))
        value = json.dumps({"n": n, "text": f"event {n}", "sent_at": now}).encode()
        records.append(New(b"user %d" % drawn.randrange(20), value, (number, name), now - late))
    return records


def new_pipeline(broker: Broker, streams: list[list[New]], dedup: dict[str, Any]) -> PipelineConfig:
    """Return a pipeline over a topic of its own that has these records, a partition each."""
    name = unique("g")
    create_topic(broker.bootstrap_servers, f"{name}.raw", len(streams))
    for partition, records in enumerate(streams):
        produce(broker.bootstrap_servers, f"{name}.raw", records, partition=partition)
    return PipelineConfig(name, f"{name}.raw", f"{name}.clean", f"{name}.quarantine", dedup=dedup)


def config_of(broker: Broker, folder: Path, *pipelines: PipelineConfig) -> WorkerConfig:
    return WorkerConfig(folder, broker.bootstrap_servers, unique("g"), pipelines, {"slots": 1})


def simulated(config: WorkerConfig, *more: str) -> dict[str, Any]:
    ended = CliRunner().invoke(main, ["simulate", "-c", str(config.write()), "--json", *more])
    assert ended.exit_code == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def with_row(dedup: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return a way's ``dedup`` with what a row of its grid says."""
    if row["mode"] == "watermark":
        return {**dedup, "reorder_window": row["reorder_window"]}
    found = {
        **dedup,
        "window": f"{row['window_ms']}ms" if row["window_ms"] % 1_000 else f"{row['window_ms'] // 1_000}s",
    }
    backend = {key: value for key, value in found.items() if key not in {"backend", "bloom"}}
    if row["backend"] == "exact":
        return backend
    return {**backend, "backend": "bloom", "bloom": BLOOM}


def test_every_way_of_the_grid_does_what_is_predicted_within_one_percent_of_the_records(
    broker: Broker, tmp_path: Path
) -> None:
    streams = [stream(1), stream(2)]
    config = config_of(broker, tmp_path, new_pipeline(broker, streams, BY_ID))

    found = simulated(config, "--windows", "20m,1h,3h")

    grid = [(way, row) for way in found["ways"] for row in way["grid"] if row["scope"] != "by-id"]
    kinds = {(row["mode"], row["scope"], row["backend"]) for _, row in grid}
    assert kinds == {
        ("watermark", "partition", "watermark"),
        ("watermark", "key", "watermark"),
        *(("insert-id", "partition", backend) for backend in ("exact", "bloom")),
    }
    assert {way["dedup"]["id"][0]["from"] for way in found["ways"] if "id" in way["dedup"]} >= {
        "header",
        "content",
    }
    assert any("fingerprint" in way["dedup"] for way in found["ways"])
    # Each way once, the configured one with each backend: with the shortest window, for there most is missed.
    chosen: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {}
    for way, row in grid:
        if way["way"] == "configured" or row["backend"] in {"exact", "watermark"}:
            chosen.setdefault((way["why"], row["backend"]), (way, row))
    pipelines = [new_pipeline(broker, streams, with_row(way["dedup"], row)) for way, row in chosen.values()]
    assert run_drain(config_of(broker, tmp_path, *pipelines)).code == 0
    wrong = []
    dropping = set()
    for pipeline, (way, row) in zip(pipelines, chosen.values(), strict=True):
        passed = len(read_topic(broker.bootstrap_servers, pipeline.sink))
        dropped = 2 * RECORDS - passed - len(read_topic(broker.bootstrap_servers, pipeline.quarantine or ""))
        dropping.add(dropped)
        if abs(row["caught"]["value"] + row["late"] - dropped) > 2 * RECORDS / 100:
            wrong.append((way["why"], row, dropped))
    assert not wrong
    assert len(dropping) > 4  # they are not all alike


def test_with_a_route_and_one_source_partition_the_prediction_is_what_a_worker_does(
    broker: Broker, tmp_path: Path
) -> None:
    records = stream(3)
    pipeline = new_pipeline(
        broker, [records], {"mode": "insert-id", "id": BY_ID["id"], "window": "1h", "route": "by-id"}
    )
    create_topic(broker.bootstrap_servers, pipeline.sink, 5)
    config = config_of(broker, tmp_path, pipeline)

    (way, *_) = simulated(config)["ways"]
    unrouted = next(row for row in way["grid"] if (row["scope"], row["window_ms"]) == ("partition", HOUR_MS))
    assert run_drain(config).code == 0

    (row,) = [each for each in way["grid"] if each["configured"]]
    dropped = RECORDS - len(read_topic(broker.bootstrap_servers, pipeline.sink))
    assert row["caught"] == {"value": dropped, "low": dropped, "high": dropped}
    assert (way["exact"], row["caught"] != unrouted["caught"]) == (True, True)
