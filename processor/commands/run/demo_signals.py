"""Ends a demo by a signal as by Ctrl-C, worker, Spark and broker in order."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from processor.errors import ending_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class DemoSignals:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does, worker, Spark and broker in order.

    What a handler raises is lost where it meets a callback of Spark's. So who asks is remembered, and while the
    job runs it is told to stop instead.
    """

    def __init__(self) -> None:
        self._asked = False
        self._instead: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {each: signal.getsignal(each) for each in ending_signals()}
        # SIGINT is asyncio's at first; it may also be ignored, in the background.
        for each in set(self._before) - {signal.SIGINT}:
            signal.signal(each, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def listen(self) -> None:
        """Take SIGINT too; Spark's start puts a handler of its own there."""
        signal.signal(signal.SIGINT, self._end)

    def check(self) -> None:
        """Raise what may have been lost."""
        if self._asked:
            raise KeyboardInterrupt

    @contextmanager
    def told(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the block runs call ``stop`` where the demo is to end, and end it behind the block."""
        self._instead = stop
        try:
            yield
        finally:
            self._instead = None
        self.check()

    def _end(self, *_: object) -> None:
        self._asked = True
        if self._instead is None:
            raise KeyboardInterrupt
        self._instead()
