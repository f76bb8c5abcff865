"""Looks for rows of a table by partition and offset, and deletes them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr

from processor.errors import StopError
from spark_sink.batch.lake.apply.tables import quoted
from spark_sink.batch.lake.jvm import LakeError, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from spark_sink.batch.lake.apply.tables import PositionedTable

_WHOLE_NUMBERS = ("byte", "short", "integer", "long")
_TRIES = 5
"""A delete is tried again where another program has changed the same files meanwhile: a compaction, mostly."""


class PositionColumns(NamedTuple):
    """Columns of a table.

    Attributes:
        partition: Has the partition of the raw topic.
        offset: Has the offset in it.
        topic: Has its name; None: all rows are of one topic.
    """

    partition: str
    offset: str
    topic: str | None


class FoundRows(NamedTuple):
    """Rows of one partition.

    Attributes:
        highest: The highest offset of those that were looked at.
        skipped: How many of them the verdicts skip.
    """

    highest: int
    skipped: int


class PositionRows:
    """The rows of a table that come from one topic.

    Raises:
        StopError: It lacks a column, or has one of another type.
    """

    def __init__(
        self, spark: SparkSession, table: PositionedTable, topic: str, columns: Mapping[str, str]
    ) -> None:
        self._spark, self._table = spark, table
        self.columns = self._chosen(columns)
        # Names of topics have letters, digits, '.', '_' and '-'.
        self._of_topic = [] if self.columns.topic is None else [f"t.{quoted(self.columns.topic)} = '{topic}'"]
        self._offset = f"t.{quoted(self.columns.offset)}"
        self._partition = f"t.{quoted(self.columns.partition)}"

    def _chosen(self, columns: Mapping[str, str]) -> PositionColumns:
        with _refused(self._table.given):
            fields = self._spark.table(self._table.sql).schema.fields
        types = {each.name: each.dataType.typeName() for each in fields}
        topic = columns.get("topic")
        if topic is None and types.get("topic") == "string":
            topic = "topic"
        chosen = PositionColumns(columns.get("partition", "partition"), columns.get("offset", "offset"), topic)
        for key, name, right in (
            ("partition", chosen.partition, _WHOLE_NUMBERS),
            ("offset", chosen.offset, _WHOLE_NUMBERS),
            ("topic", chosen.topic, ("string",)),
        ):
            if name is not None and types.get(name) not in right:
                what = "has no column" if name not in types else f"has {types[name]} in column"
                raise StopError(
                    f"table {self._table.given} {what} {name}: which one has the {key} of the raw topic? Say "
                    f"so with --columns {key}=NAME; it has {', '.join(sorted(types))}"
                )
        return chosen

    def look(
        self, partitions: NDArray[np.int32], offsets: NDArray[np.int64], lows: Mapping[int, int]
    ) -> dict[int, FoundRows]:
        """Return what there is from some offsets on.

        Args:
            partitions: int32[n], of the positions that the verdicts skip.
            offsets: int64[n], their offsets; each position is there once.
            lows: By partition, the first offset that is looked at.
        """
        where = " AND ".join([f"{self._offset} >= {min(lows.values())}", *self._of_topic])
        with self._skips(partitions, offsets) as skips, _refused(self._table.given):
            there = self._spark.table(self._table.sql).alias("t").where(where)
            place = f"CAST({self._partition} AS INT) AS p", f"CAST({self._offset} AS BIGINT) AS o"
            joined = there.selectExpr(*place).join(
                self._spark.table(skips), expr("p = seqmark_partition AND o = seqmark_offset"), "left"
            )
            rows = joined.groupBy("p").agg(expr("max(o)"), expr("count(seqmark_offset)")).collect()
        return {number: FoundRows(*found) for number, *found in rows if number in lows}

    def delete(self, partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Delete rows by position, in one commit of the table.

        Raises:
            StopError: The table refuses, or others have changed it again and again.
        """
        # Bounds beside the positions: files and commits of others that lie outside are left alone.
        where = " AND ".join(
            [
                f"{self._partition} = s.seqmark_partition AND {self._offset} = s.seqmark_offset",
                f"{self._offset} >= {int(offsets.min())} AND {self._offset} <= {int(offsets.max())}",
                *self._of_topic,
            ]
        )
        with self._skips(partitions, offsets) as skips:
            command = f"MERGE INTO {self._table.sql} t USING {skips} s ON {where} WHEN MATCHED THEN DELETE"
            for left in reversed(range(_TRIES)):
                try:
                    with translated():
                        self._spark.sql(command).collect()
                except LakeError as error:
                    if not error.conflict:
                        raise StopError(
                            f"table {self._table.given} refuses the delete ({error}): run the same command "
                            "again"
                        ) from error
                    if not left:
                        raise StopError(
                            f"other programs change {self._table.given} again and again meanwhile ({error}): "
                            "run the same command again"
                        ) from error
                else:
                    return

    @contextmanager
    def _skips(self, partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> Iterator[str]:
        """Give positions to SQL, as a view."""
        name = f"seqmark_skips_{os.urandom(8).hex()}"
        columns = {"seqmark_partition": partitions, "seqmark_offset": offsets}
        self._spark.createDataFrame(pa.table(columns)).createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._spark.catalog.dropTempView(name)


@contextmanager
def _refused(table: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise StopError(f"table {table} cannot be read: {first[0]}") from error
