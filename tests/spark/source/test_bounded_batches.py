"""Bounded batches of several partitions make the aggregates of one whole batch, with no event late."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from processor.kafka.plain.topic_log import close_topics
from spark_sink.job import SinkJob, SinkOptions
from spark_sink.source.clean import clean_topic
from spark_sink.source.format import TopicStreamReader
from spark_sink.source.options import SourceOptions
from tests.support.kafka.topics import New, add_partitions, create_topic, produce, unique
from tests.support.spark_sink.job import Silent, run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click, by_window, tumbling, written_aside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from schemas.config import Settings
    from spark_sink.query.progress import Totals
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
BOUND = 90
DAYS = 3
MANY = 10
"""Clicks have the number of their partition modulo this, to which no topic here grows."""


def clicks(partition: int, count: int, first: float = 0, last: float = 24 * DAYS) -> list[Click]:
    """Return clicks in order, equally far apart, from one hour of the three days to another."""
    step = (last - first) * HOUR / count
    return [
        Click(START + first * HOUR + at * step, "ab"[at % 2], "u", Decimal(at), MANY * at + partition)
        for at in range(count)
    ]


END = Click(START + 30 * 24 * HOUR, "end", "u", Decimal(1), MANY * 100_000)


def send_to(bootstrap: str, topic: str, partition: int, mine: list[Click]) -> None:
    """Produce clicks into one partition, in their order, some hundreds per record batch."""
    records = [New(str(each.number).encode(), each.value, (), each.timestamp) for each in mine]
    batches = [records[at : at + 700] for at in range(0, len(records), 700)]
    produce(bootstrap, topic, *batches, partition=partition)


def config(broker: Broker, folder: Path, topic: str) -> Settings:
    output = {"kind": "parquet", "path": str(folder / "files")}
    declared = sink(
        folder,
        topic,
        "files",
        output,
        window="1 hour",
        watermark="1 minute",
        max_offsets_per_trigger=BOUND,
    )
    return settings(broker.bootstrap_servers, declared)


class Impatient(Silent):
    """Stops a job after some batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._batches = batches
        self.job: SinkJob | None = None

    def progress(self, totals: Mapping[str, Totals]) -> None:
        if self.job is not None and totals["files"].batches >= self._batches:
            self.job.stop()


def stopped(found: Settings, batches: int) -> None:
    """Run until some batches are done; the one behind them may be cut off."""
    audience = Impatient(batches)
    options = SinkOptions(master="local[2]", available_now=True)
    audience.job = SinkJob(found, found.aggregates, options, audience)
    audience.job.run()


def planned(folder: Path) -> list[dict[str, int]]:
    """Return where the batches end that were planned."""
    offsets = folder / "checkpoint-files" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    files = sorted(
        (each for each in offsets.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name)
    )
    found: list[dict[str, Any]] = [json.loads(each.read_text().splitlines()[2]) for each in files]
    return [each["next"] for each in found]


def sizes(folder: Path) -> list[int]:
    """Return how many offsets each batch had."""
    ends = [{}, *planned(folder)]
    return [
        sum(stop - before.get(each, 0) for each, stop in ends[at].items())
        for at, before in enumerate(ends[:-1], 1)
    ]


def counted(spark: SparkSession, folder: Path) -> dict[Any, tuple[int, Decimal]]:
    """Return events and revenue by the start of a window and campaign."""
    rows = (
        spark.read.parquet(str(folder / "files")).selectExpr("*", "unix_micros(window_start) as at").collect()
    )
    found = {(row["at"], row["campaign"]): (row["events"], row["revenue"]) for row in rows}
    assert len(found) == len(rows)
    return found


def expected(sent: list[Click]) -> dict[Any, tuple[int, Decimal]]:
    windows = by_window(sent, tumbling(HOUR), lambda each: each.campaign)
    return {
        (round(start.timestamp() * 1_000_000), campaign): (
            len(mine),
            sum((each.amount for each in mine), Decimal()),
        )
        for ((start, _), campaign), mine in windows.items()
    }


