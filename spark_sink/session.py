"""Starts Spark with the jars that a job needs, and within bounds.

The version of Kafka's connector follows the installed PySpark; Delta and Iceberg have one for each minor
version of Spark. Jars come from Seqmark's own cache, as files: `spark.jars.packages` would ask Maven's servers
again at every start.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from processor.broker.jars import JarSet, resolve
from processor.broker.java import find_java
from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

_LOGGING = f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"'
"""For the JVM, because `setLogLevel` comes too late for what is printed at start."""

SCALA = "2.13"  # PySpark 4 is built with no other
# What Spark carries itself; a second copy on its class path would clash.
_CARRIED = ("org.apache.hadoop:*", "org.scala-lang:*", "org.slf4j:*", "org.lz4:*", "org.xerial.snappy:*")
CONNECTOR = JarSet(
    "spark-kafka", (f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark.__version__}",), _CARRIED
)
LAKES = {
    name: JarSet(f"spark-{name}", (coordinate,), (*_CARRIED, "org.antlr:*"))
    for name, coordinate in (
        ("delta", f"io.delta:delta-spark_{SCALA}:4.0.0"),
        ("iceberg", f"org.apache.iceberg:iceberg-spark-runtime-4.0_{SCALA}:1.10.0"),
    )
}
_LAKES_SPARK = "4.0."
"""What these are built for: the classes of another Spark do not fit them."""
_LAKE_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Not 50: a log of a few thousand files is read in no time.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
}

DUPLICATE_KEYS = "spark.sql.variant.allowDuplicateKeys"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hours begin where UTC's begin, on every machine.
    "spark.sql.session.timeZone": "UTC",
    # A sum that leaves its type ends the query. Without this, which others' settings may switch off, it wraps.
    "spark.sql.ansi.enabled": "true",
    # Of equal keys in a JSON object the last counts, as the worker and pydantic have it.
    DUPLICATE_KEYS: "true",
    # Without it Spark makes one batch of a Python source with `availableNow`: after a crash that is the one
    # from before, and none that closes windows follows.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}

_PARTITIONS = "spark.sql.shuffle.partitions"
_MOST_LOCAL_PARTITIONS = 8
"""More than cores do not help one machine, and of a query's state each costs a RocksDB of its own. Its first
start fixes them; a cluster's number is the user's to choose."""
_JVM_S = 10.0
"""For a JVM that does not answer any more to end."""
_UNANSWERED = "Exception while sending command."
"""What py4j logs by the root logger, with a traceback, of a call that the JVM did not answer."""

_LAUNCHER = """#!/bin/sh
set -f; IFS=:; path=
for each in $PYTHONPATH; do case $each in */pyspark.zip) ;; *) path=$path:$each ;; esac; done
PYTHONPATH=${path#:} exec %s "$@"
"""
"""Starts this Python without the PySpark that Spark puts first: it has no compiled modules, and to compile them
takes each process 0.6 CPU seconds of the 10 s that Spark waits for it. Here the installed one is as good."""

# A driver that executors on other machines have to reach must not call itself this.
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def connector_jars(say: Callable[[str], None]) -> list[Path]:
    """Return Kafka's connector and what it needs, fetched at the first call (an image's build makes that).

    Raises:
        BrokerError: The jars cannot be fetched.
    """
    return resolve(CONNECTOR, say=say)


def lake_package(lake: str) -> str:
    """Return the Maven coordinate of ``delta`` or ``iceberg``, as `spark-submit --packages` takes it."""
    (coordinate,) = LAKES[lake].coordinates
    return coordinate


def lake_jars(lake: str, say: Callable[[str], None]) -> list[Path]:
    """Return what reads and writes ``delta`` or ``iceberg``, fetched at the first call.

    Raises:
        StopError: It does not fit the installed Spark.
        BrokerError: The jars cannot be fetched.
    """
    if not pyspark.__version__.startswith(_LAKES_SPARK):
        raise StopError(
            f"{lake} is read and written with PySpark {_LAKES_SPARK}x, and {pyspark.__version__} is installed: "
            f"install pyspark {_LAKES_SPARK}0"
        )
    return resolve(LAKES[lake], say=say)


@contextmanager
def spark_session(  # noqa: PLR0913 - all but the first are named, and have a value
    name: str,
    *,
    master: str = "local[2]",
    memory: str = "1g",
    jvm_flags: str = "",
    settings: Mapping[str, str] | None = None,
    kafka: bool = True,
    lakes: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[SparkSession]:
    """Give a session, and stop it at exit.

    If this process has a session already, give that one, and do not stop it. The JVM stays
    until the process ends: PySpark uses it again.

    Args:
        name: Name of the application.
        master: Where Spark runs.
        memory: The driver's heap, which with a local master is all there is.
        jvm_flags: Flags for the driver's JVM.
        settings: Spark settings beside or instead of ours.
        kafka: Whether it can read Kafka, which needs jars that are fetched once.
        lakes: Of ``delta`` and ``iceberg`` what it can read and write, by jars that are fetched once.
        say: Called with what takes long, for a person to read.

    Raises:
        BrokerError: There is no suitable Java, or the connector's jars cannot be fetched.
        StopError: Spark does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-spark-", ignore_cleanup_errors=True) as folder,
        _workers_python(master, Path(folder)),
    ):
        launch: dict[str, str] = {}
        # Under spark-submit the JVM is there already: master, memory and packages were given to it.
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            jars = connector_jars(say) if kafka else []
            jars += [jar for lake in lakes for jar in lake_jars(lake, say)]
            launch = _launch(master, memory, jvm_flags, say, jars)
        launch["spark.sql.warehouse.dir"] = f"{folder}/warehouse"
        builder = SparkSession.builder.appName(name)
        given = {key: value for lake in lakes for key, value in _LAKE_SETTINGS.get(lake, {}).items()}
        for key, value in {**launch, **_SETTINGS, **given, **(settings or {})}.items():
            builder = builder.config(key, value)
        # PySpark prints each exception that it raises, as JSON; whoever catches it tells of it here.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        mine = SparkSession.getActiveSession() is None
        if mine:
            say("starting Spark")
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise StopError(f"Spark cannot start ({first[0]}); what its JVM said stands above") from error
        if not mine:
            yield session
            return
        _keep_artifacts(session, folder)
        if runs_here(session) and not session.sparkContext.getConf().contains(_PARTITIONS):
            session.conf.set(_PARTITIONS, str(min(os.cpu_count() or 1, _MOST_LOCAL_PARTITIONS)))
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _workers_python(master: str, folder: Path) -> Iterator[None]:
    """Let workers run what runs here, and not whatever python3 is on the PATH, unless the user says what."""
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    launcher = folder / "python"
    launcher.write_text(_LAUNCHER % shlex.quote(sys.executable))
    launcher.chmod(0o700)
    # Other machines do not have the launcher, and a file system that is mounted noexec does not run it.
    runs = _is_local(master) and os.access(launcher, os.X_OK)
    os.environ["PYSPARK_PYTHON"] = str(launcher) if runs else sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


