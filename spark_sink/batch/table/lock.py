"""Lets one run at a time change a clean table.

The system frees the lock when its holder ends, however it ends. Two runs that got past it, on a file system
without locks, still could not both commit: a commit's number is taken once.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_sink.batch.table.layout import TableLayout


@contextmanager
def table_lock(layout: TableLayout) -> Iterator[None]:
    """Hold the lock of a table while the block runs.

    Raises:
        StopError: Another run holds it, or the block fails by the file system.
    """
    layout.own.mkdir(parents=True, exist_ok=True)
    # Not inherited: the JVM and its Python workers may outlive us for a moment.
    handle = os.open(layout.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StopError(
                f"another run is at work on {layout.output}: one run at a time; start this one when it "
                f"has ended"
            ) from error
        yield
    except OSError as error:
        # A task's has come back as a refusal; this one is the driver's own.
        raise StopError(
            f"{layout.output}: {error}; mend that and start it again: a run that had committed by then says so"
        ) from error
    finally:
        os.close(handle)
