"""A backfill that was killed, wherever, and is run again, is as one that was not."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from spark_sink.batch.cluster import SETTINGS
from tests.support.batches.fill import RUN, FillScene
from tests.support.kafka.topics import PATIENCE_S, environment, until
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
DAEMON = SETTINGS["spark.python.daemon.module"]


def command(scene: FillScene, *arguments: str) -> list[str]:
    """Return the command as a user types it."""
    config = str(scene.config.write())
    return [sys.executable, "-m", "processor", "backfill", "-c", config, "--pipeline", "p", *arguments]


def killed(scene: FillScene, step: str, *arguments: str) -> str:
    """Run the command in a process that ends by SIGKILL after a step; return what it said."""
    ended = subprocess.run(
        command(scene, *arguments),
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


def kill_worker(started: int) -> bool:
    """Kill a Python worker of Spark's below a process; return whether there was one."""
    for each in psutil.Process(started).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended
            parent = each.parent()
            # Workers are forks of a daemon, which has the same command line.
            if parent is not None and all(DAEMON in one.cmdline() for one in (each, parent)):
                each.kill()
                return True
    return False


def test_executors_of_their_own_hash_a_history_whole_though_a_python_worker_is_killed(
    broker: Broker, tmp_path: Path
) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(3, COUNT, numbers=False)
    path = scene.write("parquet", scene.history(CUTS), files=8)
    arguments = ["--history", path, "--columns", "time=at,partition=partition"]
    arguments += [option for number, cut in CUTS.items() for option in ("--cut", f"{number}:{cut}")]
    typed = command(scene, *arguments, "--run", RUN, "--json", "--master", "local-cluster[2,1,1024]")
    out, log = tmp_path / "out", tmp_path / "log"

    with out.open("w") as said, log.open("w") as talk:
        process = subprocess.Popen(typed, cwd=ROOT, stdout=said, stderr=talk, env=environment({}))
        with process:
            try:
                until(lambda: kill_worker(process.pid) or process.poll() is not None, "a Python worker")
                assert process.poll() is None, log.read_text()
                assert process.wait(PATIENCE_S) == 0, log.read_text()
            finally:
                process.kill()

    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert told[-1]["rows"] == sum(CUTS.values())
    scene.drain()
    scene.assert_goes_on(CUTS, CUTS)
