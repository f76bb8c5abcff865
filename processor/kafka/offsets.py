"""Asks where partitions begin and end, what a group has committed, and where a state begins.

Retries until a deadline, because this is asked at assignment, while leaders may move.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import RebuildError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.protocol.internals import OffsetFetchRequest
from processor.kafka.protocol.requests import ListOffsetsRequest
from schemas.changelog.position import NO_TOPIC, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

EARLIEST = ListOffsetsRequest.EARLIEST
LATEST = ListOffsetsRequest.LATEST
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
DEADLINE_S = 30.0
ASK_S = 5.0
"""For one request, which a leader answers at once; after that the metadata says who leads now."""


class Bounds(NamedTuple):
    """Offsets of one partition's log."""

    start: int
    """The first that is still retained."""
    stable: int
    """The last stable offset: below it no transaction is open. A control record may lie just before."""
    end: int
    """The high watermark; above ``stable`` exactly while a transaction is open."""


async def bounds(
    client: Client, partitions: Iterable[TopicPartition], deadline_s: float = DEADLINE_S
) -> dict[TopicPartition, Bounds]:
    """Ask the leaders for the bounds of ``partitions``.

    Raises:
        RebuildError: No answer within the deadline.
    """
    wanted = list(partitions)
    start = await _list(client, wanted, EARLIEST, READ_UNCOMMITTED, deadline_s)
    # Asked in this order, stable <= end holds whatever is committed in between.
    stable = await last_stable(client, wanted, deadline_s)
    end = await _list(client, wanted, LATEST, READ_UNCOMMITTED, deadline_s)
    return {tp: Bounds(start[tp], stable[tp], end[tp]) for tp in wanted}


async def last_stable(
    client: Client, partitions: Iterable[TopicPartition], deadline_s: float = DEADLINE_S
) -> dict[TopicPartition, int]:
    """Ask the leaders for the last stable offsets of ``partitions``: below them no transaction is open.

    Raises:
        RebuildError: No answer within the deadline.
    """
    return await _list(client, list(partitions), LATEST, READ_COMMITTED, deadline_s)


async def offsets_at(
    client: Client, partitions: Iterable[TopicPartition], timestamp_ms: int, deadline_s: float = DEADLINE_S
) -> dict[TopicPartition, int | None]:
    """Return the offset of each partition's first committed record with at least this timestamp.

    None where there is no such record.

    Raises:
        RebuildError: No answer within the deadline.
    """
    found = await _list(client, list(partitions), timestamp_ms, READ_COMMITTED, deadline_s)
    return {tp: offset if offset >= 0 else None for tp, offset in found.items()}


