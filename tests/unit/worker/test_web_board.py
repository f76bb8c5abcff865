"""The status of a worker counts what its metrics count, and costs nearly nothing while nobody asks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from processor.config.load import load
from processor.ops.escaped import EscapedCount, EscapeReason, EscapeReport
from processor.ops.metrics import RECENT_COMMITS, Metrics
from processor.ops.troubles import Troubles
from processor.worker.web.board import STEP_S, STEPS, Board
from processor.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTITIONS = 64
CONFIG = """
[kafka]
bootstrap_servers = "localhost:1"
[worker]
application_id = "a"
state_dir = "{folder}"
memory_limit = "100GB"
[[pipelines]]
name = "p"
source = "s"
sink = "t"
[pipelines.dedup]
mode = "insert-id"
id = [{{ from = "key" }}]
window = "1d"
"""


def on_board(folder: Path, act: Callable[[Board, Metrics], Any]) -> Any:
    """Return what ``act`` finds with the board of a worker that has not joined yet."""
    (folder / "my.toml").write_text(CONFIG.format(folder=folder / "state"))
    settings = load(folder / "my.toml", {})

    async def put(*_: Any) -> None:
        """Take nothing: the worker has no slots."""

    async def run() -> Any:
        metrics = Metrics()
        worker = Worker(settings, metrics, put)
        try:
            return act(Board(settings, metrics, worker, Troubles()), metrics)
        finally:
            await worker.stop()

    return asyncio.run(run())


def test_the_last_ten_minutes_are_kept_step_by_step(tmp_path: Path) -> None:
    def act(board: Board, metrics: Metrics) -> Any:
        began = time.monotonic()
        for step in range(1, STEPS + 10):
            metrics.records.labels("p", "pass").inc(step)
            metrics.records.labels("p", "late").inc(step % 2)
            board.tick(began + step * STEP_S)
        return board.fields()["pipelines"][0]["history"]

    history = on_board(tmp_path, act)

    assert history["records"]["pass"] == list(range(10, STEPS + 10))
    assert history["records"]["late"] == [step % 2 for step in range(10, STEPS + 10)]
    assert history["records"]["duplicate"] == [0] * STEPS
    assert set(history["seconds"]) == {STEP_S}


def test_quantiles_are_of_the_newest_commits(tmp_path: Path) -> None:
    def act(board: Board, metrics: Metrics) -> Any:
        for _ in range(RECENT_COMMITS):
            metrics.committed("p", 60.0)
        for milliseconds in range(1, RECENT_COMMITS + 1):
            metrics.committed("p", milliseconds / 1000)
        return board.fields()["pipelines"][0]["commit"]

    assert on_board(tmp_path, act) == {"p50_ms": 500.0, "p99_ms": 990.0, "of": 1000}


def test_what_escaped_is_said_as_the_gauge_says_it(tmp_path: Path) -> None:
    count = EscapedCount(3, 30.0, 10.0, ((1.5, 30.0),), 45.0, 1.2, 1.5)
    report = EscapeReport(86_400.0, {EscapeReason.WINDOW: count, EscapeReason.PARTITION: EscapedCount()}, 0.1)

    def act(board: Board, metrics: Metrics) -> Any:
        before = board.fields()["pipelines"][0]["escaped"]
        metrics.escapes.reports["p"] = report
        return before, board._made(board.tick(time.monotonic()))["pipelines"][0]["escaped"]

    before, after = on_board(tmp_path, act)

    assert before is None
    assert after["window"] == {"estimate": 30.0, "lower": 10.0}
    assert after["sample_ratio"] == 0.1
    assert after["says"] == report.sentences() != []


def test_memory_is_held_against_its_limit(tmp_path: Path) -> None:
    memory = on_board(tmp_path, lambda board, _: board.fields()["memory"])

    assert memory["limit_bytes"] == 100e9
    assert memory["share"] == round(memory["used_bytes"] / 100e9, 4) > 0


def test_while_nobody_looks_it_costs_less_than_a_millisecond_per_second(tmp_path: Path) -> None:
    def act(board: Board, metrics: Metrics) -> float:
        for partition in range(PARTITIONS):
            metrics.begin("p", partition, 0, 100)
            for gauge in (metrics.ids, metrics.scopes, metrics.state_bytes):
                gauge.labels("p", str(partition)).set(1)
        began, spent = time.monotonic(), []
        for step in range(10):
            before = time.process_time()
            board.tick(began + step * STEP_S)
            spent.append(time.process_time() - before)
        return min(spent)

    assert on_board(tmp_path, act) / STEP_S < 0.001
