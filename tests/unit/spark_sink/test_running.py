"""When does a query begin again, and when does it end the process?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from spark_sink.query.running import BEGINNINGS, RunningQuery

if TYPE_CHECKING:
    import pytest

TOO_SLOW = RuntimeError(
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
)


def running(last_progress: object = None) -> tuple[RunningQuery, list[object]]:
    """Return a query, and where each run of it is noted."""
    runs: list[object] = []

    def begin() -> Any:
        runs.append(f"run {len(runs)}")
        return SimpleNamespace(runId=runs[-1], lastProgress=last_progress, isActive=False)

    return RunningQuery(cast("Any", None), cast("Any", None), begin, until_idle=False), runs


def test_a_worker_that_is_too_slow_is_waited_for_again_and_not_for_ever() -> None:
    query, runs = running()
    for number in range(1, BEGINNINGS):
        query.ended = True
        assert query.begins_again(TOO_SLOW)
        assert (query.run, query.ended) == (f"run {number}", False)
    assert not query.begins_again(TOO_SLOW)
    assert len(runs) == BEGINNINGS


def test_what_fails_otherwise_or_later_ends_it() -> None:
    assert not running()[0].begins_again(RuntimeError("No space left on device"))
    assert not running({"batchId": 0})[0].begins_again(TOO_SLOW)


def test_one_that_begins_again_is_not_given_up_for_the_run_before(monkeypatch: pytest.MonkeyPatch) -> None:
    query, _ = running()
    monkeypatch.setattr("spark_sink.query.running._REPORTS_S", 0.0)
    assert query.given_up()
    monkeypatch.setattr("spark_sink.query.running._REPORTS_S", 60.0)
    assert query.begins_again(TOO_SLOW)
    assert not query.given_up()
