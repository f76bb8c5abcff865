"""How a test runs aggregates: in this process, where the test's Spark is, or as a user does, by the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.config import Settings
from spark_sink.job import SinkJob, SinkOptions
from tests.support.spark_sink.spark import SHORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_sink.query.progress import Totals

ROOT = Path(__file__).parents[3]
FEW = {"events": "count", "revenue": "sum:amount"}


class Silent:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def say(self, text: str) -> None:
        """Remember it."""
        self.said.append(text)

    def warn(self, text: str) -> None:
        """Remember it."""
        self.warned.append(text)

    def progress(self, totals: Mapping[str, Totals]) -> None:
        """Nobody looks."""


def sink(folder: Path, topic: str, name: str, output: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return an element of ``[[aggregates]]`` for clicks; ``more`` has its window."""
    return {
        "name": name,
        "topic": topic,
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "watermark": "30 minutes",
        "group_by": ["campaign"],
        "aggregates": FEW,
        "output": dict(output),
        "checkpoint": str(folder / f"checkpoint-{name}"),
        **more,
    }


def settings(bootstrap: str, *sinks: Mapping[str, Any]) -> Settings:
    """Return a config with nothing but aggregates."""
    return Settings.model_validate(tables(bootstrap, *sinks))


def tables(bootstrap: str, *sinks: Mapping[str, Any]) -> dict[str, Any]:
    """Return that config as it is written."""
    return {
        "kafka": {"bootstrap_servers": bootstrap},
        "worker": {"application_id": "test"},
        "aggregates": [dict(each) for each in sinks],
    }


def run(config: Settings, audience: Silent | None = None, **options: Any) -> SinkJob:
    """Run all aggregates in this process until all that is there now is done."""
    how = SinkOptions(master="local[2]", available_now=True, **options)
    job = SinkJob(config, config.aggregates, how, audience or Silent())
    job.run()
    return job


class Process:
    """``seqmark aggregate`` in a process group of its own, its JVM included."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it and its JVM at once, as a machine that loses power does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    def halt(self) -> None:
        """Stop it and its JVM where they are: nothing changes any more."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the process alone, as a supervisor does, and return its exit code."""
        self._process.send_signal(number)
        return self._process.wait(120)


@contextmanager
def process(folder: Path, config: Mapping[str, Any], *arguments: str) -> Iterator[Process]:
    """Start ``seqmark aggregate`` with a config; what is left of it when the block ends is killed."""
    file, log = folder / "config.toml", folder / "sink.log"
    file.write_text(toml(config))
    with log.open("ab") as stderr:
        started = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "processor",
                "aggregate",
                "-c",
                str(file),
                "--master",
                "local[2]",
                *arguments,
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
            env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT},
        )
    running = Process(started, log)
    try:
        yield running
    finally:
        if running.code is None:
            running.kill()


def toml(config: Mapping[str, Any]) -> str:
    """Return a config as TOML: tables of inline values."""
    lines = []
    for name, table in config.items():
        for each in table if isinstance(table, list) else [table]:
            lines.append(f"[[{name}]]" if isinstance(table, list) else f"[{name}]")
            lines += [f"{key} = {_value(value)}" for key, value in each.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)
