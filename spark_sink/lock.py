"""Locks an aggregate's checkpoint, so that one aggregate never runs twice.

Two queries on one checkpoint would write the same batches side by side. The JVM holds the lock, not Python:
when Python is killed its JVM may still be at work for a moment, and the lock is free only when that has
ended. For checkpoints on this machine's file systems; elsewhere Spark itself ends the second query when it
meets the first one's batch, which is later.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A JVM whose Python was killed ends within a few seconds: it stops its queries first.
WAIT_S = 20.0
_ASK_S = 0.2


@contextmanager
def checkpoint_lock(spark: SparkSession, path: str, name: str) -> Iterator[None]:
    """Hold the lock of the checkpoint at ``path`` while the block runs.

    Raises:
        StopError: Another process has held it for 20 s.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j's door to the JVM
    scheme = jvm.org.apache.hadoop.fs.Path(path).toUri().getScheme()
    if scheme not in {None, "file"}:
        yield
        return
    folder = jvm.java.io.File(jvm.org.apache.hadoop.fs.Path(path).toUri().getPath())
    folder.mkdirs()
    file = jvm.java.io.RandomAccessFile(jvm.java.io.File(folder, ".seqmark.lock"), "rw")
    try:
        _wait_for(file.getChannel(), path, name)
        yield
    finally:
        # Closing the file gives the lock back.
        file.close()


def _wait_for(channel: Any, path: str, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    asking = threading.Event()
    while not _locked(channel):
        if time.monotonic() > deadline:
            raise StopError(
                f"aggregate {name}: another process runs on its checkpoint {path}; an aggregate runs once at a "
                f"time"
            )
        asking.wait(_ASK_S)


def _locked(channel: Any) -> bool:
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as error:
        # Held by this same JVM.
        if "OverlappingFileLockException" in str(error.java_exception):
            return False
        raise
