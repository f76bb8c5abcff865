"""The demo passes on what its worker says, replaces the files of its last run, and ends what it has started."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from typing import TYPE_CHECKING

import pytest

from processor.demo.script import DemoFolder, DemoScript, worth_telling
from processor.errors import StopError
from processor.ops.metrics import Metrics
from processor.worker import app as worker

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[worker]
application_id = "demo"
[[batches]]
name = "a"
input = {{ format = "json", path = "in" }}
output = {{ format = "parquet", path = "out" }}
id = ["id"]
event_time = "at"
window = "1d"
"""


def test_what_a_worker_says_of_compiling_is_found_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    looks = itertools.count()
    monkeypatch.setattr(worker, "LOOK_S", 0.001)
    monkeypatch.setattr(worker, "compiled", lambda: next(looks))
    asyncio.run(worker.compile_kernels(["watermark"], Metrics()))

    log = "\n".join(f"2026-11-23 16:55:06,521 INFO    {record.getMessage()}" for record in caplog.records)

    _, *lines = worth_telling(log)  # more than one where the machine is slow
    assert lines
    for line in lines:
        assert line.startswith("compiling kernels for this machine, once, which takes a minute or two: ")
    assert len(worth_telling("2026-11-23 16:55:06,521 INFO    drained: 4 slots")) == 1


def test_the_page_is_where_the_log_says_that_it_has_moved_to() -> None:
    moved = (
        "INFO port 6066 is taken, by another worker perhaps: /health, /ready and /metrics are at "
        "http://127.0.0.1:6068; worker.web_port names a port, 0 is none"
    )
    assert worth_telling(moved) == ["its page, while it works: http://127.0.0.1:6068/"]
    assert worth_telling("INFO it begins") == ["its page, while it works: http://127.0.0.1:6066/"]
    assert worth_telling("") == []


def test_a_new_run_removes_the_folders_of_runs_before_it_and_no_other(tmp_path: Path) -> None:
    for name in ("demo-050607-0a1b2c", "demo-050607-mine", "demo-2-3", "else"):
        (tmp_path / name).mkdir()
    folder = DemoFolder.new(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["demo-050607-mine", "demo-2-3", "else"]
    assert re.fullmatch(r"demo-[0-9]{6}-[0-9a-f]{6}", folder.name)
    assert folder / "state" == tmp_path / folder.name / "state"


def test_the_config_of_a_demo_is_not_redirected_by_the_environment_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQMARK_WORKER__APPLICATION_ID", "another")
    monkeypatch.setenv("SEQMARK_KAFKA__BOOTSTRAP_SERVERS", "another:9092")
    text = CONFIG.format(servers="localhost:1")
    script = DemoScript(tmp_path / "demo.toml", text, "localhost:2", lambda _: None)
    assert script.settings.worker.application_id == "demo"
    assert script.settings.kafka.bootstrap_servers == "localhost:2"


def test_a_command_that_fails_stops_the_demo_and_is_told_as_it_was_run(tmp_path: Path) -> None:
    told: list[str] = []
    config = tmp_path / "demo.toml"
    script = DemoScript(config, CONFIG.format(servers="localhost:1"), "localhost:1", told.append)
    with pytest.raises(StopError, match=r"^seqmark verify ended with exit code 2$"):
        script.run("verify")
    assert told == [f"   $ seqmark verify -c {config}"]
    with pytest.raises(StopError, match=r"the worker ended with exit code 2\. Last of (?s:.*)pipelines"):
        script.drain()
