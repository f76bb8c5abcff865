"""Does ``format("seqmark")`` give what is committed, once, with every value checked?"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from processor.kafka.plain.topic_log import close_topics
from schemas.events import ClickEvent
from spark_sink import clean_topic, register
from spark_sink.source.format import TopicStreamReader, dealt_out
from spark_sink.source.options import SourceOptions
from tests.support.kafka.topics import (
    create_topic,
    delete_topic,
    new,
    produce,
    produce_transaction,
    unique,
)
from tests.support.spark_sink.sinks import START, Click, send

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def clicks(first: int, count: int) -> list[Click]:
    """Return some, each a second after the one before."""
    return [
        Click(START, "abc"[number % 3], "u", Decimal(number), number) for number in range(first, first + count)
    ]


def keys(frame: DataFrame) -> list[int]:
    """Return the numbers of clicks."""
    return sorted(int(row["event_id"][1:]) for row in frame.collect())


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Give a topic with ten clicks, an aborted one, a tombstone and one that is no event."""
    name, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, name, 2)
    send(bootstrap, name, clicks(0, 10), 2)
    lost = clicks(10, 1)[0]
    produce_transaction(bootstrap, name, [new(10, value=lost.value)], commit=False)
    produce(bootstrap, name, [new(11, value=None), new(12, value=b'{"event_id": 1}')], partition=1)
    return name


