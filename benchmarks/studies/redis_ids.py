"""Measures what an id costs in Redis: ``python -m benchmarks.studies.redis_ids [IDS]`` prints bytes per id.

Two ways that people keep ids there, with random ones of 16 bytes, in a server of Debian's package with nothing
else in it, that writes nothing to disk:

- plain keys: ``SET id "" PX window``, which Redis expires by itself;
- hashes: ``HSET bucket id time`` with 100 ids per bucket on average, which Redis keeps as one listpack; the
  time has 8 bytes. Nothing there expires an id but the program that looks at its time.

Bytes are what the server says that it uses (``used_memory``), less what it used when it was empty.
"""

from __future__ import annotations

import re
import shutil
import socket
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure.cost import FailedError
from benchmarks.measure.processes import running
from benchmarks.peers import WINDOW_DAYS
from benchmarks.studies.spark import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = "redis-server"
IDS = 1_000_000
ID_BYTES = 16
BUCKET_IDS = 100
"""On average; listpacks are searched from their beginning, so they are kept short."""
MOST_BUCKET_IDS = 256
"""No bucket of 100 on average gets so many: that is 15 standard deviations away."""
PIPELINE = 5_000
START_S = 10.0
POLL_S = 0.05


def command(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def plain(ids: list[bytes]) -> list[bytes]:
    """Return what keeps ids as keys."""
    return [command(b"SET", each, b"", b"PX", b"%d" % (WINDOW_DAYS * 86_400_000)) for each in ids]


def hashed(ids: list[bytes]) -> list[bytes]:
    """Return what keeps ids as fields of hashes; the bucket is a part of the id, which is random."""
    buckets, now_ms = max(1, len(ids) // BUCKET_IDS), time.time_ns() // 1_000_000
    return [
        command(b"HSET", b"%d" % (int.from_bytes(each[:8]) % buckets), each, (now_ms + number).to_bytes(8))
        for number, each in enumerate(ids)
    ]


WAYS: tuple[tuple[str, Callable[[list[bytes]], list[bytes]]], ...] = (
    ("plain keys with a time to live", plain),
    ("hashes as listpacks, 16-byte fields, 8-byte values", hashed),
)


def filled(commands: list[bytes]) -> tuple[str, int]:
    """Send commands to an empty server; returns its version, and the bytes that it uses more.

    Raises:
        FailedError: It does not answer, or refuses one.
    """
    port = free_port()
    options = {
        "port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "daemonize": "no",
        "hash-max-listpack-entries": MOST_BUCKET_IDS,
    }  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-redis-") as folder,
        running([SERVER, *given, "--dir", folder], {}, Path(folder) / "log"),
        closing(_open(port)) as link,
    ):
        before = _info(link)
        for start in range(0, len(commands), PIPELINE):
            some = commands[start : start + PIPELINE]
            link.sendall(b"".join(some))
            if refused := [line for line in _answers(link, len(some)) if line.startswith(b"-")]:
                raise FailedError(f"Redis answers {refused[0].decode(errors='replace')}")
        after = _info(link)
    return after["redis_version"], int(after["used_memory"]) - int(before["used_memory"])


def _open(port: int) -> socket.socket:
    deadline = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError as error:
            if time.monotonic() > deadline:
                raise FailedError(f"Redis does not start: {error}") from error
            time.sleep(POLL_S)


def _answers(link: socket.socket, count: int) -> list[bytes]:
    """Return that many answers of one line each."""
    told = b""
    while told.count(b"\r\n") < count:
        if not (part := link.recv(1 << 20)):
            raise FailedError("Redis answers nothing")
        told += part
    return told.split(b"\r\n")


def _info(link: socket.socket) -> dict[str, str]:
    link.sendall(command(b"INFO"))
    told = b""
    while not (head := re.match(rb"\$(\d+)\r\n", told)) or len(told) < head.end() + int(head[1]) + 2:
        told += link.recv(1 << 20)
    return dict(line.split(":", 1) for line in told.decode().splitlines() if ":" in line)


def run_redis(ids: int = IDS) -> dict[str, Any]:
    """Measure both ways.

    Returns:
        By way, with the server's version in its name: ``ids`` and ``bytes``; or ``missing``, why it was not.
    """
    if shutil.which(SERVER) is None:
        return {"missing": f"{SERVER} is not installed (Debian and Ubuntu: apt-get install redis-server)"}
    made = np.random.default_rng(7).bytes(ids * ID_BYTES)
    listed = [made[at : at + ID_BYTES] for at in range(0, len(made), ID_BYTES)]
    found: dict[str, Any] = {}
    for way, commands in WAYS:
        version, size = filled(commands(listed))
        found[f"Redis {version}, {way}"] = {"ids": ids, "bytes": size}
    return found


if __name__ == "__main__":
    for name, each in run_redis(*map(int, sys.argv[1:2])).items():
        print(f"{name}: {each['bytes'] / each['ids']:.1f} B per id" if "bytes" in each else each)
