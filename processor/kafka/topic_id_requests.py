"""Asks for topics by their ids, and never has one created (KIP-516).

Requests that aiokafka has only of versions before there were ids, of the types that it builds its own of::

    Metadata v10   says the ids of topics; brokers know it since 2.8
    Fetch v13      reads topics by id; since 3.1. A topic that was made anew has another id, and is refused

Metadata is asked for with ``allow_auto_topic_creation = false`` in all versions: a topic that somebody has
deleted must not come back because a worker asks where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import BytesIO

_UNKNOWN_TOPIC = 3
_SIZE = 16


class _Uuid(AbstractType):  # type: ignore[misc]  # aiokafka is not typed
    """16 bytes as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Return them."""
        assert len(value) == _SIZE  # noqa: S101 - ids come from brokers
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Take them."""
        return data.read(_SIZE)


_TAGS = ("tags", TaggedFields)
_TEXT = CompactString("utf-8")
_NUMBERS = CompactArray(Int32)


class _MetadataResponse(Response):  # type: ignore[misc]  # likewise
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", _NUMBERS),
                        ("isr", _NUMBERS),
                        ("offline_replicas", _NUMBERS),
                        _TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                _TAGS,
            ),
        ),
        ("authorized_operations", Int32),
        _TAGS,
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]  # likewise
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        _TAGS,
    )


class MetadataRequest(Request[MetadataRequest_v4 | MetadataRequest_v5 | _MetadataStruct]):  # type: ignore[misc]  # likewise
    """Where are these topics, and which are they?

    Args:
        topics: Their names; None: all there are.
    """

    API_KEY = 3

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return what is sent."""
        if request_struct_class is not _MetadataStruct:
            return request_struct_class(self._topics, False)
        no_tags: dict[int, bytes] = {}
        topics = None if self._topics is None else [(UNKNOWN_ID, topic, no_tags) for topic in self._topics]
        return _MetadataStruct(topics, False, False, False, {})


def plain(metadata: Any) -> tuple[Any, dict[str, bytes], set[str]]:
    """Return an answer in the form that aiokafka reads, the ids of topics by name, and which there are not."""
    absent = {topic[1] for topic in metadata.topics if topic[0] == _UNKNOWN_TOPIC}
    if metadata.API_VERSION < _MetadataResponse.API_VERSION:
        return metadata, {topic[1]: UNKNOWN_ID for topic in metadata.topics if topic[0] == 0}, absent
    brokers = [broker[:-1] for broker in metadata.brokers]
    ids: dict[str, bytes] = {}
    topics: list[tuple[Any, ...]] = []
    for code, name, topic_id, internal, partitions, *_ in metadata.topics:
        if code == 0:
            ids[name] = topic_id
        places = [(error, number, leader, *rest[:3]) for error, number, leader, _, *rest in partitions]
        topics.append((code, name, internal, places))
    said = metadata.throttle_time_ms, brokers, metadata.cluster_id, metadata.controller_id, topics
    return MetadataResponse_v5(*said), ids, absent


class _FetchResponse(Response):  # type: ignore[misc]  # likewise
    API_KEY = 1
    API_VERSION = 13
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("session_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("high_watermark", Int64),
                        ("last_stable_offset", Int64),
                        ("log_start_offset", Int64),
                        ("aborted", CompactArray(("producer_id", Int64), ("first_offset", Int64), _TAGS)),
                        ("preferred_read_replica", Int32),
                        ("records", CompactBytes),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _FetchStruct(RequestStruct):  # type: ignore[misc]  # likewise
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _FetchResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("fetch_offset", Int64),
                        ("last_fetched_epoch", Int32),
                        ("log_start_offset", Int64),
                        ("max_bytes", Int32),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        ("forgotten", CompactArray(("topic_id", _Uuid), ("partitions", _NUMBERS), _TAGS)),
        ("rack_id", _TEXT),
        _TAGS,
    )


class FetchByIdRequest(Request[_FetchStruct]):  # type: ignore[misc]  # likewise
    """What has arrived in the topics of these ids? Arguments as of aiokafka's FetchRequest.

    Args:
        max_wait_ms: See there.
        min_bytes: See there.
        max_bytes: See there.
        isolation_level: See there.
        topics: Names, with number, offset and most bytes of each partition.
        ids: Of these topics.
    """

    API_KEY = 1

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, int, int]]]],
        ids: Mapping[str, bytes],
    ) -> None:
        self._head = -1, max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1
        tags: dict[int, bytes] = {}
        self._topics = [
            (
                ids[topic],
                [(number, -1, offset, -1, -1, most, tags) for number, offset, most in partitions],
                tags,
            )
            for topic, partitions in topics
        ]
        self._names = {ids[topic]: topic for topic, _ in topics}

    def build(self, request_struct_class: type[_FetchStruct]) -> _FetchStruct:
        """Return what is sent."""
        return request_struct_class(*self._head, self._topics, [], "", {})

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
