"""Does a run end as it should, by a signal and with executors of its own? Kills are `test_random_kills`'s."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from processor.errors import StopError
from spark_sink.batch.job import BatchJob, BatchOptions, BatchStep
from tests.support.batches.scene import Audience, BatchScene, some_rows
from tests.support.kafka.topics import dice
from tests.support.spark_sink.job import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
WAIT_S = 300
CORES = 2
"""Of the tests' Spark: it keeps a worker per core, and notices when it uses one that it is dead."""
RENAMES: dict[str, Any] = {"fingerprint": {"exclude": ["occurred_at"]}, "on_collision": "rename"}


def arguments(scene: BatchScene, master: str) -> list[str]:
    """Return the command as a user types it."""
    config = scene.write_config()
    return [sys.executable, "-m", "processor", "batch", "-c", str(config), "--master", master]


def command(scene: BatchScene, *options: str, step: str) -> subprocess.CompletedProcess[str]:
    """Run it, and have it killed after a step."""
    # Executors in processes of their own, or in the driver's.
    apart = step in {BatchStep.EXTRACTED, BatchStep.WRITTEN}
    typed = [*arguments(scene, "local-cluster[2,1,1024]" if apart else "local[2]"), *options]
    environ = os.environ | {"SEQMARK_FAULT_STEP": step}
    return subprocess.run(
        typed, check=False, cwd=ROOT, env=environ, text=True, capture_output=True, timeout=WAIT_S
    )


@contextlib.contextmanager
def halted(scene: BatchScene, step: BatchStep) -> Iterator[subprocess.Popen[str]]:
    """Run it, and give the process when it has halted after a step."""
    environ = os.environ | {"SEQMARK_FAULT_STEP": step, "SEQMARK_FAULT_ACTION": "stop"}
    typed = arguments(scene, "local[2]")
    with subprocess.Popen(typed, cwd=ROOT, env=environ, text=True, stderr=subprocess.PIPE) as process:
        try:
            assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield process
        finally:
            process.kill()


FORMATS = ("parquet", "delta", "iceberg")


def test_executors_in_processes_of_their_own_do_the_same(spark: SparkSession, tmp_path: Path) -> None:
    scene, chance = BatchScene(spark, tmp_path, **RENAMES), dice(10)
    first, second = (some_rows(chance, name, 60) for name in ("a.parquet", "b.parquet"))
    scene.run([scene.write("a.parquet", first)], run="first")
    scene.truth.run("first", first)
    scene.write("b.parquet", second)
    typed = [*arguments(scene, "local-cluster[2,1,1024]"), "--run", "apart", "--json"]

    done = subprocess.run(typed, check=True, cwd=ROOT, text=True, capture_output=True, timeout=WAIT_S)

    scene.truth.run("apart", first + second)
    assert json.loads(done.stdout)["read"] == len(first) + len(second)
    scene.assert_true()


def test_a_signal_ends_a_run_at_once_without_a_stack(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path)
    rows = some_rows(dice(9), "a.parquet", 30)
    scene.write("a.parquet", rows)

    with halted(scene, step=BatchStep.EXTRACTED) as process:
        process.terminate()
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=WAIT_S)

    assert process.returncode == 1, said
    assert "batch was interrupted: what was written does not count unless it said committed" in said
    assert "Traceback" not in said
    scene.run(run="again")
    scene.truth.run("again", rows)
    scene.assert_true()


class KillsWorkers(Audience):
    """Kills Spark's Python workers right after a step."""

    def __init__(self, step: BatchStep) -> None:
        super().__init__()
        self._step: BatchStep | None = step
        self.killed = 0

    def stop(self) -> None:
        """Kill no more."""
        self._step = None

    def done(self, step: StrEnum) -> None:
        """Kill those that this process's own Spark has started."""
        super().done(step)
        if step != self._step:
            return
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may have ended already
                if "pyspark.daemon" in " ".join(each.cmdline()):
                    each.kill()
                    self.killed += 1


def run_without_workers(scene: BatchScene, options: BatchOptions, step: BatchStep) -> KillsWorkers:
    """Run it until it is done, with the Python workers killed after a step; return who killed them."""
    kills = KillsWorkers(step)
    for _ in range(2 * CORES):
        try:
            BatchJob(scene.spark, scene.batch, options, kills).run()
        except StopError as error:
            assert "a task of Spark failed" in str(error)  # noqa: PT017 - it may or may not
            kills.stop()
        else:
            break
    return kills
