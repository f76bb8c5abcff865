"""What a person sees of a running worker, at a terminal and in a file."""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import New, environment, open_transaction, until
from tests.support.suite.terminal import OnTerminal
from tests.support.worker.forks import ROOT
from tests.support.worker.process import WorkerConfig, new, new_config, produce, run_drain, start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
SOON = {"SEQMARK_TEST_STATUS_S": "0.2"}
HEAD, TITLES = "exactly_once  ", "pipeline  state"


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> WorkerConfig:
    return new_config(broker.bootstrap_servers, tmp_path, 2)


def fill(config: WorkerConfig, count: int = 3_000) -> None:
    """Fill both partitions; of what is sent again the last is a duplicate by the rules, the others are late."""
    some = [new(number) for number in range(count)]
    for partition in range(2):
        produce(config.bootstrap_servers, config.source, [*some, *some[-count // 10 :]], partition=partition)


def on_terminal(config: WorkerConfig, **env: str) -> OnTerminal:
    variables = environment({"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **env})
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        if name not in env:
            variables.pop(name, None)
    command = [sys.executable, "-m", "processor", "worker", "-c", str(config.write())]
    return OnTerminal(command, config.folder, variables)


def rows(frame: str, pipeline: str = "p") -> list[list[str]]:
    """Return the table's rows of a frame, as words."""
    head, _, below = frame.partition(TITLES)
    return [line.split() for line in below.splitlines() if head and line.startswith(f"{pipeline} ")]


def assert_left_clean(terminal: OnTerminal) -> None:
    assert TITLES not in terminal.screen.text
    assert HEAD not in terminal.screen.text
    assert terminal.screen.cursor
    assert (terminal.screen.column, terminal.screen.lines[terminal.screen.row]) == (0, "")


def test_a_table_shows_the_work_below_the_log_and_is_gone_after_sigterm(config: WorkerConfig) -> None:
    fill(config)
    with on_terminal(config) as terminal:
        wanted = "ready, 2 of 2 partitions"
        until(lambda: any(rows(frame) and wanted in frame for frame in terminal.frames), "a table")
        until(lambda: any(_rate(frame) > 0 for frame in terminal.frames), "a rate")
        until(lambda: any("598 9.1 %" in frame for frame in terminal.frames), "what was dropped")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert_left_clean(terminal)

        said = terminal.screen.text.splitlines()
        *said, result = filter(None, said)
        assert all(re.match(r"\d{4}-\d\d-\d\d [\d:,]{12} (INFO|WARNING) ", line) for line in said)
        for partition in range(2):
            assert any(line.endswith(f"-{partition}-of-4: ready, partitions [{partition}]") for line in said)
        assert result.startswith("p: in all 6,600 records in ")
        assert "passed 6,000 (90.9 %)" in result


def _rate(frame: str) -> float:
    """Return the records a second of a frame's table; 0 without one."""
    for words in rows(frame):
        if "partitions" in words:
            return float(words[words.index("partitions") + 1].rstrip("kM"))
    return 0.0


def test_a_long_line_of_the_log_is_not_cut_where_the_window_ends(config: WorkerConfig) -> None:
    with start_worker(config) as worker:
        worker.wait_ready()
        worker.kill()
    name = f"{config.application_id}-p-0-of-4: ready, partitions [0]"
    with on_terminal(config) as terminal:
        until(lambda: name in terminal.screen.text.replace("\n", ""), "the whole line")
        assert f"{name}\r\n" in terminal.raw or f"{name}\n" in terminal.raw


def test_restoring_is_shown_and_can_be_ended(broker: Broker, config: WorkerConfig) -> None:
    fill(config)
    assert run_drain(config).code == 0
    # A restore waits for the end of a transaction that somebody else has open on the changelog.
    foreign = open_transaction(broker.bootstrap_servers, config.changelog, [New(b"P", b"never", (), 1)])
    with on_terminal(config) as terminal:
        until(lambda: any("restoring " in frame for frame in terminal.frames), "it restores")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert_left_clean(terminal)
    foreign.abort_transaction(30)


def test_a_signal_before_anything_runs_leaves_the_terminal_clean(config: WorkerConfig) -> None:
    with on_terminal(config) as terminal:
        until(lambda: not terminal.screen.cursor, "the table has begun")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert_left_clean(terminal)


def test_a_pipeline_that_fails_wholly_has_a_line_below_the_table(config: WorkerConfig) -> None:
    config = config.with_quarantine()
    produce(config.bootstrap_servers, config.source, [New(b"k", b"v", (), 1)])
    with on_terminal(config) as terminal:
        until(lambda: any("p: all quarantined: see the log" in frame for frame in terminal.frames), "a line")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert_left_clean(terminal)


def test_an_error_is_said_after_the_table_is_gone(config: WorkerConfig) -> None:
    produce(config.bootstrap_servers, config.source, [new(1), New(b"k", b"v", (), 1)])
    with on_terminal(config) as terminal:
        assert terminal.ended() == 1
        assert_left_clean(terminal)
        assert "the record cannot be judged: header_missing" in terminal.screen.text.replace("\n", "")
        assert "\x1b[?25l" in terminal.raw


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"SEQMARK_WORKER__LOG_FORMAT": "json"}])
def test_a_terminal_that_cannot_and_a_log_for_programs_get_lines(
    config: WorkerConfig, env: dict[str, str]
) -> None:
    with on_terminal(config, **SOON, **env) as terminal:
        until(lambda: "p: ready, 2 of 2 partitions; 0 records/s" in terminal.raw, "a line")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert "\x1b" not in terminal.raw


def test_a_file_gets_lines_without_any_code_even_if_colours_are_forced(config: WorkerConfig) -> None:
    fill(config)
    with start_worker(config, env={**SOON, "FORCE_COLOR": "1", "TERM": "xterm-256color"}) as worker:
        worker.wait_says(
            "; 6,600 records: duplicate 2 (0.0 %), late 598 (9.1 %), quarantined 0 (0.0 %); lag 0;"
        )
        worker.terminate()
        assert worker.wait() == 0
    assert "\x1b" not in worker.stderr
    said = worker.stderr.splitlines()
    assert any("p: ready, 2 of 2 partitions; " in line for line in said)
    assert any(" records/s, " in line and ": 0 records/s, " not in line for line in said)
    assert worker.stdout.startswith("p: in all 6,600 records in ")
    assert "passed 6,000 (90.9 %), duplicate 2 (0.0 %), late 598 (9.1 %)" in worker.stdout


def test_json_has_the_numbers_as_fields(config: WorkerConfig) -> None:
    fill(config)
    config = config.but(log_format="json")
    with start_worker(config, env=SOON) as worker:
        worker.wait_says('"records":6600')
        worker.terminate()
        assert worker.wait() == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in worker.stderr.splitlines()]
    status = [line for line in lines if line.get("pipeline") == "p"]
    last = json.loads(worker.stdout)
    assert (last["state"], last["records"], last["passed"]) == ("ended", 6_600, 6_000)
    seen = [line for line in status if line["state"] == "ready" and line["records"] == 6_600]
    assert seen[0]["partitions"] == seen[0]["partitions_ready"] == 2
    assert seen[0]["records_per_s"] > 0


def test_a_short_run_says_only_its_totals(config: WorkerConfig) -> None:
    fill(config)
    ended = run_drain(config)
    assert " p: " not in ended.stderr
    assert ended.stdout.startswith("p: in all 6,600 records in ")
