"""Goes the way to a broker step by step: name, connection, TLS, Kafka's versions, credentials.

The steps after one that fails are not tried. The same way is gone to each address that the brokers themselves
name: whoever connects is sent there, and a listener that only the broker's own network knows ends the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from processor.kafka.protocol.refusal import SOON, Approach, Refused
from processor.kafka.protocol.requests import (
    DescribeTransactionsRequest,
    FetchByIdRequest,
    MetadataRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.inspection.doctor.rows import Trials
    from schemas.config import Kafka

NETWORK, BROKER = "network", "broker"
NO_CONNECTION = "no connection"
_STEPS = ("name", "connection", "TLS", "Kafka's versions", "credentials")


class Reached(NamedTuple):
    """What a way to a broker has led to.

    Attributes:
        brokers: Number, host and port of all brokers, as this one names them.
        versions: By API key, lowest and highest.
    """

    brokers: list[tuple[int, str, int]]
    versions: Mapping[int, tuple[int, int]]


class Way:
    """The way to one address."""

    def __init__(self, kafka: Kafka, options: Mapping[str, Any], host: str, port: int) -> None:
        self._encrypted = kafka.security_protocol.endswith("SSL")
        self._address = f"{host}:{port}"
        self._approach = Approach(kafka, options, host, port)
        self._advertised = ""

    def advertised_by(self, node: int) -> Way:
        """Say in what is advised that this address is what a broker names."""
        self._advertised = (
            f"; broker {node} names this address (advertised.listeners), and clients are sent there: have it "
            "name one that this machine can reach"
        )
        return self

    async def go(self, trials: Trials, label: str, *, only: bool) -> Reached | None:
        """Go it, and note each step; None where it does not lead to a broker that answers.

        Args:
            trials: Where it is noted.
            label: What the address is, for the rows.
            only: Whether there is no other way.
        """
        approach = self._approach
        steps = {
            "name": approach.name,
            "connection": approach.connection,
            "TLS": approach.tls if self._encrypted else None,
            "Kafka's versions": approach.kafka,
            "credentials": approach.credentials,
        }
        failed = ""
        for step, take in steps.items():
            tried = f"{step}: {label} {self._address}"
            if take is None:
                continue
            if failed:
                trials.not_tried(NETWORK, tried, f"{failed} failed")
                continue
            found = await take()
            if isinstance(found, Refused):
                trials.fails(NETWORK, tried, found.says, found.advice + self._advertised, only=only)
                failed = step
            elif step == "TLS" and found.startswith(SOON):
                trials.warning(NETWORK, tried, found.removeprefix(SOON), "have the certificate renewed")
            else:
                trials.ok(NETWORK, tried, found)
        return None if failed else Reached(approach.brokers, approach.versions)


def not_gone(trials: Trials, label: str, *, tls: bool) -> None:
    """Note that no way could be gone to ``label``."""
    for step in _STEPS:
        if step != "TLS" or tls:
            trials.not_tried(NETWORK, f"{step}: {label}", NO_CONNECTION)


def judge_versions(trials: Trials, versions: Mapping[int, tuple[int, int]], *, exactly_once: bool) -> None:
    """Note whether the broker knows the requests that a worker makes."""
    tried = "least version, Kafka 3.0"
    if _knows(versions, DescribeTransactionsRequest):
        age = "3.1 or newer" if _knows(versions, FetchByIdRequest) else "3.0: sources are read by name"
        trials.ok(BROKER, tried, age)
    elif exactly_once:
        trials.problem(
            BROKER,
            tried,
            "older than 3.0: it does not tell how a transaction stands (KIP-664)",
            'upgrade it, or set worker.guarantee = "at_least_once" with what that means',
        )
    else:
        known = "2.8 or newer" if _knows(versions, MetadataRequest) else "older than 2.8, without topic ids"
        trials.warning(BROKER, tried, known, "it is enough for at_least_once; upgrade it for exactly_once")


def _knows(versions: Mapping[int, tuple[int, int]], request: Any) -> bool:
    lowest, highest = versions.get(request.API_KEY, (1, 0))
    return bool(lowest <= request.VERSION <= highest)
