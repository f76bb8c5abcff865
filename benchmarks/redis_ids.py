"""What does an id cost in Redis? ``python -m benchmarks.redis_ids [IDS]`` prints bytes an id.

Two ways that people keep ids there, with random ones of 16 bytes, in a server of Debian's package with nothing
else in it, that writes nothing to disk:

- plain keys: ``SET id "" PX window``, which Redis expires by itself;
- hashes: ``HSET bucket id time`` with 100 ids a bucket on average, which Redis keeps as one listpack; the time
  has 8 bytes. Nothing there expires an id but the program that looks at its time.

Bytes are what the server says that it uses (``used_memory``), less what it used when it was empty.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import FailedError
from benchmarks.peers import WINDOW_DAYS
from benchmarks.spark import free_port
from benchmarks.tree import running

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

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
SEED = 7


class Client:
    """As much of Redis's protocol as this needs."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        """End it."""
        self._reader.close()
        self._socket.close()

    def used_bytes(self) -> int:
        """Return what the server uses."""
        return int(self.info("memory")["used_memory"])

    def info(self, section: str) -> dict[str, str]:
        """Return a section of what the server says of itself."""
        self._socket.sendall(command(b"INFO", section.encode()))
        head = self._line()
        text = self._reader.read(int(head[1:]) + 2).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def send(self, commands: list[bytes]) -> None:
        """Send commands that each answer with one line.

        Raises:
            FailedError: One was refused.
        """
        for start in range(0, len(commands), PIPELINE):
            some = commands[start : start + PIPELINE]
            self._socket.sendall(b"".join(some))
            for _ in some:
                self._line()

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line or line.startswith(b"-"):
            raise FailedError(f"Redis answers {line.decode(errors='replace').strip() or 'nothing'}")
        return line.strip()


def command(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def plain(ids: list[bytes]) -> list[bytes]:
    """Return what keeps ids as keys."""
    window_ms = b"%d" % (WINDOW_DAYS * 86_400_000)
    return [command(b"SET", each, b"", b"PX", window_ms) for each in ids]


def hashed(ids: list[bytes]) -> list[bytes]:
    """Return what keeps ids as fields of hashes; the bucket is a part of the id, which is random."""
    buckets = max(1, len(ids) // BUCKET_IDS)
    now_ms = time.time_ns() // 1_000_000
    made = []
    for number, each in enumerate(ids):
        bucket = b"%d" % (int.from_bytes(each[:8]) % buckets)
        made.append(command(b"HSET", bucket, each, (now_ms + number).to_bytes(8)))
    return made


WAYS: tuple[tuple[str, Callable[[list[bytes]], list[bytes]]], ...] = (
    ("plain keys with a time to live", plain),
    ("hashes as listpacks, 16-byte fields, 8-byte values", hashed),
)


@contextmanager
def server() -> Iterator[Client]:
    """Give a client of an empty server.

    Raises:
        FailedError: It does not answer.
    """
    port = free_port()
    options = {
        "port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "daemonize": "no",
        "hash-max-listpack-entries": MOST_BUCKET_IDS,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="seqmark-redis-") as folder:
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        log = Path(folder) / "log"
        with running([SERVER, *given, "--dir", folder], {}, log) as process:
            client = _connected(process, port, log)
            try:
                yield client
            finally:
                client.close()


def _connected(process: subprocess.Popen[bytes], port: int, log: Path) -> Client:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return Client(port)
        time.sleep(POLL_S)
    raise FailedError(f"Redis does not start: {log.read_text(errors='replace')[-500:]}")


def run_redis(ids: int = IDS) -> dict[str, Any]:
    """Measure both ways.

    Returns:
        By way, with the server's version in its name: ``ids`` and ``bytes``; or ``missing``, why it was not.

    Raises:
        FailedError: The server failed.
    """
    if shutil.which(SERVER) is None:
        return {"missing": f"{SERVER} is not installed (Debian and Ubuntu: apt-get install redis-server)"}
    made = np.random.default_rng(SEED).bytes(ids * ID_BYTES)
    listed = [made[at : at + ID_BYTES] for at in range(0, len(made), ID_BYTES)]
    found: dict[str, Any] = {}
    for way, commands in WAYS:
        with server() as client:
            before = client.used_bytes()
            client.send(commands(listed))
            name = f"Redis {client.info('server')['redis_version']}, {way}"
            found[name] = {"ids": ids, "bytes": client.used_bytes() - before}
    return found


if __name__ == "__main__":
    for name, each in run_redis(*map(int, sys.argv[1:2])).items():
        print(f"{name}: {each['bytes'] / each['ids']:.1f} B an id" if "bytes" in each else each)
