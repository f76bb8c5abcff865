"""Slots are shared out exactly once, evenly, and stay where they are as long as that is fair."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.kafka.client import TopicPartition
from processor.kafka.group.assignor import (
    AssignmentOutcome,
    GroupMember,
    Slot,
    SlotAssignor,
    WebAddress,
    balance,
)
from tests.support.suite.examples import examples

names = st.sampled_from(["a", "b", "c", "d", "e"])


class Group(NamedTuple):
    """Members of one topic that agree on its slots."""

    members: dict[str, GroupMember]
    slots: int
    partitions: int


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw a group that was balanced among some members and is now made of others; one may claim too much."""
    slots = draw(st.integers(1, 9))
    partitions = draw(st.one_of(st.integers(0, 12), st.just(12)))
    before = draw(st.lists(names, unique=True, max_size=4))
    owned = balance({name: member(slots) for name in before}, {"t": partitions}).slots
    claims = {draw(names): frozenset({Slot("t", draw(st.integers(0, 14)))})}
    members = {
        name: GroupMember(
            frozenset({"t"}), {"t": slots}, frozenset(owned.get(name, ())) | claims.get(name, frozenset())
        )
        for name in draw(st.one_of(st.lists(names, min_size=1, unique=True), st.just([*before, "newcomer"])))
    }
    return Group(members, slots, partitions)


def member(slots: int, *owned: int, topic: str = "t") -> GroupMember:
    return GroupMember(frozenset({topic}), {topic: slots}, frozenset(Slot(topic, number) for number in owned))


def shared(members: dict[str, GroupMember], partitions: int) -> dict[str, set[int]]:
    """Return slot numbers by member."""
    outcome = balance(members, {"t": partitions})
    assert outcome.refused == {}
    return {name: {slot.number for slot in slots} for name, slots in outcome.slots.items()}


@examples(300)
@given(groups())
def test_every_slot_that_has_partitions_is_given_exactly_once(group: Group) -> None:
    given_out = [
        slot for slots in balance(group.members, {"t": group.partitions}).slots.values() for slot in slots
    ]
    assert sorted(given_out) == [Slot("t", number) for number in range(min(group.slots, group.partitions))]


@examples(300)
@given(groups())
def test_nobody_has_two_slots_more_than_another(group: Group) -> None:
    sizes = [len(slots) for slots in balance(group.members, {"t": group.partitions}).slots.values()]
    assert max(sizes) - min(sizes) <= 1


@examples(300)
@given(groups())
def test_the_outcome_does_not_depend_on_the_order_of_members(group: Group) -> None:
    turned = dict(reversed(group.members.items()))
    assert (
        balance(turned, {"t": group.partitions}).slots == balance(group.members, {"t": group.partitions}).slots
    )


@examples(300)
@given(groups())
def test_a_balanced_group_keeps_what_it_has(group: Group) -> None:
    first = balance(group.members, {"t": group.partitions}).slots
    settled = {
        name: GroupMember(old.topics, old.slots, frozenset(first[name])) for name, old in group.members.items()
    }
    assert balance(settled, {"t": group.partitions}).slots == first


def test_a_new_worker_takes_only_what_is_fair_and_the_others_keep_the_rest() -> None:
    after = shared({"a": member(4, 0, 1), "b": member(4, 2, 3), "c": member(4)}, 4)
    assert sorted(len(slots) for slots in after.values()) == [1, 1, 2]
    assert after["a"] <= {0, 1}
    assert after["b"] <= {2, 3}


def test_who_has_another_number_of_slots_than_those_at_work_is_refused_and_told_both_numbers() -> None:
    outcome = balance({"a": member(4, 0, 1, 2, 3), "b": member(2), "c": member(2)}, {"t": 8})
    assert outcome.slots == {"a": {Slot("t", n) for n in range(4)}, "b": set(), "c": set()}
    assert set(outcome.refused) == {"b", "c"}
    assert "slots = 4" in outcome.refused["b"]
    assert "with 2" in outcome.refused["b"]


def test_among_newcomers_the_majority_decides_and_then_the_smaller_number() -> None:
    assert set(balance({"a": member(4), "b": member(2), "c": member(2)}, {"t": 8}).refused) == {"a"}
    assert set(balance({"a": member(4), "b": member(2)}, {"t": 8}).refused) == {"a"}


