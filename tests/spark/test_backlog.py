"""Is a backlog counted whole, however far one of its partitions is behind the others?"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from spark_sink import job
from spark_sink.outputs import console
from tests.support.kafka.topics import add_partitions, create_topic, unique
from tests.support.spark_sink.job import run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click, send, written_aside

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Settings
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

BATCH = 40


def clicks(first: int, last: int, partition: int, of: int = 2) -> list[Click]:
    """Return a click every ten minutes from one hour to another, all of one partition."""
    return [
        Click(START + timedelta(minutes=10 * at), "a", "u", Decimal(1), of * at + partition)
        for at in range(6 * first, 6 * last)
    ]


def bounded(broker: Broker, folder: Path, topic: str) -> Settings:
    output = {"kind": "parquet", "path": str(folder / "files")}
    declared = sink(folder, topic, "files", output, window="1 hour", max_offsets_per_trigger=BATCH)
    return settings(broker.bootstrap_servers, declared)


@pytest.mark.parametrize("lack", ["", "Python"])
def test_a_partition_ten_hours_behind_loses_nothing_at_first_or_in_a_backlog(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    # Where executors lack something Spark reads event by event.
    monkeypatch.setattr(job, "why_lacking", lambda *_: lack)
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    config = bounded(broker, tmp_path, topic)

    # A new checkpoint's first run, and then what has piled up while the sink was down.
    first = clicks(0, 20, 0) + clicks(0, 10, 1)
    send(bootstrap, topic, first, 2)
    run(config)
    backlog = clicks(20, 40, 0) + clicks(20, 30, 1)
    send(bootstrap, topic, backlog, 2)
    run(config)
    end = Click(START + 60 * HOUR, "end", "u", Decimal(1), 1_000)
    send(bootstrap, topic, [end], 2)
    run(config)

    assert written_aside(tmp_path / "checkpoint-files-aside", "late") == []
    counted = spark.read.parquet(str(tmp_path / "files")).selectExpr("sum(events)").collect()[0][0]
    assert counted == len(first) + len(backlog)


@pytest.mark.usefixtures("spark")
def test_batches_that_spark_reads_of_a_single_partition_are_bounded_until_there_is_another(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic)
    send(bootstrap, topic, clicks(0, 20, 0, of=1), 1)
    seen: list[int] = []

    def grown(_self: console.Terminal, rows: DataFrame, _batch: int) -> None:
        seen.append(rows.selectExpr("sum(events)").collect()[0][0])
        if len(seen) == 2:
            add_partitions(bootstrap, topic, 2)

    monkeypatch.setattr(console.Terminal, "_print", grown)
    monkeypatch.setattr(job, "why_lacking", lambda *_: "Python")
    output = {"kind": "console"}
    declared = sink(tmp_path, topic, "shown", output, window="1 week", max_offsets_per_trigger=BATCH)

    with pytest.raises(StopError, match=f"aggregate shown: topic {topic} has 2 partitions now"):
        run(settings(bootstrap, declared))

    assert seen == [BATCH, 2 * BATCH]
