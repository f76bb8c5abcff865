"""Do Spark's batches come into the table as Spark has them, computed once and in portions?"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import SecretStr
from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.config import Kafka, PostgresOutput, Sink
from schemas.event import (
    BoolType,
    Column,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    TextType,
    TimestampType,
)
from spark_sink.outputs import open_output
from spark_sink.outputs.output import OutputPlace, Stopping
from spark_sink.outputs.postgres import output as module
from spark_sink.outputs.postgres.batch import Batch, write_batch
from spark_sink.outputs.postgres.output import PostgresTable, storable
from tests.support.spark_sink.postgres import rows
from tests.support.spark_sink.spark import spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark"]

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

COLUMNS = (
    Column("window_start", TimestampType(), nullable=False),
    Column("window_end", TimestampType(), nullable=False),
    Column("campaign", TextType(nullable=True), nullable=True),
    Column("events", IntType(), nullable=False),
    Column("revenue", DecimalType(precision=38, scale=2), nullable=False),
)
SCHEMA = "window_start timestamp, window_end timestamp, campaign string, events bigint, revenue decimal(38,2)"
START, END = datetime(2026, 1, 5, 7, tzinfo=UTC), datetime(2026, 1, 5, 8, tzinfo=UTC)
Row = tuple[Any, ...]


def made(
    spark: SparkSession,
    url: str,
    table: str = "hourly",
    aggregates: tuple[str, ...] = ("events", "revenue"),
) -> PostgresTable:
    sink = Sink(
        name="hourly",
        topic="clicks.clean",
        event="schemas.events:ClickEvent",
        time_field="occurred_at",
        window="1 hour",
        watermark="2 hours",
        group_by=["campaign"],
        aggregates=dict.fromkeys(aggregates, "count"),
        output=PostgresOutput(kind="postgres", url=SecretStr(url), table=table),
        checkpoint="unused",
    )
    kafka = Kafka(bootstrap_servers="unused:9092")
    place = OutputPlace(spark, sink, kafka, create_topics=False, say=print, stopping=Stopping())
    return cast("PostgresTable", open_output(place))


def batch_of(spark: SparkSession, *written: Row) -> DataFrame:
    return spark.createDataFrame([(START, END, *each) for each in written], SCHEMA)


def test_rows_come_in_as_spark_has_them_whatever_their_type(spark: SparkSession, database: str) -> None:
    columns = (
        *COLUMNS[:3],
        Column("n", IntType(nullable=True), nullable=True),
        Column("money", DecimalType(precision=38, scale=18, nullable=True), nullable=True),
        Column("rate", FloatType(nullable=True), nullable=True),
        Column("flag", BoolType(nullable=True), nullable=True),
        Column("day", DateType(nullable=True), nullable=True),
        Column("seen", TimestampType(nullable=True), nullable=True),
        Column("wall", TimestampType(zone="none", nullable=True), nullable=True),
    )
    output = made(spark, database, aggregates=tuple(column.name for column in columns[3:]))
    output.prepare(columns)
    values: list[Row] = [
        (2**63 - 1, Decimal("12345678901234567890.123456789012345678"), 0.1 + 0.2, True, date(2026, 2, 28)),
        (-1, Decimal("-0.000000000000000001"), float("inf"), False, date(1, 1, 1)),
        (None, None, None, None, None),
    ]
    times = [
        (datetime(2026, 10, 25, 1, 30, 0, 123456, UTC), datetime(2026, 10, 25, 2, 30, 0, 123456)),  # noqa: DTZ001 - a wall clock's
        (datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59)),  # noqa: DTZ001 - the same
        (None, None),
    ]
    data = [(START, END, name, *some, *when) for name, some, when in zip("abc", values, times, strict=True)]
    schema = (
        "window_start timestamp, window_end timestamp, campaign string, n bigint, money decimal(38,18),"
        " rate double, flag boolean, day date, seen timestamp, wall timestamp_ntz"
    )
    assert output.write(spark.createDataFrame(data, schema), Batch("hourly", "q", 0))
    assert rows(database, "SELECT * FROM hourly ORDER BY campaign") == data


def test_the_columns_order_in_a_batch_does_not_matter(spark: SparkSession, database: str) -> None:
    output = made(spark, database)
    output.prepare(COLUMNS)
    written = batch_of(spark, ("a", 1, Decimal("1.50")))
    turned = written.select(*reversed(written.columns))
    assert output.write(turned, Batch("hourly", "q", 0))
    assert rows(database, "SELECT campaign, events, revenue FROM hourly") == [("a", 1, Decimal("1.50"))]


def test_a_large_batch_comes_in_whole_a_portion_at_a_time(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PORTION_ROWS", 700)
    output = made(spark, database)
    output.prepare(COLUMNS)
    expressions = (
        f"timestamp '{START:%Y-%m-%d %H:%M:%S}' AS window_start",
        f"timestamp '{END:%Y-%m-%d %H:%M:%S}' AS window_end",
        "string(id) AS campaign",
        "id AS events",
        "decimal(id) / 100 AS revenue",
    )
    many = spark.range(10_000).selectExpr(*expressions)
    assert output.write(many, Batch("hourly", "q", 0))
    found = rows(database, "SELECT count(*), count(DISTINCT campaign), sum(events), sum(revenue) FROM hourly")
    assert found == [(10_000, 10_000, Decimal(49_995_000), Decimal("499950.00"))]


def test_a_batch_is_computed_once_however_often_it_is_tried(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is a replay: Spark's state moves by being computed."""
    output = made(spark, database)
    output.prepare(COLUMNS)
    computed = spark.sparkContext.accumulator(0)

    def counting(value: int) -> int:
        computed.add(1)
        return value

    counted = sql.udf(counting, "bigint")
    tries: list[int] = []

    def cut_first(connection: Any, *arguments: Any) -> bool:
        tries.append(1)
        written = write_batch(connection, *arguments)
        if len(tries) == 1:
            connection.close()
            connection.execute("SELECT 1")
        return written

    monkeypatch.setattr(module, "write_batch", cut_first)
    written = batch_of(spark, ("a", 1, Decimal(0)), ("b", 2, Decimal(0)))
    assert output.write(written.withColumn("events", counted("events")), Batch("hourly", "q", 0))
    assert (len(tries), computed.value) == (2, 2)
    assert not output.write(written.withColumn("events", counted("events")), Batch("hourly", "q", 0))
    assert (len(tries), computed.value) == (3, 4)
    assert rows(database, "SELECT campaign, events FROM hourly ORDER BY 1") == [("a", 1), ("b", 2)]


