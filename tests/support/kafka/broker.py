"""Gives the tests their broker: one for the whole run, and one of its own for a test that kills it.

`broker` is what `seqmark.testing` gives everybody. It follows the contract's rules: the one that
SEQMARK_KAFKA__BOOTSTRAP_SERVERS names, then SEQMARK_BROKER=testcontainers, then an embedded one. Its topics are
shared by the run, so a test names its own. Before all that SEQMARK_TEST_KAFKA names another version of Kafka.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from seqmark.testing import Broker, seqmark_broker
from tests.support.kafka.versions import embedded, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.broker.embedded import EmbeddedBroker

__all__ = ["UNVERIFIED", "Broker", "OwnBroker", "broker", "own_broker", "seqmark_broker"]

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Of a broker that takes batches into transactions without asking the coordinator, as before Kafka 3.6."""


class OwnBroker(Protocol):
    """Makes embedded brokers; each is started, and stopped when the test ends."""

    def __call__(self, **arguments: Any) -> EmbeddedBroker:
        """Start one with these arguments of `EmbeddedBroker`."""


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Give the broker of the whole run."""
    if (version := wanted()) is None:
        yield request.getfixturevalue("seqmark_broker")
        return
    with embedded() as other:
        log = (other.data_dir / "broker.log").read_text(errors="replace")
        assert f"Kafka version: {version}" in log, log[-2000:]
        yield Broker(other.bootstrap_servers)


@pytest.fixture
def own_broker() -> Iterator[OwnBroker]:
    """Give a maker of embedded brokers that the test may kill, stop and start again."""
    with ExitStack() as started:
        yield lambda **arguments: started.enter_context(embedded(**arguments))
