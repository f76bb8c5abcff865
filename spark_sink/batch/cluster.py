"""Hands items to Spark's tasks, and brings back what they return, or why the run has to stop."""

from __future__ import annotations

import errno
import gc
import re
import zipimport
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.session import runs_here, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

SETTINGS = {"spark.python.daemon.module": f"{__package__}.tasks.daemon"}
"""Of a session for batches: its workers begin with everything loaded."""
_JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No row goes through the JVM: what its second compiler and collectors with threads would gain is never earned.
They took 3 of 8 s of CPU of a start."""
T = TypeVar("T")
R = TypeVar("R")
_TASKS_PER_CORE = 2
"""So that a long one does not keep the others waiting, and short ones do not cost more than what they do."""
_FEW = 16
"""Items that are looked at here, where that is quicker than to ask Spark: a task costs 0.1 s of CPU."""
_SETTLED: set[str] = set()
_RAISED = re.compile(r"^ *((?:\w+\.)*\w+(?:Error|Exception|Interrupt): .*)$", re.MULTILINE)
"""What Python prints last; of a daemon that does not start Spark indents it."""
_NOT_FOUND = re.compile(r"\((\w+Error: .*)\)$", re.MULTILINE)
"""What ``python -m`` says of a module that is not there."""
_MODULES = re.compile(r"^(?:\w+\.)+(?=\w+: )")
"""What stands before the name of an exception."""
_LOST = re.compile(r" executor \S+\): (?:(?:\w+\.)+\w+: )?(.*\S)")
"""What Spark says of a task that did not come as far as Python."""
_SPARK_SAYS = re.compile(r"^: (?:\w+\.)*\w+: (.*)$", re.MULTILINE)


def files_session(
    name: str,
    *,
    master: str = "local[2]",
    memory: str = "1g",
    lakes: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> AbstractContextManager[SparkSession]:
    """Return Spark for files at rest, see `spark_session`; ``lakes`` are formats whose tables it reads."""
    return spark_session(
        name,
        master=master,
        memory=memory,
        jvm_flags=_JVM_FLAGS,
        settings=SETTINGS,
        kafka=False,
        lakes=lakes,
        say=say,
    )


class _Refusal(NamedTuple):
    """What a task returns in place of a result: where one raises, Spark does it again and prints its stack."""

    message: str


class TaskCluster:
    """Runs functions of one item in Spark's tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.cores = max(int(self._context.defaultParallelism), 1)
        self.is_local = runs_here(spark)
        """Whether tasks have no machine but this one: what is brief is done here as well as there."""

    def run(self, function: Callable[[T], R], items: Sequence[T], what: str, *, brief: bool = False) -> list[R]:
        """Return what the function returns for each item, in their order.

        A task takes one item or a few that follow each other.

        Args:
            function: Of a module that executors can import.
            items: What it is called with.
            what: Named where a task fails.
            brief: Whether an item takes milliseconds; a few such are not worth tasks.

        Raises:
            StopError: A task refuses its item, or Spark fails.
        """
        if not items:
            return []
        try:
            here = brief and len(items) <= _FEW
            made: list[Any] = (
                [_refusing(function, each) for each in items] if here else self._deal_out(function, items)
            )
        except Exception as error:
            if not isinstance(error, PySparkException) and "py4j" not in type(error).__module__:
                raise
            raise StopError(
                f"{what}: a task of Spark failed ({task_cause(error)}); nothing of this run counts, start it "
                f"again"
            ) from error
        for each in made:
            if isinstance(each, _Refusal):
                raise StopError(each.message)
        return made

    def _deal_out(self, function: Callable[[T], R], items: Sequence[T]) -> list[Any]:
        tasks = min(len(items), _TASKS_PER_CORE * self.cores)
        made: list[Any] = self._context.parallelize(items, tasks).map(partial(_guarded, function)).collect()
        return made


def be_daemon(warm: Callable[[], None]) -> None:
    """Load everything, then be PySpark's daemon, whose workers are forks of this process."""
    from pyspark import daemon  # noqa: PLC0415 - it reads the command line as it is imported

    warm()
    gc.collect()
    _settle()  # the pages stay shared, too
    daemon.manager()


def _settle() -> None:
    """Let a worker leave alone after each task what it has loaded.

    PySpark has its collector look at all of it, 65 ms, and the importer read the list of files of `pyspark.zip`
    again for each package in it, 100 to 200 ms. What is loaded stays, and that file does not change.
    """
    gc.freeze()
    zipimport.zipimporter.invalidate_caches = _unchanged  # type: ignore[assignment,method-assign]  # see above


def _unchanged(_: zipimport.zipimporter) -> None:
    pass


def _settle_after(name: str) -> None:
    """Settle after the first call of each function: kernels are loaded when they are called first."""
    if name not in _SETTLED:
        _settle()
        _SETTLED.add(name)


def _guarded(function: Callable[[T], R], item: T) -> R | _Refusal:
    made = _refusing(function, item)
    _settle_after(getattr(getattr(function, "func", function), "__name__", ""))
    return made


def _refusing(function: Callable[[T], R], item: T) -> R | _Refusal:
    try:
        return function(item)
    except StopError as error:
        return _Refusal(str(error))
    except OSError as error:
        why = "a disk is full" if error.errno == errno.ENOSPC else str(error)
        return _Refusal(f"{why}; nothing of this run counts: mend that and start it again")


def task_cause(error: Exception) -> str:
    """Return what a task has raised, or what Spark says of it, in a line."""
    text = str(error)
    raised = [each for each in _RAISED.findall(text) if not each.startswith(("org.", "java."))]
    told = (
        raised[-1:]
        or _NOT_FOUND.findall(text)[:1]
        or _LOST.findall(text)[:1]
        or _SPARK_SAYS.findall(text)[:1]
        or text.splitlines()[:1]
    )
    return _MODULES.sub("", (told or [type(error).__name__])[0].strip())[:300]
