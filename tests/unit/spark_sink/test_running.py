"""Queries begin one after the other, again where Spark was too slow, and what fails ends them at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkException

from processor.errors import StopError
from spark_sink.query.progress import SinkMetrics, Totals
from spark_sink.query.running import JobStopping, Queries, RunningQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

TOO_SLOW = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
PLANS, WORKS = "Getting offsets from seqmark", "Processing new data"


class Heard(list[str]):
    """What the job's audience is told."""

    say = warn = list.append

    def progress(self, _totals: object) -> None:
        """Nobody looks."""


@dataclass
class SparkQuery:
    """A query as Spark shows it: it ends with an error, or is done as soon as it works."""

    job: Job
    name: str
    error: str | None
    id: int = 1
    lastProgress: object = None  # noqa: N815 - Spark's name
    looks: int = 0

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's name
        return f"{self.name} {id(self)}"

    isActive = True  # noqa: N815 - Spark's name

    @property
    def status(self) -> dict[str, str]:
        self.looks += 1
        if self.looks == 3:
            self.job.queries.news.put(self.runId)
        return {"message": WORKS if self.looks >= 3 and self.error is None else PLANS}

    def exception(self) -> Exception | None:
        return None if self.error is None else PySparkException(self.error)

    def stop(self) -> None:
        self.job.events.append(f"{self.name} stopped")


@dataclass
class Job:
    """Queries, and what becomes of them."""

    heard: Heard = field(default_factory=Heard)
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queries = Queries(cast("Any", self.heard), SinkMetrics(), {name: Totals() for name in "abc"})

    def add(self, name: str, errors: Sequence[str | None] = (), *, at_load: bool = False) -> None:
        """Add one whose first runs end with these errors; ``at_load``: already as Spark loads it."""
        left = list(errors)

        def begin() -> Any:
            self.events.append(f"{name} begins")
            error = left.pop(0) if left else None
            if error and at_load:
                raise PySparkException(error)
            return SparkQuery(self, name, error)

        aside = SimpleNamespace(began=lambda *_: None, close=lambda *, finish: int(finish))
        sink = SimpleNamespace(name=name, topic="clicks.clean")
        self.queries.add(
            RunningQuery(cast("Any", sink), cast("Any", aside), begin, lambda: None, until_idle=False)
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause for milliseconds, and look often."""
    monkeypatch.setattr("spark_sink.outputs.output.FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("spark_sink.query.running._BEGINNING_LOOK_S", 0.005)
    monkeypatch.setattr("spark_sink.query.running.LOOK_S", 0.01)


def test_one_begins_when_the_one_before_has_planned() -> None:
    job = Job()
    for name in "abc":
        job.add(name)
    looks: list[int] = []
    first, second, _ = job.queries._all
    begin = second.begin

    def begin_second() -> Any:
        looks.append(cast("Any", first.query).looks)
        return begin()

    second.begin = begin_second

    assert not job.queries.follow()

    assert job.events == ["a begins", "b begins", "c begins"]
    assert looks == [3]


@pytest.mark.parametrize("at_load", [True, False])
def test_one_that_is_too_slow_begins_again_behind_the_others_after_growing_pauses(*, at_load: bool) -> None:
    job = Job()
    job.add("a", [TOO_SLOW] * 3, at_load=at_load)
    job.add("b")

    assert not job.queries.follow()
    job.queries.require_all_begun()

    assert job.events == ["a begins", "b begins", "a begins", "a begins", "a begins"]
    assert [text.rpartition("again in ")[2] for text in job.heard] == ["0.05 s", "0.1 s", "0.2 s"]


def test_one_that_never_begins_is_left_out_and_said_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_sink.query.running.PATIENCE_S", 0.2)
    job = Job()
    job.add("a", [TOO_SLOW] * 100)
    job.add("b")

    assert not job.queries.follow()

    assert "b stopped" not in job.events
    assert "a: has not begun for " in job.heard[-1]
    with pytest.raises(StopError, match="aggregate a: a Python worker of Spark's did not start in time"):
        job.queries.require_all_begun()


def test_another_failure_ends_all() -> None:
    job = Job()
    job.add("a", ["No space left on device"])
    job.add("b")

    with pytest.raises(StopError, match="aggregate a: a disk is full"):
        job.queries.follow()
    job.queries.end(finish=False)

    assert job.events == ["a begins"]


def test_what_fails_is_heard_while_a_later_one_waits_at_its_start() -> None:
    job = Job()
    job.add("a", ["No space left on device"])
    began = time.monotonic()

    with pytest.raises(StopError, match="aggregate a: a disk is full"):
        JobStopping(job.queries).within(60)

    assert time.monotonic() - began < 30


def test_a_wait_ends_when_the_job_is_to_end_and_not_before() -> None:
    job = Job()
    stopping = JobStopping(job.queries)

    assert not stopping.within(0.01)
    job.queries.news.put(None)
    assert stopping.within(60)


def test_a_run_that_has_done_a_batch_does_not_begin_again() -> None:
    job = Job()
    job.add("a", [TOO_SLOW])
    job.queries._begin_next()
    cast("Any", job.queries._all[0].query).lastProgress = {"batchId": 0}

    with pytest.raises(StopError, match="did not start in time"):
        job.queries.follow()


def test_one_that_begins_again_is_not_given_up_for_the_run_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_sink.query.running._REPORTS_S", 0.0)
    monkeypatch.setattr(SparkQuery, "isActive", False)
    job = Job()
    job.add("a", [TOO_SLOW])
    job.queries._begin_next()
    query = job.queries._all[0]
    assert query.given_up()
    monkeypatch.setattr("spark_sink.query.running._REPORTS_S", 60.0)
    query.start()
    assert not query.given_up()
