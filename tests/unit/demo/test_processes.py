"""The demo passes on what its worker says of the minute in which it compiles."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from processor.demo.processes import compiling, page
from processor.ops.metrics import Metrics
from processor.worker import compiling as worker

if TYPE_CHECKING:
    import pytest


def test_what_a_worker_says_of_compiling_is_found_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    looks = iter(range(1_000))
    monkeypatch.setattr(worker, "LOOK_S", 0.001)
    monkeypatch.setattr(worker, "compiled", lambda: next(looks))
    asyncio.run(worker.compile_kernels(["watermark"], Metrics()))

    log = "\n".join(f"2026-11-23 16:55:06,521 INFO    {record.getMessage()}" for record in caplog.records)

    lines = compiling(log)  # more than one where the machine is slow
    assert lines
    for line in lines:
        assert line.startswith("compiling kernels for this machine, once, which takes a minute or two: ")
    assert compiling("2026-11-23 16:55:06,521 INFO    drained: 4 slots") == []


def test_the_page_is_where_the_log_says_that_it_has_moved_to() -> None:
    moved = (
        "INFO port 6066 is taken, by another worker perhaps: /health, /ready and /metrics are at "
        "http://127.0.0.1:6068; worker.web_port names a port, 0 is none"
    )
    assert page(moved) == "http://127.0.0.1:6068/"
    assert page("INFO it begins") == "http://127.0.0.1:6066/"
