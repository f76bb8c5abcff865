"""Names every part of aiokafka's inside that we stand on, and checks them at start.

aiokafka's public consumer and producer work record by record and hide what exactness needs (see
docs/decisions/0003). We use what lies below them: its client (connections, metadata, security), its protocol
structures and its group coordinator. No other module names those internals, but for the types that
`processor.kafka.protocol.requests` builds requests of; `check_aiokafka` compares them with aiokafka 0.14.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadata,
    for_code,
)
from aiokafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeGroupsRequest,
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPECTED: Mapping[Any, tuple[str, ...]] = {
    AIOKafkaClient.send: ("self", "node_id", "request", "group"),
    AIOKafkaClient._get_conn: (  # noqa: SLF001 - `BrokerClient` overrides it
        "self", "node_id", "group", "no_hint"),
    AIOKafkaClient._metadata_update: (  # noqa: SLF001 - the same
        "self", "cluster_metadata", "topics"),
    AIOKafkaClient.coordinator_lookup: ("self", "coordinator_type", "coordinator_key"),
    ClusterMetadata.update_metadata: ("self", "metadata"),
    FetchRequest.__init__: (
        "self", "max_wait_time", "min_bytes", "max_bytes", "isolation_level", "topics", "rack_id",
    ),
    ProduceRequest.__init__: ("self", "transactional_id", "required_acks", "timeout", "topics"),
    ProduceRequest.build: ("self", "request_struct_class"),
    HeartbeatRequest.__init__: ("self", "group", "generation_id", "member_id"),
    InitProducerIdRequest.__init__: ("self", "transactional_id", "transaction_timeout_ms"),
    AddPartitionsToTxnRequest.__init__: (
        "self", "transactional_id", "producer_id", "producer_epoch", "topics",
    ),
    EndTxnRequest.__init__: (
        "self", "transactional_id", "producer_id", "producer_epoch", "transaction_result",
    ),
    TxnOffsetCommitRequest.__init__: (
        "self", "transactional_id", "group_id", "producer_id", "producer_epoch", "topics",
    ),
}  # fmt: skip
_ATTRIBUTES: Mapping[Any, tuple[str, ...]] = {
    GroupCoordinator: (
        "request_rejoin", "close", "_push_error_to_user", "_send_req", "_do_heartbeat", "_do_rejoin_group",
        "_on_join_complete",
    ),
    SubscriptionState: ("subscribe", "fetch_context", "register_fetch_waiters", "abort_waiters"),
    AIOKafkaAdminClient: ("_send_request",),
    AIOKafkaConnection: (
        "connect", "connected", "send", "close", "_do_sasl_handshake", "_handle_frame",
        "_create_reader_task", "_on_read_task_error", "_next_correlation_id",
    ),
    AIOKafkaClient: ("bootstrap", "force_metadata_update", "get_random_node", "set_topics", "close"),
}  # fmt: skip


def check_aiokafka() -> None:
    """Compare aiokafka's inside with what we stand on.

    Raises:
        StopError: It differs; says how and which version is right.
    """
    wrong = [
        f"{function.__qualname__} takes {given}, expected {expected}"
        for function, expected in _EXPECTED.items()
        if (given := tuple(inspect.signature(function).parameters)) != expected
    ]
    wrong += [
        f"{owner.__name__}.{name} is missing"
        for owner, names in _ATTRIBUTES.items()
        for name in names
        if not hasattr(owner, name)
    ]
    if wrong:
        raise StopError(
            f"aiokafka {aiokafka.__version__} differs inside from what Seqmark was built on "
            f"(0.14.0): {'; '.join(wrong)}. Install the pinned version of requirements.lock."
        )
