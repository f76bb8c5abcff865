"""Measures `seqmark batch` beside Spark's own way: ``python -m benchmarks.studies.rest [NEW] [OLD]``.

NEW rows (600,000) of thirty dates are made clean against OLD ones (2,400,000) that are remembered, Parquet in
and out, in one process and one warm Spark of two cores: by Seqmark, and by `dropDuplicates` and a left-anti
join on the id. The second keeps one copy of an id, whichever, knows no window, and loses events whose id
collides; it has no commit and no receipts. Then the same number of rows of one date, by Seqmark. Prints CPU
microseconds per row of the whole process tree, JVM, reading and writing included; exit code 1 where both ways
do not keep equally many.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure.processes import Tree
from processor.commands.console import say, table_on_stdout
from schemas.config import Settings
from spark_sink.batch.job import BatchJob, BatchOptions
from spark_sink.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

    from pyspark.sql import SparkSession

NEW, OLD = 600_000, 2_400_000
DAYS = 30
BATCH, JOIN = "seqmark batch", "dropDuplicates and left-anti join"
_IDS_PER_ROW = 40
"""Of the range that ids are drawn from: one in forty rows meets another."""


class _Nobody:
    """Is told how far a run is, and tells nobody."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def done(self, step: StrEnum) -> None:
        """Do nothing."""


class RestCost(NamedTuple):
    """What one way took."""

    way: str
    rows: int
    kept: int
    cpu_s: float
    wall_s: float

    def row(self) -> tuple[str, ...]:
        """Return it as a row of the table."""
        per_row = f"{self.cpu_s / self.rows * 1e6:.1f}"
        return self.way, f"{self.rows:,}", f"{self.kept:,}", per_row, f"{self.wall_s:.1f}"


def main() -> int:
    """Measure and print; return the exit code."""
    given = [int(each) for each in sys.argv[1:3]]
    new, old = [*given, *(NEW, OLD)[len(given) :]]
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-rest-") as name,
        spark_session("rest", kafka=False, say=say) as spark,
    ):
        folder = Path(name)
        rows = partial(_write, folder, (new + old) * _IDS_PER_ROW, np.random.default_rng(1))
        history = [rows(f"old-{part}.parquet", old // 4, 0, DAYS) for part in range(4)]
        dates = {"warm": (0, DAYS), "fresh": (0, DAYS), "day": (DAYS - 1, 1)}
        warm, fresh, day = (rows(f"{part}.parquet", new, *when) for part, when in dates.items())
        say(f"remembering {old:,} rows")
        batch(spark, folder, *history)
        spark.read.parquet(*history).write.parquet(str(folder / "joined" / "0"))
        ways: list[tuple[str, Callable[[], int]]] = [
            ("", lambda: batch(spark, folder, warm)),
            (BATCH, lambda: batch(spark, folder, fresh)),
            ("seqmark batch, one date of thirty", lambda: batch(spark, folder, day)),
            ("", lambda: join(spark, folder, warm)),
            (JOIN, lambda: join(spark, folder, fresh)),
        ]
        costs = [cost for way, call in ways if (cost := measured(way, new, call)).way]
    table_on_stdout(
        ("way", "rows", "kept", "CPU µs per row", "wall s"),
        [each.row() for each in costs],
        (1, 2, 3, 4),
    )
    kept = {each.way: each.kept for each in costs}
    return 0 if kept[BATCH] == kept[JOIN] else 1


def measured(way: str, rows: int, call: Callable[[], int]) -> RestCost:
    """Return what a way takes; without a name it only warms the JVM."""
    tree = Tree(os.getpid())
    before, began = tree.look(), time.perf_counter()
    kept = call()
    return RestCost(way, rows, kept, tree.look() - before, time.perf_counter() - began)


def batch(spark: SparkSession, folder: Path, *inputs: str) -> int:
    """Make files clean by Seqmark; return how many rows are kept."""
    table = {
        "name": "rest",
        "input": {"format": "parquet", "path": str(folder / "raw")},
        "output": {"format": "parquet", "path": str(folder / "clean")},
        "id": ["event_id"],
        "event_time": "occurred_at",
        "window": "180d",
    }
    made = Settings.model_validate({"batches": [table]}).batches[0]
    return BatchJob(spark, made, BatchOptions(inputs), _Nobody()).run().counts["kept"]


def join(spark: SparkSession, folder: Path, path: str) -> int:
    """Make a file clean by Spark alone; return how many rows are kept."""
    parts = folder / "joined"
    earlier = spark.read.parquet(*(str(each) for each in sorted(parts.iterdir())))
    new = spark.read.parquet(path).dropDuplicates(["event_id"])
    target = str(parts / str(len(list(parts.iterdir()))))
    new.join(earlier.select("event_id"), "event_id", "left_anti").write.parquet(target)
    return sum(pq.read_metadata(each).num_rows for each in Path(target).glob("*.parquet"))


def _write(
    folder: Path, ids: int, dice: np.random.Generator, name: str, rows: int, first: int, days: int
) -> str:
    """Write rows of about 100 bytes, of so many dates; return the file."""
    seconds = dice.integers(first * 86_400, (first + days) * 86_400, rows)
    times = np.datetime64("2026-01-01", "us") + (seconds * 1_000_000).astype("timedelta64[us]")
    columns = {
        "event_id": pa.array([f"{each:032x}" for each in dice.integers(0, ids, rows)]),
        "occurred_at": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(dice.integers(0, 1_000, rows)),
        "campaign": pa.array([f"campaign-{each}" for each in dice.integers(0, 50, rows)]),
        "page": pa.array([f"page/{each}/view" for each in dice.integers(0, 100_000, rows)]),
    }
    file = folder / name
    pq.write_table(pa.table(columns), file, row_group_size=200_000)
    return str(file)


if __name__ == "__main__":
    sys.exit(main())
