"""The first start says that it compiles and how far it is; a start that loads kernels says nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from processor.ops.metrics import Metrics
from processor.pipeline import warm as warm_up
from processor.pipeline.warm import warm
from processor.worker import compiling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(compiling, "LOOK_S", 0.01)


def test_compiling_is_shown_and_said_while_the_event_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The real work takes a minute of two cores, where its result is not on the disk.
    seen, kernels, metrics = threading.Event(), [0], Metrics()

    def compiles(modes: Collection[str], progress: Callable[[int, int], None]) -> None:
        assert modes == {"watermark"}
        kernels[0] = 12
        progress(5, 28)
        assert seen.wait(60)

    monkeypatch.setattr(compiling, "warm", compiles)
    monkeypatch.setattr(compiling, "compiled", lambda: kernels[0])

    async def run() -> None:
        work = asyncio.ensure_future(compiling.compile_kernels({"watermark"}, metrics))
        while metrics.doing.total == 0:  # noqa: ASYNC110 - what operators see tells nobody
            await asyncio.sleep(0.01)
        seen.set()
        await work

    asyncio.run(run())

    assert metrics.doing == ("compiling kernels for this machine, once", 5, 28)
    begun, ended = (record.getMessage() for record in caplog.records)
    assert begun.startswith(
        "compiling kernels for this machine, once, which takes a minute or two: part 5 of 28, 12"
    )
    assert ended.startswith("12 kernels compiled in ")


def test_a_start_that_loads_kernels_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warm(["watermark"])
    monkeypatch.setattr(warm_up, "_WARM", set())  # as a process that begins
    asyncio.run(compiling.compile_kernels(["watermark"], Metrics()))
    assert caplog.records == []


def test_what_fails_in_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(_modes: Collection[str], _progress: Callable[[int, int], None]) -> None:
        raise MemoryError

    monkeypatch.setattr(compiling, "warm", compiles)
    with pytest.raises(MemoryError):
        asyncio.run(compiling.compile_kernels(["watermark"], Metrics()))
