"""What becomes of the aggregate when a disk fills? It stops, says so, and goes on when there is room."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from tests.support.kafka.topics import create_topic, dice, unique
from tests.support.spark_sink.job import run, settings, sink
from tests.support.spark_sink.sinks import (
    HOUR,
    START,
    Click,
    by_window,
    click,
    numbers,
    send,
    tumbling,
    written_aside,
)
from tests.support.worker.disk import mounted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EVENTS = 240
BATCH = 20
# Bytes that are left: nothing, and enough for a part of a batch, or two. The eleven batches that are to come
# write at least four files of a block or more each, their checksums beside them: more than 176 KB.
ROOM = (0, 24_576)


@pytest.mark.parametrize("place", ["parquet", "checkpoint"])
def test_a_disk_that_fills_ends_it_with_a_word_and_nothing_is_lost_or_counted_twice(
    spark: SparkSession, broker: Broker, tmp_path: Path, place: str
) -> None:
    a_disk_fills(spark, broker, tmp_path, place)


@pytest.mark.drawn("table")
@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_so_does_the_disk_of_a_table(spark: SparkSession, broker: Broker, tmp_path: Path, table: str) -> None:
    a_disk_fills(spark, broker, tmp_path, table)


def a_disk_fills(spark: SparkSession, broker: Broker, tmp_path: Path, place: str) -> None:
    chance, bootstrap, topic = dice(5), broker.bootstrap_servers, unique("clean")
    create_topic(bootstrap, topic)
    clicks = [
        click(chance, number, START + number // 10 * HOUR, timedelta(minutes=59)) for number in range(EVENTS)
    ]
    broken = {number for number in range(EVENTS) if number % 50 == 7}
    sent = [
        Click(each.at, each.campaign, each.user, each.amount, each.number, b"{", bad=each.number in broken)
        for each in clicks
    ]
    # It closes every window but its own.
    last = Click(START + timedelta(days=30), "end", "u", Decimal("1.00"), EVENTS)
    with mounted("8m") as disk:
        kind = "parquet" if place == "checkpoint" else place
        folders = {kind: tmp_path, "checkpoint": tmp_path} | {place: disk.path}
        config = settings(
            bootstrap,
            sink(
                folders["checkpoint"],
                topic,
                "files",
                {"kind": kind, "path": str(folders[kind] / "files")},
                window="1 hour",
                max_offsets_per_trigger=BATCH,
            ),
        )
        send(bootstrap, topic, sent[:BATCH], 1)
        run(config)
        send(bootstrap, topic, [*sent[BATCH:], last], 1)
        for left in ROOM:
            disk.fill(left)
            with pytest.raises(
                StopError, match=r"^aggregate files: a disk is full\. Nothing is counted twice: make room"
            ):
                run(config)
        disk.free()
        run(config)

        good = [each for each in clicks if each.number not in broken]
        truth = by_window(good, tumbling(HOUR), lambda each: each.campaign)
        rows = (
            spark.read.format(kind)
            .load(str(folders[kind] / "files"))
            .selectExpr("unix_seconds(window_start) AS start", "campaign", "events", "revenue")
        )
        found = sorted(tuple(row) for row in rows.collect())
        aside = numbers(written_aside(folders["checkpoint"] / "checkpoint-files-aside", "bad"))
    assert found == sorted(
        (int(start.timestamp()), campaign, len(mine), sum(each.amount for each in mine))
        for ((start, _), campaign), mine in truth.items()
    )
    assert aside == sorted(broken)
