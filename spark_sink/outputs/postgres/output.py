"""Turns a batch of Spark's into rows for PostgreSQL, within bounds and computed once.

1. The batch is computed once and kept where Spark keeps it, on disk where memory ends. A second attempt, after
   the database was away, reads what is kept: computing again would count late rows twice in Spark's progress.
2. The rows are dealt out in portions of at most `PORTION_ROWS`, and this process fetches a portion at a time:
   what it holds does not grow with the batch.
3. One transaction takes them all (`spark_sink.outputs.postgres.batch`).

A batch that the table has already is computed all the same: Spark's state and watermark move by that.

Exactly once: a batch and the number of the last batch are in one transaction, and Spark repeats a batch until
it stands in the commit log. So a crash at any point leaves either nothing of a batch or all of it, and what is
repeated is recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from processor.errors import ConfigError, Problem
from schemas.config import PostgresOutput
from schemas.event import (
    BoolType,
    DateType,
    DecimalType,
    FieldType,
    FloatType,
    IntType,
    TextType,
    TimestampType,
)
from spark_sink.outputs.output import each_batch, mode_of, query_of
from spark_sink.outputs.postgres.batch import INSTANT, Batch, write_batch
from spark_sink.outputs.postgres.server import Server
from spark_sink.outputs.postgres.table import LONGEST_NAME_BYTES, Field, ensure, split_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.outputs.output import OutputPlace
    from spark_sink.outputs.postgres.table import Target

PORTION_ROWS = 50_000
"""At about 200 bytes per row 10 MB, in the JVM and again here; a portion costs a Spark job of about 20 ms."""
# PostgreSQL's text holds every character but U+0000. The sign for it stands in, and doubled for itself, so that
# texts that differ stay different: they may be groups.
_NUL, _SIGN = "\0", "␀"


class PostgresTable:
    """A table with a row per window and group."""

    def __init__(self, place: OutputPlace) -> None:
        sink = place.sink
        output = sink.output
        if not isinstance(output, PostgresOutput):
            raise TypeError(output.kind)
        self.mode = mode_of(sink)
        self._place = place
        self._sink = sink.name
        self._aggregates = frozenset(sink.aggregates)
        try:
            self._schema, self._table = split_name(output.table)
        except ValueError as error:
            raise ConfigError([Problem(f"aggregates.{sink.name}.output.table", str(error))]) from None
        self._server = Server(output.url, sink.name, place.say, stopping=place.stopping)
        self._target: Target | None = None

    def prepare(self, columns: Sequence[Column]) -> None:
        """Create the table and that of progress where they are missing, and check them where they are not.

        Raises:
            ConfigError: A column's name is longer than PostgreSQL takes.
            StopError: A table is there and differs, or the database refuses or is away for too long.
        """
        fields = [
            Field(
                column.name,
                sql_type(column.type),
                nullable=column.nullable,
                in_key=column.name not in self._aggregates,
            )
            for column in columns
        ]
        long = [field.name for field in fields if len(field.name.encode()) > LONGEST_NAME_BYTES]
        if long:
            limit = f"is too long for a column of PostgreSQL, which takes {LONGEST_NAME_BYTES} bytes"
            raise ConfigError([Problem(f"aggregates.{self._sink}", f"{name} {limit}") for name in long])
        self._target = self._server.transact(
            f"table {self._table}",
            lambda connection: ensure(connection, self._schema, self._table, fields),
            at_start=True,
        )

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query."""
        return each_batch(self._place, writer, self._write)

    def _write(self, rows: DataFrame, number: int) -> None:
        self.write(rows, Batch(self._sink, query_of(rows), number))

    def write(self, rows: DataFrame, batch: Batch) -> bool:
        """Make a batch part of the table, unless it is already; says whether it was written.

        Args:
            rows: Rows with the columns that `prepare` was given, in any order.
            batch: Which batch of which query.

        Raises:
            StopError: Checkpoint and table do not belong together, or the database refuses or is away for too
                long.
        """
        target = self._target
        if target is None:
            raise RuntimeError("prepare comes first")
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count = kept.count()
            return self._server.transact(
                f"batch {batch.number}",
                lambda connection: write_batch(connection, target, batch, _portions(kept, target, count)),
            )
        finally:
            kept.unpersist()


def sql_type(kind: FieldType) -> str:
    """Return the type of a column in PostgreSQL, as its `format_type` writes it."""
    match kind:
        case DecimalType(precision=precision, scale=scale):
            return f"numeric({precision},{scale})"
        case TimestampType(zone="none"):
            return "timestamp without time zone"
        case _:
            return _TYPES[type(kind)]


# Lists, dicts and objects are no columns of an aggregate: `seqmark check` refuses them.
_TYPES: Mapping[type[FieldType], str] = {
    TextType: "text",
    BoolType: "boolean",
    IntType: "bigint",
    FloatType: "double precision",
    TimestampType: INSTANT,
    DateType: "date",
}


def _portions(kept: DataFrame, target: Target, count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as `write_batch` takes them, fetched a portion at a time."""
    columns = [
        sql.unix_micros(sql.col(f"`{field.name}`")) if field.type == INSTANT else sql.col(f"`{field.name}`")
        for field in target.fields
    ]
    texts = [index for index, field in enumerate(target.fields) if field.type == "text"]
    portions = -(-count // PORTION_ROWS)
    chosen = kept.select(*columns)
    # One portion needs no shuffle, only one job instead of one per partition.
    dealt = chosen.repartition(portions) if portions > 1 else chosen.coalesce(1)
    for row in dealt.toLocalIterator():
        values = list(row)
        for index in texts:
            values[index] = storable(values[index])
        yield tuple(values)


def storable(text: str | None) -> str | None:
    """Return a text that PostgreSQL can hold: ``␀0`` for U+0000, and ``␀␀`` for the sign ``␀`` itself."""
    if text is None or (_NUL not in text and _SIGN not in text):
        return text
    return text.replace(_SIGN, _SIGN * 2).replace(_NUL, f"{_SIGN}0")
