"""Gives any project's tests a real Kafka broker, as a pytest fixture.

In ``conftest.py``::

    pytest_plugins = ["seqmark.testing"]

It takes SEQMARK_KAFKA__BOOTSTRAP_SERVERS where that is set, with SEQMARK_BROKER=testcontainers a container, and
otherwise an embedded Apache Kafka, which needs a Java 17 or 21 and stops when the session ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from processor.broker.embedded import find_broker

if TYPE_CHECKING:
    from collections.abc import Iterator


class Broker(NamedTuple):
    """A broker that a test may use but not stop; it creates no topics by itself."""

    bootstrap_servers: str
    """``HOST:PORT``, for any client and for ``kafka.bootstrap_servers``."""


@pytest.fixture(scope="session")
def seqmark_broker() -> Iterator[Broker]:
    """Give the broker of the whole session; tests share it, so each names topics of its own."""
    with find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as servers:
        yield Broker(servers)
