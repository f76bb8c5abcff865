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
# That leaves 48 MB for compiled code, which all the queries of a run fill.
SHORT = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session as the programs start it."""
    with spark_session("seqmark-tests", jvm_flags=SHORT) as session:
        yield session


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
