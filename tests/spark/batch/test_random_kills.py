"""A run whose driver or Python workers were killed at random, and that was started again, is as if undisturbed.

There are 120 kills, 20 of drivers and 20 of workers per format of the output. A run of the suite does one of
either that it draws, ``--tier all`` does all of them. ``SEQMARK_TEST_SEED`` draws the same rows again.
"""

from __future__ import annotations

import signal
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from spark_sink.batch.job import BatchOptions, BatchStep
from tests.spark.batch.test_kills import FORMATS, RENAMES, WAIT_S, command, run_without_workers
from tests.support.batches.outside import assert_by_duckdb, has_duckdb
from tests.support.batches.scene import DAY, START, BatchScene, some_rows
from tests.support.kafka.topics import dice
from tests.support.suite.extent import note, seed

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.batches.truth import FileRow

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(2 * WAIT_S),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
KILLS = 20
DRIVER, WORKERS = "driver", "workers"
EVERY_STEP = {
    lake: [each for each in BatchStep if each != BatchStep.PUT or lake != "parquet"] for lake in FORMATS
}
WITH_TASKS = [BatchStep.INSPECTED, BatchStep.EXTRACTED, BatchStep.PROBED, BatchStep.JUDGED]
"""Steps that are followed by tasks; a worker that is killed after another is missed by nobody."""


class Draw(NamedTuple):
    """What one kill is of: a table with a run, and the next one with its rows."""

    scene: BatchScene
    rows: list[FileRow]
    options: BatchOptions
    typed: list[str]


def draw(spark: SparkSession, folder: Path, lake: str, number: int, chance: random.Random) -> Draw:
    """Make a table with a run, and what the next is to do: every other one makes dates again, with renames."""
    again = bool(number % 2)
    more: dict[str, Any] = (
        {**RENAMES, "rename_first": bool(chance.randrange(2))} if again else {"window": "180d"}
    )
    scene, count = BatchScene(spark, folder, lake=lake, **more), chance.randrange(60, 120)
    rows = [
        some_rows(chance, name, count + 30 * at, first_day=at * chance.randrange(3))
        for at, name in enumerate(("a.parquet", "b.parquet"))
    ]
    files = [scene.write(each[0].file, each) for each in rows]
    scene.run(files[:1], run="first")
    scene.truth.run("first", rows[0])
    since = "2026-01-02" if again else None
    typed = [each for path in files for each in ("--input", path)] + ["--run", "again"]
    typed += ["--from", "2026-01-02"] if again else []
    scene.assert_true()
    return Draw(scene, rows[0] + rows[1], BatchOptions(files, "again", since), typed)


@pytest.mark.parametrize("who", [DRIVER, WORKERS])
@pytest.mark.drawn("kill")
@pytest.mark.parametrize("kill", [f"{lake}.{n}" for lake in FORMATS for n in range(KILLS)])
def test_a_run_that_is_killed_at_random_comes_to_what_it_would_have_come_to(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, kill: str, who: str
) -> None:
    lake, number = kill.split(".")
    note(request.config, f"kills of batches at random were drawn with SEQMARK_TEST_SEED={seed(request.config)}")
    chance = dice(seed(request.config) + zlib.crc32(f"{who}.{kill}".encode()))
    scene, rows, options, typed = draw(spark, tmp_path, lake, int(number), chance)
    # All steps come about as often; which rows they meet is chance.
    steps = EVERY_STEP[lake] if who == DRIVER else WITH_TASKS
    step = steps[int(number) % len(steps)]

    if who == DRIVER:
        killed = command(scene, *typed, step=step)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        committed = step in {BatchStep.COMMITTED, BatchStep.CLEARED}
        if not committed:
            scene.assert_true()
        assert scene.run(options.inputs, run="again", since=options.since).earlier is committed
    else:
        assert run_without_workers(scene, options, step).killed

    scene.truth.run("again", rows, since=START + DAY if options.since else None)
    scene.assert_true()
    assert not list((scene.out / "_seqmark" / "staging").glob("*"))
    if options.since is None and has_duckdb(request.config):
        assert_by_duckdb(scene, *options.inputs)