def test_a_backlog_of_partitions_of_all_sizes_is_cut_by_time_across_a_stop_and_a_crash(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 4)
    sent = clicks(0, 250) + clicks(1, 30) + clicks(2, 100, 6) + clicks(3, 15, last=30)
    for number in range(4):
        send_to(bootstrap, topic, number, [each for each in sent if each.number % MANY == number])
    send_to(bootstrap, topic, 0, [END])
    found = config(broker, tmp_path, topic)

    stopped(found, 2)
    # As a crash leaves it behind a batch and before its commit.
    checkpoint = tmp_path / "checkpoint-files"
    for name in (str(len(planned(tmp_path)) - 1), f".{len(planned(tmp_path)) - 1}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    before = planned(tmp_path)
    audience = Silent()
    job = run(found, audience)

    assert "summed up as it is read" in " ".join(audience.said)
    assert not any("is not used" in each for each in audience.said)
    assert counted(spark, tmp_path) == expected(sent)
    assert written_aside(tmp_path / "checkpoint-files-aside", "late") == []
    assert job.totals["files"].late == 0
    assert planned(tmp_path)[: len(before)] == before
    assert planned(tmp_path)[-1] == {"0": 251, "1": 30, "2": 100, "3": 15}
    assert max(sizes(tmp_path)) <= BOUND
    assert all(after[each] >= stop for one, after in pairwise(planned(tmp_path)) for each, stop in one.items())
    assert len([each for each in sizes(tmp_path) if each]) >= len(sent) / BOUND


def test_a_stream_of_ones_own_is_cut_by_time_in_topics_of_many_record_batches(broker: Broker) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    times = {each: [one.at for one in clicks(each, count)] for each, count in enumerate((20_000, 6_000))}
    for number, count in enumerate((20_000, 6_000)):
        send_to(bootstrap, topic, number, clicks(number, count))
    options = SourceOptions.of(
        {
            "topic": topic,
            "bootstrap_servers": bootstrap,
            "event": "schemas.events:ClickEvent",
            "time_field": "occurred_at",
            "max_offsets_per_trigger": "11000",
        }
    )
    try:
        reader = TopicStreamReader(options)
        at = reader.initialOffset()
        ends: list[dict[int, int]] = []
        while not ends or sum(ends[-1].values()) < 26_000 + 10_000 * (len(times) > 2):
            end = reader.latestOffset()
            reader.partitions(at, end)
            at = end
            ends.append({int(number): stop for number, stop in end["next"].items()})
            if len(ends) == 1:
                # One is added in the middle, and the process begins again: Spark tells where it was.
                begin = max(times[0][ends[0][0] - 1], times[1][ends[0][1] - 1])
                hours = (begin - START) / HOUR + 1
                add_partitions(bootstrap, topic, 3)
                times[2] = [one.at for one in clicks(2, 10_000, hours, 40)]
                send_to(bootstrap, topic, 2, clicks(2, 10_000, hours, 40))
                reader = TopicStreamReader(options)
                assert reader.partitions(at, at) == []
    finally:
        close_topics()

    newest = START
    for before, after in pairwise([{}, *ends]):
        read = [one for each, stop in after.items() for one in times[each][before.get(each, 0) : stop]]
        assert 0 < len(read) <= 11_000
        assert min(read) >= newest
        newest = max(read)
    assert newest == max(times[0][-1], times[1][-1])
    assert len(ends) >= 4


def test_the_trigger_available_now_is_refused_before_a_batch_is_planned_and_another_goes_through_all(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    for number in range(2):
        send_to(bootstrap, topic, number, clicks(number, 60))
    bound: dict[str, Any] = {"max_offsets_per_trigger": 50, "time_field": "occurred_at"}
    events = clean_topic(spark, bootstrap, topic, "schemas.events:ClickEvent", **bound)
    writer = events.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint-files"))

    def refused() -> None:
        with pytest.raises(PySparkException, match="does not go with the trigger availableNow"):
            writer.trigger(availableNow=True).start().awaitTermination()

    refused()
    assert planned(tmp_path) == []
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert planned(tmp_path)[-1] == {"0": 60, "1": 60}
    assert sizes(tmp_path)[0] <= 50
    refused()
    assert planned(tmp_path)[-1] == {"0": 60, "1": 60}
