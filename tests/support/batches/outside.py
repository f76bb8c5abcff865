"""Has DuckDB look at a clean table, in an environment that has nothing of ours."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from benchmarks.peers.environment import MADE
from benchmarks.rest.ways import ENVIRONMENT
from tests.support.spark_sink.job import ROOT
from tests.support.suite.extent import everything

if TYPE_CHECKING:
    import pytest

    from tests.support.batches.scene import BatchScene


def has_duckdb(config: pytest.Config) -> bool:
    """Say whether there is a DuckDB; a run of everything makes its environment."""
    if everything(config):
        assert ENVIRONMENT.make("DuckDB", print) is None
    return (ENVIRONMENT.python.parents[1] / MADE).is_file()


def assert_by_duckdb(scene: BatchScene, first: str, second: str) -> None:
    """See that a table has what runs "first", over one file, and "again", over both, should have kept."""
    lake, given = scene.table["output"]["format"], ""
    if lake == "iceberg":  # its list of files is Avro, which its own reader reads for us
        files = scene.spark.read.format(lake).load(f"{scene.out}#files").select("file_path").collect()
        given = json.dumps([each["file_path"].removeprefix("file:") for each in files])
    program = ROOT / "tests" / "support" / "batches" / "by_duckdb.py"
    typed = [str(ENVIRONMENT.python), str(program), lake, str(scene.out), first, second]
    done = subprocess.run(typed, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] > 20
    assert (found["missing"], found["extra"]) == ([], [])
