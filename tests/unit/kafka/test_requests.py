"""Requests by topic id fall back on what a broker knows, and in no version have a topic created."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.metadata import MetadataResponse_v5

from processor.kafka.protocol.requests import FetchByIdRequest, MetadataRequest, plain
from schemas.changelog.topic_ids import UNKNOWN_ID

METADATA, FETCH = 3, 1
ID = b"16 bytes of an i"
PLACE: Any = (0, 2, 1, 7, [1, 2], [1], [2], {})
BROKER: Any = (1, "host", 9092, None, {})


@pytest.mark.parametrize(("newest", "chosen"), [(4, 4), (9, 5), (10, 10), (13, 10)])
def test_metadata_is_asked_for_without_creating_anything(newest: int, chosen: int) -> None:
    request = MetadataRequest(["clicks"]).prepare({METADATA: (0, newest)})

    assert chosen == request.API_VERSION
    assert request.to_object()["allow_auto_topic_creation"] is False


def test_an_answer_with_ids_is_read_as_aiokafka_reads_it() -> None:
    struct = MetadataRequest(["clicks"]).prepare({METADATA: (0, 13)}).RESPONSE_TYPE
    topics: Any = [(0, "clicks", ID, False, [PLACE], 0, {}), (3, "gone", UNKNOWN_ID, False, [], 0, {})]
    answer = struct.decode(BytesIO(struct(0, [BROKER], "cluster", 1, topics, 0, {}).encode()))

    found, seen = plain(answer)

    assert seen == ({"clicks": ID}, {"gone"}, {("clicks", 2): (1, 7)})
    assert isinstance(found, MetadataResponse_v5)
    assert found.brokers == [BROKER[:-1]]
    assert found.topics[0] == (0, "clicks", False, [(0, 2, 1, [1, 2], [1], [2])])


def test_an_answer_of_before_there_were_ids_says_which_topics_there_are() -> None:
    topics = [(0, "clicks", False, [(0, 2, 1, [1, 2], [1], [2])]), (3, "gone", False, [])]
    answer = MetadataResponse_v5(0, [BROKER[:-1]], "cluster", 1, topics)

    assert plain(answer) == (answer, ({"clicks": UNKNOWN_ID}, {"gone"}, {("clicks", 2): (1, -1)}))


def test_records_are_asked_for_by_id_and_told_by_name() -> None:
    request = FetchByIdRequest(500, 1, 1000, 1, [("clicks", [(2, 4, 77, 50)])], {"clicks": ID})
    struct = request.prepare({FETCH: (4, 17)})
    assert struct.API_VERSION == 13
    assert struct.topics == [(ID, [(2, 4, 77, -1, -1, 50, {})], {})]

    answer = struct.RESPONSE_TYPE
    place: Any = (2, 0, 90, 88, 0, [(5, 80, {})], -1, b"records", {})
    read = answer.decode(BytesIO(answer(0, 0, 0, [(ID, [place], {})], {}).encode()))
    assert request.by_name(read) == [("clicks", [(2, 0, 90, 88, 0, [(5, 80)], -1, b"records")])]


def test_a_broker_of_before_3_1_is_not_asked_by_id() -> None:
    request = FetchByIdRequest(500, 1, 1000, 1, [("clicks", [(2, 4, 77, 50)])], {"clicks": ID})
    with pytest.raises(NotImplementedError):
        request.prepare({FETCH: (0, 12)})
