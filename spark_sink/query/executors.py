"""Asks the executors of a cluster whether their Python has Seqmark, and the same one as the driver.

Each core that is there when a job starts gets a task that answers. One that fails is tried again elsewhere, as
those of a query are. An executor that comes later is not asked: without Seqmark it fails in its first task.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none

from processor.errors import StopError
from spark_sink.batch.cluster import task_cause
from spark_sink.outputs.output import StoppedError
from spark_sink.session import runs_here
from spark_sink.source.build import SeqmarkBuild, own_build, task_build

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession

T = TypeVar("T")
LACKING = "executors have no Python with this version of Seqmark"
_GROUP = "seqmark-executors"
_LOOK_S = 0.5
_UNANSWERED = ("ExecutorLostFailure", "cancelled")
"""What Spark says where a task did not fail by itself: that says nothing of Python."""


def why_lacking(spark: SparkSession, say: Callable[[str], None], stopping: Callable[[], bool]) -> str:
    """Return why executors cannot read by Seqmark's own source; empty: they can.

    With a local master nobody is asked. Elsewhere it waits until there is an executor, as every job does.

    Args:
        spark: The session.
        say: Told before it waits.
        stopping: Whether the process is to end: then it does not wait any more.

    Raises:
        StoppedError: The process is to end.
        StopError: They were lost, or the question was cancelled, before they had answered.
    """
    if runs_here(spark):
        return ""
    context = spark.sparkContext
    # Spark plans what such a source reads by the same path, in a process beside the driver.
    if shutil.which(context.pythonExec) is None:
        return (
            f"the driver has no {context.pythonExec} (PYSPARK_PYTHON), by which Spark plans what executors read"
        )
    say("asking the executors for their Python")

    def ask() -> list[SeqmarkBuild]:
        context.setJobGroup(_GROUP, "asks executors which Seqmark they have")
        tasks = max(context.defaultParallelism, 1)
        answers = context.parallelize(range(tasks), tasks).map(task_build).collect()
        return [SeqmarkBuild(*answer[:2]) for answer in answers]

    try:
        answers = answered(ask, lambda: context.cancelJobGroup(_GROUP), stopping)
    except Py4JJavaError as error:
        return unanswered(error)
    return difference(own_build(), answers)


def answered(ask: Callable[[], T], cancel: Callable[[], None], stopping: Callable[[], bool]) -> T:
    """Return what ``ask`` returns, or cancel it where the process is to end meanwhile.

    Raises:
        StoppedError: The process is to end.
    """
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(ask)
        while not wait([answer], _LOOK_S).done:
            # Again and again: before Spark has the job there is nothing to cancel.
            if stopping():
                cancel()
    if stopping():
        raise StoppedError("stopped before the executors had answered")
    return answer.result()


def unanswered(error: Exception) -> str:
    """Return why the tasks that were to answer failed, where that is for their Python.

    Raises:
        StopError: It is not: a choice that a checkpoint keeps must not hang on it.
    """
    if any(each in str(error) for each in _UNANSWERED):
        raise StopError(
            f"the executors did not say which Seqmark they have ({task_cause(error)}): nothing was read, start "
            f"again"
        ) from error
    return f"{LACKING}: {task_cause(error)}"


def difference(own: SeqmarkBuild, answers: Collection[SeqmarkBuild]) -> str:
    """Return how the Seqmark of executors differs from the driver's; empty: it is the same everywhere."""
    others = sorted({answer for answer in answers if answer.sources != own.sources})
    if not others:
        return ""
    other = others[0].version
    if other == own.version:
        return f"{LACKING}: they have another build of {own.version or 'it'}"
    return f"{LACKING}: they have {other or 'an unnamed one'}, the driver {own.version or 'another one'}"
