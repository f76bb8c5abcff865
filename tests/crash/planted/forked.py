"""Runs pytest again and again on a tree that changes in between, each time in a fork that knows nothing of it.

A program, not a module: ``python tests/crash/planted/forked.py`` in the tree. It imports what the tests need of
others, which takes longer than most of the tests, then answers requests, a line of JSON each: ``{"arguments":
[...], "environment": {...}, "log": "...", "limit_s": ...}``. The answer is pytest's exit code, or -9 past the
limit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PRELOADED = (
    "aiokafka",
    "confluent_kafka.admin",
    "cramjam",
    "numba",
    "numpy",
    "psycopg",
    "pydantic",
    "pyspark.sql",
)
"""Of all that the tests import, what takes long and starts nothing by being imported."""


def main() -> None:
    """Serve until the requests end."""
    tree = Path.cwd()
    # This file's folder, where Python puts a program's; the tree itself is in PYTHONPATH.
    sys.path.remove(str(Path(__file__).parent))
    import pytest  # noqa: PLC0415 - not before the path is right

    for name in PRELOADED:
        importlib.import_module(name)
    ours = [
        name
        for name in sys.modules
        if name.partition(".")[0] in {"processor", "schemas", "spark_sink", "seqmark", "tests"}
    ]
    assert not ours, f"imported before the fork: {ours}"
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(pytest, tree, request)
        sys.stdout.write(f"{_wait(child, request['limit_s'])}\n")
        sys.stdout.flush()


def _run(pytest: Any, tree: Path, request: dict[str, Any]) -> None:
    """Run pytest in this fork, and end it."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(tree)
    os.environ.update(request["environment"])
    code = 3  # pytest's own for an error inside
    try:
        code = int(pytest.main(request["arguments"]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, limit_s: float) -> int:
    """Wait for a fork, and end it and its children past the limit; return its exit code."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


if __name__ == "__main__":
    main()
