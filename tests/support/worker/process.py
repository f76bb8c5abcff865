"""Runs a worker as users do: a config file and a process of its own.

    config = new_config(broker.bootstrap_servers, tmp_path, partitions=2)
    produce(config.bootstrap_servers, config.source, [new(1), new(2)])
    assert run_drain(config).code == 0
    with start_worker(config) as worker:        # killed at the end if it still runs
        worker.wait_ready()
        ...
        worker.terminate()
        assert worker.wait() == 0

What goes into topics and comes out is in `tests.support.kafka.topics`; the names that tests need most are here
too.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.kafka.halted import halted
from tests.support.kafka.topics import (
    New,
    Record,
    contents,
    create_topic,
    deduplicated,
    free_port,
    new,
    open_transactions,
    produce,
    read_topic,
    unique,
    until,
)
from tests.support.worker import forks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "Ended",
    "New",
    "PipelineConfig",
    "Record",
    "Worker",
    "WorkerConfig",
    "contents",
    "deduplicated",
    "new",
    "new_config",
    "open_transactions",
    "produce",
    "read_topic",
    "run_drain",
    "start_worker",
    "until",
]

HEADER_SEQUENCE = {"from": "header", "name": "seq", "format": "int64"}
_FAST = {"commit_interval_ms": 50, "session_timeout_ms": 6000, "web_port": 0}
"""Other settings than the defaults, so that tests need not wait."""
PATIENCE_S = forks.START_S
"""For a worker to start, to say something, or to end: the first one may have to compile its kernels, on a
machine whose cores are taken. How quickly it stops is asked in `tests/crash/test_sigterm.py` alone."""
_files = itertools.count()


@dataclass(frozen=True)
class PipelineConfig:
    """An element of ``[[pipelines]]`` in mode watermark, scope partition; ``dedup`` has further keys.

    With a key ``mode`` it has all of them, and ``sequence`` is left aside. An empty ``sink`` is none.
    """

    name: str
    source: str
    sink: str
    quarantine: str | None = None
    duplicates: str | None = None
    sequence: Mapping[str, str] = field(default_factory=lambda: HEADER_SEQUENCE)
    dedup: Mapping[str, Any] = field(default_factory=dict)
    observe: bool = False
    output: str = "records"
    verdicts: str | None = None


@dataclass(frozen=True)
class WorkerConfig:
    """A config file that is still to be written; `dataclasses.replace` makes another.

    Attributes:
        folder: Where config files, logs and local state go; also the process's working folder.
        bootstrap_servers: Of the broker.
        application_id: Consumer group and prefix.
        pipelines: At least one.
        worker: Keys of ``[worker]`` beside or instead of the fast ones.
    """

    folder: Path
    bootstrap_servers: str
    application_id: str
    pipelines: tuple[PipelineConfig, ...]
    worker: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Source topic of the first pipeline."""
        return self.pipelines[0].source

    @property
    def sink(self) -> str:
        """Sink topic of the first pipeline."""
        return self.pipelines[0].sink

    @property
    def quarantine(self) -> str:
        """Quarantine topic of the first pipeline, which must have one."""
        topic = self.pipelines[0].quarantine
        assert topic is not None
        return topic

    @property
    def duplicates(self) -> str:
        """Duplicates topic of the first pipeline, which must have one."""
        topic = self.pipelines[0].duplicates
        assert topic is not None
        return topic

    @property
    def changelog(self) -> str:
        """Changelog topic of the first pipeline."""
        return f"{self.application_id}-{self.pipelines[0].name}-changelog"

    @property
    def state_dir(self) -> Path:
        """Where the local state lies."""
        return self.folder / "state"

    def but(self, **worker: Any) -> WorkerConfig:
        """Return this config with other keys of ``[worker]``."""
        return replace(self, worker={**self.worker, **worker})

    def with_quarantine(self) -> WorkerConfig:
        """Return this config with a quarantine topic for each pipeline."""
        pipelines = tuple(replace(p, quarantine=f"{p.source}.quarantine") for p in self.pipelines)
        return replace(self, pipelines=pipelines)

    def with_duplicates(self) -> WorkerConfig:
        """Return this config with a duplicates topic for each pipeline."""
        pipelines = tuple(replace(p, duplicates=f"{p.source}.duplicates") for p in self.pipelines)
        return replace(self, pipelines=pipelines)

    def with_verdicts(self, output: str) -> WorkerConfig:
        """Return this config with another ``output``, and a topic of verdicts where it needs one."""

        def changed(pipeline: PipelineConfig) -> PipelineConfig:
            topic = None if output == "records" else f"{self.application_id}.{pipeline.name}.verdicts"
            return replace(pipeline, output=output, verdicts=topic)

        return replace(self, pipelines=tuple(map(changed, self.pipelines)))

    @property
    def verdicts(self) -> str:
        """Topic of verdicts of the first pipeline, which must have one."""
        topic = self.pipelines[0].verdicts
        assert topic is not None
        return topic

    def observing(self, observe: bool = True) -> WorkerConfig:  # noqa: FBT001, FBT002 - what the key is given
        """Return this config with ``observe`` for each pipeline."""
        return replace(self, pipelines=tuple(replace(p, observe=observe) for p in self.pipelines))

    def write(self) -> Path:
        """Write the file and return its path."""
        worker = {"application_id": self.application_id, "state_dir": str(self.state_dir)}
        lines = ["[kafka]", f"bootstrap_servers = {_toml(self.bootstrap_servers)}", "[worker]"]
        lines += [f"{key} = {_toml(value)}" for key, value in {**worker, **_FAST, **self.worker}.items()]
        for pipeline in self.pipelines:
            lines += ["[[pipelines]]", f"name = {_toml(pipeline.name)}"]
            lines.append(f"source = {_toml(pipeline.source)}")
            roles = ("sink", "verdicts", "duplicates", "quarantine")
            topics = {role: getattr(pipeline, role) for role in roles}
            lines += [f"{role} = {_toml(topic)}" for role, topic in topics.items() if topic]
            lines.append(f"output = {_toml(pipeline.output)}")
            lines += ["observe = true"] if pipeline.observe else []
            lines.append("[pipelines.dedup]")
            if "mode" not in pipeline.dedup:
                lines += ['mode = "watermark"', f"sequence = {_toml(pipeline.sequence)}"]
            lines += [f"{key} = {_toml(value)}" for key, value in pipeline.dedup.items()]
        path = self.folder / f"config-{next(_files)}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def new_config(
    bootstrap: str,
    folder: Path,
    partitions: int = 1,
    *,
    source_configs: Mapping[str, str] | None = None,
    **worker: Any,
) -> WorkerConfig:
    """Return a config of one pipeline with names of its own, its source topic made, no quarantine.

    Args:
        bootstrap: Of the broker.
        folder: The test's ``tmp_path``.
        partitions: Of the source.
        source_configs: Its settings.
        worker: Keys of ``[worker]``.
    """
    name = unique("t")
    create_topic(bootstrap, f"{name}.raw", partitions, source_configs)
    pipeline = PipelineConfig("p", f"{name}.raw", f"{name}.clean")
    return WorkerConfig(folder, bootstrap, name, (pipeline,), worker)


