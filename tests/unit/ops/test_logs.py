"""A broker that is away is one event in the log, whoever of us notices it."""

from __future__ import annotations

import logging

import pytest

from processor.ops.logs import SPARING_S, Sparing


@pytest.mark.parametrize(
    "name",
    [
        "aiokafka.consumer.group_coordinator",
        "processor.kafka.fetch",
        "processor.kafka.protocol.connections",
    ],
)
def test_a_message_that_a_client_repeats_passes_once_in_a_while(name: str) -> None:
    sparing = Sparing(SPARING_S)
    passed = []
    for tenth in range(250):
        record = logging.LogRecord(
            name, logging.WARNING, "", 0, "no connection to broker %s", (tenth % 3,), None
        )
        record.created = tenth / 10
        passed.append(sparing.filter(record))

    assert sum(passed) == 3
    assert passed[0]


def test_what_a_worker_says_itself_always_passes() -> None:
    sparing = Sparing(SPARING_S)
    record = logging.LogRecord(
        "processor.worker.worker", logging.WARNING, "", 0, "the group has no coordinator", (), None
    )

    assert [sparing.filter(record) for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("name", ["aiokafka", "aiokafka.conn", "aiokafka.cluster"])
def test_what_a_client_says_before_our_own_message_is_for_debugging(name: str) -> None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, 'Unable connect to "%s:%s": %s', ("h", 1, ""), None)

    assert not Sparing(SPARING_S).filter(record)
    assert Sparing(SPARING_S, debug=True).filter(record)


HEARTBEAT = "Heartbeat send request failed: NodeNotReadyError: Attempt to send a request to node 1. Will retry."


@pytest.mark.parametrize(
    ("name", "text", "silent", "passes"),
    [
        ("aiokafka.consumer.group_coordinator", HEARTBEAT, False, False),
        ("aiokafka.consumer.group_coordinator", "Heartbeat failed: it is rebalancing", False, True),
        ("aiokafka.consumer.group_coordinator", "Heartbeat failed: it is rebalancing", True, False),
        ("processor.kafka.fetch", "fetch from broker 1 failed", False, True),
        ("processor.kafka.fetch", "fetch from broker 1 failed", True, False),
        ("processor.worker.worker", "no broker has answered since", True, True),
    ],
)
def test_while_no_broker_answers_clients_say_nothing_but_for_debugging(
    name: str, text: str, *, silent: bool, passes: bool
) -> None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, text, (), None)
    for debug in (False, True):
        sparing = Sparing(SPARING_S, debug=debug)
        sparing.meanwhile = lambda: silent
        assert sparing.filter(record) == (passes or debug)
