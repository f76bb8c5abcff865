"""The escape gauge of real workers: what it says of streams of which it is known what escapes."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New, admin, bounds, delete_topic, read_topic
from tests.support.worker.process import (
    Worker,
    WorkerConfig,
    new_config,
    produce,
    run_drain,
    start_worker,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
BEGUN_MS = int(time.time() * 1000) - 90 * 24 * HOUR_MS
FAST = {"SEQMARK_TEST_SHARE_FASTER": "50"}
WINDOW = "seqmark_escaped_duplicates{}{{pipeline=p,reason=window}}"
PARTITION = "seqmark_escaped_duplicates{}{{pipeline=p,reason=partition}}"
SHARED = "seqmark_escape_sample_shared{pipeline=p}"


def judging(broker: Broker, folder: Path, partitions: int = 1, **worker: Any) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, partitions, **{"slots": partitions, **worker})
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(IdRules(window="1h").applied(pipeline),))


def sample_of(config: WorkerConfig) -> str:
    return f"{config.application_id}-p-sample"


def came(config: WorkerConfig, numbers: Iterable[int], hours: float, partition: int = 0) -> None:
    """Produce ids as of so many hours, which are windows, after the beginning."""
    at = BEGUN_MS + int(hours * HOUR_MS)
    some = [New(b"key", b"value", (("id", b"id-%d" % number),), at) for number in numbers]
    produce(config.bootstrap_servers, config.source, some, partition=partition)


def until_says(worker: Worker, name: str, value: float) -> dict[str, float]:
    def said() -> dict[str, float] | None:
        found = worker.metrics()
        return found if found.get(name) == value else None

    found: dict[str, float] = until(said, f"{name} is {value}")
    return found


def test_copies_after_their_window_are_counted_also_across_a_kill(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path)
    came(config, range(2_000), 0)
    came(config, range(100), 0.5)  # inside the window: duplicates, which do not escape
    came(config, range(150), 2.5)
    with start_worker(config, env=FAST) as worker:
        found = until_says(worker, WINDOW.format(""), 150)
        assert found[WINDOW.format("_lower")] == found[WINDOW.format("_upper")] == 150
        assert found["seqmark_escape_sample_ratio{pipeline=p}"] == 1
        assert found["seqmark_escape_window_seconds{pipeline=p}"] == pytest.approx(2.55 * 3600)
        assert found["seqmark_escaped_duplicates_gap_windows_bucket{le=2.5,pipeline=p,reason=window}"] == 0
        assert found["seqmark_escaped_duplicates_gap_windows_bucket{le=3.0,pipeline=p,reason=window}"] == 150
        assert found[PARTITION.format("")] == 0
        assert found["seqmark_escape_gauge_failures_total{pipeline=p}"] == 0
        until(lambda: bounds(config.bootstrap_servers, sample_of(config))[1] > 0, "others are told")
        until_says(worker, SHARED, 1)
        came(config, [2_000], 2.6)
        until(lambda: worker.metrics()["seqmark_ids{partition=0,pipeline=p}"] == 2_001, "it is judged")
        worker.kill()
    # What passed before the kill is known from the topic, and nothing of it is counted again.
    came(config, range(1_000, 1_040), 8)
    with start_worker(config, env=FAST) as worker:
        until_says(worker, WINDOW.format(""), 40)
        until_says(worker, SHARED, 1)
        asked = CliRunner().invoke(main, ["status", "-c", str(config.write()), "--json"])
        (sentence,) = json.loads(asked.stdout.splitlines()[-1])["escaped"]
        assert "40 duplicates escaped: they came 8.0 windows after" in sentence
        worker.terminate()
        assert worker.wait() == 0
    said = (
        "p: 40 duplicates escaped: they came 8.0 windows after the record that had passed; a window of 9h would"
    )
    assert said in worker.stdout
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 2_000 + 150 + 1 + 40


def test_copies_in_partitions_of_other_workers_are_counted_once(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, 2)
    with start_worker(config, env=FAST) as one, start_worker(config, env=FAST) as two:
        workers = one, two
        for worker in workers:
            until_says(worker, "seqmark_assigned_partitions{pipeline=p}", 1)
            until_says(worker, SHARED, 1)
        came(config, range(500), 0, partition=0)
        came(config, range(500, 600), 0, partition=1)
        came(config, range(60), 0.2, partition=1)
        came(config, range(500, 525), 0.3, partition=0)

        def counted() -> float:
            return sum(worker.metrics()[PARTITION.format("")] for worker in workers)

        until(lambda: counted() == 85, "all are counted, each once")
        assert sum(worker.metrics()[WINDOW.format("")] for worker in workers) == 0


def test_a_worker_goes_on_when_its_sample_topic_is_deleted(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path)
    came(config, range(100), 0)
    with start_worker(config, env={**FAST, "SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}) as worker:
        until_says(worker, SHARED, 1)
        until(lambda: worker.metrics().get("seqmark_ids{partition=0,pipeline=p}") == 100, "all are judged")
        delete_topic(config.bootstrap_servers, sample_of(config))
        came(config, range(30), 3)
        # What it has judged itself it still knows.
        until_says(worker, WINDOW.format(""), 30)
        until_says(worker, SHARED, 0)
        worker.wait_says("the escape gauge goes by what this worker alone has judged")
        assert worker.get("/ready")[0] == 200
        worker.terminate()
        assert worker.wait() == 0
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 130


def test_without_a_sample_topic_a_worker_begins_with_a_warning(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path)
    came(config, range(10), 0)
    assert run_drain(config).code == 0
    delete_topic(config.bootstrap_servers, sample_of(config))
    came(config, range(5), 2)
    ended = run_drain(config.but(create_topics=False))
    assert ended.code == 0
    assert f"{sample_of(config)}: sample of pipeline p: does not exist" in ended.stderr
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 15


def hostile_messages(now_ms: int) -> Iterator[bytes]:
    """Yield well-formed messages that say what no worker says."""
    rng = np.random.default_rng(1)
    row = np.dtype([("key", "<u8"), ("at", "<i8")])
    for depth, shift in (*[(63, 0)] * 4, *[(40, 0)] * 24, *[(0, 40)] * 4):
        rows = np.zeros(16_384, row)
        rows["key"] = rng.integers(1, 2**18, rows.size, np.uint64) << np.uint64(shift)
        if not shift:
            rows["key"] = np.uint64(depth << 58) | rng.integers(1, 2**58, rows.size, np.uint64)
        rows["at"] = now_ms
        yield hostile(0, 0, now_ms, now_ms, rows.size) + rows.tobytes()
    yield hostile(7, 0, now_ms, now_ms, 0)
    yield hostile(0, 0, now_ms, 2**63 - 1, 0)
    yield hostile(0, 63, now_ms, now_ms, 0)
    yield b"\x01" + b"\xff" * 900_000


def hostile(partition: int, level: int, from_ms: int, to_ms: int, rows: int) -> bytes:
    head = struct.pack("<B8sH", 1, b"somebody", 1)
    return head + struct.pack("<iBqqI", partition, level, from_ms, to_ms, rows)


def test_a_worker_goes_on_and_stops_whatever_is_written_to_its_sample_topic(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path)
    came(config, range(100), 0)
    assert run_drain(config).code == 0
    written_ms = int(time.time() * 1000)
    said = [New(None, value, (), written_ms) for value in hostile_messages(BEGUN_MS)]
    for one in said:
        produce(config.bootstrap_servers, sample_of(config), [one])
    with start_worker(config, env=FAST) as worker:
        for times in range(1, 4):
            came(config, range(100 * times, 100 * times + 100), times / 10)
            until_says(worker, "seqmark_ids{partition=0,pipeline=p}", 100 * (times + 1))
            for one in said[-6:]:
                produce(config.bootstrap_servers, sample_of(config), [one])
        # More than there is room for, and no thinning leaves them out.
        worker.wait_says("the escape gauge is off from here on, nothing else is")
        assert worker.get("/ready")[0] == 200
        worker.terminate()
        assert worker.wait() == 0
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 400


def test_a_gauge_that_is_switched_off_leaves_nothing_behind(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, escape_gauge=False)
    came(config, range(10), 0)
    with start_worker(config) as worker:
        until(lambda: worker.metrics().get("seqmark_ids{partition=0,pipeline=p}") == 10, "all are judged")
        assert WINDOW.format("") not in worker.metrics()
    names = admin(config.bootstrap_servers).list_topics(timeout=30).topics
    assert config.changelog in names
    assert sample_of(config) not in names