def test_members_get_slots_of_their_own_topics_only() -> None:
    members = {
        "both": GroupMember(frozenset({"t", "u"}), {"t": 2, "u": 2}),
        "only u": GroupMember(frozenset({"u"}), {"u": 2}),
    }
    outcome = balance(members, {"t": 2, "u": 2})
    assert outcome.slots["both"] >= {Slot("t", 0), Slot("t", 1)}
    assert {slot.topic for slot in outcome.slots["only u"]} == {"u"}
    assert sorted(s for slots in outcome.slots.values() for s in slots) == [
        Slot(topic, number) for topic in "tu" for number in range(2)
    ]


def test_who_is_refused_for_one_topic_gets_nothing_and_its_other_slots_go_to_others() -> None:
    two = {"t": 2, "u": 2}
    members = {
        "a": GroupMember(frozenset({"t", "u"}), {"t": 2, "u": 4}),
        "b": GroupMember(frozenset({"t", "u"}), two, frozenset({Slot("u", 0)})),
    }
    outcome = balance(members, {"t": 2, "u": 2})
    assert set(outcome.refused) == {"a"}
    assert outcome == AssignmentOutcome(
        {"a": set(), "b": {Slot(topic, number) for topic in "tu" for number in range(2)}}, outcome.refused
    )


# ---------------------------------------------------------------- as aiokafka's coordinator calls it


class Cluster:
    """What the leader knows of the topics."""

    def __init__(self, **partitions: int) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._partitions.get(topic)
        return None if count is None else set(range(count))


def test_the_partitions_of_a_slot_stay_together() -> None:
    workers = {name: SlotAssignor({"t": 3}) for name in ("a", "b")}
    metadata = {name: worker.metadata(["t"]) for name, worker in workers.items()}
    assignments = workers["a"].assign(Cluster(t=8), metadata)
    found = {name: sorted(a.partitions()) for name, a in assignments.items()}
    assert found == {
        "a": [TopicPartition("t", n) for n in (0, 2, 3, 5, 6)],
        "b": [TopicPartition("t", n) for n in (1, 4, 7)],
    }


def test_what_a_worker_was_given_it_says_it_owns_when_it_joins_again() -> None:
    workers = {name: SlotAssignor({"t": 3}) for name in ("a", "b")}
    metadata = {}
    for _ in range(2):
        metadata = {name: worker.metadata(["t"]) for name, worker in workers.items()}
        for name, assignment in workers["a"].assign(Cluster(t=8), metadata).items():
            workers[name].on_assignment(assignment)
    assert workers["a"].owned == {Slot("t", 0), Slot("t", 2)}
    assert workers["b"].owned == {Slot("t", 1)}
    del metadata["a"]
    alone = workers["b"].assign(Cluster(t=8), metadata)
    assert len(alone["b"].partitions()) == 8


@pytest.mark.parametrize("leader", ["a", "b"])
def test_a_refused_worker_is_told_why_whoever_leads(leader: str) -> None:
    workers = {"a": SlotAssignor({"t": 2}), "b": SlotAssignor({"t": 5})}
    metadata = {name: worker.metadata(["t"]) for name, worker in workers.items()}
    for name, assignment in workers[leader].assign(Cluster(t=8), metadata).items():
        workers[name].on_assignment(assignment)
    assert workers["a"].refused is None
    assert len(workers["a"].owned) == 2
    assert workers["b"].owned == frozenset()
    assert "slots = 2" in (workers["b"].refused or "")


def test_a_topic_that_the_leader_does_not_know_yet_has_no_slots() -> None:
    worker = SlotAssignor({"t": 2})
    assignments = worker.assign(Cluster(), {"a": worker.metadata(["t"])})
    assert assignments["a"].partitions() == []


def test_who_says_where_its_web_server_is_shares_with_who_does_not() -> None:
    workers = {
        "older": SlotAssignor({"t": 2}),
        "newer": SlotAssignor({"t": 2}, WebAddress("10.0.0.7", 6066, "a machine")),
    }
    metadata = {name: worker.metadata(["t"]) for name, worker in workers.items()}
    assert "web" not in json.loads(metadata["older"].user_data)
    for leader in workers.values():
        found = leader.assign(Cluster(t=8), metadata)
        assert {name: len(given.partitions()) for name, given in found.items()} == {"older": 4, "newer": 4}
