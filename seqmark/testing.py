"""Gives any project's tests a real Kafka broker, as a pytest fixture, and pipelines that run without one.

`Driver` and `DriverRecord` need no Java (docs/testing.md). For the broker, in ``conftest.py``::

    pytest_plugins = ["seqmark.testing"]

It takes SEQMARK_KAFKA__BOOTSTRAP_SERVERS where that is set, with SEQMARK_BROKER=testcontainers a container, and
otherwise an embedded Apache Kafka, which needs a Java 17 or 21 and stops when the session ends.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from processor.broker.embedded import find_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seqmark.driver import Driver, DriverRecord

__all__ = ["Broker", "Driver", "DriverRecord", "seqmark_broker"]


class Broker(NamedTuple):
    """A broker that a test may use but not stop; it creates no topics by itself."""

    bootstrap_servers: str
    """``HOST:PORT``, for any client and for ``kafka.bootstrap_servers``."""


@pytest.fixture(scope="session")
def seqmark_broker() -> Iterator[Broker]:
    """Give the broker of the whole session; tests share it, so each names topics of its own."""
    with find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as servers:
        yield Broker(servers)


def __getattr__(name: str) -> Any:
    # The kernels take seconds to import, and the broker does not need them.
    if name in {"Driver", "DriverRecord"}:
        return getattr(importlib.import_module("seqmark.driver"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
