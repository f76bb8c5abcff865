"""Lists the transactions that are open in partitions, and whose they are.

A partition knows producers, by number, and the offset at which the transaction of each begins; the coordinators
know which transactional ids those are, and since when they are open. Where no coordinator knows of one, this
principal may not DESCRIBE the id, or the transaction hangs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.protocol.requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition.

    Attributes:
        first_offset: Of its first record there: `read_committed` ends before it.
        written_ms: Timestamp of its producer's newest record there; as the producer says.
        transactional_id: None: no coordinator says whose it is.
        state: As the coordinator has it: Ongoing, or PrepareCommit or PrepareAbort where its end is written.
        began_ms: When it began, by the coordinator's clock.
        timeout_ms: After which the coordinator aborts it.
    """

    partition: TopicPartition
    first_offset: int
    producer_id: int
    written_ms: int
    transactional_id: str | None = None
    state: str | None = None
    began_ms: int | None = None
    timeout_ms: int | None = None


async def open_transactions(
    client: Client, partitions: Collection[TopicPartition]
) -> tuple[list[OpenTransaction], list[str]]:
    """Return the transactions open in ``partitions``, in their order, and what could not be asked, in words."""
    problems: list[str] = []
    by_node: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        node = client.leader(tp)
        if node is not None:
            by_node[node].append(tp)
    found = [each for node, those in by_node.items() for each in await _open_on(client, node, those, problems)]
    ids = await _ids(client, {each.producer_id for each in found})
    named = [await _named(client, each, ids) for each in found]
    return sorted(named, key=lambda each: (each.partition, each.first_offset)), problems


async def _open_on(
    client: Client, node: int, partitions: Iterable[TopicPartition], problems: list[str]
) -> list[OpenTransaction]:
    """Ask the leader of some partitions; adds to ``problems`` what it does not say."""
    request = DescribeProducersRequest(dict(by_topic((tp, tp.partition) for tp in partitions)))
    try:
        answer = await client.request(node, request, coordination=True, timeout_s=ASK_S)
    except KafkaError as error:
        problems.append(f"broker {node} does not say whose transactions are open: {error!r}")
        return []
    found = []
    for topic, rows, _ in answer.topics:
        for number, code, _, producers, _ in rows:
            if code == KafkaCode.TOPIC_AUTHORIZATION_FAILED:
                problems.append(f"whose transaction is open in {topic}: grant this principal READ on it")
            elif code != KafkaCode.NONE:
                problems.append(f"whose transaction is open in {topic}:{number}: {error_name(code)}")
            found += [
                OpenTransaction(TopicPartition(topic, number), start, producer, written)
                for producer, _, _, written, _, start, _ in producers or ()
                if start >= 0
            ]
    return found


async def _ids(client: Client, producer_ids: Collection[int]) -> dict[int, tuple[int, str]]:
    """Return who coordinates each of these producers, and its transactional id; unknown ones are left out."""
    if not producer_ids:
        return {}
    nodes, request = client.nodes(), ListTransactionsRequest(sorted(producer_ids))
    answers = await asyncio.gather(*(_answer(client, node, request) for node in nodes))
    return {
        producer: (node, name)
        for node, answer in zip(nodes, answers, strict=True)
        for name, producer, *_ in (answer.states or () if answer is not None else ())
    }


async def _named(
    client: Client, transaction: OpenTransaction, ids: dict[int, tuple[int, str]]
) -> OpenTransaction:
    """Add what the coordinator knows."""
    if transaction.producer_id not in ids:
        return transaction
    node, name = ids[transaction.producer_id]
    answer = await _answer(client, node, DescribeTransactionsRequest([name]))
    for code, _, state, timeout_ms, began_ms, *_ in answer.states if answer is not None else ():
        if code == KafkaCode.NONE:
            began = began_ms if began_ms > 0 else None
            return replace(
                transaction, transactional_id=name, state=state, began_ms=began, timeout_ms=timeout_ms
            )
    return replace(transaction, transactional_id=name)


async def _answer(client: Client, node: int, request: Any) -> Any:
    """Ask one broker; None where it does not answer."""
    try:
        return await client.request(node, request, coordination=True, timeout_s=ASK_S)
    except KafkaError:
        return None
