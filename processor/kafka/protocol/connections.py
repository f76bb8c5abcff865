"""Keeps connections to brokers, so that one that says nothing holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import struct
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from processor.kafka.protocol.frames import Answer, Frames
from processor.kafka.protocol.internals import (
    AIOKafkaClient,
    AIOKafkaConnection,
    CloseReason,
    ConnectionGroup,
    FetchRequest,
    FindCoordinatorRequest,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    ProduceRequest,
    RequestTimedOutError,
    SaslAuthenticateRequest,
    StaleMetadata,
    for_code,
)
from processor.kafka.protocol.leaders import EPOCHS
from processor.kafka.protocol.requests import MetadataRequest, TopicsSeen, plain
from processor.kafka.protocol.throttling import Mutes, Throttling, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
"""aiokafka's own limit for one request; ours (`Client.request`) is never longer."""
ANSWER_S = 5.0
"""For a question that any broker can answer, the connection included; then the next one is asked. A broker
answers within milliseconds, one that collects its garbage within a second or two."""
LOOKUP_S = 10.0
"""For a coordinator, by the last broker that is asked."""
CONNECT_S = 10.0
"""To connect to one broker: Kafka's own ``socket.connection.setup.timeout.ms``."""
SESSION_SHARE = 0.8
"""Of a SASL session, after which it is renewed; Java's clients do so after 85 to 95 % of it."""


class PartedRequest(ProduceRequest, ABC):  # type: ignore[misc]  # aiokafka is untyped
    """A produce request whose bytes are put together where they are sent."""

    @abstractmethod
    def parts(self) -> list[bytes | memoryview]:
        """Return them in order, without the request's header."""


