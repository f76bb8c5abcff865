"""A backfill that was killed, wherever, and is run again, is as one that was not."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.batches.fill import RUN, FillScene
from tests.support.kafka.topics import PATIENCE_S, environment
from tests.support.spark_sink.job import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 80
CUTS = {0: 50, 1: 30}


def killed(scene: FillScene, step: str, *arguments: str) -> str:
    """Run the command in a process that ends by SIGKILL after a step; return what it said."""
    command = [
        sys.executable,
        "-m",
        "processor",
        "backfill",
        "-c",
        str(scene.config.write()),
        "--pipeline",
        "p",
    ]
    ended = subprocess.run(
        [*command, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment({"SEQMARK_FAULT_STEP": step}),
        timeout=PATIENCE_S,
    )
    assert ended.returncode == -signal.SIGKILL, (step, ended.stdout, ended.stderr)
    return ended.stderr


def test_a_backfill_that_is_killed_in_either_phase_goes_on_when_it_is_run_again(
    broker: Broker, tmp_path: Path
) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(1, COUNT)
    cuts = [option for number, cut in CUTS.items() for option in ("--cut", f"{number}:{cut}")]
    arguments = ["--history", scene.config.source, "--format", "topic", "--run", RUN, *cuts]

    assert "is staged in" not in killed(scene, "hashed", *arguments)
    # Nothing counts of a history that was not staged to its end.
    assert "is staged in" not in killed(scene, "staged", *arguments)
    # From here on the history is not read again: marked, the blocks of one partition, the state of one.
    for step in ("ended", "ended:2", "offsets:2"):
        assert f"backfill {RUN} is staged in" in killed(scene, step, *arguments)

    told = scene.loaded(*arguments)

    assert told[-1]["loaded"] is True
    assert told[0]["sample"] is None, "the state of the first partition was there"
    scene.drain()
    scene.assert_goes_on(CUTS, CUTS)


def test_hashed_rows_that_a_kill_has_left_are_not_taken_in_again(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    del spark
    scene = FillScene(broker, tmp_path, partitions=1)
    scene.stream(2, COUNT)
    path = scene.write("json", scene.history({0: 50}))
    arguments = ["--history", path, "--format", "json", "--columns", "time=at", "--run", RUN, "--cut", "0:50"]
    killed(scene, "hashed", *arguments, "--master", "local[2]")
    folder = next(scene.config.state_dir.rglob(RUN))
    (folder / "hashed-00077").write_bytes(b"torn")

    told = scene.loaded(*arguments)

    assert told[-1]["rows"] == 50
    assert [file.name for file in folder.iterdir()] == ["history.json"]
    scene.drain()
    scene.assert_goes_on({0: 50}, {0: 50})
