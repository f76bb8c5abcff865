"""Is what the report shows of a sink what its output holds? Against a plain computation of the same."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from schemas.config import Settings
from schemas.event import EventModel, aggregate_columns
from spark_sink.outputs.kafka import keyed
from spark_sink.outputs.parquet import dated
from spark_sink.query.sources import client_options
from spark_sink.reading.read_back import output_words, read_sinks
from spark_sink.reading.summary import MOST_GROUPS, MOST_WINDOWS, SinkPart
from spark_sink.values.schema import output_schema
from tests.support.kafka.topics import create_topic, unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
GROUPS = 8
WINDOWS = 300


@dataclass(frozen=True)
class Made:
    """A row of an output as it is made: start of the window, group, count, sum, percentile."""

    start: datetime
    campaign: str | None
    events: int
    revenue: Decimal
    p99: Decimal

    @property
    def row(self) -> tuple[Any, ...]:
        return self.start, self.start + HOUR, self.campaign, self.events, self.revenue, self.p99


def rows() -> list[Made]:
    """Make 300 hours of eight groups, one of them null, one named to be mistaken for SQL."""
    names = ["spring", None, "'; --", *(f"c{number}" for number in range(GROUPS - 3))]
    return [
        Made(START + hour * HOUR, name, 10 * place + hour % 7, Decimal(place * hour) / 100, Decimal("1.50"))
        for hour in range(WINDOWS)
        for place, name in enumerate(names)
    ]


def settings(output: dict[str, str], bootstrap: str = "127.0.0.1:9", **sink: Any) -> Settings:
    declared = {
        "name": "hourly",
        "topic": "clicks.clean",
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "window": "1 hour",
        "watermark": "1 hour",
        "group_by": ["campaign"],
        "aggregates": {"events": "count", "revenue": "sum:amount", "p99": "p99:amount"},
        "checkpoint": "unused",
        "output": output,
        **sink,
    }
    kafka = {"bootstrap_servers": bootstrap}
    worker = {"application_id": "a", "state_dir": "unused"}
    return Settings.model_validate({"kafka": kafka, "worker": worker, "aggregates": [declared]})


def frame(spark: SparkSession, made: list[Made]) -> DataFrame:
    sink = settings({"kind": "console"}).aggregates[0]
    schema = output_schema(aggregate_columns(sink, EventModel.load(sink.event)))
    for column in schema.fields:
        column.nullable = True  # what a sink writes may be older than its model
    return spark.createDataFrame([each.row for each in made], schema)


def check(part: SinkPart, made: list[Made]) -> None:
    """Compare all that is shown with a plain computation."""
    assert part.problems == ()
    summary = part.summary
    assert summary is not None
    assert (summary.rows, summary.windows, summary.groups) == (len(made), WINDOWS, GROUPS)
    assert summary.first_ms == int(START.timestamp() * 1000)
    assert summary.last_ms == int((START + WINDOWS * HOUR).timestamp() * 1000)
    events, revenue = defaultdict[str | None, int](int), defaultdict[str | None, Decimal](Decimal)
    for each in made:
        events[each.campaign] += each.events
        revenue[each.campaign] += each.revenue
    largest = sorted(events, key=lambda name: -events[name])[:MOST_GROUPS]
    assert [(each.group, each.windows, each.totals) for each in summary.largest] == [
        ((name,), WINDOWS, (events[name], revenue[name], None)) for name in largest
    ]
    assert summary.everything is not None
    assert summary.everything.totals == (sum(events.values()), sum(revenue.values()), None)
    since = START + (WINDOWS - MOST_WINDOWS) * HOUR
    expected = {
        (int(each.start.timestamp() * 1000), each.campaign): (each.events, each.revenue, each.p99)
        for each in made
        if each.campaign in largest and each.start >= since
    }
    assert {(row.start_ms, row.group[0]): row.values for row in summary.shown} == expected
    assert len(summary.shown) == len(expected)
    assert [row.start_ms for row in summary.shown] == sorted(row.start_ms for row in summary.shown)


def write_files(spark: SparkSession, made: list[Made], folder: Path) -> Path:
    """Write as a sink does: by a query with Spark's file sink, in folders by date."""
    source, path = folder / "source", folder / "output"
    frame(spark, made).write.parquet(str(source))
    stream = spark.readStream.schema(frame(spark, []).schema).parquet(str(source))
    writer = dated(stream).writeStream.format("parquet").partitionBy("window_date")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(path))
    writer.trigger(availableNow=True).start().awaitTermination()
    return path