def test_texts_with_the_one_character_that_postgresql_lacks_stay_apart(
    spark: SparkSession, database: str
) -> None:
    output = made(spark, database)
    output.prepare(COLUMNS)
    texts = ["a\0", "a", "a␀0", "a␀", "\0\0", "␀", ""]
    written = batch_of(spark, *((text, number, Decimal(0)) for number, text in enumerate(texts)))
    assert output.write(written, Batch("hourly", "q", 0))
    assert rows(database, "SELECT campaign, events FROM hourly ORDER BY events") == [
        (storable(text), number) for number, text in enumerate(texts)
    ]
    assert len({storable(text) for text in texts}) == len(texts)


def test_a_value_that_the_table_cannot_hold_ends_the_query_and_changes_nothing(
    spark: SparkSession, database: str
) -> None:
    """A group of more than 2,700 bytes that do not compress fits no index."""
    output = made(spark, database)
    output.prepare(COLUMNS)
    long = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(3_000))
    with pytest.raises(StopError, match=r"refuses batch 0: index row .* \(54000\); a group's text is too long"):
        output.write(batch_of(spark, ("a", 1, Decimal(0)), (long, 1, Decimal(0))), Batch("hourly", "q", 0))
    assert rows(database, "SELECT count(*) FROM hourly") == [(0,)]
    assert rows(database, "SELECT count(*) FROM seqmark_progress") == [(0,)]


def test_a_stream_writes_each_batch_under_its_querys_id_and_a_new_start_goes_on(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    schema = "occurred timestamp, campaign string"
    ids = []
    for number in range(3):
        (source / f"{number}.csv").write_text("2026-01-05 07:30:00Z,a\n2026-01-05 07:59:00Z,b\n" * (number + 1))
        output = made(spark, database)
        output.prepare(COLUMNS)
        events = spark.readStream.schema(schema).csv(str(source))
        window = sql.window("occurred", "1 hour")
        counted = events.groupBy(window, "campaign").count()
        named = counted.selectExpr(
            "window.start AS window_start",
            "window.end AS window_end",
            "campaign",
            "count AS events",
            "decimal(0) AS revenue",
        )
        writer = named.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
        query = output.start(writer.trigger(availableNow=True))
        assert query.awaitTermination(120)
        ids.append(query.id)
        progress = rows(database, "SELECT query, batch_id FROM seqmark_progress")
        assert progress == [(ids[0], number)]
    found = rows(database, "SELECT window_start, window_end, campaign, events FROM hourly ORDER BY campaign")
    assert found == [(START, END, "a", 6), (START, END, "b", 6)]
