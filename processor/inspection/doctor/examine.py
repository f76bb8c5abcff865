"""Tries all of it in order: network, versions, rights and topics, transactions, this machine."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from processor.broker.java import find_java
from processor.errors import BrokerError, StopError
from processor.inspection.doctor import rights, transaction
from processor.inspection.findings import Findings
from processor.kafka.addresses import host_of
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.options import client_options
from processor.kafka.protocol.greeting import CLIENT_ID
from processor.kafka.protocol.refusal import SOON, STEPS, Approach, Refused
from processor.kafka.protocol.requests import (
    DescribeTransactionsRequest,
    FetchByIdRequest,
    MetadataRequest,
)
from processor.kafka.topics.plan import changelog_topic, names
from processor.ops.extras import MODULES, install, missing
from processor.ops.status_text import size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from processor.kafka.client import Client
    from schemas.config import Settings

# The steps after one that fails are not tried. The same way is gone to each address that the brokers
# themselves name: whoever connects is sent there, and a listener that only the broker's own network knows
# ends the way.

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


MACHINE = "machine"
LEAST_FREE_BYTES = 1_000_000_000
"""About 40 million ids; a state folder that is full stops the worker."""


async def examine(settings: Settings) -> Findings:
    """Try it and return all rows.

    Raises:
        ConfigError: Files of certificates or keys are wrong.
    """
    options = client_options(settings.kafka)
    trials = Findings()
    reached = await _bootstrap(settings, options, trials)
    exactly_once = settings.worker.guarantee == "exactly_once"
    if reached is None:
        not_gone(trials, "advertised addresses", tls=settings.kafka.security_protocol.endswith("SSL"))
        _not_connected(settings, trials, NO_CONNECTION)
    else:
        answers = await _advertised(settings, options, reached, trials)
        judge_versions(trials, reached.versions, exactly_once=exactly_once)
        if answers:
            await _connected(settings, trials)
        else:
            _not_connected(settings, trials, "no address that the brokers name answers")
    try_machine(settings, trials)
    return trials


async def _bootstrap(settings: Settings, options: Mapping[str, Any], trials: Findings) -> Approach | None:
    """Go to each address of the config; returns what the first that answers has led to."""
    addresses = settings.kafka.bootstrap_servers.split(",")
    found = None
    for address in addresses:
        host, port = host_of(address), int(address.rpartition(":")[2])
        way = Approach(settings.kafka, options, host, port)
        reached = await go(way, trials, f"bootstrap {host}:{port}", only=len(addresses) == 1)
        found = found or reached
    if found is None and len(addresses) > 1:
        trials.problem("network", "any bootstrap address", "none leads to a broker", "see the rows above")
    return found


async def _advertised(
    settings: Settings, options: Mapping[str, Any], reached: Approach, trials: Findings
) -> bool:
    """Go to each address that the brokers name for themselves; whether any broker answers at its own."""
    known = set(settings.kafka.bootstrap_servers.replace(" ", "").split(","))
    answers = False
    for node, host, port in reached.brokers:
        if f"{host}:{port}" in known:
            answers = True  # or another one does by which we came
            continue
        way, label = Approach(settings.kafka, options, host, port), f"broker {node} at {host}:{port}"
        answers |= await go(way, trials, label, only=True, node=node) is not None
    return answers


async def _connected(settings: Settings, trials: Findings) -> None:
    try:
        async with open_client(settings.kafka, CLIENT_ID, names(settings)) as client:
            await rights.try_rights(client, settings, trials)
            await rights.try_ids(client, settings, trials)
            await rights.try_quotas(client, settings, trials)
            await rights.try_topics(settings, trials)
            await _transact(client, settings, trials)
    except StopError as error:
        trials.problem("broker", "metadata of the cluster", str(error), "see the rows above")
        _not_connected(settings, trials, str(error))


async def _transact(client: Client, settings: Settings, trials: Findings) -> None:
    if settings.worker.guarantee != "exactly_once":
        transaction.not_tried(settings, trials, "guarantee is at_least_once")
        return
    changelogs = [
        TopicPartition(changelog_topic(settings, pipeline), 0)
        for pipeline in settings.pipelines
        if client.partitions(changelog_topic(settings, pipeline))
    ]
    await transaction.try_transaction(client, settings, next(iter(changelogs), None), trials)


def _not_connected(settings: Settings, trials: Findings, why: str) -> None:
    rights.not_tried(settings, trials, why)
    trials.not_tried(rights.PART, rights.QUOTAS, why)
    transaction.not_tried(settings, trials, why)


# -------------------------------------------------------------------- this machine


def try_machine(settings: Settings, trials: Findings) -> None:
    """Note what is there and what is missing."""
    _try_folder(settings.worker.state_dir, trials)
    _try_java(settings, trials)
    _try_extras(settings, trials)


def _try_folder(folder: Path, trials: Findings) -> None:
    tried = f"worker.state_dir {folder}"
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = f"{there} is no folder" if not there.is_dir() else f"this user cannot write to {there}"
        trials.problem(MACHINE, tried, why, "set worker.state_dir to a folder that this user can write to")
        return
    free = shutil.disk_usage(there).free
    says = f"{size(free)} free" + ("" if there == folder.absolute() else ", not made yet")
    if free < LEAST_FREE_BYTES:
        trials.warning(MACHINE, tried, says, "make room: a worker stops where the disk is full")
    else:
        trials.ok(MACHINE, tried, says)


def _try_java(settings: Settings, trials: Findings) -> None:
    tried = "Java, for Spark and the embedded broker"
    try:
        java = find_java()
    except BrokerError as error:
        if settings.aggregates:
            trials.problem(MACHINE, tried, str(error), "install a JDK 17 or 21, or set JAVA_HOME")
        else:
            trials.ok(MACHINE, tried, f"{error} A worker needs none")
    else:
        trials.ok(MACHINE, tried, f"Java {java.major}: {java.path}")


def _try_extras(settings: Settings, trials: Findings) -> None:
    lacking = missing(*MODULES)
    installed = [extra for extra in MODULES if extra not in lacking]
    tried, says = "optional extras", f"installed: {', '.join(installed) or 'none'}"
    if "spark" in lacking and settings.aggregates:
        trials.problem(MACHINE, tried, says, f"`seqmark aggregate` {install(['spark'])}")
    else:
        trials.ok(MACHINE, tried, says + (f"; not installed: {', '.join(lacking)}" if lacking else ""))
