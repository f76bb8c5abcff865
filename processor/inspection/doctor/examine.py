"""Tries all of it in order: network, versions, rights and topics, transactions, this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.inspection.doctor import quotas, rights, transaction
from processor.inspection.doctor.machine import try_machine
from processor.inspection.doctor.network import NO_CONNECTION, Reached, Way, judge_versions, not_gone
from processor.inspection.doctor.rows import Trials
from processor.kafka.addresses import host_of
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.options import client_options
from processor.kafka.protocol.greeting import CLIENT_ID
from processor.kafka.topics.plan import changelog_topic, names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from processor.kafka.client import Client
    from schemas.config import Settings


async def examine(settings: Settings) -> Trials:
    """Try it and return all rows.

    Raises:
        ConfigError: Files of certificates or keys are wrong.
    """
    options = client_options(settings.kafka)
    trials = Trials()
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


async def _bootstrap(settings: Settings, options: Mapping[str, Any], trials: Trials) -> Reached | None:
    """Go to each address of the config; returns what the first that answers has led to."""
    addresses = settings.kafka.bootstrap_servers.split(",")
    found = None
    for address in addresses:
        way = Way(settings.kafka, options, host_of(address), int(address.rpartition(":")[2]))
        reached = await way.go(trials, "bootstrap", only=len(addresses) == 1)
        found = found or reached
    if found is None and len(addresses) > 1:
        trials.problem("network", "any bootstrap address", "none leads to a broker", "see the rows above")
    return found


async def _advertised(settings: Settings, options: Mapping[str, Any], reached: Reached, trials: Trials) -> bool:
    """Go to each address that the brokers name for themselves; whether any broker answers at its own."""
    known = set(settings.kafka.bootstrap_servers.replace(" ", "").split(","))
    answers = False
    for node, host, port in reached.brokers:
        if f"{host}:{port}" in known:
            answers = True  # or another one does by which we came
            continue
        way = Way(settings.kafka, options, host, port).advertised_by(node)
        answers |= await way.go(trials, f"broker {node} at", only=True) is not None
    return answers


async def _connected(settings: Settings, trials: Trials) -> None:
    try:
        async with open_client(settings.kafka, CLIENT_ID, names(settings)) as client:
            await rights.try_rights(client, settings, trials)
            await rights.try_ids(client, settings, trials)
            await quotas.try_quotas(client, settings, trials)
            await rights.try_topics(settings, trials)
            await _transact(client, settings, trials)
    except StopError as error:
        trials.problem("broker", "metadata of the cluster", str(error), "see the rows above")
        _not_connected(settings, trials, str(error))


async def _transact(client: Client, settings: Settings, trials: Trials) -> None:
    if settings.worker.guarantee != "exactly_once":
        transaction.not_tried(settings, trials, "guarantee is at_least_once")
        return
    changelogs = [
        TopicPartition(changelog_topic(settings, pipeline), 0)
        for pipeline in settings.pipelines
        if client.partitions(changelog_topic(settings, pipeline))
    ]
    await transaction.try_transaction(client, settings, next(iter(changelogs), None), trials)


def _not_connected(settings: Settings, trials: Trials, why: str) -> None:
    rights.not_tried(settings, trials, why)
    trials.not_tried(quotas.PART, quotas.TRIED, why)
    transaction.not_tried(settings, trials, why)
