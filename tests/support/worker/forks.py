"""Starts Seqmark's commands: each a process of its own, with a config file, as users have it.

    process = start("worker", "-c", "my.toml", folder=tmp_path, log=tmp_path / "log")
    ended = run("verify", "-c", "my.toml", folder=tmp_path)
    ended = inside("verify", "-c", "my.toml", folder=tmp_path)     # in this process

Most are forks of one process that has imported Seqmark (`fork_server`): imports took more CPU than all else in
the suite. A command has an interpreter of its own where a test sets a variable that is read by the imports (one
of the interpreter's, or ``SEQMARK_TEST_...``, also by `monkeypatch`), and where it is about starting
(``fresh=True``).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import PATIENCE_S, environment

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
START_S = PATIENCE_S
"""For the server to import everything, and to compile the kernels where nobody has before."""
_numbers = itertools.count()
_AT_FIRST = environment({"PYTHONPATH": str(ROOT)})
"""This process's variables before any test: what the server is started with."""


class Process(Protocol):
    """What is used of a `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal), or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it."""


class Fork:
    """A process that the server has forked. What a `subprocess.Popen` has."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = b""
        self._code: int | None = None
        self.pid = self._number(START_S)

    def _number(self, timeout_s: float | None) -> int:
        """Return what the server says next."""
        self._connection.settimeout(timeout_s)
        while b"\n" not in self._heard:
            some = self._connection.recv(64)
            assert some, "the process that forks has ended"
            self._heard += some
        line, _, self._heard = self._heard.partition(b"\n")
        return int(line)

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal), or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """
        if self._code is not None:
            return self._code
        try:
            self._code = self._number(timeout)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(["seqmark"], timeout or 0) from None
        self._connection.close()
        return self._code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that forks; begun by the first who needs it, ended with this process."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="seqmark-forks-"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker.fork_server", str(self._folder / "socket")],
            cwd=ROOT,
            env=_AT_FIRST,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self._end)

    def fork(self, request: Mapping[str, object]) -> Fork:
        """Return a new process."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deadline = time.monotonic() + START_S
        while True:
            try:
                connection.connect(str(self._folder / "socket"))
                break
            except OSError:
                code = self._process.poll()
                assert code is None, f"the process that forks has ended with {code}"
                assert time.monotonic() < deadline, "the process that forks does not listen"
                time.sleep(0.05)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Fork(connection)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._folder)


_servers: dict[int, _Server] = {}
"""By process id: a fork of this process begins its own."""


def start(
    *arguments: str,
    folder: Path,
    stdout: Path,
    stderr: Path | None = None,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Process:
    """Start ``seqmark ARGUMENTS``.

    Args:
        arguments: From the command's name on.
        folder: Its working folder.
        stdout: The file for what it prints; one that is there is emptied.
        stderr: The file for what it says; the same if left out.
        env: Environment variables for it.
        fresh: In an interpreter of its own in any case.
    """
    variables = environment({"PYTHONPATH": str(ROOT), **(env or {})})
    files = [stdout, stderr or stdout]
    for file in files:
        file.write_bytes(b"")
    early = any(not _read_late(name) for name in env or ()) or _for_tests(variables) != _for_tests(_AT_FIRST)
    if fresh or early:
        with files[0].open("ab") as out, files[1].open("ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "processor", *arguments],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
    if os.getpid() not in _servers:
        _servers[os.getpid()] = _Server()
    os.umask(umask := os.umask(0o77))
    return _servers[os.getpid()].fork(
        {
            "arguments": arguments,
            "folder": str(folder),
            "environment": variables,
            "umask": umask,
            "stdout": str(files[0]),
            "stderr": str(files[1]),
        }
    )


def _read_late(name: str) -> bool:
    """Return whether a variable is read after the imports."""
    return name.startswith("SEQMARK_") and not name.startswith("SEQMARK_TEST_")


def _for_tests(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of our variables that are read by the imports."""
    return {name: value for name, value in variables.items() if name.startswith("SEQMARK_TEST_")}


def inside(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``seqmark ARGUMENTS`` to its end in this process: what looks and ends needs none of its own."""
    with contextlib.chdir(folder):
        ended = CliRunner().invoke(main, list(arguments))
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return subprocess.CompletedProcess(list(arguments), ended.exit_code, ended.stdout, ended.stderr)


def run(
    *arguments: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run ``seqmark ARGUMENTS`` to its end, which is killed where that takes longer than ``timeout_s``."""
    stdout, stderr = (folder / f"{name}-{next(_numbers)}" for name in ("stdout", "stderr"))
    process = start(*arguments, folder=folder, stdout=stdout, stderr=stderr, env=env, fresh=fresh)
    try:
        code = process.wait(timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(list(arguments), code, stdout.read_text(), stderr.read_text())