def test_committed_events_are_rows_and_the_others_have_a_reason(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    kept = clean_topic(
        spark, broker.bootstrap_servers, topic, ClickEvent, stream=False, unreadable="keep"
    ).collect()

    bad = {row["_unreadable"]: row for row in kept if row["_unreadable"]}
    assert sorted(bad) == ["null", "type:event_id"]
    assert bytes(bad["type:event_id"]["_value"]) == b'{"event_id": 1}'
    assert all(bad["type:event_id"][name] is None for name in ClickEvent.model_fields)
    right = {row["event_id"]: row for row in kept if not row["_unreadable"]}
    assert sorted(right) == [f"e{number}" for number in range(10)]
    assert {row["_partition"] for row in right.values()} == {0, 1}
    assert right["e3"]["amount"] == Decimal("3.00")
    assert right["e3"]["occurred_at"].timestamp() == START.timestamp()
    assert (bytes(right["e3"]["_key"]), right["e3"]["_value"]) == (b"3", None)


def test_an_unreadable_record_ends_the_query_by_name_unless_it_is_skipped(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    register(spark)
    reader = spark.read.format("seqmark").option("topic", topic).option("event", "schemas.events:ClickEvent")
    reader = reader.option("bootstrap_servers", broker.bootstrap_servers)

    with pytest.raises(PySparkException, match=rf"{topic}:1:\d+ is no event \(null\)"):
        reader.load().collect()
    assert keys(reader.option("unreadable", "skip").load()) == list(range(10))

    class Closed(ClickEvent, extra="forbid"):
        """Nothing but these fields: read by Spark."""

    for model in (ClickEvent, Closed):
        counted = clean_topic(spark, broker.bootstrap_servers, topic, model, stream=False, metadata=True)
        with pytest.raises(PySparkException, match=rf"{topic}:1:\d+ is no event"):
            counted.groupBy("_partition").count().collect()


def test_a_model_that_no_kernel_checks_gives_the_same_rows_by_spark(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    class Closed(ClickEvent, extra="forbid"):
        """Nothing but these fields."""

    both = [
        clean_topic(spark, broker.bootstrap_servers, topic, model, stream=False, unreadable="keep")
        for model in (ClickEvent, Closed)
    ]

    assert both[0].schema == both[1].schema
    by_kernels, by_spark = (
        sorted(frame.collect(), key=lambda row: (row["_partition"], row["_offset"])) for frame in both
    )
    assert by_kernels == by_spark


def test_a_session_keeps_its_options(spark: SparkSession, broker: Broker, topic: str) -> None:
    class Closed(ClickEvent, extra="forbid"):
        """Nothing but these fields: read by Spark."""

    mine = spark.newSession()
    mine.conf.set("spark.sql.variant.allowDuplicateKeys", "false")
    mine.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "false")
    mine.range(1).collect()  # Delta sets some at the first
    before = dict(mine.conf.getAll)

    rows = [
        clean_topic(mine, broker.bootstrap_servers, topic, model, stream=False, unreadable="skip")
        for model in (ClickEvent, Closed)
    ]

    assert keys(rows[0]) == keys(rows[1]) == list(range(10))
    assert dict(mine.conf.getAll) == before


def test_records_come_as_they_are_without_a_model(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = clean_topic(spark, broker.bootstrap_servers, topic, stream=False).collect()

    assert len(rows) == 12
    assert {row["topic"] for row in rows} == {topic}
    assert [bytes(row["key"]) for row in rows if row["value"] is None] == [new(11).key]


def run(spark: SparkSession, frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Run a stream until all that is there is done; returns what its files hold, all runs' together."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [row.asDict() for row in spark.read.parquet(str(folder / "rows")).collect()]


def stream(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    """Return a topic's clicks."""
    return clean_topic(spark, broker.bootstrap_servers, topic, ClickEvent, metadata=True)


@pytest.fixture
def growing(broker: Broker) -> str:
    """Give a topic of two partitions with twenty clicks."""
    name = unique("growing")
    create_topic(broker.bootstrap_servers, name, 2)
    send(broker.bootstrap_servers, name, clicks(0, 20), 2)
    return name


def test_a_stream_goes_on_at_its_checkpoint_and_repeats_a_batch_with_the_same_records(
    spark: SparkSession, broker: Broker, growing: str, tmp_path: Path
) -> None:
    first = run(spark, stream(spark, broker, growing), tmp_path)
    assert len(first) == 20
    send(broker.bootstrap_servers, growing, clicks(20, 6), 2)
    assert len(run(spark, stream(spark, broker, growing), tmp_path)) == 26
    # As a crash leaves it between the batch and its commit: what came since is of no concern to it.
    send(broker.bootstrap_servers, growing, clicks(26, 4), 2)
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    found = run(spark, stream(spark, broker, growing), tmp_path)

    assert sorted(int(row["event_id"][1:]) for row in found) == list(range(30))
    planned = json.loads((tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[2])
    assert planned["topic"] == growing
    assert sum(planned["next"].values()) == 26


def test_the_first_batch_begins_where_it_was_planned_however_late_it_runs(broker: Broker, growing: str) -> None:
    bootstrap = broker.bootstrap_servers
    options = SourceOptions.of({"topic": growing, "bootstrap_servers": bootstrap, "starting": "latest"})
    try:
        first = TopicStreamReader(options)
        nothing = first.latestOffset()
        send(bootstrap, growing, clicks(20, 2), 2)
        planned = first.latestOffset()
        send(bootstrap, growing, clicks(22, 2), 2)

        # Another process, after a crash: Spark asks anew where the stream begins.
        again = TopicStreamReader(options)
        spans = [span for task in again.partitions(again.initialOffset(), planned) for span in task.spans]

        assert sorted(spans) == [(0, 10, 11), (1, 10, 11)]
        assert again.partitions(again.initialOffset(), nothing) == []
        assert len(dealt_out("", sorted(spans), 1)) == 1
    finally:
        close_topics()


def test_a_topic_made_anew_is_refused_with_what_to_do(
    spark: SparkSession, broker: Broker, growing: str, tmp_path: Path
) -> None:
    run(spark, stream(spark, broker, growing), tmp_path)
    delete_topic(broker.bootstrap_servers, growing)
    create_topic(broker.bootstrap_servers, growing, 2)
    send(broker.bootstrap_servers, growing, clicks(0, 40), 2)

    with pytest.raises(PySparkException, match=r"made anew.*begin with a new checkpoint"):
        run(spark, stream(spark, broker, growing), tmp_path)
