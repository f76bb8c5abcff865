"""Reads back what the aggregates have written and the worker has passed on, for the report.

One Spark for all of them, started only if an output needs it: Parquet is read by Spark's own log of finished
batches, a topic by the newest record of each key. A table of PostgreSQL is asked in its own SQL. What cannot be
read becomes a sentence of its part; the other parts are read all the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType

from processor.errors import SeqmarkError
from schemas.config import (
    ConsoleOutput,
    DeltaOutput,
    FolderOutput,
    IcebergOutput,
    KafkaOutput,
    ParquetOutput,
    PostgresOutput,
)
from schemas.config.values import duration_words
from schemas.event import EventModel, EventModelError, aggregate_columns
from spark_sink.query.sources import read_topic
from spark_sink.reading.summarise import POSTGRES, SPARK, Summarising
from spark_sink.reading.summary import SinkPart
from spark_sink.session import LAKES, spark_session
from spark_sink.values.schema import output_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka, Settings, Sink
    from spark_sink.reading.summary import SinkSummary, Value

_VIEW = "seqmark_output"
_PATIENCE_S = 10.0
"""A person waits for the page."""


def read_sinks(settings: Settings, *, say: Callable[[str], None] = lambda _: None) -> list[SinkPart]:
    """Return a part for each aggregate of the config, in order; never raises for one that cannot be read."""
    with ExitStack() as open_:
        opened: list[SparkSession] = []

        def spark() -> SparkSession:
            if not opened:
                lakes = {each.output.kind for each in settings.aggregates} & LAKES.keys()
                opened.append(open_.enter_context(spark_session("seqmark-report", lakes=lakes, say=say)))
            return opened[0]

        return [_part(settings.kafka, sink, spark, say) for sink in settings.aggregates]


def window_words(sink: Sink) -> str:
    """Say how an aggregate's windows are cut."""
    if sink.session_gap is not None:
        words = f"sessions that end after {duration_words(sink.session_gap)} of silence"
    else:
        words = f"windows of {duration_words(sink.window or 0)}"
    if sink.slide is not None:
        words += f", one each {duration_words(sink.slide)}"
    return f"{words}, events up to {duration_words(sink.watermark)} late"


def output_words(sink: Sink) -> str:
    """Say where an aggregate writes, without secrets."""
    match sink.output:
        case ParquetOutput(path=path):
            return f"Parquet files in {path}"
        case DeltaOutput(path=path):
            return f"Delta table {path}"
        case IcebergOutput(path=path):
            return f"Iceberg table {path}"
        case PostgresOutput(table=table):
            return f"PostgreSQL table {table}"
        case KafkaOutput(topic=topic):
            return f"topic {topic}"
        case ConsoleOutput():
            return "the terminal"


def _finality(sink: Sink) -> str:
    """Say which windows are there, and whether they may still change."""
    passed = f"when its end is {duration_words(sink.watermark)} behind the newest event"
    if isinstance(sink.output, FolderOutput) or sink.session_gap is not None:
        return f"A window is written once, {passed}: what is here is final, and open windows are not here yet."
    return f"The newest windows may still change: a window is final {passed}."


def _part(kafka: Kafka, sink: Sink, spark: Callable[[], SparkSession], say: Callable[[str], None]) -> SinkPart:
    summary: SinkSummary | None = None
    notes: list[str] = []
    problems: list[str] = []
    try:
        match sink.output:
            case ParquetOutput() | DeltaOutput() | IcebergOutput() if not _written(sink.output):
                notes.append("Nothing has been written there yet.")
            case ParquetOutput() | DeltaOutput() | IcebergOutput() | KafkaOutput():
                rows = _rows(spark(), kafka, sink)
                summary = None if rows is None else _with_spark(spark(), rows, sink)
                notes.append(_finality(sink))
            case PostgresOutput():
                summary = _with_postgres(sink, sink.output, say)
                notes.append(_finality(sink))
            case ConsoleOutput():
                notes.append("What went to the terminal cannot be read back.")
    except (PySparkException, Py4JError) as error:
        problems.append(f"Spark cannot read it: {_reason(error)}")
    except (SeqmarkError, EventModelError) as error:
        problems.append(f"It cannot be read: {error}")
    return SinkPart(
        sink.name, sink.topic, window_words(sink), output_words(sink), summary, tuple(notes), tuple(problems)
    )


_LOGS = {"parquet": "_spark_metadata", "delta": "_delta_log", "iceberg": "metadata"}


def _written(output: FolderOutput) -> bool:
    return Path(output.path, _LOGS[output.kind]).is_dir() or "://" in output.path


def _rows(spark: SparkSession, kafka: Kafka, sink: Sink) -> DataFrame | None:
    """Return what Spark can read of an output; None where nothing is there, or is not Spark's to read."""
    match sink.output:
        case DeltaOutput() | IcebergOutput() if _written(sink.output):
            path = sink.output.path
            # An Iceberg table by its path and one in a catalog are told apart by the slash.
            place = path if "://" in path else str(Path(path).absolute())
            return spark.read.format(sink.output.kind).load(place)
        case ParquetOutput(path=path) if _written(sink.output):
            return spark.read.schema(_schema(sink)).parquet(path)
        case KafkaOutput(topic=topic):
            return _newest(spark, kafka, topic, sink)
        case _:
            return None


def _with_spark(spark: SparkSession, rows: DataFrame, sink: Sink) -> SinkSummary:
    rows.createOrReplaceTempView(_VIEW)

    def query(statement: str, values: Sequence[Value]) -> list[tuple[Value, ...]]:
        # What is collected is bounded by the statement.
        return [tuple(row) for row in spark.sql(statement, args=list(values)).collect()]

    try:
        return Summarising(sink, _VIEW, SPARK, query).summary()
    finally:
        spark.catalog.dropTempView(_VIEW)


def _schema(sink: Sink) -> StructType:
    """Return the columns of an output; any may be null: it may be older than the model of today.

    Spark believes a schema that says otherwise, and fails at the first null.
    """
    schema = output_schema(aggregate_columns(sink, EventModel.load(sink.event)))
    return StructType([StructField(each.name, each.dataType, nullable=True) for each in schema.fields])


def _newest(spark: SparkSession, kafka: Kafka, topic: str, sink: Sink) -> DataFrame:
    """Return the newest row of each key; a compacted topic may still hold older ones."""
    newest = read_topic(spark, kafka, topic).groupBy("key").agg(sql.max_by("value", "offset").alias("value"))
    parsed = sql.from_json(sql.col("value").cast("string"), _schema(sink), {"mode": "FAILFAST"})
    return newest.where("value IS NOT NULL").select(parsed.alias("row")).select("row.*")


def _with_postgres(sink: Sink, output: PostgresOutput, say: Callable[[str], None]) -> SinkSummary:
    # psycopg is needed by those who write to PostgreSQL only.
    from spark_sink.outputs.postgres.server import Connection, Server  # noqa: PLC0415 - see above

    server = Server(output.url, sink.name, say, patience_s=_PATIENCE_S)
    table = ".".join(map(POSTGRES.name, output.table.split(".")))

    def work(connection: Connection) -> SinkSummary:
        connection.execute("SET TRANSACTION READ ONLY")

        def query(statement: str, values: Sequence[Value]) -> list[tuple[Value, ...]]:
            return connection.execute(statement.encode(), list(values)).fetchall()

        return Summarising(sink, table, POSTGRES, query).summary()

    return server.transact("the report's questions", work, at_start=True)


def _reason(error: Exception) -> str:
    """Return what went wrong at the bottom: Spark's own first line often only says that a call failed."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1 if causes else 0].strip()