@dataclass(frozen=True)
class Ended:
    """How a worker ended."""

    code: int
    stderr: str
    stdout: str


class Worker:
    """A worker process. A context manager: it is killed at the end if it still runs."""

    def __init__(self, process: forks.Process, log: Path, web_port: int) -> None:
        self._process = process
        self._log = log
        self.web_port = web_port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def stderr(self) -> str:
        """What it has said until now."""
        return self._log.read_text()

    @property
    def stdout(self) -> str:
        """Its result; there is none until it has ended."""
        return self._log.with_suffix(".out").read_text()

    @property
    def paused(self) -> bool:
        """Whether it is halted by SIGSTOP (Linux)."""
        return halted(self.pid)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end and return the exit code (negative: the signal); fail if it goes on."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker has not ended in {timeout_s} s:\n{self.stderr}") from None

    def terminate(self) -> None:
        """Ask it to stop, as an operator does: SIGTERM."""
        self._process.terminate()

    def signal(self, name: str) -> None:
        """Send a signal by name, such as SIGINT."""
        self._process.send_signal(signal.Signals[name])

    def kill(self) -> None:
        """End it by kill -9 and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop its clock: SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`: SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until /ready says 200; fail if the process ends before."""
        until(self._ready_or_ended, f"the worker is ready:\n{self.stderr}", timeout_s)
        assert self.alive, self.stderr

    def _ready_or_ended(self) -> bool:
        return not self.alive or self.get("/ready")[0] == 200

    def wait_says(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until ``text`` is in its log."""
        until(lambda: text in self.stderr, f"the worker says {text!r}:\n{self.stderr}", timeout_s)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.web_port}{path}", timeout=PATIENCE_S
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics: ``name{label=value,...}`` without quotes, labels sorted."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


def start_worker(
    config: WorkerConfig,
    *options: str,
    env: Mapping[str, str] | None = None,
    drain: bool = False,
    web: bool | None = None,
    fresh: bool = False,
) -> Worker:
    """Start a worker process on ``config``.

    Args:
        config: Its file is written anew.
        options: Further ones.
        env: Environment variables for it, such as ``SEQMARK_FAULT_STEP``.
        drain: With ``--drain``.
        web: Whether it gets a web server on a free port; by default all but draining ones do.
        fresh: In an interpreter of its own, see `tests.support.worker.forks`.
    """
    path = config.write()
    port = free_port() if web or (web is None and not drain) else 0
    variables = dict(env or {})
    if port:
        variables["SEQMARK_WORKER__WEB_PORT"] = str(port)
    command = ["worker", "-c", str(path), *(["--drain"] if drain else []), *options]
    log = path.with_suffix(".log")
    out = path.with_suffix(".out")
    process = forks.start(*command, folder=config.folder, stdout=out, stderr=log, env=variables, fresh=fresh)
    return Worker(process, log, port)


def run_drain(
    config: WorkerConfig, *options: str, env: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S
) -> Ended:
    """Run ``seqmark worker --drain`` to its end, with more options."""
    with start_worker(config, *options, env=env, drain=True) as worker:
        return Ended(worker.wait(timeout_s), worker.stderr, worker.stdout)
