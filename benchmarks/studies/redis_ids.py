"""Measures what an id costs in Redis: ``python -m benchmarks.studies.redis_ids [IDS]`` prints bytes per id.

Two ways that people keep ids there, with random ones of 16 bytes, in a server of Debian's package with nothing
else in it, that writes nothing to disk:

- plain keys: ``SET id "" PX window``, which Redis expires by itself;
- hashes: ``HSET bucket id time`` with 100 ids per bucket on average, which Redis keeps as one listpack; the
  time has 8 bytes. Nothing there expires an id but the program that looks at its time.

Bytes are what the server says that it uses (``used_memory``), less what it used when it was empty.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure.processes import running
from benchmarks.peers import WINDOW_DAYS, FailedError
from benchmarks.studies.spark import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER, CLIENT = "redis-server", "redis-cli"
IDS = 1_000_000
ID_BYTES = 16
BUCKET_IDS = 100
"""On average; listpacks are searched from their beginning, so they are kept short."""
MOST_BUCKET_IDS = 256
"""No bucket of 100 on average gets so many: that is 15 standard deviations away."""
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
    port = str(free_port())
    options = {
        "port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "daemonize": "no",
        "hash-max-listpack-entries": str(MOST_BUCKET_IDS),
    }  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name}", value)]

    def tell(*words: str, text: bytes = b"") -> bytes:
        done = subprocess.run([CLIENT, "-p", port, *words], input=text, capture_output=True, check=False)
        if done.returncode:
            raise FailedError(f"Redis answers {(done.stdout + done.stderr)[-500:].decode(errors='replace')}")
        return done.stdout

    def info() -> dict[str, str]:
        return dict(line.split(":", 1) for line in tell("INFO").decode().splitlines() if ":" in line)

    with (
        tempfile.TemporaryDirectory(prefix="seqmark-redis-") as folder,
        running([SERVER, *given, "--dir", folder], {}, Path(folder) / "log"),
    ):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(FailedError):
                tell("PING")
                break
            time.sleep(POLL_S)
        before = info()
        tell("--pipe", text=b"".join(commands))
        after = info()
    return after["redis_version"], int(after["used_memory"]) - int(before["used_memory"])


def run_redis(ids: int = IDS) -> dict[str, Any]:
    """Measure both ways.

    Returns:
        By way, with the server's version in its name: ``ids`` and ``bytes``; or ``missing``, why it was not.
    """
    if not (shutil.which(SERVER) and shutil.which(CLIENT)):
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
