"""On which core is a chunk judged?

Kernels and codecs release the interpreter's lock, so slots can be judged side by side while the event loop
talks to the brokers. A `Core` is one thread with one decoder and one encoder: their buffers are as many as
there are cores, not as there are slots. A slot keeps its core, so its chunks stay in order.

Invariant: one piece of work at a time uses a core's buffers, and what it returns does not point into them.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from processor.wire.decode import Decoder
from processor.wire.encode import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ASIDE_BYTES = 64 * 1024
"""Smaller chunks are judged at once: handing over and back costs some 50 µs, as much as judging so much."""


class Core:
    """A thread that judges; made where an event loop runs."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.encoder = Encoder()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="core")
        self._free = asyncio.Lock()

    async def run(self, work: Callable[[], T], size_bytes: int) -> T:
        """Do ``work``, of which ``size_bytes`` come in, beside the event loop if it is worth it.

        A cancelled caller waits until the work is done: the buffers must be nobody's afterwards.
        """
        async with self._free:
            if size_bytes < ASIDE_BYTES:
                return work()
            done = asyncio.get_running_loop().run_in_executor(self._thread, work)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                await asyncio.wait([done])
                raise

    def close(self) -> None:
        """End the thread; its last work is done by then."""
        self._thread.shutdown(wait=False)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
