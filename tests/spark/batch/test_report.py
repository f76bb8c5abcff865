"""The page's numbers of a batch are those of its table, receipts and quarantine."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from spark_sink.batch.table.summary import BatchPart, sum_up
from tests.support.batches.scene import DAY, START, BatchScene, some_rows
from tests.support.kafka.topics import dice
from tests.unit.inspection.report.test_page import Page

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

PRINTS: dict[str, Any] = {"fingerprint": {"exclude": ["occurred_at"]}}
COLLIDES = {"drop": "collision", "quarantine": "collided"}


def report(scene: BatchScene) -> tuple[Result, Page]:
    output = scene.folder / "report.html"
    arguments = ["report", "-c", str(scene.write_config()), "--output", str(output), "--json"]
    done = CliRunner().invoke(main, arguments)
    return done, Page(output.read_text(encoding="utf-8"))


def true_dates(scene: BatchScene, action: str) -> dict[str, Counter[str]]:
    """Return what the naive model counts by date."""
    found: dict[str, Counter[str]] = {}

    def add(at: Any, what: str) -> None:
        found.setdefault(at.date().isoformat() if at else "", Counter())[what] += 1

    for kept in scene.truth.kept:
        add(kept.source.at, "kept")
    for each in scene.truth.receipts:
        add(each.source.at, "duplicate" if each.verdict == "duplicate" else COLLIDES[action])
    for _, row in scene.truth.quarantine:
        add(row.at, "quarantined")
    return found


@pytest.mark.parametrize("action", COLLIDES)
def test_the_numbers_are_those_of_the_naive_model_also_when_a_date_was_made_again(
    spark: SparkSession, tmp_path: Path, action: str
) -> None:
    scene, chance = BatchScene(spark, tmp_path, **PRINTS, on_collision=action), dice(11)
    every = []
    for number, run in enumerate(("monday", "tuesday")):
        rows = some_rows(chance, f"{number}.parquet", 90, first_day=number)
        scene.run([scene.write(f"{number}.parquet", rows)], run=run)
        scene.truth.run(run, rows)
        every += rows
    scene.run(run="again", since="2026-01-03")
    scene.truth.run("again", every, since=START + 2 * DAY)

    done, page = report(scene)

    assert done.exit_code == 0, done.stderr
    assert sum_up(scene.batch).dates == true_dates(scene, action)
    batch, end = map(json.loads, done.stdout.splitlines())
    sums = sum(true_dates(scene, action).values(), Counter[str]())
    assert batch == {"batch": "archive", "runs": ["monday", "tuesday", "again"]} | {
        what: sums[what] for what in ("kept", "duplicate", "collision", "quarantined", "collided")
    }
    assert end["ok"]
    told = [row[:4] for row in page.tables["Runs of archive"][1:]]
    assert [row[:3] for row in told] == [
        ["1", "monday", "90"],
        ["2", "tuesday", "90"],
        ["3", "again, made again from 2026-01-03 on", "180"],
    ]
    assert int(told[2][3]) > 0  # rows of earlier dates, left as they are


def test_a_batch_that_has_not_run_is_said_and_one_whose_commits_are_damaged_is_exit_1(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path)

    done, page = report(scene)

    assert done.exit_code == 0, done.stderr
    assert f"The output {scene.out} does not exist yet: no run has committed." in page.text

    rows = some_rows(dice(12), "a.parquet", 20)
    scene.run([scene.write("a.parquet", rows)], run="first")
    (commit,) = (scene.out / "_seqmark" / "commits").glob("*.json")
    commit.write_text("{")
    done, page = report(scene)

    assert done.exit_code == 1
    assert f"commit {commit} is damaged" in page.text


def test_without_receipts_what_was_dropped_is_of_no_date(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, duplicates=None)
    rows = some_rows(dice(13), "a.parquet", 40)
    outcome = scene.run([scene.write("a.parquet", rows)], run="first")

    part: BatchPart = sum_up(scene.batch)

    assert part.totals["kept"] == outcome.counts["kept"]
    assert any("which dates the dropped rows are of nobody knows" in each for each in part.notes)
    assert part.runs[0].counts["duplicates"] == outcome.counts["duplicates"] > 0
