"""A worker that comes near its memory limit says so, and stops at it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from processor.errors import StopError
from processor.ops import memory_limit
from processor.ops.memory_limit import Pressure, resident_bytes, watch
from processor.ops.metrics import Metrics

GB = 1_000_000_000


def pressure_of(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("seqmark_memory_pressure_ratio")


def test_below_the_limit_it_only_shows() -> None:
    metrics = Metrics()
    Pressure(2 * GB, metrics).look(GB)
    assert metrics.registry.get_sample_value("seqmark_memory_bytes") == GB
    assert pressure_of(metrics) == 0.5


def test_there_is_one_warning_each_time_it_comes_near(caplog: pytest.LogCaptureFixture) -> None:
    pressure = Pressure(GB, Metrics())
    warnings = []
    for percent in (79, 80, 90, 78, 85, 70, 81):
        pressure.look(GB * percent // 100)
        warnings.append(len(caplog.records))
    assert warnings == [0, 1, 1, 1, 1, 1, 2]
    assert caplog.records[0].levelno == logging.WARNING
    assert "800 MB of worker.memory_limit's 1000 MB" in caplog.messages[0]


def test_at_the_limit_it_stops_and_says_what_to_do() -> None:
    with pytest.raises(StopError, match=r"worker\.memory_limit is 1,000 MB.*[Rr]aise the limit"):
        Pressure(GB, Metrics()).look(GB)


def test_without_a_limit_nothing_stops() -> None:
    metrics = Metrics()
    Pressure(None, metrics).look(10**15)
    assert pressure_of(metrics) == 0


def test_a_watch_ends_the_worker_at_the_limit() -> None:
    ended: list[Exception] = []
    asyncio.run(asyncio.wait_for(watch(1, Metrics(), ended.append), 30))
    assert [type(error) for error in ended] == [StopError]


def test_where_the_system_does_not_say_what_is_in_use_the_limit_is_said_to_have_no_effect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_limit, "resident_bytes", lambda: None)
    ended: list[Exception] = []
    asyncio.run(asyncio.wait_for(watch(GB, Metrics(), ended.append), 30))
    assert not ended
    assert "has no effect" in caplog.text


def test_what_is_in_use_is_megabytes_and_no_pages() -> None:
    used = resident_bytes()
    assert used is None or 10_000_000 < used < 100 * GB
