"""Has each group a key of its own in the topic?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_sink.outputs.kafka import keyed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_times_without_a_zone_that_differ_by_a_microsecond_are_two_keys(spark: SparkSession) -> None:
    walls = ["2026-01-05 07:08:09.123456", "2026-01-05 07:08:09.123457", "2026-01-05 07:08:09"]
    rows = spark.createDataFrame([(each,) for each in walls], "wall string").selectExpr(
        "cast(wall AS timestamp_ntz) AS wall", "1 AS events"
    )

    keys = [row["key"] for row in keyed(rows, ["wall"]).collect()]

    assert sorted(keys) == [
        '{"wall":"2026-01-05T07:08:09.000000"}',
        '{"wall":"2026-01-05T07:08:09.123456"}',
        '{"wall":"2026-01-05T07:08:09.123457"}',
    ]
