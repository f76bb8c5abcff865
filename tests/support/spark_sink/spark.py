"""One real Spark for all tests that need one: its start takes seconds, its JVM some memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from spark_sink.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


# Tests run each query for seconds: what the second compiler would make faster is over before it is done.
# That leaves 48 MB for compiled code, which all the queries of a run fill. The heap is small, and the cores are
# few: a collector with threads of its own only takes time from the others.
SHORT = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session as the programs start it."""
    with spark_session("seqmark-tests", jvm_flags=SHORT, lakes=("delta", "iceberg")) as session:
        yield session


def rows_read(spark: SparkSession) -> int:
    """Return how many records Spark's batch queries have read from Kafka, by the metrics of their scans."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions, total = store.executionsList(), 0
    for each in range(executions.size()):
        number = executions.apply(each).executionId()
        values, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
        scans = [nodes.apply(at) for at in range(nodes.size()) if "KafkaRelation" in nodes.apply(at).name()]
        metrics = [scan.metrics().apply(at) for scan in scans for at in range(scan.metrics().size())]
        counts = {each.accumulatorId() for each in metrics if each.name() == "number of output rows"}
        # Of what is kept, the plan that reads it shows the scan too, with what was read in that execution.
        found = [values.get(count) for count in counts]
        total += sum(int(value.get().replace(",", "")) for value in found if value.isDefined())
    return total


def end_jvm() -> None:
    """End the JVM that PySpark keeps for its process, and wait for it: tests leave nothing behind."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext  # noqa: PLC0415 - only where a test has used it

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=300)
