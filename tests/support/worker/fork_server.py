"""Runs Seqmark's commands in forks of a process that has imported it: a program, which `forks` starts.

    python -m tests.support.worker.fork_server SOCKET

Importing takes two seconds of CPU, loading the kernels another, and the suite starts hundreds of commands. A
fork has what a fresh process has after its imports: no thread, no loop, no config; and its kernels are warm, so
that a worker does not work on made-up records again.

Each connection to the socket is one process. The client asks with a line of JSON, ``{"arguments": [...],
"folder": "...", "environment": {...}, "umask": N, "stdout": "...", "stderr": "..."}``, and gets two lines: the
process's id and, once it has ended, its exit code (negative: the signal). All end when stdin does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
from typing import Any

from processor.commands.cli import main
from processor.ops import fault_points
from processor.pipeline.warm import warm

IMPORTED = ("processor.worker.app", "processor.verify.certificate", "processor.reset.run", "processor.ops.logs")
"""What the commands import when they run."""
REQUEST_BYTES = 1 << 20


class Server:
    """Forks for each connection, and tells how the fork has ended."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        for source in (self._listener, self._ended, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)
        self._children: dict[int, socket.socket] = {}

    def serve(self) -> list[str] | None:
        """Serve until stdin ends; in a fork, return the arguments it is to run with."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    self._end_all()
                    return None
                if key.fileobj == self._ended:
                    os.read(self._ended, 4096)
                    self._reap()
                elif (arguments := self._fork()) is not None:
                    return arguments

    def _fork(self) -> list[str] | None:
        connection, _ = self._listener.accept()
        request = json.loads(connection.makefile().readline(REQUEST_BYTES))
        assert threading.active_count() == 1, "a fork would be without the other threads"
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for mine in (connection, self._listener, *self._children.values()):
                mine.close()
            os.close(self._ended)
            return _become(request)
        self._children[child] = connection
        connection.sendall(b"%d\n" % child)
        return None

    def _reap(self) -> None:
        for child in list(self._children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                with contextlib.closing(self._children.pop(child)) as connection, contextlib.suppress(OSError):
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    def _end_all(self) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _become(request: dict[str, Any]) -> list[str]:
    """Make this fork what a process of its own would be."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in (1, request["stdout"]), (2, request["stderr"]):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    fault_points.arm(os.environ)
    arguments: list[str] = request["arguments"]
    sys.argv = ["seqmark", *arguments]
    return arguments


if __name__ == "__main__":
    for _name in IMPORTED:
        importlib.import_module(_name)
    warm()
    _arguments = Server(sys.argv[1]).serve()
    if _arguments is not None:
        main(_arguments, prog_name="seqmark")
