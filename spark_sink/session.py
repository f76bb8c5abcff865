"""How does Spark start here, with Kafka's connector and within bounds?

The connector's version follows the installed PySpark. Its jars come from Seqmark's own cache, as files:
`spark.jars.packages` would ask Maven's servers again at every start.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

from processor.kafka.jars import resolve
from processor.kafka.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LOGGING = f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"'
"""For the JVM, because `setLogLevel` comes too late for what is printed at start."""

SCALA = "2.13"  # PySpark 4 is built with no other
# What Spark carries itself; a second copy on its class path would clash.
_CARRIED = ("org.apache.hadoop:*", "org.scala-lang:*", "org.slf4j:*", "org.lz4:*", "org.xerial.snappy:*")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # As many as the cores, not 200: an aggregate of a few thousand rows needs no more.
    "spark.sql.shuffle.partitions": "2",
    # Hours begin where UTC's begin, on every machine.
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_session(
    name: str,
    *,
    master: str = "local[2]",
    memory: str = "1g",
    jvm_flags: str = "",
    settings: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[SparkSession]:
    """Give a session that can read Kafka, and stop it at exit.

    A session that this process has already is given instead, and left to whoever made it. The JVM stays
    until the process ends: PySpark uses it again.

    Args:
        name: Of the application.
        master: Where it runs.
        memory: The driver's heap, which with a local master is all there is.
        jvm_flags: More of them, for the driver's JVM.
        settings: Spark settings beside or instead of ours.
        say: Told of what takes long, for a person to read.

    Raises:
        BrokerError: There is no suitable Java, or the connector's jars are not to be had.
    """
    jars = resolve(
        [f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark.__version__}"],
        "spark-kafka",
        exclude=_CARRIED,
        say=say,
    )
    # Spark's scripts look at JAVA_HOME and PATH only, and take whatever is there.
    os.environ["JAVA_HOME"] = str(find_java().home)
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", f"{_LOGGING} {jvm_flags}")
    )
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    mine = SparkSession.getActiveSession() is None
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        if mine:
            session.stop()
