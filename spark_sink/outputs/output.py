"""Where the rows of an aggregate go, batch after batch.

An output is made before Spark reads anything, prepared once, and started with the query's writer. What it
promises when a batch comes a second time (after a crash between write and commit log) stands in its module,
and for readers in docs/spark.md.
"""

from __future__ import annotations

import re
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.config import Kafka, Sink
    from schemas.event import Column

Mode = Literal["append", "update"]
_QUERY_ID = "sql.streaming.queryId"
"""Spark's `StreamExecution.QUERY_ID_KEY`: a local property of the thread that runs the batch."""


FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
PATIENCE_S = 900.0
"""A server that is patched or fails over is back in minutes, and so is a busy machine. Longer is a person's
matter."""


def pause_s(waits: int) -> float:
    """Return how long to wait for something outside, after so many waits."""
    return min(FIRST_WAIT_S * (1 << min(waits, 10)), LONGEST_WAIT_S)


class StoppedError(StopError):
    """An output waited for something outside when the process was asked to end: no failure."""


class Stopping:
    """Tells those who wait for something outside that the process is to end.

    By a queue and no event, because a signal's handler may put into one at any time.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """Let all waits end."""
        self._asked.put(None)

    def within(self, seconds: float) -> bool:
        """Wait; return whether the process is to end."""
        try:
            self._asked.get(timeout=seconds)
        except Empty:
            return False
        self._asked.put(None)  # for whoever else waits
        return True


class SinkOutput(Protocol):
    """Where the aggregates of one aggregate go."""

    @property
    def mode(self) -> Mode:
        """``update``: a window's row is written again when it changes; ``append``: once, when it is closed.

        Session windows only allow ``append``: Spark may still join two of them.
        """
        ...

    def prepare(self, columns: Sequence[Column]) -> None:
        """Create what is missing, or check what is there, before Spark reads anything.

        Raises:
            StopError: What is there does not fit; the message shows the difference.
        """
        ...

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query; the writer has everything but where its rows go."""
        ...


class OutputPlace(NamedTuple):
    """What an output may need to know beside its own table of the config."""

    spark: SparkSession
    sink: Sink
    kafka: Kafka
    create_topics: bool
    """``worker.create_topics``: whether to create a missing topic."""
    say: Callable[[str], None]
    stopping: Stopping | None = None
    """Whoever waits for something outside gives up when the process is to end."""
    require_topic: Callable[[], None] = lambda: None
    """Refuses a topic that is not the one that the query began with. Asked before and after a batch is written:
    a batch that was planned or read across the change must not come into the commit log."""


def mode_of(sink: Sink) -> Mode:
    """Return the mode of an output that can replace a row that it has."""
    return "append" if sink.session_gap else "update"


def each_batch(
    place: OutputPlace, writer: DataStreamWriter, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start a query that hands each batch's rows to ``write``, with the batch's number.

    A batch comes again with the same number and the same rows when the query ended before it was in the
    commit log. What ``write`` raises ends the query; of a `SeqmarkError` people are shown the message.
    """

    def guarded(rows: DataFrame, number: int) -> None:
        place.require_topic()
        write(rows, number)
        place.require_topic()

    return writer.foreachBatch(guarded).start()


def query_of(rows: DataFrame) -> str:
    """Return the id of the query that a batch's rows are of, in the thread that writes them."""
    query: str | None = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if query is None:
        raise RuntimeError(f"Spark gives no {_QUERY_ID} to the thread of a batch")
    return query


_RAISED = re.compile(
    r"processor\.errors\.\w+: (.*?)\s*(?:SQLSTATE|\n\tat |\n=== Streaming Query|\Z)", re.DOTALL
)


def raised_in_batch(text: str) -> str | None:
    """Return the message of a `SeqmarkError` raised in a batch, from the text of the query's exception."""
    match = _RAISED.search(text)
    return match[1].strip() if match else None
