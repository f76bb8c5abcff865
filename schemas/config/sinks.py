"""What does Spark make of a clean topic? The declared aggregates and where they go."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from schemas.config.values import Name, Table, Text, Topic, wrong

_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_INTERVAL = re.compile(r"[0-9]+ (second|minute|hour|day|week)s?", re.ASCII)
_AGGREGATE = re.compile(r"count|(sum|min|max|avg|approx_count_distinct):[A-Za-z_][\w.]*")


def _model(value: str) -> str:
    if not _MODEL.fullmatch(value):
        raise wrong('must be MODULE:CLASS, such as "schemas.events:ClickEvent"')
    return value


def _interval(value: str) -> str:
    if not _INTERVAL.fullmatch(value):
        raise wrong('must be a number and a unit in words, such as "1 hour" or "30 minutes"')
    return value


def _aggregate(value: str) -> str:
    if not _AGGREGATE.fullmatch(value):
        raise wrong('must be "count" or FUNCTION:COLUMN with sum, min, max, avg or approx_count_distinct')
    return value


Interval = Annotated[str, AfterValidator(_interval)]
Aggregate = Annotated[str, AfterValidator(_aggregate)]


class ParquetOutput(Table):
    """Files."""

    kind: Literal["parquet"] = Field(description="Parquet files.")
    path: Text = Field(description="Folder that they are written to.")


class PostgresOutput(Table):
    """A PostgreSQL table."""

    kind: Literal["postgres"] = Field(description="A PostgreSQL table.")
    url: SecretStr = Field(
        description="Connection URL; never printed. Better in the environment than in a file."
    )
    table: Text = Field(description="Table that is written.")


class KafkaOutput(Table):
    """A Kafka topic."""

    kind: Literal["kafka"] = Field(description="A Kafka topic.")
    topic: Topic = Field(description="Topic that is written.")


class ConsoleOutput(Table):
    """The terminal."""

    kind: Literal["console"] = Field(description="The terminal.")


Output = ParquetOutput | PostgresOutput | KafkaOutput | ConsoleOutput


class Sink(Table):
    """An element of ``[[sinks]]``: one Spark query."""

    name: Name = Field(description="Its name.")
    topic: Topic = Field(description="The clean topic that it reads, read_committed.")
    event: Annotated[str, AfterValidator(_model)] = Field(
        description="The pydantic model that the values follow, MODULE:CLASS."
    )
    time_field: Text = Field(description="The event's field with its time.")
    window: Interval = Field(description='Width of an aggregate\'s window, such as "1 hour".')
    watermark: Interval = Field(description="How late an event may be.")
    group_by: list[Text] = Field(default_factory=list, description="Columns to group by within a window.")
    aggregates: Annotated[dict[str, Aggregate], Field(min_length=1)] = Field(
        description='Column to make = "count" or "FUNCTION:COLUMN".'
    )
    output: Output = Field(discriminator="kind", description="Where the aggregates go.")
    checkpoint: Text = Field(description="Folder of the query's progress; one a sink.")
