"""Describes a consumer group: its members, and what is assigned to each.

Asks once the coordinator is found, joins nothing and waits for no rebalance. What a member says of itself in a
form that is not ours is left out: it is a member all the same.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from processor.errors import RebuildError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, error_name
from processor.kafka.group.assignor import WebAddress
from processor.kafka.group.readers import NOT_ALLOWED, POLL_S, STABLE, not_allowed
from processor.kafka.protocol.internals import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from processor.kafka.protocol.requests import DescribeGroupRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORT_DIGITS = 8
"""Of the random id that a broker gives to a member."""
_MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member of a group, as its coordinator knows it.

    Attributes:
        name: Its instance id where membership is static, its member id elsewhere.
        client_id: As its client calls itself.
        host: Where it runs, as the broker sees it.
        assigned: Partitions that are its own now.
        slots: By topic, how many slots it works with; empty where it does not say.
        web: Where its web server listens; None: it has none, or does not say. Whoever may join the group can
            say what he likes.
    """

    name: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] = ()
    slots: Mapping[str, int] = field(default_factory=dict)
    web: WebAddress | None = None

    @property
    def short(self) -> str:
        """Its name as far as tables of many rows need it: without the client id, a few digits of the rest."""
        rest = self.name.removeprefix(f"{self.client_id}-")
        return self.name if rest == self.name else rest[:SHORT_DIGITS]

    def slots_of(self, topic: str) -> list[int]:
        """Return the numbers of its slots of a topic."""
        count = self.slots.get(topic)
        return sorted({tp.partition % count for tp in self.assigned if tp.topic == topic}) if count else []


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group.

    Attributes:
        state: Kafka's word: Stable, Empty, Dead (unknown), PreparingRebalance, CompletingRebalance.
        operations: Bits of what this principal may do with it (`processor.kafka.protocol.codes`).
    """

    group_id: str
    state: str
    members: tuple[DescribedMember, ...]
    operations: int

    @property
    def stable(self) -> bool:
        """Whether it is not rebalancing: what is assigned to nobody has no owner."""
        return self.state == STABLE or not self.members

    def assignee(self, partition: TopicPartition) -> DescribedMember | None:
        """Return who has a partition; None: nobody."""
        return next((member for member in self.members if partition in member.assigned), None)


async def describe_group(client: Client, group_id: str, deadline_s: float) -> GroupDescription:
    """Ask the group's coordinator who is in it.

    Raises:
        StopError: This principal may not look at the group.
        RebuildError: No coordinator, or no answer, within the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            node = await client.group_coordinator(group_id)
            answer = await client.request(
                node, DescribeGroupRequest(group_id), coordination=True, timeout_s=deadline_s
            )
            code, _, state, _, _, members, operations, _ = answer.groups[0]
            if code in NOT_ALLOWED:
                raise not_allowed(group_id)
            # Since 6 of the request, which is not asked, a group that is not known is an error; Dead before.
            if code == KafkaCode.NONE:
                return GroupDescription(group_id, state, tuple(_member(*each) for each in members), operations)
            problem = error_name(code)
        except (KafkaError, TimeoutError) as error:
            if getattr(error, "errno", None) in NOT_ALLOWED:
                raise not_allowed(group_id) from error
            problem = repr(error)
        if time.monotonic() > deadline:
            raise RebuildError("group", f"cannot learn who is in the group {group_id}: {problem}")
        await asyncio.sleep(POLL_S)


def _member(
    member_id: str,
    instance_id: str | None,
    client_id: str,
    host: str,
    metadata: bytes,
    assignment: bytes,
    _tags: object = None,
) -> DescribedMember:
    said = _said(metadata)
    # Brokers write an address as Java does: /10.0.0.7.
    return DescribedMember(
        instance_id or member_id, client_id, host.lstrip("/"), _assigned(assignment), _slots(said), _web(said)
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(sorted(ConsumerProtocolMemberAssignment.decode(assignment).partitions()))
    except (ValueError, TypeError):  # empty while the group is rebalancing; or a list that is null
        return ()


def _said(metadata: bytes) -> Any:
    try:
        return json.loads(ConsumerProtocolMemberMetadata.decode(metadata).user_data or b"{}")
    except (ValueError, TypeError, RecursionError):  # another program's
        return {}


def _slots(said: Any) -> dict[str, int]:
    try:
        return {str(topic): int(count) for topic, count in said["slots"].items() if int(count) > 0}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _web(said: Any) -> WebAddress | None:
    try:
        host, port, machine = (said["web"][name] for name in WebAddress._fields)
    except (TypeError, KeyError):  # of an older build, or without a web server
        return None
    fits = isinstance(host, str) and type(port) is int and 0 < port <= _MOST_PORT and isinstance(machine, str)
    return WebAddress(host, port, machine) if fits else None
