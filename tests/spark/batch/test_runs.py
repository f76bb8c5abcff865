"""Are rows at rest judged by the contract's words, within a run and across runs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_sink.batch import job
from tests.support.batches.scene import DAY, START, BatchScene, some_rows
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

PRINTS: dict[str, Any] = {"fingerprint": {"exclude": ["occurred_at"]}}
WAYS: dict[str, dict[str, Any]] = {
    "ids": {},
    "pass": PRINTS,
    "tag": PRINTS | {"on_collision": "tag"},
    "rename": PRINTS | {"on_collision": "rename"},
    "rename first": PRINTS | {"on_collision": "rename", "rename_first": True},
    "quarantine": PRINTS | {"on_collision": "quarantine"},
    "drop": PRINTS | {"on_collision": "drop"},
}


@pytest.fixture(autouse=True)
def in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows be as many as it takes for several buckets, and for several splits of a file."""
    monkeypatch.setattr(job, "_BUCKET_ROWS", 40)
    monkeypatch.setattr(job, "_SPLIT_BYTES", 2_000)


@pytest.mark.parametrize(
    ("way", "kind"), [*((way, "parquet") for way in WAYS), ("ids", "json"), ("rename first", "json")]
)
def test_rows_are_judged_as_the_contract_says_whatever_the_runs(
    spark: SparkSession, tmp_path: Path, way: str, kind: str
) -> None:
    chance = dice(len(way) + len(kind))
    scene = BatchScene(spark, tmp_path, kind, **WAYS[way])
    end = ".parquet" if kind == "parquet" else ".jsonl"
    every = []
    for number in range(3):
        # The second run is of later days, the third one is late: it lies around and between them.
        names = [f"{name}{number}{end}{'.gz' if kind == 'json' and number == 1 else ''}" for name in "ab"]
        rows = [some_rows(chance, name, 60, first_day=(0, 3, 1)[number]) for name in names]
        paths = [scene.write(name, each) for name, each in zip(names, rows, strict=True)]
        every += rows[0] + rows[1]

        # Rows of one time are judged by the names of their files, whatever the order that these are given in.
        outcome = scene.run(reversed(paths), run=f"run-{number}")

        scene.truth.run(f"run-{number}", rows[0] + rows[1])
        assert outcome.counts["read"] == 120
        scene.assert_true()

    scene.run(since="2026-01-03", run="again")

    scene.truth.run("again", every, since=START + 2 * DAY)
    scene.assert_true()