class Connection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's connection, whose SASL session does not end (KIP-368), and which copies records less.

    Brokers may say for how long a session lasts, and close a connection that sends anything later: a
    transaction that writes over it is aborted. Well before that, once everything that was asked is answered, it
    authenticates again; what is to be sent meanwhile waits, and keeps its order.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._renew_at_s = math.inf
        self._answered = asyncio.Event()
        """Set when no request waits for an answer, or when the connection has ended."""
        self.muted: Callable[[Any, float], None] = lambda _request, _seconds: None
        """Called with a request and for how many seconds from now on the broker will read nothing more."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """By API key: the lowest and the highest version that the broker knows, once it is connected."""
        return dict(self._versions)

    @override
    def _create_reader_task(self) -> asyncio.Future[None]:
        """Have the socket write into answers, in place of a task that reads a stream."""
        ended: asyncio.Future[None] = self._loop.create_future()
        ended.add_done_callback(partial(self._on_read_task_error, weakref.ref(self)))
        handle = weakref.WeakMethod(self._handle_frame)
        self._writer.transport.set_protocol(Frames(self._protocol, handle, ended))
        return ended

    @override
    def _handle_frame(self, resp: bytes | memoryview) -> None:
        number, request, future = self._requests[0]
        answer = Answer(memoryview(resp))
        fetched = isinstance(resp, memoryview) and getattr(request, "API_KEY", None) == FetchRequest.API_KEY
        if fetched and request.parse_response_header(answer).correlation_id == number:
            if not future.done():
                future.set_result(request.RESPONSE_TYPE.decode(answer))
            self._last_action = time.monotonic()
            self._requests.popleft()
        else:
            super()._handle_frame(bytes(resp))
        if future.done() and not future.cancelled() and future.exception() is None:
            # All answers have it but a few, and brokers keep to it whatever the version (KIP-219).
            throttle_ms = getattr(future.result(), "throttle_time_ms", 0)
            if throttle_ms > 0:
                self.muted(request, throttle_ms / 1000)
        if not self._requests:
            self._answered.set()

    @override
    def close(self, reason: Any = None, exc: Any = None) -> Any:
        self._answered.set()
        return super().close(reason, exc)

    @override
    def send(self, request: Any, expect_response: bool = True) -> Any:
        if isinstance(request, PartedRequest):
            return self._send_parts(request)
        answer = super().send(request, expect_response)
        return self._noted(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    def _send_parts(self, request: PartedRequest) -> asyncio.Future[Any]:
        """Send a request of which each part is copied once; who asks sets the deadline."""
        if self._writer is None:
            raise KafkaConnectionError(f"no connection to broker at {self.host}:{self.port}")
        built, parts = request.prepare(self._versions), request.parts()
        number = self._next_correlation_id()
        head = built.build_request_header(correlation_id=number, client_id=self._client_id).encode()
        size = struct.pack(">i", len(head) + sum(map(len, parts)))
        # As a view: what the socket does not take at once is copied once more, and not twice.
        self._writer.write(memoryview(b"".join((size, head, *parts))))
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._requests.append((number, built, answer))
        return answer

    async def _noted(self, answer: Any) -> Any:
        began_s = time.monotonic()
        response = await answer
        lifetime_ms = getattr(response, "session_lifetime_ms", 0)
        self._renew_at_s = began_s + lifetime_ms / 1000 * SESSION_SHARE if lifetime_ms > 0 else math.inf
        return response

    async def keep_session(self) -> None:
        """Authenticate again when it is time.

        Who asks sets the deadline.

        Raises:
            KafkaError: It was refused, or the connection broke.
        """
        if time.monotonic() < self._renew_at_s:
            return
        try:
            if self._requests:
                self._answered.clear()
                await self._answered.wait()
            await self._do_sasl_handshake()
        except BaseException:
            self.close(reason=CloseReason.AUTH_FAILURE)  # half of a handshake is of no use
            raise


class BrokerClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's client, in which a silent broker holds up nobody else.

    What any broker can answer is asked of those first that have not been found silent, with a deadline each;
    connections are made beside each other.
    """

    # aiokafka makes one connection at a time; ours are kept apart by `_connecting`.
    _get_conn_lock = contextlib.nullcontext()

    def __init__(self, *, throttling: Throttling | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._throttling = throttling or Throttling()
        self.mutes = Mutes()
        """Of connections, by broker and group."""
        self._connecting: dict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sending: dict[Any, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.silent: set[Any] = set()
        """Brokers that have let a deadline pass and not answered since."""
        self.seen: Callable[[TopicsSeen], None] = lambda _topics: None
        """Called at each metadata answer that counts."""

    @override
    async def bootstrap(self) -> None:
        """Ask the configured brokers one after the other; of several each has a deadline of its own."""
        self._request_timeout_ms = REQUEST_TIMEOUT_MS if len(self.hosts) == 1 else int(ANSWER_S * 1000)
        try:
            await super().bootstrap()
        finally:
            self._request_timeout_ms = REQUEST_TIMEOUT_MS

    @override
    def get_random_node(self) -> Any:
        """Return a broker that can be asked; None where none is known."""
        return next(iter(self.nodes()), None)

    def nodes(self) -> list[Any]:
        """Return all brokers in random order, the silent ones last, before them those that have muted us."""
        found = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(found)
        muted = {node: self.mutes.left_s((node, ConnectionGroup.DEFAULT)) for node in found}
        return sorted(found, key=lambda node: (node in self.silent, muted[node]))

    def _muted(self, node: Any, group: Any, request: Any, seconds: float) -> None:
        self.mutes.note((node, group), seconds)
        key = getattr(request, "API_KEY", None)
        what = {ProduceRequest.API_KEY: Traffic.PRODUCE, FetchRequest.API_KEY: Traffic.FETCH}
        self._throttling.saw(what.get(key, Traffic.OTHER), self._client_id, node, seconds)

    def give_up(self, node: Any, group: Any) -> None:
        """Close a connection that does not answer; the next request makes another one."""
        self.silent.add(node)
        connection = self._conns.get((node, group))
        if connection is not None:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    @override
    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int:
        request = FindCoordinatorRequest(coordinator_key, coordinator_type)
        answer = await self._ask_any(self.nodes(), request, LOOKUP_S)
        if answer.error_code:
            problem: KafkaError = for_code(answer.error_code)()
            raise problem
        return int(answer.coordinator_id)

    @override
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
                log.warning("no connection to broker %s in time", node_id)
                self.silent.add(node_id)
                return None

    async def _connect(self, node: Any, group: int) -> Any:
        """Return a connection; None where it cannot be made, which is logged and has metadata asked for."""
        made = self._conns.pop((node, group), None)
        if made is not None and made.connected():  # by whoever had the turn before
            self._conns[node, group] = made
            return made
        broker = self.cluster.broker_metadata(node)
        try:
            if broker is None:
                raise StaleMetadata(f"broker {node} is not in the metadata")
            made = Connection(
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
            # From here on whoever asks sets the deadline, for aiokafka's runs while a connection is muted.
            made._request_timeout = None  # noqa: SLF001
        except (OSError, KafkaError) as error:
            log.warning("no connection to broker %s: %r", node, error)
            self.force_metadata_update()
            return None
        self.mutes.forget((node, group))
        made.muted = partial(self._muted, node, group)
        self._conns[node, group] = made
        return made

    @override
    async def send(self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        made: Any = None
        answer: Any = None
        key, limit_s = (node_id, group), REQUEST_TIMEOUT_MS / 1000
        try:
            # In turn, also while a connection is made: batches of a partition must not overtake each other.
            async with self._sending[key]:
                made = await self._get_conn(node_id, group=group)
                if isinstance(made, Connection):
                    async with self.mutes.within(key, limit_s):
                        await made.keep_session()
                    answer = made.send(request)
            if isinstance(made, Connection):
                asker_limits = isinstance(request, PartedRequest)
                async with contextlib.nullcontext() if asker_limits else self.mutes.within(key, limit_s):
                    return await answer
        except TimeoutError as error:
            made.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error
        return await super().send(node_id, request, group=group)  # none, or that of the bootstrap

    @override
    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        bootstrap = ("bootstrap", ConnectionGroup.DEFAULT)
        nodes = self.nodes() + (["bootstrap"] if bootstrap in self._conns else [])
        try:
            wanted = MetadataRequest(sorted(topics) if topics else None)
            metadata, seen = plain(await self._ask_any(nodes, wanted, wrong=older))
        except KafkaError as error:
            log.warning("no broker answers with metadata: %r", error)
            cluster_metadata.failed_update(None)
            return False
        if not metadata.brokers:
            return False
        cluster_metadata.update_metadata(metadata)
        if bootstrap in self._conns and self.cluster.brokers():
            self._conns.pop(bootstrap).close()
        EPOCHS.hear(seen)
        self.seen(seen)
        return True

    async def _ask_any(
        self,
        nodes: list[Any],
        request: Any,
        last_s: float = REQUEST_TIMEOUT_MS / 1000,
        wrong: Callable[[Any], str] = lambda _answer: "",
    ) -> Any:
        """Ask one broker after the other until one answers; the last one may take ``last_s``.

        An answer in which something is ``wrong`` is none.
        """
        problem: Exception = NodeNotReadyError("no broker is known")
        for node in nodes:
            limit_s = ANSWER_S if node != nodes[-1] else last_s
            try:
                async with self.mutes.within((node, ConnectionGroup.DEFAULT), limit_s):
                    answer = await self.send(node, request)
            except TimeoutError:
                self.silent.add(node)
                problem = RequestTimedOutError(f"{type(request).__name__} to broker {node}: no answer")
            except KafkaError as error:
                problem = error
            else:
                self.silent.discard(node)
                if not (doubt := wrong(answer)):
                    return answer
                problem = StaleMetadata(f"broker {node}: {doubt}")
                log.warning("metadata of broker %s is not believed: %s", node, doubt)
        raise problem


def older(metadata: Any) -> str:
    """Say which partition a broker does not know the newest leader of; empty: of all it does (KIP-320)."""
    return EPOCHS.older(plain(metadata)[1])
