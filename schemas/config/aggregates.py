"""One aggregate: what Spark counts and sums of a clean topic, and where that goes."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, SecretStr

from schemas.config.values import (
    ConfigTable,
    DurationMs,
    DurationOrNoneMs,
    ModelName,
    Name,
    Text,
    Topic,
    WholeNumber,
    duration_text,
    wrong,
)

_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://")
_COLUMN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_AGGREGATE = re.compile(
    r"(?P<count>count)|(?:(?P<function>sum|min|max|avg|approx_count_distinct)"
    r"|p(?P<percent>[0-9]{1,3}(?:\.[0-9]{1,6})?)):(?P<column>[^\s:]+)",
    re.ASCII,
)
# Spark counts microseconds in 64 bits: a time and some of these stay far below 2^63 = 9.2e18 (6e17 each).
_MOST_SPARK_MS = 999_999 * 7 * 86_400_000

AggregateFunction = Literal["count", "sum", "min", "max", "avg", "approx_count_distinct", "percentile"]


class AggregateCall(NamedTuple):
    """One aggregate, taken apart."""

    function: AggregateFunction
    column: str
    """Path into the event; empty for ``count``."""
    percent: float
    """Of a percentile, 0 to 100; 0 for all others."""


def _renames_at_once(value: str) -> str:
    scheme = _SCHEME.match(value)
    if scheme and scheme[1].lower() not in {"file", "hdfs"}:
        raise wrong(
            "must be a folder of this machine, of a shared file system, or of hdfs://: an Iceberg table "
            "without a catalog rests on files that are renamed in one step, which object stores do not have"
        )
    return value


def _for_spark(value_ms: int) -> int:
    if value_ms > _MOST_SPARK_MS:
        raise wrong(f'is too long: must be at most "{duration_text(_MOST_SPARK_MS)}"')
    return value_ms


def _aggregate(value: str) -> str:
    match = _AGGREGATE.fullmatch(value)
    if not match or float(match["percent"] or 0) > 100:
        raise wrong(
            'must be "count" or FUNCTION:COLUMN with sum, min, max, avg, approx_count_distinct or a percentile '
            "such as p50 or p99.9"
        )
    return value


def _column(value: Any) -> Any:
    if not isinstance(value, str) or not _COLUMN.fullmatch(value):
        raise wrong("must be a name of letters, digits and _ that does not begin with a digit")
    return value


def aggregate_call(aggregate: str) -> AggregateCall:
    """Take an aggregate such as ``sum:amount`` apart.

    Raises:
        ValueError: The text is no aggregate; those of a `Sink` always are.
    """
    match = _AGGREGATE.fullmatch(aggregate)
    if match is None:
        raise ValueError(f"not an aggregate: {aggregate}")
    if match["count"]:
        return AggregateCall("count", "", 0)
    if match["percent"]:
        return AggregateCall("percentile", match["column"], float(match["percent"]))
    functions: dict[str, AggregateFunction] = {
        "sum": "sum",
        "min": "min",
        "max": "max",
        "avg": "avg",
        "approx_count_distinct": "approx_count_distinct",
    }
    return AggregateCall(functions[match["function"]], match["column"], 0)


def default_aside(checkpoint: str) -> str:
    """Return the folder for what is written aside, where none is named."""
    return checkpoint.rstrip("/") + "-aside"


def output_column(path: str) -> str:
    """Return what a grouped column is called in the output: ``user.country`` is ``user_country``."""
    return path.replace(".", "_")


SparkDurationMs = Annotated[DurationMs, AfterValidator(_for_spark)]
SparkDurationOrNoneMs = Annotated[DurationOrNoneMs, AfterValidator(_for_spark)]
Aggregate = Annotated[str, AfterValidator(_aggregate)]
Column = Annotated[str, AfterValidator(_column)]


class ParquetOutput(ConfigTable):
    """Files."""

    kind: Literal["parquet"] = Field(description="Parquet files.")
    path: Text = Field(description="Folder that they are written to.")


class DeltaOutput(ConfigTable):
    """A Delta table."""

    kind: Literal["delta"] = Field(description="A Delta table.")
    path: Text = Field(description="Folder of the table.")


class IcebergOutput(ConfigTable):
    """An Iceberg table without a catalog."""

    kind: Literal["iceberg"] = Field(description="An Iceberg table.")
    path: Annotated[Text, AfterValidator(_renames_at_once)] = Field(
        description="Folder of the table; no object store, for there is no catalog."
    )


class PostgresOutput(ConfigTable):
    """A PostgreSQL table."""

    kind: Literal["postgres"] = Field(description="A PostgreSQL table.")
    url: SecretStr = Field(
        description="Connection URL; never printed. Better in the environment than in a file."
    )
    table: Text = Field(description="Table that is written.")


class KafkaOutput(ConfigTable):
    """A Kafka topic."""

    kind: Literal["kafka"] = Field(description="A Kafka topic.")
    topic: Topic = Field(description="Topic that is written.")


class ConsoleOutput(ConfigTable):
    """The terminal."""

    kind: Literal["console"] = Field(description="The terminal.")


FolderOutput = ParquetOutput | DeltaOutput | IcebergOutput
"""Outputs that are folders of files."""
Output = FolderOutput | PostgresOutput | KafkaOutput | ConsoleOutput


class Sink(ConfigTable):
    """An element of ``[[aggregates]]``: one Spark query."""

    name: Name = Field(description="Its name.")
    topic: Topic = Field(
        description="The clean topic that it reads, read_committed; with `verdicts` the source of its pipeline."
    )
    verdicts: Topic | None = Field(
        default=None,
        description="The topic of verdicts of the pipeline whose source `topic` is: what they skip is not "
        'read. Needed where that pipeline has `output = "verdicts"`.',
    )
    event: ModelName = Field(
        description="The pydantic model that the values follow, MODULE:CLASS; looked for in the installed "
        "packages, on PYTHONPATH and in the working folder."
    )
    time_field: Text = Field(
        description="The event's field with its time; inside an object: `order.placed_at`."
    )
    window: SparkDurationMs | None = Field(
        default=None,
        description='Width of an aggregate\'s window, such as "1h". Either this or `session_gap`.',
    )
    slide: SparkDurationMs | None = Field(
        default=None,
        description="How far one window begins after another, so that they overlap; not set: they do not.",
    )
    session_gap: SparkDurationMs | None = Field(
        default=None,
        description="Windows of sessions: one ends when its group was silent for so long.",
    )
    watermark: SparkDurationMs = Field(
        description="Spark's event-time watermark: how far an event's time may be behind the newest one; those "
        "that are later still are written aside."
    )
    group_by: list[Text] = Field(
        default_factory=list,
        description="Columns to group by within a window; one inside an object is `user.country` and becomes "
        "the column `user_country`.",
    )
    aggregates: Annotated[dict[Column, Aggregate], Field(min_length=1)] = Field(
        description='Column to make = "count" or "FUNCTION:COLUMN": sum, min, max, avg, approx_count_distinct, '
        "and p0 to p100 for approximate percentiles."
    )
    output: Output = Field(discriminator="kind", description="Where the aggregates go.")
    checkpoint: Text = Field(description="Folder of the query's progress; each aggregate needs its own.")
    max_offsets_per_trigger: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None,
        description="Offsets of one batch at most; not set: all there are. Batches are cut by event time, so "
        "that no partition is read further than another that has something left. An aggregate that Spark reads "
        "event by event heeds it for a topic with one partition only.",
    )
    trigger: SparkDurationOrNoneMs = Field(
        default=0, description='Time between the starts of two batches; "0s": none.'
    )
    max_ahead: SparkDurationOrNoneMs = Field(
        default=3_600_000,
        description="An event whose time is further than this ahead of its record's Kafka timestamp cannot be "
        'read: it is written aside as `ahead`, and moves no event-time watermark. "0s": never ahead.',
    )
    aside: Text | None = Field(
        default=None,
        description="Folder for events that came too late (`late/`) and records that cannot be read (`bad/`); "
        "not set: the checkpoint's path and `-aside`.",
    )

    @property
    def aside_path(self) -> str:
        """The folder for what is written aside."""
        return self.aside if self.aside is not None else default_aside(self.checkpoint)
