"""Watches the memory of a worker, and stops it before it has none.

The limit is for the whole process, as the system counts it: resident memory. An index of ids that outgrows a
machine would otherwise end in a kill by the system, in the middle of whatever it was doing, and again after
each restart. Linux says what is resident; elsewhere the limit has no effect, which `watch` says.

A worker that ran within its limit starts again within it. What a restore holds only until it is done does not
count, and is little (`processor.engine.ids.exact.bulk_load.SHARE`); and what the allocator keeps of memory that
was given back is taken from it when a restore is done, and before anybody is stopped for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.ops.metrics import Metrics

log = logging.getLogger(__name__)

EVERY_S = 0.1
"""A look costs about 10 us. A million new ids per second are 2 MB between two of them, and an index that is
loaded from the local state, as fast as two cores can, about 60 MB."""
WARN_AT, CALM_AT = 0.8, 0.75
"""Shares of the limit from which on there is a warning, and below which the next one is a new one."""


def resident_bytes() -> int | None:
    """Return the memory that the process has in use; None where /proc does not say it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


_ARENA_MAX = -8
"""``M_ARENA_MAX`` of glibc's <malloc.h>."""
ARENAS = 2


def few_arenas() -> None:
    """Let threads share malloc's arenas; called before there are many threads. No effect without glibc.

    By default there are eight arenas per core, and what one has free is of no use to the others: restores side
    by side took 20 to 60 MB more at 3 to 12 million ids, for as long as the worker ran.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Return unused memory to the system, where the C library has a call for that.

    Threads that restore leave hundreds of small pieces behind, each in an arena of its own.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Pressure:
    """Compares what is in use with the limit, where there is one."""

    def __init__(self, limit_bytes: int | None, metrics: Metrics) -> None:
        self._limit = limit_bytes
        self._metrics = metrics
        self._warned = False

    def look(self, used_bytes: int) -> None:
        """Show what is in use, and warn where it comes near the limit.

        Raises:
            StopError: It is above the limit.
        """
        self._metrics.memory.set(used_bytes)
        limit = self._limit
        if limit is None:
            return
        share = used_bytes / limit
        self._metrics.memory_pressure.set(share)
        if share >= 1:
            raise StopError(
                f"the worker uses {used_bytes / 1e6:,.0f} MB, and worker.memory_limit is "
                f"{limit / 1e6:,.0f} MB. Nothing is lost: what was not committed is taken in again. Raise the "
                "limit, shorten the window, or start more workers so that each has fewer partitions "
                "(seqmark_state_bytes says what each takes)"
            )
        if share >= WARN_AT and not self._warned:
            log.warning(
                "%.0f MB of worker.memory_limit's %.0f MB are in use (%.0f %%): at all of it the worker stops",
                used_bytes / 1e6,
                limit / 1e6,
                100 * share,
            )
        self._warned = share >= WARN_AT or (self._warned and share >= CALM_AT)


async def watch(
    limit_bytes: int | None,
    metrics: Metrics,
    end: Callable[[Exception], None],
    waiting_bytes: Callable[[], int] = lambda: 0,
) -> None:
    """Look every 100 ms, for ever; call ``end`` with what stops the worker.

    What ``waiting_bytes`` returns does not count: it is held only until something is restored.
    """
    pressure = Pressure(limit_bytes, metrics)
    while True:
        used = resident_bytes()
        if used is None:
            if limit_bytes is not None:
                log.warning("worker.memory_limit has no effect: this system does not say what is in use")
            return
        if limit_bytes is not None and used - waiting_bytes() >= limit_bytes:
            # In a thread: it goes through all memory that there is.
            await asyncio.to_thread(give_back)
            used = resident_bytes() or used
        try:
            pressure.look(used - waiting_bytes())
        except StopError as error:
            end(error)
            return
        await asyncio.sleep(EVERY_S)
