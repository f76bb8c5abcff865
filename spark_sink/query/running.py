"""Begins queries one after the other, follows them until they have ended, and stops them.

Spark waits 10 s, by no setting, for the Python process that plans a stream of Seqmark's own source. On a busy
machine each beginning makes the others slower. So one query begins at a time, and one that was too slow comes
again behind the others, after pauses that grow. What fails otherwise stops all.

Signals and Spark's threads talk to the main thread by one queue, whose `put` may be called from a handler.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from typing_extensions import override

from processor.errors import StopError
from spark_sink.failures import explain, was_too_slow
from spark_sink.outputs.output import PATIENCE_S, Stopping, pause_s
from spark_sink.query.progress import IdleQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming import StreamingQuery

    from schemas.config import Sink
    from spark_sink.query.job_options import Audience
    from spark_sink.query.progress import SinkMetrics, Totals
    from spark_sink.side_output import SideOutput

LOOK_S = 5.0
_BEGINNING_LOOK_S = 0.2
_REPORTS_S = 30.0
"""So long a query's reports may come after its end: they say what its last batches did not count, and why."""
_ALONE_S = 60.0
"""So long the others wait at most for one that begins: it may have to compile the kernels."""
_PLANS_NOTHING = ("Initializing", "Getting offsets")
"""Beginnings of what Spark's status says of a query whose Python process has not answered yet."""


@dataclass(slots=True)
class RunningQuery:
    """One aggregate's query, which `begin` starts from its checkpoint."""

    sink: Sink
    aside: SideOutput
    begin: Callable[[], StreamingQuery]
    require_topic: Callable[[], None]
    until_idle: bool
    query: StreamingQuery | None = None
    tries: int = 0
    begun: bool = False
    """Whether the Python process of its present run has answered."""
    idle: bool = False
    ended: bool = False
    due_s: float = 0.0
    """When it is begun, of those that wait for that."""
    _first_s: float = 0.0
    _since_s: float = 0.0
    _gone_s: float | None = None

    @property
    def run(self) -> str:
        """What Spark calls this run of it; one that begins again has another."""
        return "" if self.query is None else str(self.query.runId)

    def start(self) -> None:
        """Begin it."""
        self._since_s = time.monotonic()
        if not self.tries:
            self._first_s = self._since_s
        self.tries += 1
        self._gone_s, self.begun = None, False
        self.query = self.begin()
        self.aside.began(str(self.query.id), self.require_topic)

    def is_beginning(self) -> bool:
        """Look whether the others wait for it."""
        if self.query is None or self.begun or self.ended or not self.query.isActive:
            return False
        self.begun = not self.query.status["message"].startswith(_PLANS_NOTHING)
        return not self.begun and time.monotonic() - self._since_s < _ALONE_S

    def given_up(self) -> bool:
        """Look whether it has ended, and so long since a look found it gone that no report can be expected."""
        if self.query is None or self.ended or self.query.isActive:
            return False
        if self._gone_s is None:
            self._gone_s = time.monotonic()
        return time.monotonic() - self._gone_s >= _REPORTS_S

    def was_too_slow(self, error: BaseException) -> bool:
        """Return whether its Python process did not start in time, before the run has done a batch."""
        return was_too_slow(error) and (self.query is None or self.query.lastProgress is None)

    def put_off(self) -> float | None:
        """Let it wait before it begins again; returns how many seconds, None: it was tried for long enough."""
        self.query = None
        now = time.monotonic()
        if now - self._first_s > PATIENCE_S:
            return None
        pause = pause_s(self.tries - 1)
        self.due_s = now + pause
        return pause


