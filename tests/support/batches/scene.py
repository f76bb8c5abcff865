"""A folder of files, the batch that makes them clean, and what it should come to."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.config import Settings
from spark_sink import read_clean
from spark_sink.batch.job import BatchJob, BatchOptions
from tests.support.batches.truth import FileRow, Truth

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence
    from enum import StrEnum
    from pathlib import Path

    from pyspark.sql import SparkSession

    from schemas.config import FileBatch
    from spark_sink.batch.job import BatchOutcome

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Audience:
    """Remembers what it is told; a test may do something at a step."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[str] = []

    def say(self, text: str) -> None:
        """Remember it."""
        self.said.append(text)

    def done(self, step: StrEnum) -> None:
        """Remember it."""
        self.steps.append(str(step))


class ActsAt(Audience):
    """Does something right after a step."""

    def __init__(self, step: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._step, self._act = step, act

    def done(self, step: StrEnum) -> None:
        """Do it if this is the step."""
        super().done(step)
        if step == self._step:
            self._act()


class BatchScene:
    """One batch in one folder.

    Args:
        spark: Whose tasks do the work.
        folder: For all of it.
        kind: Format of the input.
        lake: Format of the output.
        more: Keys of the batch.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, kind: str = "parquet", lake: str = "parquet", **more: Any
    ) -> None:
        self.spark, self.folder, self.kind = spark, folder, kind
        self.raw, self.out = folder / "raw", folder / "clean"
        self.raw.mkdir(parents=True, exist_ok=True)
        self.table: dict[str, Any] = {
            "name": "archive",
            "input": {"format": kind, "path": str(self.raw)},
            "output": {"format": lake, "path": str(self.out)},
            "duplicates": str(folder / "duplicates"),
            "quarantine": str(folder / "quarantine"),
            "id": ["event_id"],
            "event_time": "occurred_at",
            "window": "1d",
            **more,
        }
        batch = self.batch
        self.truth = Truth(
            timedelta(milliseconds=batch.window),
            fingerprints=batch.fingerprint is not None,
            action=batch.on_collision,
            rename_first=batch.rename_first,
        )

    @property
    def batch(self) -> FileBatch:
        """The batch, as a config has it."""
        given = {key: value for key, value in self.table.items() if value is not None}
        return Settings.model_validate({"batches": [given]}).batches[0]

    def write_config(self) -> Path:
        """Write the config of the batch alone; return its file."""
        file = self.folder / "batch.toml"
        file.write_text(
            "[[batches]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in self.table.items())
        )
        return file

    def write(self, name: str, rows: Sequence[FileRow]) -> str:
        """Write an input file; return its path."""
        file = self.raw / name
        if self.kind == "parquet":
            columns = {
                "event_id": pa.array([each.id for each in rows], pa.string()),
                "occurred_at": pa.array([each.at for each in rows], pa.timestamp("us", "UTC")),
                "amount": pa.array([each.amount for each in rows], pa.int64()),
            }
            pq.write_table(pa.table(columns), file, row_group_size=7)
        else:
            text = "".join(json.dumps(_value(each)) + "\n" for each in rows).encode()
            file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return str(file)

    kinds = ("output", "duplicates", "quarantine")

    def path(self, kind: str) -> str:
        """Return the folder of one kind of rows."""
        return str(self.table["output"]["path"] if kind == "output" else self.table[kind])

    def run(self, inputs: Iterable[str] = (), **options: Any) -> BatchOutcome:
        """Run it."""
        return BatchJob(self.spark, self.batch, BatchOptions(list(inputs), **options), Audience()).run()

    def rows(self, kind: str = "output") -> list[Any]:
        """Return what counts."""
        return list(read_clean(self.spark, self.path(kind)).collect())

    def assert_true(self) -> None:
        """Compare table, receipts and quarantine with the truth, row by row."""
        truth = self.truth
        found = {(row["seqmark_run"], row["seqmark_file"], row["seqmark_row"]): row for row in self.rows()}
        expected = {(each.run, each.source.file, each.source.row): each for each in truth.kept}
        assert found.keys() == expected.keys()
        for place, each in expected.items():
            row = found[place]
            assert row["amount"] == each.source.amount
            assert row["seqmark_time"].replace(tzinfo=UTC) == each.source.at
            assert (row["event_id"] != each.source.id) == each.renamed
            assert row["seqmark_original_id"] == (each.source.id if each.renamed else None)
        receipts = sorted(
            (
                row["run"],
                row["file"],
                row["row"],
                row["verdict"],
                tuple(row["id"]),
                tuple(row["owner"]),
                row["action"],
            )
            for row in self.rows("duplicates")
        )
        assert receipts == sorted(
            (
                each.run,
                each.source.file,
                each.source.row,
                each.verdict,
                (each.source.id,),
                each.owner,
                each.action,
            )
            for each in truth.receipts
        )
        quarantined = sorted((row["seqmark_error"], row["seqmark_source"]) for row in self.rows("quarantine"))
        assert quarantined == sorted((code, f"{each.file}:{each.row}") for code, each in truth.quarantine)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def _value(row: FileRow) -> dict[str, Any]:
    at = None if row.at is None else row.at.isoformat()
    return {"event_id": row.id, "occurred_at": at, "amount": row.amount}


def some_rows(chance: random.Random, file: str, count: int, first_day: int = 0, days: int = 3) -> list[FileRow]:
    """Return rows of few ids, so that many meet; some at one time, a few that cannot be judged."""
    rows = []
    for number in range(count):
        at = START + timedelta(hours=chance.randrange(24 * days)) + first_day * DAY
        rows.append(FileRow(file, number, f"e{chance.randrange(count // 3)}", at, chance.randrange(3)))
        if chance.randrange(25) == 0:
            rows[-1] = rows[-1]._replace(id=None) if chance.randrange(2) else rows[-1]._replace(at=None)
    return rows
