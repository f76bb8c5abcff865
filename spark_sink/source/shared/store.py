"""Keeps the rows that a member of a family has summed up for another one, in files of one partition.

    NUMBER/                        the partition
        lock                       held by the task that reads Kafka for all members; touched while it does
        want-MEMBER                "START STOP": what the member's last task here wants, or wanted
        MEMBER-START-STOP          a stretch: the member's rows of these offsets
        tmp-...                    a stretch that is being written

A stretch is an Arrow stream and, behind it, its length and its checksum (8 and 4 bytes, big-endian). The sum
begins with that of the stretch's key, so that a file under another's name is none.

Invariant: a stretch has all rows of its offsets, or is not taken. It is written under a name of its own, with
the lock held, and renamed; what was cut off on the way goes when the lock is taken next. Nothing here is
needed: whatever cannot be read or written is read from Kafka.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TAIL_BYTES = 12
MOST_BYTES = 1 << 29
"""Of all stretches of a family on one executor, 512 MiB: partitions and members have equal shares of it."""
MOST_STRETCHES = 512
"""Of a member and a partition."""
OLD_S = 6 * 3600.0
"""After that nobody waits for a stretch any more."""


class RowStretch(NamedTuple):
    """Offsets of a partition, ``start`` to before ``stop``."""

    start: int
    stop: int


class HeldLock:
    """The lock of a partition, held until it is closed or the process ends."""

    def __init__(self, file: int) -> None:
        self._file = file

    def touch(self) -> None:
        """Say to those who wait that somebody works."""
        os.utime(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


class StretchStore:
    """The files of one partition.

    Args:
        family: The family's folder.
        partition: Number of the partition.
        members: How many members there are.

    Raises:
        OSError: Its folder cannot be made.
    """

    def __init__(self, family: Path, partition: int, members: int) -> None:
        self._family, self._members = family, members
        self._folder = family / str(partition)
        self._folder.mkdir(0o700, exist_ok=True)
        self._lock = self._folder / "lock"

    # ------------------------------------------------------------------ the lock

    def try_lock(self) -> HeldLock | None:
        """Return the lock; None: somebody else has it.

        Raises:
            OSError: It cannot be made.
        """
        # Of an executor's own file system: there `flock` goes with the process.
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            os.close(file)
            raise
        held = HeldLock(file)
        held.touch()
        for name in self._names():
            if name.startswith("tmp-"):
                self._remove(name)
        return held

    def idle_s(self) -> float:
        """Return how long ago whoever holds the lock has touched it."""
        try:
            return max(time.time() - self._lock.stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    # ------------------------------------------------------------------ who stands where

    def want(self, member: int, wanted: RowStretch) -> None:
        """Tell the others what a member's task wants, and remove what it has no use for any more."""
        with contextlib.suppress(OSError):
            (self._folder / f"want-{member}").write_text(f"{wanted.start} {wanted.stop}", "ascii")
        for each in self.stretches(member):
            if each.start < wanted.start:
                self.remove(member, each)

    def wants(self, member: int) -> RowStretch | None:
        """Return what a member's last task here wanted; None: nobody knows."""
        try:
            start, stop = (self._folder / f"want-{member}").read_text("ascii").split()
            return RowStretch(int(start), int(stop))
        except (OSError, ValueError):
            return None

    # ------------------------------------------------------------------ stretches

    def stretches(self, member: int) -> list[RowStretch]:
        """Return what there is for a member, in order; of those that begin together the longest first."""
        found = []
        for name in self._names():
            whose, *place = name.split("-")
            if whose == str(member) and len(place) == 2 and all(each.isdecimal() for each in place):
                found.append(RowStretch(int(place[0]), int(place[1])))
        return sorted(found, key=lambda each: (each.start, -each.stop))

    def take(self, member: int, stretch: RowStretch) -> list[pa.RecordBatch] | None:
        """Return a stretch's rows; None: there are none that can be relied on."""
        try:
            raw = self._path(member, stretch).read_bytes()
        except OSError:
            return None
        body, tail = memoryview(raw)[:-_TAIL_BYTES], raw[-_TAIL_BYTES:]
        crc = zlib.crc32(body, _key_crc(member, stretch))
        if len(raw) < _TAIL_BYTES or tail != _tail(len(body), crc):
            return None
        try:
            with pa.ipc.open_stream(pa.py_buffer(body)) as rows:
                return list(rows)
        except (pa.ArrowException, OSError):
            return None

    def remove(self, member: int, stretch: RowStretch) -> None:
        """Remove a stretch, if it is there."""
        self._remove(self._path(member, stretch).name)

    def most_bytes(self) -> int:
        """Return how much there may be for a member of this partition."""
        partitions = sum(1 for name in _entries(self._family) if name.isdecimal())
        return MOST_BYTES // (max(partitions, 1) * max(self._members - 1, 1))

    def put(
        self,
        member: int,
        stretch: RowStretch,
        schema: pa.Schema,
        rows: Iterable[pa.RecordBatch],
        most_bytes: int,
    ) -> None:
        """Leave a member its rows of some offsets; with the lock held.

        Args:
            member: Its number.
            stretch: The offsets.
            schema: Of the rows.
            rows: All of them.
            most_bytes: What there may be for this member; the first stretches make room.

        Raises:
            OSError: They cannot be written.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            for batch in rows:
                stream.write_batch(batch)
        body = sink.getvalue()
        if body.size > most_bytes:
            return
        self._make_room(member, most_bytes - body.size)
        written = self._folder / f"tmp-{secrets.token_hex(8)}"
        try:
            with open(written, "xb", opener=_private) as file:
                file.write(body)
                file.write(_tail(body.size, zlib.crc32(body, _key_crc(member, stretch))))
            written.rename(self._path(member, stretch))
        except OSError:
            self._remove(written.name)
            raise

    def _make_room(self, member: int, most_bytes: int) -> None:
        """Remove a member's first stretches, until there is room for one more."""
        left = [(each, *self._size_and_time(member, each)) for each in self.stretches(member)]
        total, now = sum(size for _, size, _ in left), time.time()
        while left and (total > most_bytes or len(left) >= MOST_STRETCHES or now - left[0][2] > OLD_S):
            each, size, _ = left.pop(0)
            self.remove(member, each)
            total -= size

    def _path(self, member: int, stretch: RowStretch) -> Path:
        return self._folder / f"{member}-{stretch.start}-{stretch.stop}"

    def _size_and_time(self, member: int, stretch: RowStretch) -> tuple[int, float]:
        try:
            found = self._path(member, stretch).stat()
        except OSError:
            return 0, 0.0
        return found.st_size, found.st_mtime

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def _names(self) -> list[str]:
        return _entries(self._folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _key_crc(member: int, stretch: RowStretch) -> int:
    return zlib.crc32(f"{member} {stretch.start} {stretch.stop}".encode())


def _tail(length: int, crc: int) -> bytes:
    return length.to_bytes(8, "big") + crc.to_bytes(4, "big")


def _entries(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []
