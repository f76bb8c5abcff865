"""Is each event in the aggregate once, or aside once, when the driver is killed again and again?

Driver and JVM are killed together, at moments between a batch's plan and its entry in the commit log, some of
them right after its files or records were written. Spark's files on this machine survive a kill: this shows
safety against processes that die, not against a loss of power.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.crash import seeded
from tests.support.sink_job import Process, process, run, settings, sink, tables
from tests.support.sinks import HOUR, START, Click, by_window, numbers, send, tumbling, written_aside
from tests.support.topics import create_topic, read_topic, unique

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker import Broker

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

KILLS = 3
EVENTS = 2_400
BATCH = 300
WAIT_S = 300.0


def made(chance: random.Random) -> tuple[list[Click], set[int], set[int]]:
    """Return the records, and the numbers of those that are late and those that are bad.

    A minute apart, a few minutes out of order: never late with a watermark of four hours (240 minutes). The
    windows of late ones end 1,375 minutes back or more; the watermark by which a batch's rows are late is two
    batches (600 minutes) and those 240 back: 840.
    """
    clicks, late, bad = [], set(), set()
    for number in range(EVENTS):
        at = START + timedelta(minutes=number, seconds=chance.randrange(300))
        broken = number % 97 == 5
        if broken:
            bad.add(number)
        elif number > 1_500 and number % 10 == 3:
            late.add(number)
            at -= 24 * HOUR
        amount = Decimal(chance.randrange(10_000)).scaleb(-2)
        clicks.append(Click(at, chance.choice("ab"), "u", amount, number, b"{", bad=broken))
    # It closes every window but its own.
    clicks.append(Click(START + timedelta(days=30), "end", "u", Decimal("1.00"), EVENTS))
    return clicks, late, bad


def numbered(folder: Path) -> set[int]:
    return {int(each.name) for each in folder.glob("*") if each.name.isdecimal()}


def kill_in_a_batch(running: Process, folder: Path, written: Path, chance: random.Random) -> str:
    """Kill it when a batch is written (or planned) and not in the commit log; returns when that was."""
    commits = folder / "commits"
    began, deadline = numbered(commits), time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        assert running.code is None, running.stderr
        done = numbered(commits)
        # Not before this process has done a batch itself: a kill while it starts shows little.
        if done > began and numbered(written) - done:
            time.sleep(chance.random() * 0.05 if chance.random() < 0.5 else 0.0)
            running.kill()
            return (
                f"batches {sorted(numbered(written) - numbered(commits))} of {written.name} were not committed"
            )
        time.sleep(0.002)
    running.kill()
    return "no such moment was met"


def test_each_event_counts_once_or_is_aside_once_whenever_the_driver_is_killed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    chance, bootstrap = seeded(), broker.bootstrap_servers
    topic, out = unique("clean"), unique("aggregate")
    create_topic(bootstrap, topic, 2)
    clicks, late, bad = made(chance)
    send(bootstrap, topic, clicks, 2)
    shared = {"window": "1 hour", "watermark": "4 hours", "max_offsets_per_trigger": BATCH}
    files = sink(tmp_path, topic, "files", {"kind": "parquet", "path": str(tmp_path / "files")}, **shared)
    records = sink(tmp_path, topic, "topic", {"kind": "kafka", "topic": out}, **shared)

    moments = (
        (tmp_path / "checkpoint-files", tmp_path / "files" / "_spark_metadata"),
        (tmp_path / "checkpoint-topic", tmp_path / "checkpoint-topic" / "offsets"),
    )
    for number in range(KILLS):
        with process(tmp_path, tables(bootstrap, files, records)) as running:
            print(kill_in_a_batch(running, *moments[number % 2], chance))  # noqa: T201 - shown when it fails
    run(settings(bootstrap, files, records))

    truth = by_window(
        (each for each in clicks if each.number not in late | bad), tumbling(HOUR), lambda each: each.campaign
    )
    expected = {
        (int(start.timestamp()), campaign): (len(mine), sum(each.amount for each in mine))
        for ((start, _), campaign), mine in truth.items()
    }
    newest = {record.key: json.loads(record.value or b"") for record in read_topic(bootstrap, out)}
    found = spark.read.parquet(str(tmp_path / "files")).selectExpr(
        "unix_seconds(window_start) AS start", "campaign", "events", "revenue"
    )
    rows = found.collect()
    assert len(rows) == len(expected) - 1
    assert {(row["start"], row["campaign"]): (row["events"], row["revenue"]) for row in rows} == {
        key: value for key, value in expected.items() if key[1] != "end"
    }
    assert sorted(
        (row["window_start"], row["campaign"], row["events"], row["revenue"]) for row in newest.values()
    ) == (
        sorted(
            (
                start.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                campaign,
                len(mine),
                str(sum(each.amount for each in mine)),
            )
            for ((start, _), campaign), mine in truth.items()
        )
    )
    for name in ("files", "topic"):
        aside = tmp_path / f"checkpoint-{name}-aside"
        assert numbers(written_aside(aside, "late")) == sorted(late)
        assert numbers(written_aside(aside, "bad")) == sorted(bad)
