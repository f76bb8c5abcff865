"""The escape gauge of real workers: what it says of streams of which it is known what escapes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New, bounds, create_topic, read_topic
from tests.support.worker.process import Worker, WorkerConfig, new_config, produce, start_worker, until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
BEGUN_MS = int(time.time() * 1000) - 90 * 24 * HOUR_MS
WINDOW = "seqmark_escaped_duplicates{}{{pipeline=p,reason=window}}"
PARTITION = "seqmark_escaped_duplicates{}{{pipeline=p,reason=partition}}"


def judging(broker: Broker, folder: Path, partitions: int = 1, **worker: Any) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, partitions, **{"slots": partitions, **worker})
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(IdRules(window="1h").applied(pipeline),))


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


def test_copies_after_their_window_are_counted_by_the_worker_that_saw_both(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path)
    # As an older build has left it: nobody minds it.
    left = f"{config.application_id}-p-sample"
    create_topic(config.bootstrap_servers, left)
    came(config, range(2_000), 0)
    came(config, range(100), 0.5)  # inside the window: duplicates, which do not escape
    came(config, range(150), 2.5)
    with start_worker(config) as worker:
        found = until_says(worker, WINDOW.format(""), 150)
        assert found[WINDOW.format("_lower")] == 150
        assert found["seqmark_escape_sample_ratio{pipeline=p}"] == 1
        assert found["seqmark_escape_window_seconds{pipeline=p}"] == pytest.approx(2.55 * 3600)
        assert found["seqmark_escaped_duplicates_gap_windows_bucket{le=2.5,pipeline=p,reason=window}"] == 0
        assert found["seqmark_escaped_duplicates_gap_windows_bucket{le=3.0,pipeline=p,reason=window}"] == 150
        assert found[PARTITION.format("")] == 0
        assert found["seqmark_escape_gauge_failures_total{pipeline=p}"] == 0
        worker.kill()
    # Of what passed before the kill the next worker knows nothing.
    came(config, range(1_000, 1_040), 8)
    came(config, range(1_000, 1_010), 16)
    with start_worker(config) as worker:
        until_says(worker, WINDOW.format(""), 10)
        asked = CliRunner().invoke(main, ["status", "-c", str(config.write()), "--json"])
        (sentence,) = json.loads(asked.stdout.splitlines()[-1])["escaped"]
        assert "at least 10 duplicates escaped: they came 8.0 windows after" in sentence
        worker.terminate()
        assert worker.wait() == 0
    said = (
        "p: at least 10 duplicates escaped: they came 8.0 windows after the record that had passed; a window "
        "of 9h would"
    )
    assert said in worker.stdout
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 2_000 + 150 + 40 + 10
    assert bounds(config.bootstrap_servers, left) == (0, 0)


def test_copies_in_partitions_of_one_worker_are_counted_and_those_of_another_are_not(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path, 2)
    assigned = "seqmark_assigned_partitions{pipeline=p}"
    came(config, range(60), 0, partition=0)
    came(config, range(25), 0.2, partition=1)
    with start_worker(config) as one:
        until_says(one, PARTITION.format(""), 25)
        one.terminate()
        assert one.wait() == 0
    with start_worker(config) as one, start_worker(config) as two:
        for worker in (one, two):
            until_says(worker, assigned, 1)
        came(config, range(500, 600), 1.5, partition=0)
        came(config, range(500, 560), 1.7, partition=1)
        came(config, range(500, 510), 3.5, partition=0)

        def counted(name: str) -> float:
            return sum(worker.metrics()[name] for worker in (one, two))

        until(lambda: counted(WINDOW.format("")) == 10, "those of its own partition are counted")
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 85 + 170, "all are judged")
        for worker in (one, two):
            worker.terminate()
            assert worker.wait() == 0
        assert "in other partitions" not in one.stdout + two.stdout


def test_a_gauge_that_is_switched_off_leaves_nothing_behind(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, escape_gauge=False)
    came(config, range(10), 0)
    with start_worker(config) as worker:
        until(lambda: worker.metrics().get("seqmark_ids{partition=0,pipeline=p}") == 10, "all are judged")
        assert WINDOW.format("") not in worker.metrics()
