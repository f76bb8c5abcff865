"""An event loop whose time passes only when nobody has anything to do, and dice for all that is random."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import time
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

BEGIN_S = 1_700_000_000.0
"""When each simulation begins, in seconds since 1970."""


class _Waiting(selectors.SelectSelector):
    """Lets the time pass that a loop would wait for; nothing comes from outside."""

    now_s = 0.0
    limit_s = 1e9

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        self.now_s += timeout
        if self.now_s > self.limit_s:
            raise RuntimeError("nobody gets on")
        return []


class ClockworkLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in order, one thing after the other, threads too."""

    def __init__(self, limit_s: float) -> None:
        self._waiting = _Waiting()
        self._waiting.limit_s = limit_s
        super().__init__(self._waiting)

    @override
    def time(self) -> float:
        return self._waiting.now_s

    @override
    def run_in_executor(  # type: ignore[override] # of futures and of callables alone
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - whoever awaits it gets it, as of a thread
            done.set_exception(error)
        return done


@contextlib.contextmanager
def clockwork(dice: random.Random, limit_s: float = 1e9) -> Iterator[asyncio.Runner]:
    """Give a runner, and let the process's clocks and its random bytes be those of the simulation meanwhile.

    Args:
        dice: Makes the random bytes.
        limit_s: Of simulated time, after which nobody gets on.
    """
    with contextlib.ExitStack() as held:
        loop = ClockworkLoop(limit_s)
        # Whoever fails second is not waited for any more.
        loop.set_exception_handler(lambda _loop, _context: None)
        runner = held.enter_context(asyncio.Runner(loop_factory=lambda: loop))
        patch = held.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(os, "urandom", dice.randbytes)
        patch.setattr(time, "monotonic", loop.time)
        patch.setattr(time, "time", lambda: BEGIN_S + loop.time())
        patch.setattr(time, "time_ns", lambda: int((BEGIN_S + loop.time()) * 1e9))
        yield runner