class Queries:
    """The queries of a job; all but `ask_to_end` and `news` is of its main thread."""

    def __init__(self, audience: Audience, metrics: SinkMetrics, totals: Mapping[str, Totals]) -> None:
        self.news: SimpleQueue[StopError | IdleQuery | str | None] = SimpleQueue()
        """What ends the job, a query that is idle, the run of one that has ended; None: the job is to end."""
        self.stopping = False
        self._audience, self._metrics, self._totals = audience, metrics, totals
        self._all: list[RunningQuery] = []
        self._too_slow: list[StopError] = []
        self._looked_s = time.monotonic()

    def add(self, query: RunningQuery) -> None:
        """Let a query begin when it is its turn."""
        self._all.append(query)

    def follow(self, seconds: float | None = None) -> bool:
        """Begin queries and hear of them, until all have ended or the time is over.

        Returns:
            Whether the job is to end before.

        Raises:
            StopError: What one of them has failed with.
        """
        end_s = None if seconds is None else time.monotonic() + seconds
        while not self.stopping:
            left_s = LOOK_S if end_s is None else end_s - time.monotonic()
            if left_s <= 0 or (end_s is None and all(each.ended for each in self._all)):
                break
            self._begin_next()
            busy = any(not (each.begun or each.ended) for each in self._all)
            self._hear(min(left_s, _BEGINNING_LOOK_S if busy else LOOK_S))
        return self.stopping

    def require_all_begun(self) -> None:
        """Raise what kept some from beginning, which has not stopped the others."""
        if self._too_slow:
            raise self._too_slow[0]

    def _begin_next(self) -> None:
        if any([each.is_beginning() for each in self._all]):  # noqa: C419 - each is looked at
            return
        now = time.monotonic()
        due = [each for each in self._all if each.query is None and not each.ended and each.due_s <= now]
        if not due:
            return
        first = min(due, key=lambda each: each.due_s)
        try:
            first.start()
        except (PySparkException, Py4JError) as error:
            self._failed(first, error)
        else:
            self._metrics.up.labels(first.sink.name).set(1)

    def _hear(self, seconds: float) -> None:
        if time.monotonic() - self._looked_s >= LOOK_S:  # however much there is to hear
            self._look()
        try:
            news = self.news.get(timeout=seconds)
        except Empty:
            self._look()
            return
        if isinstance(news, StopError):
            raise news
        if news is None:
            self.stopping = True
            return
        run = news.run if isinstance(news, IdleQuery) else news
        each = next((each for each in self._all if each.run == run and not each.ended), None)
        if each is None:
            return
        if not isinstance(news, IdleQuery):
            self._ended(each)
        elif each.until_idle and not each.idle:
            # Its end is news of its own.
            each.idle = True
            self._stop(each)

    def _look(self) -> None:
        self._looked_s = time.monotonic()
        # Spark's reports may be dropped where there are too many of them.
        for each in self._all:
            if each.given_up():
                self._ended(each)
        self._audience.progress(self._totals)

    def _ended(self, each: RunningQuery) -> None:
        self._metrics.up.labels(each.sink.name).set(0)
        # What it was stopped in was no batch.
        error: Any = None if each.idle or each.query is None else each.query.exception()
        if error is None:
            each.ended = True
        else:
            self._failed(each, error)

    def _failed(self, each: RunningQuery, error: BaseException) -> None:
        """Put a query off that was too slow; whatever else has ended one ends all."""
        name = each.sink.name
        explained = explain(name, each.sink.topic, error)
        if not each.was_too_slow(error):
            each.ended = True
            raise explained from None
        if (pause := each.put_off()) is not None:
            self._audience.say(
                f"{name}: a Python worker of Spark's did not start in time, before anything was read; it "
                f"begins again in {pause:g} s"
            )
            return
        each.ended = True
        self._too_slow.append(explained)
        self._audience.warn(
            f"{name}: has not begun for {PATIENCE_S / 60:.0f} minutes, in {each.tries} tries, and is left out: "
            "no Python worker of Spark's started in time. The others go on; start the job again when the "
            "machine has less to do"
        )

    # ------------------------------------------------------------------ end

    def end(self, *, finish: bool) -> None:
        """Stop all that run; with ``finish`` write aside what is left to be."""
        for each in self._all:
            self._stop(each)
        for each in self._all:
            self._totals[each.sink.name].left = each.aside.close(finish=finish)

    def _stop(self, each: RunningQuery) -> None:
        """Stop a query; the batch that it is in comes again at the next start."""
        if each.ended or each.query is None:
            return
        try:
            each.query.stop()
        except (PySparkException, Py4JError) as error:
            self._audience.say(f"{each.sink.name}: {explain(each.sink.name, each.sink.topic, error)}")
        self._metrics.up.labels(each.sink.name).set(0)


class JobStopping(Stopping):
    """Tells of the end of a job whose main thread follows its queries while it waits for something else."""

    def __init__(self, queries: Queries) -> None:
        super().__init__()
        self._queries = queries
        self.main = threading.get_ident()

    @override
    def within(self, seconds: float) -> bool:
        return self._queries.follow(seconds) if threading.get_ident() == self.main else super().within(seconds)
