"""Explains the failure of a query, and what to do, in an operator's words."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.outputs.output import PATIENCE_S, StoppedError, Stopping, pause_s, raised_in_batch

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class _Remedy(NamedTuple):
    """A failure that has a remedy."""

    signs: str
    """Regular expression of what Spark's text has in it."""
    meaning: str


_TOO_SLOW = r"Python worker failed to connect back"
# The first that fits counts.
_REMEDIES = (
    _Remedy(
        r"may have been (?:lost|missed)|KAFKA_DATA_LOSS|OffsetOutOfRange|CANNOT_FETCH|isn't in the range",
        "retention (or a deletion) has removed records from {topic} before they were read, or the topic was "
        "made anew. Counting on would leave them out silently. To go on without them: seqmark aggregate "
        "--accept-loss; to count what is there from the beginning: remove output, checkpoint and aside folder",
    ),
    _Remedy(
        r"UnknownTopicOrPartition|does not exist|UNKNOWN_TOPIC",
        "topic {topic} does not exist: the worker or `seqmark topics` creates it",
    ),
    _Remedy(
        r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|ConcurrentModification",
        "another process writes the same checkpoint; an aggregate runs once at a time",
    ),
    _Remedy(
        r"STATE_STORE_\w*SCHEMA_NOT_COMPATIBLE|STREAMING_STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_INVALID",
        "the aggregate was changed, and the state of the old one does not fit. Aggregates, windows and groups "
        "of an aggregate stay; give the new one another name, output and checkpoint",
    ),
    _Remedy(
        r"No space left on device|DiskErrorException|[Dd]isk quota",
        "a disk is full. Nothing is counted twice: make room and start again",
    ),
    _Remedy(
        _TOO_SLOW,
        "a Python worker of Spark's did not start in time: the machine has too much to do. Nothing is counted "
        "twice: start again",
    ),
    _Remedy(
        r"No resolvable bootstrap urls|TimeoutException|DisconnectException",
        "the broker does not answer. Nothing is counted twice: start again when it does",
    ),
    _Remedy(
        r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|NUMERIC_OUT_OF_SUPPORTED_RANGE",
        "a sum has outgrown its type; aggregate narrower numbers, or smaller windows",
    ),
)
_GONE = re.compile(
    r"(?:is|are) gone(?=: retention has removed)|begins at offset \d+(?=: retention has removed)"
)
"""What Seqmark's own source says of offsets, of one of the topics that it reads (`processor.kafka.plain`)."""
_UNKNOWN = "the query failed. Nothing is counted twice: mend the cause and start again"
_TRACE = re.compile(r"\n\s*at |\n\nDriver stacktrace|\n=== Streaming Query ===|\n\s*File \"")


def explain(name: str, topic: str, error: BaseException) -> StopError:
    """Return what ended the query of aggregate ``name``, with what to do."""
    text = str(error)
    message = raised_in_batch(text)
    if message is None:
        # Of a task that failed the text only says that it did; why stands in the causes.
        meaning = _meaning(text) or _meaning(_causes(error)) or _UNKNOWN
        message = meaning.format(topic=topic) + f". Spark says: {_first(text)}"
    elif (gone := _GONE.search(message)) is not None:
        message = f"{_REMEDIES[0].meaning.replace(' from {topic}', '')} ({message[: gone.end()]})"
    return StopError(message if message.startswith(f"aggregate {name}") else f"aggregate {name}: {message}")


def was_too_slow(error: BaseException) -> bool:
    """Return whether a Python worker of Spark's did not start within the 10 s that Spark waits for one."""
    return re.search(_TOO_SLOW, str(error)) is not None


def patiently(work: Callable[[], Result], what: str, say: Callable[[str], None], stopping: Stopping) -> Result:
    """Do work again, after growing pauses, for as long as Python workers of Spark's do not start in time.

    Raises:
        StoppedError: The process is to end meanwhile.
    """
    began, waits = time.monotonic(), 0
    while True:
        try:
            return work()
        except (PySparkException, Py4JError) as error:
            if not was_too_slow(error) or time.monotonic() - began > PATIENCE_S:
                raise
        pause, waits = pause_s(waits), waits + 1
        say(f"{what}: a Python worker of Spark's did not start in time, next try in {pause:g} s")
        if stopping.within(pause):
            raise StoppedError(f"{what}: ended while a Python worker of Spark's was waited for; it comes again")


def _meaning(text: str) -> str:
    return next((remedy.meaning for remedy in _REMEDIES if re.search(remedy.signs, text)), "")


def _causes(error: BaseException) -> str:
    """Return the lines of an error's JVM stack traces that name a cause, without where in the code it was."""
    lines: list[str] = []
    each: object = error
    while each is not None:
        # PySpark has both, and shows neither without the other's whole text.
        trace = getattr(each, "_stackTrace", None) or ""
        lines += [line for line in trace.splitlines() if line.startswith("Caused by: ")]
        each = getattr(each, "_cause", None)
    return "\n".join(lines)


def _first(text: str) -> str:
    """Return what Spark says, without its stack traces, in one line."""
    head = _TRACE.split(text, maxsplit=1)[0]
    head = re.sub(r"^\[STREAM_FAILED\].*?terminated with exception: ", "", head, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"\s*SQLSTATE: \w+", "", head)).strip().rstrip(".")[:600]
