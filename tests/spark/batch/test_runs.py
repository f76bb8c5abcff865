"""Are rows at rest judged by the contract's words, within a run and across runs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from processor.engine.jit import FOLDER
from spark_sink.batch import job
from spark_sink.batch.job import BatchJob, BatchOptions
from spark_sink.batch.tasks import inspect
from tests.support.batches.scene import DAY, START, Audience, BatchScene, some_rows
from tests.support.batches.truth import FileRow
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
    monkeypatch.setattr(inspect, "_SPLIT_BYTES", 2_000)


@pytest.mark.drawn("way")
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


@pytest.mark.drawn("way")
@pytest.mark.parametrize(("way", "window"), [("ids", "1d"), ("ids", "9d"), ("pass", "9d"), ("tag", "1d")])
def test_without_receipts_the_same_rows_are_kept(
    spark: SparkSession, tmp_path: Path, way: str, window: str
) -> None:
    chance = dice(3)
    kept: list[list[tuple[str, ...]]] = []
    rows = [some_rows(chance, name, 60, first_day=day) for day, name in enumerate("ab")]
    for more in ({}, {"duplicates": None}):
        scene = BatchScene(spark, tmp_path / str(len(kept)), **(WAYS[way] | {"window": window} | more))
        for number, each in enumerate(rows):
            scene.run([scene.write("ab"[number], each)], run=str(number))
        columns = "seqmark_run", "seqmark_file", "seqmark_row", "event_id", "seqmark_collision"
        kept.append(sorted(tuple(str(row[name]) for name in columns) for row in scene.rows()))

    assert kept[0] == kept[1]


def test_a_date_that_is_made_again_without_all_of_its_inputs_is_told_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path)
    rows = {
        name: [FileRow(name, number, f"{name}-{number}", START + day * DAY, 1) for number in range(3)]
        for day, name in enumerate(("one", "two", "three"))
    }
    paths = [scene.write(name, each) for name, each in rows.items()]
    scene.run(paths)
    whole, part = Audience(), Audience()

    for audience, given in ((whole, paths), (part, paths[:2])):
        options = BatchOptions(given, since="2026-01-02")
        BatchJob(spark, scene.batch, options, audience).run()

    told = [each for each in part.said if "fewer rows" in each]
    assert len(told) == 1
    assert "removed (2026-01-03: 3 before, 0 now). Unless the rules have changed, inputs of earlier" in told[0]
    assert not [each for each in whole.said if "fewer rows" in each]


def test_kernels_that_have_to_be_compiled_are_told_of_before(spark: SparkSession, tmp_path: Path) -> None:
    assert FOLDER is not None
    scene = BatchScene(spark, tmp_path)
    said = []

    for name in ("a", "b"):
        if name == "a":
            for mark in FOLDER.glob("rest-is-warm-*"):
                mark.unlink()
        path = scene.write(name, [FileRow(name, 0, name, START, 1)])
        audience = Audience()
        BatchJob(spark, scene.batch, BatchOptions([path]), audience).run()
        said.append([each for each in audience.said if "compiling the kernels" in each])

    assert [len(each) for each in said] == [1, 0]
