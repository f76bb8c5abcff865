"""What members of a group say of themselves is read, and what is not understood is left out."""

from __future__ import annotations

import json

import pytest

from processor.kafka.client import TopicPartition
from processor.kafka.group.assignor import WebAddress
from processor.kafka.group.description import DescribedMember, GroupDescription, _member
from processor.kafka.protocol.internals import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


def described(slots: object, assigned: dict[str, list[int]], instance: str | None = None) -> DescribedMember:
    metadata = ConsumerProtocolMemberMetadata(0, list(assigned), json.dumps({"slots": slots}).encode()).encode()
    given = ConsumerProtocolMemberAssignment(0, sorted(assigned.items()), b"").encode()
    return _member("app-group-12345678-90ab", instance, "app-group", "/10.0.0.7", metadata, given)


def test_a_workers_slots_follow_from_its_partitions() -> None:
    member = described({"raw": 4}, {"raw": [1, 5, 2], "other": [0]})

    assert member.slots_of("raw") == [1, 2]
    assert member.slots_of("other") == []
    assert member.host == "10.0.0.7"


def test_a_static_member_is_called_by_its_instance_and_another_by_a_few_digits() -> None:
    assert described({}, {}, "worker-0").short == "worker-0"
    assert described({}, {}).short == "12345678"


@pytest.mark.parametrize("slots", [{"raw": 0}, {"raw": "many"}, [], None, 4])
def test_slots_of_no_form_that_is_known_are_left_out(slots: object) -> None:
    assert described(slots, {"raw": [1]}).slots_of("raw") == []


def test_a_member_that_is_another_programs_is_a_member_all_the_same() -> None:
    member = _member("m", None, "c", "h", b"\xff", b"\xff")

    assert (member.name, member.assigned, member.slots) == ("m", (), {})


def test_a_partition_has_the_member_it_is_assigned_to() -> None:
    member = described({"raw": 4}, {"raw": [1]})
    group = GroupDescription("app", "Stable", (member,), 0)

    assert group.assignee(TopicPartition("raw", 1)) is member
    assert group.assignee(TopicPartition("raw", 0)) is None


@pytest.mark.parametrize(
    ("state", "members", "stable"), [("Stable", 1, True), ("CompletingRebalance", 1, False)]
)
def test_only_a_group_at_rest_tells_what_nobody_has(state: str, members: int, stable: bool) -> None:  # noqa: FBT001 - a parameter of the test
    group = GroupDescription("app", state, (described({}, {}),) * members, 0)

    assert group.stable is stable


@pytest.mark.parametrize(
    ("said", "web"),
    [
        ({"host": "", "port": 6066, "machine": "x"}, WebAddress("", 6066, "x")),
        ({"host": "", "port": 6066, "machine": "x", "of a later build": 1}, WebAddress("", 6066, "x")),
        ({"host": "", "port": 0, "machine": "x"}, None),
        ({"host": "", "port": 65536, "machine": "x"}, None),
        ({"host": "", "port": True, "machine": "x"}, None),
        ({"host": 1, "port": 6066, "machine": "x"}, None),
        ({"host": "", "port": 6066}, None),
        ("10.0.0.7:6066", None),
        ([], None),
        (None, None),
    ],
)
def test_a_web_address_of_no_form_that_is_known_is_left_out(said: object, web: WebAddress | None) -> None:
    data = json.dumps({"slots": {"raw": 1}, "web": said}).encode()
    metadata = ConsumerProtocolMemberMetadata(0, ["raw"], data).encode()

    member = _member("m", None, "c", "/10.0.0.7", metadata, b"")

    assert member.web == web
    assert member.slots == {"raw": 1}
