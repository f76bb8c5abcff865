"""Fixtures of the tests with Spark."""

from __future__ import annotations

import gc
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_sink.spark import spark

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["spark"]


@pytest.fixture(scope="module", autouse=True)
def sockets_are_collected() -> Iterator[None]:
    """Let sockets that PySpark leaves open end with the tests that expect it, and not in somebody else's."""
    yield
    gc.collect()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Give Ctrl-C back to the tests, after commands that listen to it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
