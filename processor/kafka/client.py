"""Which parts of aiokafka's inside do we stand on, and are they as we expect?

aiokafka's public consumer and producer work record by record and hide what exactness needs (see
docs/decisions/0003). We use what lies below them: its client (connections, metadata, security), its
protocol structures and its group coordinator. This module is the only one that names those internals, but for
the requests that aiokafka has not, which `processor.kafka.transactions.admin_requests` and `kip516` build of
its protocol types; `check_aiokafka` compares them with what was read when this was written (aiokafka 0.14).

Invariants: every call to the broker made through `Client` has a deadline of ours (trap 7); a `Client` speaks of
one topic by a name as long as it lives (trap 18), and never has one created.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import os
import random
import time
from collections import defaultdict
from enum import IntEnum, StrEnum
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
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadata,
    for_code,
)
from aiokafka.protocol.admin import DeleteRecordsRequest, DescribeGroupsRequest, SaslAuthenticateRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.offset import OffsetRequest
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
from processor.kafka.topic_id_requests import MetadataRequest, plain
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "METADATA_MAX_AGE_MS",
    "AbstractPartitionAssignor",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "Client",
    "ConsumerProtocolMemberAssignment",
    "ConsumerProtocolMemberMetadata",
    "ConsumerRebalanceListener",
    "DeleteRecordsRequest",
    "DescribeGroupsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "GroupAuthorizationFailedError",
    "GroupCoordinator",
    "GroupCoordinatorNotAvailableError",
    "HeartbeatRequest",
    "IncompatibleBrokerVersion",
    "InitProducerIdRequest",
    "KafkaCode",
    "KafkaError",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "OffsetRequest",
    "ProduceRequest",
    "SubscriptionState",
    "TopicPartition",
    "TxnOffsetCommitRequest",
    "check_aiokafka",
    "error_name",
]

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
"""aiokafka's own limit for one request; ours (`Client.request`) is never longer."""
ANSWER_S = 5.0
"""For a question that any broker can answer, the connection included; then the next one is asked. A broker
answers within milliseconds, one that collects its garbage within a second or two."""
CONNECT_S = 10.0
"""To connect to one broker: Kafka's own ``socket.connection.setup.timeout.ms``."""
METADATA_MAX_AGE_MS = int(os.environ.get("SEQMARK_TEST_METADATA_MAX_AGE_MS", "60000"))
"""How soon added partitions of a source are noticed; a test need not wait a minute."""


SESSION_SHARE = 0.8
"""Of a SASL session, after which it is renewed; Java's clients do so after 85 to 95 % of it."""


class KafkaCode(IntEnum):
    """The error codes of Kafka's protocol that we tell apart."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; aiokafka knows no name for some (trap 14)."""
    try:
        return KafkaCode(code).name
    except ValueError:
        return f"{for_code(code).__name__} ({code})"


