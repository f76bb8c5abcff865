"""Prints each batch's rows on standard output, as JSON lines.

At least once: after a crash a batch may be printed again. For looking, not for building upon.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark_sink.outputs.kafka import JSON_OPTIONS, plain
from spark_sink.outputs.output import each_batch, mode_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.outputs.output import OutputPlace


class Terminal:
    """Standard output."""

    def __init__(self, place: OutputPlace) -> None:
        self.mode = mode_of(place.sink)
        self._place = place
        self._name = place.sink.name

    def prepare(self, columns: Sequence[Column]) -> None:
        """Nothing is needed."""
        del columns

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query."""
        return each_batch(self._place, writer, self._print)

    def _print(self, rows: DataFrame, batch: int) -> None:
        head = sql.struct(sql.lit(self._name).alias("sink"), sql.lit(batch).alias("batch"), *plain(rows))
        # A partition at a time: a batch need not fit into this process.
        for row in rows.select(sql.to_json(head, JSON_OPTIONS).alias("line")).toLocalIterator():
            sys.stdout.write(f"{row['line']}\n")
        sys.stdout.flush()
