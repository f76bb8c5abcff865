"""How are the transactions of a broker asked about and mended (KIP-664)?

Requests that aiokafka does not have, of the types that it builds its own of. Brokers know them since 3.0::

    DescribeTransactions   how a transactional id stands, from its coordinator
    DescribeProducers      who has a transaction open in a partition, from its leader; needs READ on the topic
    WriteTxnMarkers        ends a transaction in a partition, by its leader; needs ALTER on the cluster
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_TAGS = ("tags", TaggedFields)
_TEXT = CompactString("utf-8")
_PARTITIONS = CompactArray(Int32)


class _DescribeTransactionsResponse(Response):  # type: ignore[misc]  # aiokafka is not typed
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("state", _TEXT),
                ("timeout_ms", Int32),
                ("start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", CompactArray(("topic", _TEXT), ("partitions", _PARTITIONS), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeTransactionsStruct(RequestStruct):  # type: ignore[misc]  # likewise
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeTransactionsResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), _TAGS)


class DescribeTransactionsRequest(Request[_DescribeTransactionsStruct]):  # type: ignore[misc]  # likewise
    """How do transactional ids stand?"""

    API_KEY = 65

    def __init__(self, transactional_ids: list[str]) -> None:
        self._transactional_ids = transactional_ids

    def build(self, request_struct_class: type[_DescribeTransactionsStruct]) -> _DescribeTransactionsStruct:
        """Return what is sent."""
        return request_struct_class(self._transactional_ids, {})


class _DescribeProducersResponse(Response):  # type: ignore[misc]  # likewise
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", _TEXT),
                        (
                            "producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("transaction_start", Int64),
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeProducersStruct(RequestStruct):  # type: ignore[misc]  # likewise
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeProducersResponse
    SCHEMA = Schema(("topics", CompactArray(("topic", _TEXT), ("partitions", _PARTITIONS), _TAGS)), _TAGS)


class DescribeProducersRequest(Request[_DescribeProducersStruct]):  # type: ignore[misc]  # likewise
    """Who writes to partitions, and who has a transaction open there?"""

    API_KEY = 61

    def __init__(self, topics: dict[str, list[int]]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_DescribeProducersStruct]) -> _DescribeProducersStruct:
        """Return what is sent."""
        return request_struct_class([(*topic, {}) for topic in self._topics.items()], {})


class _WriteTxnMarkersResponse(Response):  # type: ignore[misc]  # likewise
    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("topic", _TEXT),
                        ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), _TAGS)),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _WriteTxnMarkersStruct(RequestStruct):  # type: ignore[misc]  # likewise
    API_KEY = 27
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _WriteTxnMarkersResponse
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("commit", Boolean),
                ("topics", CompactArray(("topic", _TEXT), ("partitions", _PARTITIONS), _TAGS)),
                ("coordinator_epoch", Int32),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class WriteTxnMarkersRequest(Request[_WriteTxnMarkersStruct]):  # type: ignore[misc]  # likewise
    """End a producer's transaction in one partition.

    Args:
        producer_id: Whose.
        producer_epoch: Of whoever writes it; one lower than the partition knows is refused.
        commit: Whether it was committed.
        topic: Of the partition.
        partition: Its number.
        coordinator_epoch: As the partition knows it; a lower one is refused.
    """

    API_KEY = 27

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,  # noqa: FBT001 - likewise
        topic: str,
        partition: int,
        coordinator_epoch: int,
    ) -> None:
        where: list[tuple[str, list[int], dict[int, bytes]]] = [(topic, [partition], {})]
        self._marker: tuple[object, ...] = (producer_id, producer_epoch, commit, where, coordinator_epoch, {})

    def build(self, request_struct_class: type[_WriteTxnMarkersStruct]) -> _WriteTxnMarkersStruct:
        """Return what is sent."""
        return request_struct_class([self._marker], {})
