"""What executors answer is read for what it is, and nobody waits for them who is to end."""

from __future__ import annotations

import threading
from importlib.resources import files

import pytest

from processor import errors
from processor.errors import StopError
from spark_sink.batch.cluster import task_cause
from spark_sink.outputs.output import StoppedError
from spark_sink.query.executors import LACKING, answered, difference, unanswered
from spark_sink.source import build
from spark_sink.source.build import SeqmarkBuild, own_build, task_build

OWN = SeqmarkBuild("0.2.0", "aa")
JOB = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 6) (192.0.2.2 executor 0): \
"""
"""How Spark 4.0 begins to tell of a job that failed; what follows it below is cut from its texts, too."""
NO_SEQMARK = """org.apache.spark.SparkException:\x20
Error from python worker:
  /bare/bin/python: Error while finding module specification for 'spark_sink.source.daemon' \
(ModuleNotFoundError: No module named 'spark_sink')
PYTHONPATH was:
  /spark/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number.
	at org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:298)
"""
NO_NUMPY = """org.apache.spark.SparkException:\x20
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 88, in _run_code
      import numpy as np
  ModuleNotFoundError: No module named 'numpy'
PYTHONPATH was:
  /spark/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number.
"""
NO_PYTHON = """java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file or directory
	at java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
ANOTHER_PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/pyspark.zip/pyspark/worker.py", line 1972, in main
    check_python_version(infile)
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python differs: 3.12, 3.11.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.

	at org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:940)
"""
NO_EXECUTOR = "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: worker lost"
CANCELLED = ": org.apache.spark.SparkException: Job 0 cancelled\n\tat a.B(C.scala:1)"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([OWN, OWN], ""),
        ([OWN, SeqmarkBuild("0.1.0", "bb")], f"{LACKING}: they have 0.1.0, the driver 0.2.0"),
        ([SeqmarkBuild("0.2.0", "cc"), OWN], f"{LACKING}: they have another build of 0.2.0"),
    ],
)
def test_one_executor_with_another_seqmark_is_enough(answers: list[SeqmarkBuild], told: str) -> None:
    assert difference(OWN, answers) == told


def test_a_task_answers_with_the_build_that_the_driver_has() -> None:
    assert task_build(0) == own_build()
    assert len(own_build().sources) == 64


def test_the_hash_is_of_all_three_programs() -> None:
    read = [path for package in build._PACKAGES for path, _ in build._sources(files(package), package)]

    assert {path.partition("/")[0] for path in read} == {"processor", "schemas", "spark_sink"}
    assert "spark_sink/source/task.py" in read
    assert f"{errors.__name__.replace('.', '/')}.py" in read


def test_a_process_that_is_to_end_cancels_its_question_until_it_has_ended() -> None:
    stopping, cancelled, ended = threading.Event(), threading.Event(), threading.Event()

    def ask() -> str:
        stopping.set()
        assert cancelled.wait(60)
        ended.set()
        return "cancelled"

    with pytest.raises(StoppedError, match="before the executors had answered"):
        answered(ask, cancelled.set, stopping.is_set)
    assert ended.is_set()


def test_an_executor_that_is_lost_says_nothing_of_its_python() -> None:
    for text in (JOB + NO_EXECUTOR, CANCELLED):
        with pytest.raises(
            StopError, match=r"did not say which Seqmark they have \(.*\): nothing was read, start"
        ):
            unanswered(Exception(text))
    assert unanswered(Exception(JOB + NO_PYTHON)).startswith(f"{LACKING}: ")


def test_what_executors_raise_is_raised_here() -> None:
    def ask() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        answered(ask, lambda: None, lambda: False)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (JOB + NO_SEQMARK, "ModuleNotFoundError: No module named 'spark_sink'"),
        (JOB + NO_NUMPY, "ModuleNotFoundError: No module named 'numpy'"),
        (JOB + NO_PYTHON, 'Cannot run program "./env/bin/python": error=2, No such file or directory'),
        (JOB + ANOTHER_PYTHON, "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python differs: 3.12, 3.11."),
        (JOB + NO_EXECUTOR, NO_EXECUTOR),
        (CANCELLED, "Job 0 cancelled"),
        ("", "RuntimeError"),
    ],
    ids=["no-seqmark", "no-numpy", "no-python", "another-python", "no-executor", "cancelled", "nothing"],
)
def test_the_cause_of_a_task_that_failed_is_told_in_a_line(text: str, cause: str) -> None:
    assert task_cause(RuntimeError(text)) == cause