def _keep_artifacts(spark: SparkSession, folder: str) -> None:
    """Let Spark keep what belongs to a session in ``folder``, and its JVM remove that if this process cannot.

    Spark 4.0.0 makes ``artifacts`` in the working folder, where it means a folder for temporary files, and has
    no setting for it. Where another Spark has no such field it keeps its own place.
    """
    jvm = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
    own = jvm.java.io.File(folder)
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(own)
    try:
        manager = jvm.java.lang.Class.forName("org.apache.spark.sql.artifact.ArtifactManager$")
        for name, value in (("artifactRootDirectory", own.toPath()), ("bitmap$0", True)):
            field = manager.getDeclaredField(name)
            field.setAccessible(True)
            field.set(None, value)
    except Py4JError:
        return


def runs_here(spark: SparkSession) -> bool:
    """Return whether tasks run in the driver's own process, which those of `local-cluster` do not."""
    return _is_local(str(spark.sparkContext.master))


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


@contextmanager
def outlived(stopping: Callable[[], bool], say: Callable[[str], None]) -> Iterator[None]:
    """Let a job end well whose JVM was stopped before it, by a signal to both, as systemd stops a service.

    A JVM that ends by itself stays an error.
    """

    def told(record: logging.LogRecord) -> bool:
        return not (stopping() and (record.name != "root" or record.msg == _UNANSWERED))

    loggers = [logging.root, *map(logging.getLogger, ("py4j.clientserver", "py4j.java_gateway"))]
    for logger in loggers:
        logger.addFilter(told)
    try:
        yield
    except Exception:
        if not (stopping() and _jvm_ends()):
            raise
        say("Spark's JVM was stopped as well: the batch that it was in comes again")
    finally:
        for logger in loggers:
            logger.removeFilter(told)


def _jvm_ends() -> bool:
    """Return whether the JVM that this process has started ends."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - where PySpark keeps its JVM
    if process is None:
        return False
    try:
        process.wait(_JVM_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _launch(
    master: str,
    memory: str,
    jvm_flags: str,
    say: Callable[[str], None],
    jars: Sequence[Path],
) -> dict[str, str]:
    """Return the settings that a JVM is started with."""
    # Spark's scripts look at JAVA_HOME and PATH only, and take whatever is there.
    java = find_java()
    if java.note:
        say(java.note)
    os.environ["JAVA_HOME"] = str(java.home)
    return {
        "spark.master": master,
        **({"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{_LOGGING} {jvm_flags}",
        **(_LOCAL_SETTINGS if master.startswith("local") else {}),
    }
