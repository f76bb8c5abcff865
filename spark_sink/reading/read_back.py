"""Reads back what the aggregates have written and the worker has passed on, for the report.

One Spark for all of them, started only if an output needs it: Parquet is read by Spark's own log of finished
batches, a topic by the newest record of each key. A table of PostgreSQL is asked in its own SQL. What cannot be
read becomes a sentence of its part; the other parts are read all the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from schemas.config.aggregates import aggregate_call, output_column
from schemas.config.values import duration_words
from schemas.event import EventModel, EventModelError, aggregate_columns
from spark_sink.query.sources import read_topic
from spark_sink.reading.summary import MOST_GROUPS, MOST_WINDOWS, Group, SinkPart, SinkSummary, SummaryRow
from spark_sink.session import LAKES, spark_session
from spark_sink.values.schema import output_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka, Settings, Sink
    from spark_sink.reading.summary import Value

# Nothing that grows with the output comes to this process: counts, a few groups, and the rows of those in
# the newest windows.


class Dialect(NamedTuple):
    """What differs between the two."""

    quote: str
    """Around a name; doubled inside it."""
    milliseconds: str
    """Of a timestamp ``{}``, since 1970."""
    mark: str
    """Where a value goes."""

    def name(self, name: str) -> str:
        """Return a name as SQL has it."""
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def time(self, name: str) -> str:
        """Return a timestamp column in milliseconds."""
        return self.milliseconds.format(self.name(name))


SPARK = Dialect("`", "unix_millis({})", "?")
POSTGRES = Dialect('"', "floor(extract(epoch from {}) * 1000)::bigint", "%s")


class Summarising:
    """Sums one output up.

    Args:
        sink: What made it.
        table: It, as SQL has it.
        dialect: How SQL is written there.
        query: Runs one statement with its values, and returns its rows.
    """

    def __init__(
        self,
        sink: Sink,
        table: str,
        dialect: Dialect,
        query: Callable[[str, Sequence[Value]], list[tuple[Value, ...]]],
    ) -> None:
        self._table = table
        self._dialect = dialect
        self._query = query
        self._group_by = tuple(output_column(path) for path in sink.group_by)
        self._aggregates = tuple(sink.aggregates)
        calls = [aggregate_call(text).function for text in sink.aggregates.values()]
        # Windows that overlap count an event several times: their sum is no count of anything.
        apart = sink.slide is None
        self._summed = [apart and function in {"count", "sum"} for function in calls]
        self._rank = next((place for place, function in enumerate(calls) if function in {"count", "sum"}), None)

    def summary(self) -> SinkSummary:
        """Return it; each statement reads the output once."""
        rows, windows, first, last = self._query(
            f"SELECT count(*), count(DISTINCT {self._dialect.name('window_start')}), "  # noqa: S608 - names are quoted
            f"min({self._dialect.time('window_start')}), max({self._dialect.time('window_end')}) "
            f"FROM {self._table}",
            (),
        )[0]
        if not rows:
            return SinkSummary(self._group_by, self._aggregates)
        largest = self._groups()
        everything = self._group(self._query(self._totals([]), ())[0], 0)
        return SinkSummary(
            self._group_by,
            self._aggregates,
            rows=_whole(rows),
            windows=_whole(windows),
            groups=self._count_groups(),
            first_ms=_whole(first),
            last_ms=_whole(last),
            everything=everything,
            largest=largest,
            shown=self._rows(largest),
        )

    def _totals(self, keys: list[str]) -> str:
        columns = [*keys, "count(*)"]
        for place, name in enumerate(self._aggregates):
            if self._summed[place] or place == self._rank:
                columns.append(f"sum({self._dialect.name(name)})")
        return f"SELECT {', '.join(columns)} FROM {self._table}"  # noqa: S608 - names are quoted

    def _groups(self) -> tuple[Group, ...]:
        keys = [self._dialect.name(name) for name in self._group_by]
        if not keys:
            return (self._group(self._query(self._totals([]), ())[0], 0),)
        rank = "count(*)" if self._rank is None else f"sum({self._dialect.name(self._aggregates[self._rank])})"
        order = ", ".join([f"{rank} DESC NULLS LAST", *keys])
        found = self._query(
            f"{self._totals(keys)} GROUP BY {', '.join(keys)} ORDER BY {order} LIMIT {MOST_GROUPS}", ()
        )
        return tuple(self._group(row, len(keys)) for row in found)

    def _group(self, row: tuple[Value, ...], keys: int) -> Group:
        sums = iter(row[keys + 1 :])
        totals: list[Value] = []
        for place in range(len(self._aggregates)):
            found = next(sums) if self._summed[place] or place == self._rank else None
            totals.append(found if self._summed[place] else None)
        return Group(row[:keys], _whole(row[keys]), tuple(totals))

    def _count_groups(self) -> int:
        if not self._group_by:
            return 1
        keys = ", ".join(map(self._dialect.name, self._group_by))
        inner = f"SELECT DISTINCT {keys} FROM {self._table}"  # noqa: S608 - names are quoted
        return _whole(self._query(f"SELECT count(*) FROM ({inner}) AS found", ())[0][0])  # noqa: S608 - likewise

    def _rows(self, largest: Sequence[Group]) -> tuple[SummaryRow, ...]:
        start = self._dialect.time("window_start")
        newest = self._query(
            f"SELECT DISTINCT {start} AS began FROM {self._table} ORDER BY began DESC LIMIT {MOST_WINDOWS}",  # noqa: S608 - likewise
            (),
        )
        columns = [start, self._dialect.time("window_end")]
        columns += [self._dialect.name(name) for name in (*self._group_by, *self._aggregates)]
        values: list[Value] = [newest[-1][0]]
        where = f"{start} >= {self._dialect.mark}"
        if self._group_by:
            each = []
            for group in largest:
                same = [
                    self._same(name, value, values)
                    for name, value in zip(self._group_by, group.group, strict=True)
                ]
                each.append(f"({' AND '.join(same)})")
            where += f" AND ({' OR '.join(each)})"
        order = ", ".join(str(place + 1) for place in range(2 + len(self._group_by)))
        # A window with a group is one row, but a session's window has any start: so it is limited.
        most = MOST_WINDOWS * max(len(largest), 1)
        found = self._query(
            f"SELECT {', '.join(columns)} FROM {self._table} WHERE {where} ORDER BY {order} LIMIT {most}",  # noqa: S608 - likewise
            values,
        )
        middle = 2 + len(self._group_by)
        return tuple(SummaryRow(_whole(row[0]), _whole(row[1]), row[2:middle], row[middle:]) for row in found)

    def _same(self, name: str, value: Value, values: list[Value]) -> str:
        quoted = self._dialect.name(name)
        if value is None:
            return f"{quoted} IS NULL"
        values.append(value)
        return f"{quoted} = {self._dialect.mark}"


def _whole(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a count: {value!r}")
    return value


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
