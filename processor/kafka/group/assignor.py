"""Deals out slots to the members of the group.

A slot is the set of a topic's partitions with the same ``partition % slots``. It moves as a whole, because
one transactional id and one transaction belong to it (trap 1). The number of slots is part of the
configuration, not of the partition count: adding partitions never moves one to another slot.

Members that run with another number of slots would use other transactional ids, which fence nobody, so
they are told so and get nothing. Assignment is sticky: who has a slot's local state keeps it, as long as
nobody has two slots more than another.

Only the leader's view of the topics counts. Each member is told how many partitions of its topics were dealt
out, so that one that gets none knows whether the others have them all or nobody has.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.kafka.protocol.internals import (
    AbstractPartitionAssignor,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

VERSION = 0
NAME = "seqmark-slots"


class WebAddress(NamedTuple):
    """Where a member's web server listens, for the other members' dashboards."""

    host: str
    """An address in numbers; empty: all of its machine's, among them the one that the broker sees."""
    port: int
    machine: str
    """The same for members that reach each other's loopback addresses."""


class Slot(NamedTuple):
    """The unit that moves between members."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What a member says of itself when it joins: its sources, its number of slots by topic, what it had."""

    topics: frozenset[str]
    slots: Mapping[str, int]
    owned: frozenset[Slot] = frozenset()


@dataclass(slots=True)
class AssignmentOutcome:
    """What the leader decided: slots by member, and who cannot take part and why."""

    slots: dict[str, set[Slot]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def balance(members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> AssignmentOutcome:
    """Share the slots out, by member id and partition count by topic: the same for the same input."""
    outcome = AssignmentOutcome({member: set() for member in members})
    counts: dict[str, int] = {}
    for topic in sorted(partitions):
        candidates = sorted(name for name, member in members.items() if topic in member.topics)
        if not candidates:
            continue
        counts[topic] = count = _agreed_slots(topic, candidates, members)
        for name in candidates:
            if members[name].slots.get(topic) != count:
                outcome.refused[name] = (
                    f"topic {topic}: the group works with slots = {count}, this worker is configured "
                    f"with {members[name].slots.get(topic)}; use the same number everywhere "
                    "(to change it, stop all workers first)"
                )
    # Who is refused for one topic takes part in none, so that is known before anything is shared out.
    able = sorted(name for name in members if name not in outcome.refused)
    for topic, count in counts.items():
        used = [Slot(topic, number) for number in range(min(count, partitions[topic]))]
        _share(used, [name for name in able if topic in members[name].topics], members, outcome.slots)
    return outcome


def _agreed_slots(topic: str, candidates: list[str], members: Mapping[str, GroupMember]) -> int:
    """Who already works decides; among newcomers the majority, then the smallest number."""
    votes: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name in candidates:
        number = members[name].slots.get(topic, 1)
        owned, heads = votes[number]
        mine = sum(slot.topic == topic for slot in members[name].owned)
        votes[number] = (owned + mine, heads + 1)
    return max(votes, key=lambda number: (*votes[number], -number))


def _share(
    slots: list[Slot], able: list[str], members: Mapping[str, GroupMember], taken: dict[str, set[Slot]]
) -> None:
    """Give each slot to its owner while that is fair, the rest to who has least over all topics."""
    if not able:
        return
    fair, larger = divmod(len(slots), len(able))  # `larger` members have one more than the others
    mine: dict[str, int] = dict.fromkeys(able, 0)
    left = []
    for slot in slots:
        owner = next((name for name in able if slot in members[name].owned), None)
        if owner is not None and (mine[owner] < fair or (mine[owner] == fair and larger > 0)):
            larger -= mine[owner] == fair
            taken[owner].add(slot)
            mine[owner] += 1
        else:
            left.append(slot)
    for slot in left:
        least = min(able, key=lambda name: (mine[name], len(taken[name]), name))
        taken[least].add(slot)
        mine[least] += 1


class SlotAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka is untyped
    """The assignor as aiokafka's group coordinator calls it; one per worker, with its slots by source topic."""

    name = NAME

    def __init__(self, slots: Mapping[str, int], web: WebAddress | None = None) -> None:
        self._slots = dict(slots)
        self._web = web
        self.owned: frozenset[Slot] = frozenset()
        self.refused: str | None = None
        self.dealt: Mapping[str, int] | None = None
        """Partitions by topic as the leader saw them; None: it does not say, as those of older builds."""

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Say who we are when joining."""
        data: dict[str, Any] = {"slots": self._slots, "owned": sorted(self.owned)}
        if self._web is not None:
            # Members of older builds read past it, and say none of their own.
            data["web"] = self._web._asdict()
        return ConsumerProtocolMemberMetadata(VERSION, list(topics), json.dumps(data).encode())

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Decide for the whole group; called where this member leads it."""
        parsed = {name: _parse(metadata) for name, metadata in members.items()}
        topics = {topic for member in parsed.values() for topic in member.topics}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        outcome = balance(parsed, counts)
        return {name: _assignment(name, outcome, parsed[name], counts) for name in sorted(members)}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Note what was decided for us."""
        data = json.loads(assignment.user_data or b"{}")
        self.refused = data.get("refused")
        self.dealt = data.get("dealt")
        self.owned = frozenset(
            Slot(tp.topic, tp.partition % self._slots[tp.topic]) for tp in assignment.partitions()
        )


def _parse(metadata: ConsumerProtocolMemberMetadata) -> GroupMember:
    data = json.loads(metadata.user_data or b"{}")
    return GroupMember(
        frozenset(metadata.subscription),
        data.get("slots", {}),
        frozenset(Slot(topic, number) for topic, number in data.get("owned", ())),
    )


def _assignment(
    name: str, outcome: AssignmentOutcome, member: GroupMember, counts: Mapping[str, int]
) -> ConsumerProtocolMemberAssignment:
    partitions: dict[str, list[int]] = defaultdict(list)
    for slot in sorted(outcome.slots[name]):
        count = member.slots[slot.topic]
        partitions[slot.topic] += range(slot.number, counts[slot.topic], count)
    data: dict[str, Any] = {"dealt": {topic: counts[topic] for topic in sorted(member.topics)}}
    if name in outcome.refused:
        data["refused"] = outcome.refused[name]
    return ConsumerProtocolMemberAssignment(VERSION, sorted(partitions.items()), json.dumps(data).encode())