_EXPECTED: Mapping[Any, tuple[str, ...]] = {
    AIOKafkaClient.send: ("self", "node_id", "request", "group"),
    AIOKafkaClient._get_conn: (  # noqa: SLF001 - `_Client` overrides it
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
    GroupCoordinator: ("request_rejoin", "close", "_push_error_to_user", "_send_req", "_do_heartbeat"),
    SubscriptionState: ("subscribe", "fetch_context", "register_fetch_waiters", "abort_waiters"),
    AIOKafkaAdminClient: ("_send_request",),
    AIOKafkaConnection: ("connect", "connected", "send", "close", "_do_sasl_handshake", "_handle_frame"),
    AIOKafkaClient: ("bootstrap", "force_metadata_update", "get_random_node", "set_topics", "close"),
}


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


class Change(StrEnum):
    """What can happen to a topic while somebody has to do with it."""

    GONE = "there is no such topic any more"
    MADE_ANEW = "it was deleted and made anew"


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's connection, whose SASL session does not end (KIP-368).

    Brokers may say for how long a session lasts, and close a connection that sends anything later: a
    transaction that writes over it is aborted. Well before that, once everything that was asked is answered, it
    authenticates again; what is to be sent meanwhile waits, and keeps its order.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._renew_at_s = math.inf
        self._answered = asyncio.Event()
        """Set with the last answer that is owed, or the connection's end."""

    def _handle_frame(self, resp: bytes) -> None:
        super()._handle_frame(resp)
        if not self._requests:
            self._answered.set()

    def close(self, reason: Any = None, exc: Any = None) -> Any:
        """See aiokafka: close the connection, whatever is asked over it."""
        self._answered.set()
        return super().close(reason, exc)

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: FBT001, FBT002 - aiokafka's signature
        """See aiokafka: write a request, and return what waits for its answer."""
        answer = super().send(request, expect_response)
        return self._noted(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    async def _noted(self, answer: Any) -> Any:
        began_s = time.monotonic()
        response = await answer
        lifetime_ms = getattr(response, "session_lifetime_ms", 0)
        self._renew_at_s = began_s + lifetime_ms / 1000 * SESSION_SHARE if lifetime_ms > 0 else math.inf
        return response

    async def keep_session(self) -> None:
        """Authenticate again where it is time to.

        Raises:
            KafkaError: It was refused, or the connection broke.
            TimeoutError: The broker does not answer.
        """
        if time.monotonic() < self._renew_at_s:
            return
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                if self._requests:
                    self._answered.clear()
                    await self._answered.wait()
            await self._do_sasl_handshake()
        except BaseException:
            self.close(reason=CloseReason.AUTH_FAILURE)  # half of a handshake is of no use to anybody
            raise


class _Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's client, but one broker that says nothing holds up nobody else.

    What any broker can answer is asked of those first that have not been found silent, with a deadline each;
    connections are made beside each other.
    """

    # aiokafka makes one connection at a time; ours are kept apart by `_connecting`.
    _get_conn_lock = contextlib.nullcontext()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._connecting: dict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sending: dict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.silent: set[Any] = set()
        """Brokers that have let a deadline pass and not answered since."""
        self.seen: Callable[[Mapping[str, bytes], set[str]], None] = lambda _ids, _absent: None
        """Told with metadata: ids by name, of the topics that there are; and which of those wanted are not."""

    async def bootstrap(self) -> None:
        """Ask the brokers of the configuration, one after the other; of several each has its own deadline."""
        self._request_timeout_ms = REQUEST_TIMEOUT_MS if len(self.hosts) == 1 else int(ANSWER_S * 1000)
        try:
            await super().bootstrap()
        finally:
            self._request_timeout_ms = REQUEST_TIMEOUT_MS

    def get_random_node(self) -> Any:
        """Return a broker that can be asked; None where none is known."""
        return next(iter(self.nodes()), None)

    def nodes(self) -> list[Any]:
        """Return all brokers in the order in which to ask them: by chance, the silent ones last."""
        found = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(found)
        return sorted(found, key=lambda node: node in self.silent)

    def give_up(self, node: Any, group: Any) -> None:
        """Close a connection over which no answer comes: the next request makes another one."""
        self.silent.add(node)
        connection = self._conns.get((node, group))
        if connection is not None:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int:
        """See aiokafka: return the node that coordinates ``coordinator_key``."""
        request = FindCoordinatorRequest(coordinator_key, coordinator_type)
        answer = await self._ask_any(self.nodes(), request)
        if answer.error_code:
            problem: KafkaError = for_code(answer.error_code)()
            raise problem
        return int(answer.coordinator_id)

    async def _get_conn(
        self, node_id: Any, *, group: int = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        del no_hint  # aiokafka does not use it, either
        made = self._conns.get((node_id, group))
        if made is not None and made.connected():
            return made
        async with self._connecting[node_id, group]:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._connect(node_id, group)
            except TimeoutError:
                log.warning("broker %s does not let us connect", node_id)
                self.silent.add(node_id)
                return None

    async def _connect(self, node: Any, group: int) -> Any:
        """Return a connection, or None: that is logged, and metadata asked for."""
        made = self._conns.pop((node, group), None)
        if made is not None and made.connected():  # by whoever had the turn before
            self._conns[node, group] = made
            return made
        broker = self.cluster.broker_metadata(node)
        try:
            if broker is None:
                raise StaleMetadata(f"broker {node} is not in the metadata")
            made = _Connection(
                broker.host,
                broker.port,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
                ssl_context=self._ssl_context,
                security_protocol=self._security_protocol,
                on_close=self._on_connection_closed,
                max_idle_ms=self._connections_max_idle_ms,
                sasl_mechanism=self._sasl_mechanism,
                sasl_plain_username=self._sasl_plain_username,
                sasl_plain_password=self._sasl_plain_password,
            )
            await made.connect()
        except (OSError, KafkaError) as error:
            log.warning("no connection to broker %s: %r", node, error)
            self.force_metadata_update()
            return None
        self._conns[node, group] = made
        return made

    async def send(self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        """See aiokafka: send a request to a broker and return its answer."""
        made: Any = None
        answer: Any = None
        try:
            # In turn, also while a connection is made: batches of a partition must not overtake each other.
            async with self._sending[node_id, group]:
                made = await self._get_conn(node_id, group=group)
                if isinstance(made, _Connection):
                    await made.keep_session()
                    answer = made.send(request)
            if isinstance(made, _Connection):
                return await answer
        except TimeoutError as error:
            made.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error
        return await super().send(node_id, request, group=group)  # none, or that of the bootstrap

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        bootstrap = ("bootstrap", ConnectionGroup.DEFAULT)
        nodes = self.nodes() + (["bootstrap"] if bootstrap in self._conns else [])
        try:
            wanted = MetadataRequest(sorted(topics) if topics else None)
            metadata, ids, absent = plain(await self._ask_any(nodes, wanted))
        except KafkaError as error:
            log.warning("no broker tells metadata: %r", error)
            cluster_metadata.failed_update(None)
            return False
        if not metadata.brokers:
            return False
        cluster_metadata.update_metadata(metadata)
        if bootstrap in self._conns and self.cluster.brokers():
            self._conns.pop(bootstrap).close()
        self.seen(ids, absent)
        return True

    async def _ask_any(self, nodes: list[Any], request: Any) -> Any:
        """Ask one broker after the other until one answers; the last one has all the time of a request."""
        problem: Exception = NodeNotReadyError("no broker is known")
        for node in nodes:
            limit_s = ANSWER_S if node != nodes[-1] else REQUEST_TIMEOUT_MS / 1000
            try:
                async with asyncio.timeout(limit_s):
                    answer = await self.send(node, request)
            except TimeoutError:
                self.silent.add(node)
                problem = RequestTimedOutError(f"{type(request).__name__} to broker {node}: no answer")
            except KafkaError as error:
                problem = error
            else:
                self.silent.discard(node)
                return answer
        raise problem


class Client:
    """Connections to the brokers, metadata and coordinators, with a deadline on each call.

    Attributes:
        ids: By name the id that a topic had when it was first heard of; `UNKNOWN_ID` where brokers say none.

    Args:
        client: Not used by anybody else.
        ids: See the attribute; given where several clients have to speak of the same topics.
        changed: Called where a topic is gone or is another one than it was, at each answer that says so.
    """

    def __init__(
        self,
        client: _Client,
        ids: dict[str, bytes] | None = None,
        changed: Callable[[str, Change], None] = lambda _topic, _change: None,
    ) -> None:
        self._client = client
        self.ids: dict[str, bytes] = {} if ids is None else ids
        self._changed = changed
        self._lost: set[str] = set()
        client.seen = self._seen

    def _seen(self, ids: Mapping[str, bytes], absent: set[str]) -> None:
        found = dict.fromkeys(absent & self.ids.keys(), Change.GONE)
        for topic, topic_id in ids.items():
            known = self.ids.setdefault(topic, topic_id)
            if known == UNKNOWN_ID:
                self.ids[topic] = topic_id
            elif topic_id not in {known, UNKNOWN_ID}:
                found[topic] = Change.MADE_ANEW
        self._lost = set(found)
        for topic, change in found.items():
            self._changed(topic, change)

    def lost(self, topic: str) -> bool:
        """Whether the last metadata said that a topic is gone, or is another one than it was."""
        return topic in self._lost

    @classmethod
    async def open(
        cls,
        options: Mapping[str, Any],
        client_id: str,
        topics: Iterable[str] = (),
        ids: dict[str, bytes] | None = None,
        changed: Callable[[str, Change], None] = lambda _topic, _change: None,
    ) -> Client:
        """Connect, and learn where the partitions of ``topics`` are.

        Args:
            options: Keyword arguments of an aiokafka client: bootstrap_servers and security.
            client_id: As brokers log it.
            topics: What metadata is kept about; without any, nothing is known before a `refresh`.
            ids: See the class.
            changed: Likewise.

        Raises:
            KafkaError: No broker answers.
        """
        inner = _Client(
            **options,
            client_id=client_id,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        client = cls(inner, ids, changed)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                await inner.bootstrap()
                if wanted := set(topics):
                    await inner.set_topics(wanted)
        except TimeoutError:
            await client.close()
            raise RequestTimedOutError("no metadata within the deadline") from None
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def aiokafka_client(self) -> AIOKafkaClient:
        """The client inside, for the group coordinator."""
        return self._client

    async def close(self) -> None:
        """Close all connections; never raises, never hangs."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self._client.close()

    async def refresh(self) -> None:
        """Ask for new metadata and wait for it, at most a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._client.force_metadata_update()

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the broker that leads ``partition``, None while nobody is known to."""
        node = self._client.cluster.leader_for_partition(partition)
        return None if node is None or node < 0 else int(node)

    def partitions(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions; empty if it is not known."""
        return set(self._client.cluster.partitions_for_topic(topic) or ())

    async def request(
        self, node: int, request: Any, *, coordination: bool = False, timeout_s: float = 30
    ) -> Any:
        """Send one request and return the response.

        Raises:
            KafkaError: Not sent, not answered in time, or the connection broke: what the broker did
                with it is unknown. `IncompatibleBrokerVersion`: the broker does not know such requests.
        """
        group = ConnectionGroup.COORDINATION if coordination else ConnectionGroup.DEFAULT
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._client.send(node, request, group=group)
        except TimeoutError:
            self._client.give_up(node, group)
            name = type(request).__name__
            raise RequestTimedOutError(f"{name} to broker {node}: no answer in {timeout_s} s") from None
        except NotImplementedError as error:  # aiokafka's word for a version that both would know
            raise IncompatibleBrokerVersion(str(error)) from error
        self._client.silent.discard(node)
        return answer

    async def any_node(self) -> int:
        """Return a broker that is known, for requests that any can answer."""
        node = self._client.get_random_node()
        if node is None:
            raise NodeNotReadyError("no broker is known")
        return int(node)

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates ``transactional_id``."""
        return await self._coordinator(CoordinationType.TRANSACTION, transactional_id)

    async def group_coordinator(self, group_id: str) -> int:
        """Return the broker that coordinates a consumer group."""
        return await self._coordinator(CoordinationType.GROUP, group_id)

    async def _coordinator(self, kind: int, key: str) -> int:
        async with asyncio.timeout(10):
            return await self._client.coordinator_lookup(kind, key)
