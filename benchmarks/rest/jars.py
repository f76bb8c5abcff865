"""Fetches the jars of Delta and Iceberg for the comparison, once, by the Ivy that PySpark carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.broker.jars import resolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DELTA, ICEBERG = "4.0.0", "1.10.0"
_CARRIED = (
    "org.apache.hadoop:*", "org.scala-lang:*", "org.slf4j:*", "org.lz4:*", "org.xerial.snappy:*", "org.antlr:*",
)  # fmt: skip
"""What Spark carries itself."""


def delta_jars(say: Callable[[str], None]) -> list[Path]:
    """Return Delta's jars.

    Raises:
        BrokerError: They cannot be fetched.
    """
    return resolve([f"io.delta:delta-spark_2.13:{DELTA}"], "bench-delta", exclude=_CARRIED, say=say)


def iceberg_jars(say: Callable[[str], None]) -> list[Path]:
    """Return Iceberg's jar.

    Raises:
        BrokerError: It cannot be fetched.
    """
    coordinate = f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{ICEBERG}"
    return resolve([coordinate], "bench-iceberg", exclude=_CARRIED, say=say)
