"""The first start says that it compiles and how far it is; a start that loads kernels says nothing."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from processor.engine import jit
from processor.ops.metrics import Metrics, State
from processor.pipeline import warm as warm_up
from processor.pipeline.warm import warm
from processor.worker import app

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("_soon")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO)
    # Where it is noted what is kept: kernels are read from where they were.
    monkeypatch.setattr(jit, "FOLDER", tmp_path)
    monkeypatch.setattr(jit, "SHIPPED", None)
    monkeypatch.setattr(app, "LOOK_S", 0.01)


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

    monkeypatch.setattr(app, "warm", compiles)
    monkeypatch.setattr(app, "compiled", lambda: kernels[0])

    async def run() -> None:
        work = asyncio.ensure_future(app.compile_kernels({"watermark"}, metrics))
        while metrics.doing.total == 0:  # noqa: ASYNC110 - what operators see tells nobody
            await asyncio.sleep(0.01)
        seen.set()
        await work

    asyncio.run(run())

    assert metrics.doing == ("compiling kernels for this machine, once", 5, 28, State.COMPILING)
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
    asyncio.run(app.compile_kernels(["watermark"], Metrics()))
    assert caplog.records == []


def test_what_fails_in_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(_modes: Collection[str], _progress: Callable[[int, int], None]) -> None:
        raise MemoryError

    monkeypatch.setattr(app, "warm", compiles)
    with pytest.raises(MemoryError):
        asyncio.run(app.compile_kernels(["watermark"], Metrics()))


_HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)
"""


def test_of_several_first_workers_one_compiles_and_the_others_wait_and_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    # The real work takes a minute of two cores, where its result is not on the disk.
    done, metrics = list[str](), Metrics()
    monkeypatch.setattr(app, "warm", lambda modes, _progress: done.extend(modes))
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / warm_up.LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()

        async def run() -> None:
            work = asyncio.ensure_future(app.compile_kernels({"watermark"}, metrics))
            while metrics.doing.text != app.WAITING:  # noqa: ASYNC110 - what operators see tells nobody
                await asyncio.sleep(0.01)
            assert done == []
            first.kill()
            await work

        asyncio.run(run())

        assert done == ["watermark"]
        assert [record.getMessage() for record in caplog.records] == [app.WAITING]
    with (tmp_path / warm_up.LOCK).open() as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        asyncio.run(app.compile_kernels({"watermark"}, metrics))  # what is kept already is only loaded