async def spans_since(
    client: Client, topic: str, since_ms: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return from which offset to before which a topic's partitions hold what was committed since a time.

    Args:
        client: Knows the topic.
        topic: Its name.
        since_ms: From the first record with at least this timestamp on; None: all that is retained.

    Raises:
        RebuildError: No answer within the deadline.
    """
    partitions = [TopicPartition(topic, number) for number in sorted(client.partitions(topic))]
    now = await bounds(client, partitions)
    begins = {tp: each.start for tp, each in now.items()}
    if since_ms is not None:
        for tp, at in (await offsets_at(client, partitions, since_ms)).items():
            begins[tp] = now[tp].stable if at is None else max(at, now[tp].start)
    return {tp: (begins[tp], now[tp].stable) for tp in partitions}


async def _list(
    client: Client, wanted: list[TopicPartition], when: int, isolation: int, deadline_s: float
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + deadline_s
    problem = "no leader is known"
    while True:
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in wanted:
            node = client.leader(tp)
            if tp not in found and node is not None:
                by_node[node].append(tp)
        asked = (
            _ask(client, node, _request(client, those, when, isolation), found)
            for node, those in by_node.items()
        )
        problem = next(filter(None, await asyncio.gather(*asked)), problem)
        missing = [f"{tp.topic}:{tp.partition}" for tp in wanted if tp not in found]
        if not missing:
            return found
        if time.monotonic() > deadline:
            raise RebuildError("offsets", f"cannot get the offsets of {', '.join(missing)}: {problem}")
        await client.refresh()
        await asyncio.sleep(0.1)


def _request(
    client: Client, wanted: Iterable[TopicPartition], when: int, isolation: int = READ_UNCOMMITTED
) -> ListOffsetsRequest:
    rows = ((tp, (tp.partition, client.epoch(tp), when)) for tp in wanted)
    return ListOffsetsRequest(isolation, by_topic(rows))


async def _ask(client: Client, node: int, request: ListOffsetsRequest, found: dict[TopicPartition, int]) -> str:
    """Ask one leader; adds to ``found`` and returns what was wrong, if anything."""
    try:
        response = await client.request(node, request, coordination=True, timeout_s=ASK_S)
    except KafkaError as error:
        return repr(error)
    problem = ""
    for topic, parts, _ in response.topics:
        for partition, code, _, offset, *_ in parts:
            if code == KafkaCode.NONE:
                found[TopicPartition(topic, partition)] = offset
            else:
                problem = f"{topic}:{partition}: {error_name(code)}"
    return problem


async def newest_timestamps(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the highest timestamp (ms) of each partition's records, -1 where there is none; asks once.

    What is not answered is left out; so is all where brokers do not know the question (before 3.0).
    """
    by_node: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        node = client.leader(tp)
        if node is not None:
            by_node[node].append(tp)
    answers = await asyncio.gather(*(_newest(client, node, those) for node, those in by_node.items()))
    return {tp: timestamp for answer in answers for tp, timestamp in answer.items()}


async def _newest(client: Client, node: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    request = _request(client, partitions, ListOffsetsRequest.NEWEST_TIMESTAMP)
    try:
        answer = await client.request(node, request, coordination=True, timeout_s=ASK_S)
    except KafkaError:
        return {}
    return {
        TopicPartition(topic, number): timestamp
        for topic, rows, _ in answer.topics
        for number, code, timestamp, *_ in rows
        if code == KafkaCode.NONE
    }


class CommittedOffset(NamedTuple):
    """What a group has committed of one partition."""

    offset: int
    note: str
    """Its metadata."""


async def committed(
    client: Client, group_id: str, partitions: Iterable[TopicPartition], deadline_s: float = DEADLINE_S
) -> dict[TopicPartition, int]:
    """Return what the group has committed; partitions without a commit are left out.

    Raises:
        RebuildError: No answer within the deadline.
    """
    found = await committed_with_notes(client, group_id, partitions, deadline_s)
    return {tp: each.offset for tp, each in found.items()}


async def committed_with_notes(
    client: Client, group_id: str, partitions: Iterable[TopicPartition], deadline_s: float = DEADLINE_S
) -> dict[TopicPartition, CommittedOffset]:
    """Return what the group has committed, with the metadata beside it; as `committed` for the rest.

    Raises:
        RebuildError: No answer within the deadline.
    """
    topics = by_topic((tp, tp.partition) for tp in partitions)
    deadline = time.monotonic() + deadline_s
    while True:
        problem = ""
        found: dict[TopicPartition, CommittedOffset] = {}
        try:
            node = await client.group_coordinator(group_id)
            request = OffsetFetchRequest(group_id, topics)
            response = await client.request(node, request, coordination=True, timeout_s=ASK_S)
            for topic, parts in response.topics:
                for partition, offset, note, code in parts:
                    if code != KafkaCode.NONE:
                        problem = error_name(code)
                    elif offset >= 0:
                        found[TopicPartition(topic, partition)] = CommittedOffset(offset, note or "")
        except (KafkaError, TimeoutError) as error:
            problem = repr(error)
        if not problem:
            return found
        if time.monotonic() > deadline:
            raise RebuildError("offsets", f"cannot get the offsets of group {group_id}: {problem}")
        await asyncio.sleep(0.1)


async def origin_at(
    client: Client,
    sink: str | None,
    duplicates: str | None,
    quarantine: str | None,
    number: int,
    source_offset: int,
) -> Origin:
    """Return where source and outputs stand before what is taken in from ``source_offset`` on.

    Asked once per state. Nothing moves meanwhile: who could write to partition ``number`` of them is fenced.
    """
    outputs = sink, duplicates, quarantine
    names = list(filter(None, outputs))
    ends = await bounds(client, [TopicPartition(name, number) for name in names])
    offsets = {tp.topic: limits.end for tp, limits in ends.items()}
    clean, dropped, aside = (offsets.get(name or "", NO_TOPIC) for name in outputs)
    return Origin(source_offset, clean, dropped, aside)
