"""Asks for topics by their ids, and never has one created (KIP-516).

aiokafka has these requests only of versions before there were ids::

    Metadata v10   says the ids of topics; brokers know it since 2.8
    Fetch v13      reads topics by id; since 3.1. A topic that was made again has another id, and is refused

Metadata is asked for with ``allow_auto_topic_creation = false`` in all versions: a topic that somebody has
deleted must not come back because a worker asks where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataRequest_v5, MetadataResponse_v5
from typing_extensions import override

from processor.kafka.protocol.codes import KafkaCode
from processor.kafka.protocol.structs import (
    NO_TAGS,
    NUMBERS,
    TEXT,
    Boolean,
    CompactBytes,
    FlexibleRequest,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    rows,
)
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BROKERS = rows(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT))
_PARTITIONS = rows(
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", NUMBERS),
    ("isr", NUMBERS),
    ("offline_replicas", NUMBERS),
)
_TOPICS = rows(
    ("error_code", Int16),
    ("topic", TEXT),
    ("topic_id", Uuid),
    ("is_internal", Boolean),
    ("partitions", _PARTITIONS),
    ("authorized_operations", Int32),
)


class MetadataRequest(
    FlexibleRequest,
    key=3,
    version=10,
    asks=[
        ("topics", rows(("topic_id", Uuid), ("topic", TEXT))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    ],
    answer=[
        ("throttle_time_ms", Int32),
        ("brokers", _BROKERS),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        ("topics", _TOPICS),
        ("authorized_operations", Int32),
    ],
    older=(MetadataRequest_v4, MetadataRequest_v5),
):
    """Asks where topics are, and which they are.

    Args:
        topics: Their names; None: all there are.
    """

    def __init__(self, topics: Sequence[str] | None) -> None:
        wanted = None if topics is None else [(UNKNOWN_ID, topic, NO_TAGS) for topic in topics]
        super().__init__(wanted, False, False, False)
        self._topics = topics

    @override
    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class.API_VERSION < self.VERSION:
            return request_struct_class(self._topics, False)
        return super().build(request_struct_class)


def plain(metadata: Any) -> tuple[Any, dict[str, bytes], set[str]]:
    """Return an answer in the form that aiokafka reads, the ids of topics by name, and which there are not."""
    absent = {topic[1] for topic in metadata.topics if topic[0] == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION}
    if metadata.API_VERSION < MetadataRequest.VERSION:
        return metadata, {topic[1]: UNKNOWN_ID for topic in metadata.topics if topic[0] == 0}, absent
    brokers = [broker[:-1] for broker in metadata.brokers]
    ids: dict[str, bytes] = {}
    topics: list[tuple[Any, ...]] = []
    for code, name, topic_id, internal, partitions, *_ in metadata.topics:
        if code == 0:
            ids[name] = topic_id
        led = [(error, number, leader, *rest[:3]) for error, number, leader, _, *rest in partitions]
        topics.append((code, name, internal, led))
    said = metadata.throttle_time_ms, brokers, metadata.cluster_id, metadata.controller_id, topics
    return MetadataResponse_v5(*said), ids, absent


_READ = rows(
    ("partition", Int32),
    ("error_code", Int16),
    ("high_watermark", Int64),
    ("last_stable_offset", Int64),
    ("log_start_offset", Int64),
    ("aborted", rows(("producer_id", Int64), ("first_offset", Int64))),
    ("preferred_read_replica", Int32),
    ("records", CompactBytes),
)
_WANTED = rows(
    ("partition", Int32),
    ("current_leader_epoch", Int32),
    ("fetch_offset", Int64),
    ("last_fetched_epoch", Int32),
    ("log_start_offset", Int64),
    ("max_bytes", Int32),
)


class FetchByIdRequest(
    FlexibleRequest,
    key=1,
    version=13,
    asks=[
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        ("topics", rows(("topic_id", Uuid), ("partitions", _WANTED))),
        ("forgotten", rows(("topic_id", Uuid), ("partitions", NUMBERS))),
        ("rack_id", TEXT),
    ],
    answer=[
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("session_id", Int32),
        ("topics", rows(("topic_id", Uuid), ("partitions", _READ))),
    ],
):
    """Asks what has arrived in the topics of these ids; first arguments as of aiokafka's FetchRequest.

    Args:
        max_wait_ms: How long the leader waits for the first bytes.
        min_bytes: How many bytes it waits for.
        max_bytes: About how many it sends.
        isolation_level: 1: committed records only.
        topics: Names, with number, offset and most bytes of each partition.
        ids: Of these topics.
    """

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, int, int]]]],
        ids: Mapping[str, bytes],
    ) -> None:
        wanted = [
            (
                ids[topic],
                [(number, -1, offset, -1, -1, most, NO_TAGS) for number, offset, most in partitions],
                NO_TAGS,
            )
            for topic, partitions in topics
        ]
        super().__init__(-1, max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1, wanted, [], "")
        self._names = {ids[topic]: topic for topic, _ in topics}

    def by_name(self, response: Any) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return an answer's topics in the form of version 11, by their names."""
        return [
            (self._names[topic_id], [self._partition(*each) for each in partitions])
            for topic_id, partitions, _ in response.topics
        ]

    @staticmethod
    def _partition(*fields: Any) -> tuple[Any, ...]:
        *head, aborted, replica, records, _tags = fields
        return (*head, [each[:2] for each in aborted or ()], replica, records)