def test_parquet_files_are_read_as_the_log_names_them(spark: SparkSession, tmp_path: Path) -> None:
    made = rows()
    path = write_files(spark, made, tmp_path)
    # A batch that was never finished leaves files that the log does not name.
    frame(spark, made[:1]).coalesce(1).write.parquet(str(tmp_path / "left"))
    (left,) = (tmp_path / "left").glob("*.parquet")
    left.rename(path / "window_date=2026-01-05" / left.name)

    config = settings({"kind": "parquet", "path": str(path)})
    (part,) = read_sinks(config)

    check(part, made)
    assert "what is here is final, and open windows are not here yet" in part.notes[0]


def test_of_a_topic_the_newest_row_of_each_key_counts(spark: SparkSession, broker: Broker) -> None:
    made, topic = rows(), unique("aggregates")
    create_topic(broker.bootstrap_servers, topic, 2)
    config = settings({"kind": "kafka", "topic": topic}, broker.bootstrap_servers)
    older = [Made(each.start, each.campaign, 99_999, Decimal("0.01"), each.p99) for each in made]
    for version in (older, made):
        records = keyed(frame(spark, version), ["window_start", "window_end", "campaign"])
        writer = records.write.format("kafka").option("topic", topic)
        for name, value in client_options(config.kafka).items():
            writer = writer.option(f"kafka.{name}", value)
        writer.save()

    (part,) = read_sinks(config)

    check(part, made)
    assert "The newest windows may still change" in part.notes[0]


@pytest.mark.usefixtures("spark")
def test_windows_that_overlap_are_not_summed(spark: SparkSession, tmp_path: Path) -> None:
    path = write_files(spark, rows(), tmp_path)

    (part,) = read_sinks(settings({"kind": "parquet", "path": str(path)}, slide="30 minutes"))

    assert part.summary is not None
    assert {each.totals for each in part.summary.largest} == {(None, None, None)}
    assert part.summary.largest[0].group == ("c4",)  # by events all the same


@pytest.mark.usefixtures("spark")
def test_an_output_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    (part,) = read_sinks(settings({"kind": "parquet", "path": str(tmp_path / "none")}))

    assert part.summary is None
    assert part.notes == ("Nothing has been written there yet.",)
    assert part.problems == ()


def test_what_cannot_be_read_is_a_problem_of_its_part_only(spark: SparkSession, tmp_path: Path) -> None:
    path = write_files(spark, rows(), tmp_path)
    for file in path.rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    broken = settings({"kind": "parquet", "path": str(path)})
    console = settings({"kind": "console"}, name="look")
    config = broken.model_copy(update={"aggregates": [*broken.aggregates, *console.aggregates]})

    first, second = read_sinks(config)

    assert first.problems
    assert first.problems[0].startswith("Spark cannot read it: ")
    assert "is not a Parquet file" in first.problems[0]
    assert "\n" not in first.problems[0]
    assert second.notes == ("What went to the terminal cannot be read back.",)


def test_where_a_sink_writes_is_told_without_its_secret() -> None:
    url = "postgresql://seqmark:s3cret@db/x"
    sink = settings({"kind": "postgres", "url": url, "table": "hourly"}).aggregates[0]

    assert output_words(sink) == "PostgreSQL table hourly"
