"""Finds the members of a consumer group that read a topic now.

`seqmark reset` has to know that nobody works on the topic. What members say of themselves is decoded here; one
that cannot be understood counts as a reader, for the question is whether the topic is surely at rest.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.kafka.client import Client, KafkaCode, KafkaError, error_name
from processor.kafka.protocol.internals import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
    DescribeGroupsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

DEADLINE_S = 30.0
POLL_S = 0.2
AT_REST = {"Empty", "Dead"}
"""States of a group that has no member; Kafka calls one dead that it does not know."""
STABLE = "Stable"
"""In every other state members are joining, and the broker does not say what they read."""
NOT_ALLOWED = {KafkaCode.TOPIC_AUTHORIZATION_FAILED, KafkaCode.GROUP_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A member that reads the topic."""

    member_id: str
    host: str
    """Where it runs, as the broker sees it."""
    partitions: tuple[int, ...]
    """Assigned to it now; none for one that stands by."""

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.partitions))
        return f"{self.member_id} at {self.host} ({f'partitions {numbers}' if numbers else 'standing by'})"


Described = tuple[str, str, bytes, bytes]
"""Member id, host, metadata, assignment, as DescribeGroups gives them."""


def readers_of(topic: str, members: Iterable[Described]) -> list[GroupReader]:
    """Return those members that are subscribed to ``topic``, or do not say intelligibly what they read."""
    found = []
    for member_id, host, metadata, assignment in members:
        try:
            wanted = ConsumerProtocolMemberMetadata.decode(metadata).subscription
        except ValueError:  # cut, or of no form that we know
            wanted = None
        if wanted is None or topic in wanted:
            found.append(GroupReader(member_id, host, _assigned(topic, assignment)))
    return found


def _assigned(topic: str, assignment: bytes) -> tuple[int, ...]:
    try:
        given = ConsumerProtocolMemberAssignment.decode(assignment)
        return tuple(sorted(tp.partition for tp in given.partitions() if tp.topic == topic))
    except (ValueError, TypeError):  # a list that is null
        return ()


async def readers(
    client: Client, group_id: str, topic: str, deadline_s: float = DEADLINE_S
) -> list[GroupReader]:
    """Ask the group's coordinator who reads ``topic``; waits while the group is rebalancing.

    Raises:
        StopError: This principal may not look at the group.
        RebuildError: No answer within the deadline, or the group does not come to rest.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            node = await client.group_coordinator(group_id)
            response = await client.request(node, DescribeGroupsRequest([group_id]), coordination=True)
            code, _, state, _, _, members, *_ = response.groups[0]
            if code in NOT_ALLOWED:
                raise not_allowed(group_id)
            problem = error_name(code) if code != KafkaCode.NONE else f"it is in state {state}"
            if code == KafkaCode.NONE and state in AT_REST:
                return []
            if code == KafkaCode.NONE and state == STABLE:
                return readers_of(topic, [(member[0], *member[2:5]) for member in members])
        except (KafkaError, TimeoutError) as error:
            # Who may not even be told where the group's coordinator is.
            if getattr(error, "errno", None) in NOT_ALLOWED:
                raise not_allowed(group_id) from error
            problem = repr(error)
        if time.monotonic() > deadline:
            raise RebuildError("group", f"cannot learn who is in the group {group_id}: {problem}")
        await asyncio.sleep(POLL_S)


def not_allowed(group_id: str) -> StopError:
    """Return what to say where a group may not be looked at."""
    return StopError(f"the group {group_id} cannot be looked at: grant this principal DESCRIBE on it")
