"""Runs the commands of a demo as a user would: each in a process of its own, on one config.

What a command says goes to the terminal as it comes, what it prints is returned. A worker writes its log into a
file; where its page is, and that it compiles kernels, is said.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from processor.config.load import load
from processor.demo.truth import PartitionTopics
from processor.errors import EXIT_DONE, StopError
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import read_partition
from processor.ops.extras import install, missing
from processor.ops.status_text import COMPILING
from schemas.config.worker import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from schemas.config import Settings

KILLED = -signal.SIGKILL
_STOP_S = 15.0  # a worker promises 10
_POLL_S = 0.1
_QUOTED_LINES = 15
_RUN = f"demo-{'[0-9]' * 6}-{'[0-9a-f]' * 6}"
_MOVED = re.compile(r"/metrics are at (http://[^\s;]+);")
# The demo's config says these itself; a value meant for another config must not redirect it.
_NOT_INHERITED = ("SEQMARK_WORKER__", "SEQMARK_PIPELINES__", "SEQMARK_AGGREGATES__", "SEQMARK_BATCHES__")


class DemoFolder(NamedTuple):
    """Where a run has its files: those of the last run go when the next begins.

    Attributes:
        path: For what people open.
        name: Of the run, its application and its topics.
    """

    path: Path
    name: str

    @classmethod
    def new(cls, path: Path) -> DemoFolder:
        """Make room for a run; it can run again on a broker that is kept.

        Raises:
            OSError: The folder cannot be written.
        """
        path = path.resolve()
        path.mkdir(parents=True, exist_ok=True)
        for old in path.glob(_RUN):
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old, ignore_errors=True)
        # The time for people who look at the topics, the rest for runs of the same second.
        return cls(path, f"demo-{time.strftime('%H%M%S')}-{uuid.uuid4().hex[:6]}")

    def __truediv__(self, part: str) -> Path:
        """Return a place that goes with the run."""
        return self.path / self.name / part


class DemoScript:
    """The commands of one run.

    Args:
        config: Where its config is written, with this ``text``.
        servers: Of the broker.
        say: Told of each step.

    Raises:
        ConfigError: What the environment says of Kafka is wrong.

    Attributes:
        settings: What the config says.
        log: Of its workers.
    """

    def __init__(self, config: Path, text: str, servers: str, say: Callable[[str], None]) -> None:
        config.write_text(text, encoding="utf-8")
        self.config, self.say = config, say
        self.log = config.with_name("worker.log")
        inherited = {name: each for name, each in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        self._environ = inherited | {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": servers}
        self.settings: Settings = load(config, self._environ)

    def run(
        self,
        command: str,
        *arguments: object,
        ends: Collection[int] = (EXIT_DONE,),
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what it printed.

        Args:
            command: Its name.
            arguments: Behind the config.
            ends: The exit codes that it may end with.
            env: Beside the environment of all.

        Raises:
            StopError: It ended with another one; it has said why.
        """
        with self._process(command, arguments, env, subprocess.PIPE, None) as process:
            printed, _ = process.communicate()
        if process.returncode not in ends:
            raise StopError(f"seqmark {command} ended with exit code {process.returncode}")
        return process.returncode, printed.strip()

    def objects(self, command: str, *arguments: object, ends: Collection[int] = (EXIT_DONE,)) -> list[Any]:
        """Run a command for programs; return the objects that it printed, one at least.

        Raises:
            StopError: It printed none, or ended otherwise than by one of ``ends``.
        """
        code, printed = self.run(command, *arguments, "--json", ends=ends)
        if not printed.strip():
            raise StopError(f"{command} ended with exit code {code} and printed nothing: it says why above")
        return [json.loads(line) for line in printed.splitlines()]

    def read_topics(self, partition: int, clean: str) -> PartitionTopics:
        """Read one partition of source, clean topic, duplicates and quarantine with a plain consumer.

        Raises:
            StopError: The broker cannot be read.
        """
        (pipeline,) = self.settings.pipelines
        names = (pipeline.source, clean, pipeline.duplicates or "", pipeline.quarantine or "")
        options = client_options(self.settings.kafka)

        async def read() -> PartitionTopics:
            topics = await asyncio.gather(*(read_partition(options, each, partition) for each in names))
            return PartitionTopics(*topics)

        return asyncio.run(read())

    def drain(self, fault: str = "") -> float:
        """Let a worker work until all is done, or be killed at a step (`processor.ops.fault_points`).

        Returns:
            How many seconds it took.

        Raises:
            StopError: It ended in another way; quotes the end of its log.
        """
        began, ends = time.monotonic(), KILLED if fault else EXIT_DONE
        env = {"SEQMARK_FAULT_STEP": fault} if fault else {}
        with (
            self.log.open("wb") as log,
            self._process("worker", ["--drain"], env, log, log) as process,
        ):
            for line in self._lines(process):
                self.say(f"   {line}")
        if process.returncode != ends:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_QUOTED_LINES:]
            quoted = "\n".join(f"  {line[:500]}" for line in lines)
            told = f"the worker ended with exit code {process.returncode}. Last of {self.log}:\n{quoted}"
            raise StopError(told)
        return time.monotonic() - began

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        """Yield what people should know of a worker's log, as it comes."""
        told = 0
        while process.poll() is None:
            time.sleep(_POLL_S)
            lines = worth_telling(self.log.read_text(encoding="utf-8", errors="replace"))
            yield from lines[told:]
            told = len(lines)

    @contextmanager
    def _process(
        self,
        command: str,
        arguments: Collection[object],
        env: Mapping[str, str] | None,
        stdout: int | IO[bytes],
        stderr: IO[bytes] | None,
    ) -> Iterator[subprocess.Popen[str]]:
        """Start a command, which has ended in good order when the block ends, whatever ended that."""
        words = ("seqmark", command, "-c", str(self.config), *map(str, arguments))
        more = env or {}
        self.say(" ".join(["   $", *(f"{name}={value}" for name, value in more.items()), *words]))
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
            (sys.executable, "-m", *words),
            env={**self._environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                try:
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_STOP_S)
                finally:  # also where a second signal comes meanwhile
                    process.kill()
                    process.wait()


def worth_telling(log: str) -> list[str]:
    """Return what people should know of a worker's log: where its page is, and that it compiles kernels."""
    compiling = [line[line.index(COMPILING) :] for line in log.splitlines() if COMPILING in line]
    # At the next free port where the usual one is taken.
    moved, usual = _MOVED.search(log), WorkerOptions.model_fields["web_port"].default
    page = moved[1] if moved else f"http://127.0.0.1:{usual}"
    return [f"its page, while it works: {page}/", *compiling] if log else []


def has(extra: str, otherwise: str, say: Callable[[str], None]) -> bool:
    """Return whether an extra is installed; where it is not, say what is left out, and how to get it."""
    if lacking := missing(extra):
        say(f"{otherwise}, which {install(lacking)}")
    return not lacking


def quoted(**values: object) -> dict[str, str]:
    """Return values as a config has them: a JSON string is a TOML string."""
    return {name: json.dumps(str(value), ensure_ascii=False) for name, value in values.items()}
