"""Hands items to Spark's tasks, and brings back what they return, or why the run has to stop."""

from __future__ import annotations

import errno
import gc
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark.errors import PySparkException

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_TASKS_PER_CORE = 2
"""So that a long one does not keep the others waiting, and short ones do not cost more than what they do."""
_SETTLED: list[bool] = []
_RAISED = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception|Interrupt): .*)$", re.MULTILINE)
_SPARK_SAYS = re.compile(r"^: (?:\w+\.)*\w+: (.*)$", re.MULTILINE)


class _Refusal(NamedTuple):
    """What a task returns in place of a result: where one raises, Spark does it again and prints its stack."""

    message: str


class TaskCluster:
    """Runs functions of one item in Spark's tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.cores = max(int(self._context.defaultParallelism), 1)

    def run(self, function: Callable[[T], R], items: Sequence[T], what: str) -> list[R]:
        """Return what the function returns for each item, in their order.

        A task takes one item or a few that follow each other.

        Args:
            function: Of a module that executors can import.
            items: What it is called with.
            what: Named where a task fails.

        Raises:
            StopError: A task refuses its item, or Spark fails.
        """
        if not items:
            return []
        try:
            made: list[Any] = self._deal_out(function, items)
        except Exception as error:
            if not isinstance(error, PySparkException) and "py4j" not in type(error).__module__:
                raise
            raise StopError(
                f"{what}: a task of Spark failed ({_cause(error)}); nothing of this run counts, start it again"
            ) from error
        for each in made:
            if isinstance(each, _Refusal):
                raise StopError(each.message)
        return made

    def _deal_out(self, function: Callable[[T], R], items: Sequence[T]) -> list[Any]:
        tasks = min(len(items), _TASKS_PER_CORE * self.cores)
        made: list[Any] = self._context.parallelize(items, tasks).map(partial(_guarded, function)).collect()
        return made


def _settle() -> None:
    """Let the worker's collector leave alone what is loaded: it looks at all of it after each task, 65 ms."""
    if not _SETTLED:
        gc.freeze()
        _SETTLED.append(True)


def _guarded(function: Callable[[T], R], item: T) -> R | _Refusal:
    _settle()
    try:
        return function(item)
    except StopError as error:
        return _Refusal(str(error))
    except OSError as error:
        why = "a disk is full" if error.errno == errno.ENOSPC else str(error)
        return _Refusal(f"{why}; nothing of this run counts: mend that and start it again")


def _cause(error: Exception) -> str:
    """Return what a task has raised, or what Spark says of it."""
    text = str(error)
    raised = [each for each in _RAISED.findall(text) if not each.startswith(("org.", "java."))]
    told = raised[-1:] or _SPARK_SAYS.findall(text)[:1] or text.splitlines()[:1]
    return (told or [type(error).__name__])[0].strip()[:300]
