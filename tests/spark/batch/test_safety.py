"""Does a run count whole or not at all, whatever happens to it and beside it?"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from spark_sink.batch.compaction import compact
from spark_sink.batch.job import BatchJob, BatchOptions, BatchStep
from spark_sink.batch.reader import committed_files
from spark_sink.batch.table.layout import TableLayout, table_lock
from tests.support.batches.scene import DAY, START, ActsAt, Audience, BatchScene, some_rows
from tests.support.batches.truth import FileRow
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def written(scene: BatchScene) -> set[str]:
    """Return every file of table, receipts and quarantine, but for the lock."""
    folders = [scene.out, scene.folder / "duplicates", scene.folder / "quarantine"]
    return {
        str(each) for folder in folders for each in folder.rglob("*") if each.is_file() and each.name != "lock"
    }


def first_run(scene: BatchScene) -> str:
    """Let a first run commit; return its input."""
    rows = some_rows(dice(1), "a.parquet", 30)
    path = scene.write("a.parquet", rows)
    scene.run([path], run="first")
    scene.truth.run("first", rows)
    return path


def test_a_run_that_has_committed_answers_at_once_and_refuses_other_inputs_under_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = BatchScene(spark, tmp_path)
    path = first_run(scene)
    before = written(scene)

    again = scene.run([path], run="first")

    assert (again.earlier, again.commit, again.counts["read"]) == (True, 1, 30)
    assert written(scene) == before
    with pytest.raises(
        StopError, match="run first has committed all dates, and is asked for the dates from 2026"
    ):
        scene.run([path], run="first", since="2026-01-02")
    more = scene.write("b.parquet", [FileRow("b.parquet", 0, "e", START, 1)])
    with pytest.raises(StopError, match=r"run first has committed over other inputs: b\.parquet is new\. Give"):
        scene.run([path, more], run="first")
    with pytest.raises(StopError, match=r"b\.parquet is new, a\.parquet is missing\. Give"):
        scene.run([more], run="first")
    scene.write("a.parquet", [])
    with pytest.raises(StopError, match=r"a\.parquet had [\d,]+ bytes and has [\d,]+\. Give"):
        scene.run([path], run="first")
    assert written(scene) == before
    scene.assert_true()


def test_without_a_name_the_files_name_a_run(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    scene.write("a.parquet", some_rows(dice(1), "a.parquet", 30))
    first = scene.run()

    again = scene.run()
    scene.write("b.parquet", [])
    other = scene.run()

    assert (again.run, again.earlier) == (first.run, True)
    assert (other.earlier, other.commit, other.counts["kept"]) == (False, 2, 0)
    assert other.run != first.run
    made_again = scene.run(since="2026-01-02")
    once_more = scene.run(since="2026-01-02")
    assert (once_more.run, once_more.earlier, once_more.commit) == (made_again.run, True, 3)


def test_of_two_runs_at_once_the_second_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    path = first_run(scene)

    with (
        table_lock(TableLayout(str(scene.out))),
        pytest.raises(StopError, match=r"another run is at work on .*clean"),
    ):
        scene.run([path], run="second")

    scene.assert_true()


def test_who_passes_the_lock_still_cannot_commit_over_another(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    path = first_run(scene)
    more = some_rows(dice(2), "b.parquet", 30)
    scene.write("b.parquet", more)

    def overtake() -> None:
        # As on a file system without locks: the lock's file is another one now.
        (scene.out / "_seqmark" / "lock").unlink()
        scene.run([str(scene.raw / "b.parquet")], run="faster")
        scene.truth.run("faster", more)

    slow = ActsAt(BatchStep.WRITTEN, overtake)
    with pytest.raises(
        StopError, match=r"another run has committed to .* meanwhile: nothing of this one counts"
    ):
        BatchJob(spark, scene.batch, BatchOptions([path], "slow"), slow).run()

    scene.assert_true()


def test_an_input_that_changes_while_it_is_read_is_not_committed(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    first_run(scene)
    rows = some_rows(dice(2), "b.parquet", 30)
    path = scene.write("b.parquet", rows)
    changes = ActsAt(BatchStep.WRITTEN, lambda: scene.write("b.parquet", rows[:3]))

    with pytest.raises(
        StopError, match=r"b\.parquet has changed while it was read: nothing of this run counts"
    ):
        BatchJob(spark, scene.batch, BatchOptions([path]), changes).run()

    scene.assert_true()


def test_a_dry_run_counts_and_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    scene.write("a.parquet", some_rows(dice(1), "a.parquet", 30))

    dry = scene.run(dry=True)

    assert written(scene) == set()
    told = scene.run().counts
    assert dry.counts == {name: number for name, number in told.items() if name != "dates"}
    assert told["duplicates"] > 0
    assert told["quarantined"] > 0


def test_compaction_changes_files_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, fingerprint={"exclude": ["occurred_at"]}, on_collision="rename")
    for number in range(3):
        rows = some_rows(dice(number), f"{number}.parquet", 40)
        scene.run([scene.write(f"{number}.parquet", rows)], run=f"run-{number}")
        scene.truth.run(f"run-{number}", rows)
    old = {path for kind in ("output", "duplicates") for path in committed_files(scene.path(kind))}

    outcome = compact(spark, scene.batch, Audience())

    scene.assert_true()
    dates = {str(row["seqmark_date"]) for row in scene.rows()}
    assert len(committed_files(scene.path("output"))) == len(dates) < len(old)
    assert (outcome.commit, outcome.earlier) == (4, False)
    # Who began to read before still can; the next commit lets them go.
    assert old <= written(scene)
    rows = some_rows(dice(1), "late.parquet", 40)
    scene.run([scene.write("late.parquet", rows)], run="after")
    scene.truth.run("after", rows)
    scene.assert_true()
    assert not old & written(scene)
    assert {path for kind in scene.kinds for path in committed_files(scene.path(kind))} == {
        each for each in written(scene) if each.endswith(".parquet")
    }


def test_a_chain_of_commits_with_a_gap_or_a_change_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    first_run(scene)
    scene.run([scene.write("b.parquet", [])], run="second")
    commits = scene.out / "_seqmark" / "commits"
    whole = tmp_path / "whole"
    shutil.copytree(commits, whole)
    first = commits / "00000001.json"

    first.unlink()
    with pytest.raises(StopError, match=r"00000002\.json does not follow the one before it"):
        scene.rows()

    changed = json.loads((whole / first.name).read_text()) | {"run": "other"}
    first.write_text(json.dumps(changed))
    with pytest.raises(StopError, match=r"00000002\.json does not follow the one before it"):
        scene.run([str(scene.raw / "b.parquet")])

    first.write_text("{")
    with pytest.raises(StopError, match=r"00000001\.json is damaged"):
        scene.rows()

    shutil.copy(whole / first.name, first)
    scene.assert_true()


def test_a_last_commit_that_is_gone_or_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    path = first_run(scene)
    scene.run([scene.write("b.parquet", [])], run="second")
    own = scene.out / "_seqmark"
    last, text = own / "commits" / "00000002.json", (own / "commits" / "00000002.json").read_text()
    before = written(scene) - {str(last)}

    last.unlink()
    with pytest.raises(StopError, match=r"commit .*00000002\.json is missing, and what it names would be lost"):
        scene.run([path], run="third")
    last.write_text(text.replace('"second"', '"other"'))
    with pytest.raises(StopError, match=r"commit .*00000002\.json was changed after it was put"):
        scene.rows()
    last.write_text(text)
    (own / "head.json").write_text("{")
    with pytest.raises(StopError, match=r"head\.json is damaged"):
        scene.rows()

    # Killed between a commit and its head: the commit counts.
    first = hashlib.sha256((own / "commits" / "00000001.json").read_bytes()).hexdigest()
    (own / "head.json").write_text(json.dumps({"number": 1, "sha256": first}))
    assert scene.run([str(scene.raw / "b.parquet")], run="second").earlier
    key = (own / "table.json").read_text()
    (own / "table.json").unlink()
    with pytest.raises(StopError, match=r"table\.json is missing, and there are commits beside it"):
        scene.run([path], run="third")
    (own / "table.json").write_text(key)
    assert before < written(scene)
    scene.assert_true()


def test_files_that_are_not_ours_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    others = [scene.out / "data" / "2026-01-01" / "mine.parquet", scene.folder / "quarantine" / "data" / "mine"]
    for each in others:
        each.parent.mkdir(parents=True)
        each.write_text("not Seqmark's")
    dead = others[0].with_name("00000001-0a1b2c3d-00000-0a1b2c3d-0.parquet")
    dead.write_text("of a run that died")

    first_run(scene)

    assert [each.read_text() for each in others] == ["not Seqmark's"] * 2
    assert not dead.exists()
    scene.assert_true()


def test_what_is_made_again_by_other_rules_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, window="1h")
    scene.write("a.parquet", [FileRow("a.parquet", each, "e", START + each * DAY / 12, 1) for each in range(2)])
    assert [scene.run(since="2026-01-01").counts["kept"] for _ in range(2)] == [2, 2]

    scene.table["window"] = "1d"
    again = scene.run(since="2026-01-01")

    assert (again.earlier, again.counts["kept"]) == (False, 1)
    assert scene.run(since="2026-01-01").earlier
