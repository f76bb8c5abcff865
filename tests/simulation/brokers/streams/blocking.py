"""Runs programs without an event loop over simulated brokers: Spark's driver, a task, a command.

Each has a thread of its own, which runs only while the loop waits for it, and the other way round: so what
happens is as determined as without threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from processor.kafka.plain import topic_log
from tests.simulation.brokers.processes import here

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.simulation.brokers.processes import Process

T = TypeVar("T")


class _Ended(NamedTuple):
    """What a thread has come to."""

    value: Any
    error: BaseException | None


class _Answer(NamedTuple):
    """What has come of something that a thread has asked for: as a future, which is there already."""

    value: Any
    error: BaseException | None

    def result(self) -> Any:
        """Return it, or raise."""
        if self.error is not None:
            raise self.error
        return self.value


class _Thread(threading.local):
    """What the present thread asks the loop by."""

    asked: SimpleQueue[Coroutine[Any, Any, Any] | _Ended] | None = None
    answered: SimpleQueue[_Answer]
    number = 0


_THREAD = _Thread()


def awaited(work: Coroutine[Any, Any, Any], _loop: object = None) -> _Answer:
    """Have the loop do something for the present thread, in the process that the thread is of."""
    if _THREAD.asked is None:
        work.close()  # what is left of a reader when nobody has it any more
        return _Answer(None, None)
    _THREAD.asked.put(work)
    return _THREAD.answered.get()


async def without_loop(work: Callable[[], T]) -> T:
    """Run something in a thread of the present process; it asks the loop for whatever takes time."""
    asked: SimpleQueue[Coroutine[Any, Any, Any] | _Ended] = SimpleQueue()
    answered: SimpleQueue[_Answer] = SimpleQueue()
    number = _number(here())

    def run() -> None:
        _THREAD.asked, _THREAD.answered, _THREAD.number = asked, answered, number
        try:
            asked.put(_Ended(work(), None))
        except BaseException as error:  # noqa: BLE001 - whoever has begun it gets it
            asked.put(_Ended(None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # Nothing else goes on while the thread works.
    while not isinstance(what := asked.get(), _Ended):
        try:
            answered.put(_Answer(await what, None))
        except BaseException as error:  # noqa: BLE001 - the thread gets it, also that it is killed
            answered.put(_Answer(None, error))
    thread.join()
    if what.error is not None:
        raise what.error
    found: T = what.value
    return found


_NUMBERS: dict[Process, int] = {}


def _number(process: Process) -> int:
    return _NUMBERS.setdefault(process, len(_NUMBERS) + 1)


@contextlib.contextmanager
def blocking() -> Iterator[None]:
    """Have what blocks in the product ask the simulation's loop, and each process have its own connections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_log, "_OPEN", {})
        patch.setattr(topic_log, "_OPENING", contextlib.nullcontext())
        patch.setattr(topic_log, "_loop", lambda: None)
        patch.setattr(topic_log, "asyncio", SimpleNamespace(run_coroutine_threadsafe=awaited))
        patch.setattr(topic_log, "os", SimpleNamespace(**{**vars(os), "getpid": lambda: _THREAD.number}))
        _NUMBERS.clear()
        try:
            yield
        finally:
            _NUMBERS.clear()
