"""Kills the Spark driver again and again: each event is in the aggregate once, or aside once.

Driver and JVM are killed together between a batch's plan and its entry in the commit log: right after the
plan, after the batch's files count, or after its first records are in the topic. They are halted when the
moment seems to have come. Where the commit log has the batch already they go on, and the next batch is waited
for, with more events: so every kill that counts is where it is meant to be, and none depends on luck.

Spark's files on this machine survive a kill: this shows safety against processes that die, not against a loss
of power.

The events come from a clean topic, or from a raw one, in which many come again, by the verdicts of a worker
that runs meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, nullcontext
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka.topics import create_topic, read_topic, unique
from tests.support.spark_sink.job import Process, process, run, settings, sink, tables
from tests.support.spark_sink.sinks import HOUR, START, Click, by_window, numbers, send, tumbling, written_aside
from tests.support.worker.crash import seeded
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain, start_worker

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.timeout(300 + 120 * int(os.environ.get("SEQMARK_TEST_KILLS") or 3)),
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

KILLS, ALL_KILLS = 2, 3
"""At as many moments, or more with SEQMARK_TEST_KILLS, when each moment is met as often as the others; a driver
costs some 20 CPU seconds until its first batch."""
PARTITIONS = 2
BATCH = 300
CHUNK = 100
WAIT_S = 300.0


class Events:
    """A topic that grows, and what should become of its records.

    A minute apart, a few minutes out of order. A chunk is sent partition by partition, so that one partition
    may be a few chunks (each 100 minutes) ahead of the other: none is late by a watermark of eight hours (480
    minutes) that is not meant to be. The windows of those that are meant to be end 2,815 minutes back or more;
    the watermark by which a batch's rows are late is two batches (600 minutes), some chunks and those 480 back.

    Where `again` is set, with each chunk come some again of those that came before, of any time.
    """

    def __init__(self, bootstrap: str, topic: str, chance: random.Random, *, again: bool) -> None:
        self.clicks: list[Click] = []
        self.late: set[int] = set()
        self.bad: set[int] = set()
        self._bootstrap, self._topic, self._chance, self._again = bootstrap, topic, chance, again
        create_topic(bootstrap, topic, PARTITIONS)

    def send(self, last: int = CHUNK) -> None:
        """Send more of them."""
        chance, first = self._chance, len(self.clicks)
        for number in range(first, first + last):
            at = START + timedelta(minutes=number, seconds=chance.randrange(300))
            broken = number % 97 == 5
            if broken:
                self.bad.add(number)
            elif number > 1_500 and number % 10 == 3:
                self.late.add(number)
                at -= 48 * HOUR
            amount = Decimal(chance.randrange(10_000)).scaleb(-2)
            self.clicks.append(Click(at, chance.choice("ab"), "u", amount, number, b"{", bad=broken))
        again = chance.sample(self.clicks, last // 3) if self._again else []
        send(self._bootstrap, self._topic, [*self.clicks[first:], *again], PARTITIONS)

    def end(self) -> None:
        """Send what closes every window but its own."""
        at = START + timedelta(days=30, minutes=len(self.clicks))
        self.clicks.append(Click(at, "end", "u", Decimal("1.00"), len(self.clicks)))
        send(self._bootstrap, self._topic, self.clicks[-1:], PARTITIONS)


class Moment(NamedTuple):
    """Where a driver is killed."""

    name: str
    checkpoint: Path
    """Of the sink that is looked at."""
    begin: Callable[[], int]
    """Asked when the batch before is committed, handed to ``met``."""
    met: Callable[[int, int], bool]
    """Given the batch and that, says whether the batch has come so far."""


def moments(folder: Path, client: Consumer, out: str) -> list[Moment]:
    files, topic = folder / "checkpoint-files", folder / "checkpoint-topic"
    log = folder / "files" / "_spark_metadata"
    places = [TopicPartition(out, each) for each in range(PARTITIONS)]

    def ends() -> int:
        return sum(client.get_watermark_offsets(each, WAIT_S)[1] for each in places)

    return [
        Moment("its files count", files, lambda: 0, lambda batch, _: (log / str(batch)).exists()),
        Moment("the first of its records are in the topic", topic, ends, lambda _, before: ends() > before),
        Moment("it is planned", topic, lambda: 0, lambda batch, _: (topic / "offsets" / str(batch)).exists()),
    ]


def committed(checkpoint: Path) -> int:
    """Return the last batch in the commit log, -1 for none."""
    names = (each.name for each in (checkpoint / "commits").glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def kill_in_a_batch(running: Process, moment: Moment, events: Events) -> int | None:
    """Kill it at the moment, in a batch that is not in the commit log; return the batch.

    None: the commit log had it at the very end, before the kill arrived.
    """
    # Not before this process has done a batch itself: a kill while it starts shows little.
    first, deadline = committed(moment.checkpoint), time.monotonic() + WAIT_S
    while (last := committed(moment.checkpoint)) == first:
        assert running.code is None, running.stderr
        assert time.monotonic() < deadline, running.stderr
        time.sleep(0.01)
    while True:
        before = moment.begin()
        events.send()
        while committed(moment.checkpoint) == last:
            assert running.code is None, running.stderr
            assert time.monotonic() < deadline, running.stderr
            if moment.met(last + 1, before):
                running.halt()
                if committed(moment.checkpoint) == last:
                    running.kill()
                    return last + 1 if committed(moment.checkpoint) == last else None
                running.go_on()
            time.sleep(0.0005)
        last = committed(moment.checkpoint)


def judged(bootstrap: str, folder: Path) -> WorkerConfig:
    """Return a pipeline that writes nothing but verdicts: an event is its key."""
    name, ids = unique("raw"), {"mode": "insert-id", "window": "90d", "id": [{"from": "key"}]}
    pipelines = (PipelineConfig("clicks", name, "", dedup=ids),)
    return WorkerConfig(folder, bootstrap, unique("judge"), pipelines).with_verdicts("verdicts")


@pytest.mark.drawn("by")
@pytest.mark.parametrize("by", ["topic", "verdicts"])
def test_each_event_counts_once_or_is_aside_once_whenever_the_driver_is_killed(
    spark: SparkSession, broker: Broker, tmp_path: Path, *, by: str, whole: bool
) -> None:
    kills = int(os.environ.get("SEQMARK_TEST_KILLS") or (ALL_KILLS if whole else KILLS))
    chance, bootstrap = seeded(), broker.bootstrap_servers
    worker = judged(bootstrap, tmp_path) if by == "verdicts" else None
    topic, out = worker.source if worker else unique("clean"), unique("aggregate")
    events = Events(bootstrap, topic, chance, again=worker is not None)
    events.send(2 * BATCH)
    shared: dict[str, Any] = {"window": "1 hour", "watermark": "8 hours"}
    shared["verdicts" if worker else "max_offsets_per_trigger"] = worker.verdicts if worker else BATCH
    files = sink(tmp_path, topic, "files", {"kind": "parquet", "path": str(tmp_path / "files")}, **shared)
    records = sink(tmp_path, topic, "topic", {"kind": "kafka", "topic": out}, **shared)

    def aggregate_all() -> None:
        if worker:
            ended = run_drain(worker)
            assert ended.code == 0, ended.stderr
        run(settings(bootstrap, files, records))

    create_topic(bootstrap, out, PARTITIONS)
    with (
        start_worker(worker) if worker else nullcontext() as live,
        closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})) as client,
    ):
        if live:
            live.wait_ready()
        places, killed = moments(tmp_path, client, out), 0
        chance.shuffle(places)
        while killed < kills:
            moment = places[killed % len(places)]
            with process(tmp_path, tables(bootstrap, files, records)) as running:
                batch = kill_in_a_batch(running, moment, events)
            if batch is not None:
                killed += 1
                print(f"kill {killed}: batch {batch}, when {moment.name}, not in the commit log")  # noqa: T201 - shown when it fails
            events.send()
    # Some are late whatever was killed: the rows of a batch are late by the watermark of the one before, and
    # the last of those that were killed may be any. So two batches in between.
    for last in (1_400, 1_500):
        if len(events.clicks) < last:
            events.send(last - len(events.clicks))
            aggregate_all()
    events.send(max(2_400 - len(events.clicks), CHUNK))
    events.end()
    aggregate_all()
    clicks, late, bad = events.clicks, events.late, events.bad
    assert late
    assert bad

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
