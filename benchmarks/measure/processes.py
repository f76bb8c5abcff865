"""Starts and ends programs, and says what a process tree has taken and what the machine did beside it."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

NOISE_TURNS = 4_000_000
"""Turns of the loop: some 0.2 s, short beside a run and long beside a scheduler's slice."""
END_S = 30.0


class Tree:
    """A process and its descendants.

    What a child took after the last look before its end is lost: a tenth of a second at most, as often as
    somebody looks.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], float] = {}
        self.peak_rss_bytes = 0

    def look(self) -> float:
        """Return the CPU seconds until now, user and system, of those that have ended too."""
        rss, family = 0, [self._root]
        with suppress(psutil.Error):
            family += self._root.children(recursive=True)
        for process in family:
            with suppress(psutil.Error):
                with process.oneshot():
                    times = process.cpu_times()
                    rss += process.memory_info().rss
                    identity = process.pid, process.create_time()
                self._seen[identity] = times.user + times.system
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        return sum(self._seen.values())


def noise_s() -> float:
    """Return the wall seconds of a fixed loop: longer where others take the core meanwhile."""
    began, total = time.perf_counter(), 0
    for turn in range(NOISE_TURNS):
        total += turn & 3
    return time.perf_counter() - began


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program while the block runs, then end it, and whatever it has started, by SIGTERM.

    Its environment is added to this process's own; the log takes its stdout and stderr.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    family = []
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    for child in family:
        with suppress(psutil.Error):
            child.terminate()
    for child in psutil.wait_procs(family, timeout=5)[1]:
        with suppress(psutil.Error):
            child.kill()
    if process.poll() is None:
        process.kill()
    process.wait()
