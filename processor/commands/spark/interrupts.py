"""Ends a command at once by a signal while Spark works for it, which is as safe as a kill."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from processor.commands.console import say
from processor.errors import EXIT_FAILED, ending_signals

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ending_at_once(command: str, advice: str) -> Iterator[None]:
    """Let a signal end the process while the block runs: an exception would be lost in a callback of Spark's.

    The JVM ends when this process has.

    Args:
        command: Its name.
        advice: Said with it: what counts, and what to do.
    """

    def end(*_: object) -> None:
        say(f"seqmark: {command} was interrupted: {advice}", "bold red")
        os._exit(EXIT_FAILED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
