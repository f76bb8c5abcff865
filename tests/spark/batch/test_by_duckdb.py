"""A program that knows nothing of Seqmark finds what the contract promises in a table whose run was killed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from spark_sink.batch.job import BatchStep
from tests.spark.batch.test_kills import command
from tests.support.batches.outside import assert_by_duckdb, has_duckdb
from tests.support.batches.scene import BatchScene, some_rows
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
KILLED_AFTER = {"parquet": BatchStep.JUDGED, "delta": BatchStep.PUT}


@pytest.mark.drawn("lake")
@pytest.mark.parametrize("lake", list(KILLED_AFTER))
def test_duckdb_finds_the_rows_of_the_contract_in_a_table_whose_run_was_killed(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, lake: str
) -> None:
    if not has_duckdb(request.config):
        pytest.skip("DuckDB is installed by the benchmark (make bench ARGS=rest), or here with --tier all")
    scene = BatchScene(spark, tmp_path, lake=lake, window="180d")
    # The second file has ids that the first one has not.
    sizes = {"a.parquet": 60, "b.parquet": 90}
    first, second = (scene.write(name, some_rows(dice(count), name, count)) for name, count in sizes.items())
    scene.run([first], run="first")
    options = [each for path in (first, second) for each in ("--input", path)]

    killed = command(scene, *options, "--run", "again", step=KILLED_AFTER[lake])

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    scene.run([first, second], run="again")
    assert_by_duckdb(scene, first, second)
