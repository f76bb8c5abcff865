"""Asks about the transactions of a broker and mends them (KIP-664).

Brokers know these requests since 3.0::

    DescribeTransactions   how a transactional id stands, from its coordinator
    DescribeProducers      who has a transaction open in a partition, from its leader; needs READ on the topic
    WriteTxnMarkers        ends a transaction in a partition, by its leader; needs ALTER on the cluster
"""

from __future__ import annotations

from processor.kafka.protocol.structs import (
    NO_TAGS,
    NUMBERS,
    TEXT,
    Boolean,
    CompactArray,
    FlexibleRequest,
    Int16,
    Int32,
    Int64,
    rows,
)

_PARTITIONS = rows(("topic", TEXT), ("partitions", NUMBERS))


class DescribeTransactionsRequest(
    FlexibleRequest,
    key=65,
    version=0,
    asks=[("transactional_ids", CompactArray(TEXT))],
    answer=[
        ("throttle_time_ms", Int32),
        (
            "states",
            rows(
                ("error_code", Int16),
                ("transactional_id", TEXT),
                ("state", TEXT),
                ("timeout_ms", Int32),
                ("start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", _PARTITIONS),
            ),
        ),
    ],
):
    """Asks how transactional ids stand."""

    def __init__(self, transactional_ids: list[str]) -> None:
        super().__init__(transactional_ids)


_PRODUCERS = rows(
    ("producer_id", Int64),
    ("producer_epoch", Int32),
    ("last_sequence", Int32),
    ("last_timestamp", Int64),
    ("coordinator_epoch", Int32),
    ("transaction_start", Int64),
)
_PARTITION_PRODUCERS = rows(
    ("partition", Int32), ("error_code", Int16), ("error_message", TEXT), ("producers", _PRODUCERS)
)


class DescribeProducersRequest(
    FlexibleRequest,
    key=61,
    version=0,
    asks=[("topics", _PARTITIONS)],
    answer=[
        ("throttle_time_ms", Int32),
        ("topics", rows(("topic", TEXT), ("partitions", _PARTITION_PRODUCERS))),
    ],
):
    """Asks who writes to partitions, and who has a transaction open there."""

    def __init__(self, topics: dict[str, list[int]]) -> None:
        super().__init__([(*topic, NO_TAGS) for topic in topics.items()])


_PARTITION_CODES = rows(("partition", Int32), ("error_code", Int16))


class WriteTxnMarkersRequest(
    FlexibleRequest,
    key=27,
    version=1,
    asks=[
        (
            "markers",
            rows(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("commit", Boolean),
                ("topics", _PARTITIONS),
                ("coordinator_epoch", Int32),
            ),
        )
    ],
    answer=[
        (
            "markers",
            rows(("producer_id", Int64), ("topics", rows(("topic", TEXT), ("partitions", _PARTITION_CODES)))),
        )
    ],
):
    """Ends a producer's transaction in one partition.

    Args:
        producer_id: Whose transaction it is.
        producer_epoch: Of whoever writes the marker; one lower than the partition knows is refused.
        commit: Whether it was committed.
        topic: Of the partition.
        partition: Its number.
        coordinator_epoch: As the partition knows it; a lower one is refused.
    """

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,  # noqa: FBT001 - in the order of the fields
        topic: str,
        partition: int,
        coordinator_epoch: int,
    ) -> None:
        where = [(topic, [partition], NO_TAGS)]
        super().__init__([(producer_id, producer_epoch, commit, where, coordinator_epoch, NO_TAGS)])
