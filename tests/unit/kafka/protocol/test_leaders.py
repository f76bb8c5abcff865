"""A broker that was deposed and has not heard of it is not believed (KIP-320), and none is alone."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from processor.kafka.client import Client, TopicPartition
from processor.kafka.protocol.connections import BrokerClient
from processor.kafka.protocol.internals import RequestTimedOutError
from processor.kafka.protocol.leaders import NOT_KNOWN, LeaderEpochs
from processor.kafka.protocol.requests import MetadataRequest, TopicsSeen

CUT_OFF, NEXT, THIRD = 1, 2, 3
TP = TopicPartition("clicks", 0)


def seen(topic_id: bytes, leader: int, epoch: int) -> TopicsSeen:
    return TopicsSeen({"clicks": topic_id}, set(), {("clicks", 0): (leader, epoch)})


def metadata(topic_id: bytes, leader: int, epoch: int) -> Any:
    place: Any = (0, 0, leader, epoch, [1, 2, 3], [1], [], {})
    brokers: Any = [(node, "127.0.0.1", node, None, {}) for node in (CUT_OFF, NEXT, THIRD)]
    response = MetadataRequest(None).prepare({3: (0, 10)}).RESPONSE_TYPE
    return response(0, brokers, "c", 1, [(0, "clicks", topic_id, False, [place], 0, {})], 0, {})


def test_epochs_only_rise_and_begin_again_with_another_topic() -> None:
    epochs = LeaderEpochs()
    epochs.hear(seen(b"1" * 16, NEXT, 7))
    epochs.hear(seen(b"1" * 16, CUT_OFF, 6))

    assert epochs.of(b"1" * 16, 0) == 7
    assert epochs.of(b"2" * 16, 0) == NOT_KNOWN
    assert "broker 1 leads clicks:0 in epoch 6, and epoch 7" in epochs.older(seen(b"1" * 16, CUT_OFF, 6))
    assert epochs.older(seen(b"1" * 16, NEXT, 7)) == ""
    assert epochs.older(seen(b"1" * 16, NEXT, NOT_KNOWN)) == "", "brokers of before epochs say none"
    assert epochs.older(seen(b"2" * 16, CUT_OFF, 0)) == "", "it was recreated"


class Brokers(BrokerClient):
    """Connections to three brokers, each of which says its own."""

    def __init__(self, says: dict[int, Any]) -> None:
        super().__init__(bootstrap_servers="127.0.0.1:1")
        self._says = says
        self.cluster.update_metadata(SimpleNamespace(API_VERSION=5, brokers=[(n, "h", n, None) for n in says],
                                                     controller_id=1, topics=[]))  # fmt: skip

    def nodes(self) -> list[Any]:
        return sorted(self._says)

    async def send(self, node_id: Any, request: Any, *, group: int = 0) -> Any:
        del request, group
        if self._says[node_id] is None:
            raise RequestTimedOutError
        return self._says[node_id]


def client_of(says: dict[int, Any]) -> tuple[Client, Brokers]:
    brokers = Brokers(says)
    return Client(brokers, None, lambda *_: None), brokers


async def learn(brokers: Brokers) -> bool:
    return bool(await brokers._metadata_update(brokers.cluster, ["clicks"]))


def test_a_client_that_is_told_less_than_another_has_heard_asks_the_next_broker() -> None:
    topic_id = b"heard by another"
    old, new = metadata(topic_id, CUT_OFF, 6), metadata(topic_id, NEXT, 7)

    async def story() -> tuple[int | None, int, bool]:
        assert await learn(client_of({NEXT: new})[1])
        client, brokers = client_of({CUT_OFF: old, NEXT: new})
        assert await learn(brokers)
        return client.leader(TP), client.epoch(TP), await learn(client_of({CUT_OFF: old})[1])

    assert asyncio.run(story()) == (NEXT, 7, False)


@pytest.mark.parametrize(
    ("others", "doubt"),
    [
        ({NEXT: ("same", CUT_OFF, 6)}, ""),
        ({NEXT: None, THIRD: ("same", CUT_OFF, 6)}, ""),
        ({NEXT: ("same", CUT_OFF, 5), THIRD: ("same", CUT_OFF, 6)}, ""),
        ({}, ""),
        ({NEXT: ("same", NEXT, 7)}, "clicks:0 is led by broker 2 by now"),
        ({NEXT: ("other", CUT_OFF, 6)}, "broker 2 knows topic clicks by another id"),
        ({NEXT: None, THIRD: None}, "no second broker has said who leads clicks:0"),
        ({NEXT: ("same", CUT_OFF, 5)}, "no second broker has said who leads clicks:0"),
    ],
)
def test_a_second_broker_confirms_or_denies_what_one_has_said(
    others: dict[int, tuple[str, int, int] | None], doubt: str, request: pytest.FixtureRequest
) -> None:
    same = sha256(request.node.name.encode()).digest()[:16]
    ids = {"same": same, "other": same[::-1]}

    async def story() -> str:
        client, brokers = client_of({CUT_OFF: metadata(same, CUT_OFF, 6)})
        assert await learn(brokers)
        for node, says in others.items():
            brokers._says[node] = says and metadata(ids[says[0]], *says[1:])
        return await client.contradiction()

    found = asyncio.run(story())
    assert doubt in found
    assert bool(found) == bool(doubt)
