"""Gives the tests their broker: one for the whole run, and one of its own for a test that kills it.

`broker` follows the contract's rules: SEQMARK_KAFKA__BOOTSTRAP_SERVERS, then SEQMARK_BROKER=testcontainers,
then an embedded one. Its topics are shared by the run, so a test names its own.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

from processor.broker.embedded import EmbeddedBroker, find_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Of a broker that takes batches into transactions without asking the coordinator, as before Kafka 3.6."""


class Broker(NamedTuple):
    """A broker that a test may use but not stop."""

    bootstrap_servers: str


class OwnBroker(Protocol):
    """Makes embedded brokers; each is started, and stopped when the test ends."""

    def __call__(self, **arguments: Any) -> EmbeddedBroker:
        """Start one with these arguments of `EmbeddedBroker`."""


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Give the broker of the whole run."""
    with find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as servers:
        yield Broker(servers)


@pytest.fixture
def own_broker() -> Iterator[OwnBroker]:
    """Give a maker of embedded brokers that the test may kill, stop and start again."""
    with ExitStack() as started:
        yield lambda **arguments: started.enter_context(EmbeddedBroker(**arguments))
