"""Goes the way to a broker step by step: name, connection, TLS, Kafka's versions, credentials.

The steps after one that fails are not tried. The same way is gone to each address that the brokers themselves
name: whoever connects is sent there, and a listener that only the broker's own network knows ends the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.kafka.protocol.refusal import SOON, STEPS, Approach, Refused
from processor.kafka.protocol.requests import (
    DescribeTransactionsRequest,
    FetchByIdRequest,
    MetadataRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.inspection.findings import Findings

NETWORK, BROKER = "network", "broker"
NO_CONNECTION = "no connection"
_ADVERTISED = (
    "; broker {} names this address (advertised.listeners), and clients are sent there: have it name one that "
    "this machine can reach"
)


async def go(
    approach: Approach, trials: Findings, label: str, *, only: bool, node: int | None = None
) -> Approach | None:
    """Go the way to an address, and note each step; None where it leads to no broker that answers.

    Args:
        approach: The way.
        trials: Where it is noted.
        label: What the address is, for the rows.
        only: Whether there is no other way.
        node: The number of the broker that names this address; None: the config does.
    """
    advice = "" if node is None else _ADVERTISED.format(node)
    failed = ""
    for step, take in approach.steps():
        tried = f"{step}: {label}"
        if failed:
            trials.not_tried(NETWORK, tried, f"{failed} failed")
            continue
        found = await take()
        if isinstance(found, Refused):
            trials.fails(NETWORK, tried, found.says, found.advice + advice, only=only)
            failed = step
        elif step == "TLS" and found.startswith(SOON):
            trials.warning(NETWORK, tried, found.removeprefix(SOON), "have the certificate renewed")
        else:
            trials.ok(NETWORK, tried, found)
    return None if failed else approach


def not_gone(trials: Findings, label: str, *, tls: bool) -> None:
    """Note that no way could be gone to ``label``."""
    for step in STEPS:
        if step != "TLS" or tls:
            trials.not_tried(NETWORK, f"{step}: {label}", NO_CONNECTION)


def judge_versions(trials: Findings, versions: Mapping[int, tuple[int, int]], *, exactly_once: bool) -> None:
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
