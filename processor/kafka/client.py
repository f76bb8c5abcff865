"""Speaks to the brokers: one client with a deadline on each call.

Invariants: every call to a broker has a deadline of ours (trap 7); a `Client` speaks of one topic by a name as
long as it lives (trap 18), and never has one created. Nothing outside of this folder imports aiokafka; inside,
`processor.kafka.protocol` alone stands on its internals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from processor.errors import StopError
from processor.kafka.addresses import cannot_resolve, nobody_at, unresolved
from processor.kafka.options import client_options
from processor.kafka.protocol.codes import KafkaCode, error_name
from processor.kafka.protocol.connections import ANSWER_S, REQUEST_TIMEOUT_MS, BrokerClient
from processor.kafka.protocol.internals import (
    ConnectionGroup,
    CoordinationType,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    TopicPartition,
    check_aiokafka,
)
from processor.kafka.protocol.leaders import EPOCHS
from processor.kafka.protocol.refusal import why_refused
from processor.kafka.protocol.requests import MetadataRequest, plain
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from processor.kafka.protocol.requests import TopicsSeen
    from schemas.config import Kafka

__all__ = [
    "METADATA_MAX_AGE_MS",
    "Change",
    "Client",
    "KafkaCode",
    "KafkaError",
    "TopicPartition",
    "by_topic",
    "check_aiokafka",
    "error_name",
    "open_client",
]

_Value = TypeVar("_Value")
METADATA_MAX_AGE_MS = int(os.environ.get("SEQMARK_TEST_METADATA_MAX_AGE_MS", "60000"))
"""How soon added partitions of a source are noticed; a test need not wait a minute."""


def by_topic(values: Iterable[tuple[TopicPartition, _Value]]) -> list[tuple[str, list[_Value]]]:
    """Group values of partitions by topic, as requests have them."""
    topics: dict[str, list[_Value]] = defaultdict(list)
    for tp, value in values:
        topics[tp.topic].append(value)
    return list(topics.items())


class Change(StrEnum):
    """What can happen to a topic while it is in use."""

    GONE = "a broker says that there is no such topic any more"
    RECREATED = "a broker says that it was deleted and recreated"


class Client:
    """Connections to the brokers, metadata and coordinators, with a deadline on each call.

    ``ids`` has by name the id that a topic had when it was first heard of, `UNKNOWN_ID` where brokers say none;
    it is given where several clients have to speak of the same topics. ``changed`` is called where a topic is
    gone or is another one than it was, at each answer that says so.
    """

    def __init__(
        self, client: BrokerClient, ids: dict[str, bytes] | None, changed: Callable[[str, Change], None]
    ) -> None:
        self.inner = client
        """Of aiokafka, for its group coordinator."""
        self.ids: dict[str, bytes] = {} if ids is None else ids
        self._changed = changed
        self.lost: set[str] = set()
        """Topics that are gone, or another one than they were, as the last metadata said."""
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        client.seen = self._seen

    def _seen(self, seen: TopicsSeen) -> None:
        self._leaders = seen.leaders
        found = dict.fromkeys(seen.absent & self.ids.keys(), Change.GONE)
        for topic, topic_id in seen.ids.items():
            known = self.ids.setdefault(topic, topic_id)
            if known == UNKNOWN_ID:
                self.ids[topic] = topic_id
            elif topic_id not in {known, UNKNOWN_ID}:
                found[topic] = Change.RECREATED
        self.lost = set(found)
        for topic, change in found.items():
            self._changed(topic, change)

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

        ``options`` are those of a `BrokerClient`: bootstrap_servers and security, maybe throttling. Without
        ``topics`` nothing is known before a `refresh`.

        Raises:
            KafkaError: No broker answers.
        """
        inner = BrokerClient(
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
        except BaseException as error:
            await client.close()
            if isinstance(error, TimeoutError):
                raise RequestTimedOutError("no metadata within the deadline") from None
            raise
        return client

    async def close(self) -> None:
        """Close all connections; never raises, never hangs."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self.inner.close()

    async def refresh(self) -> None:
        """Ask for new metadata and wait for it, at most a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.inner.force_metadata_update()

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the broker that leads ``partition``, None while none is known."""
        node = self.inner.cluster.leader_for_partition(partition)
        return None if node is None or node < 0 else int(node)

    def epoch(self, partition: TopicPartition) -> int:
        """Return the highest leader epoch of ``partition`` that any client of this process has heard of."""
        return EPOCHS.of(self.ids.get(partition.topic, UNKNOWN_ID), partition.partition)

    async def contradiction(self) -> str:
        """Ask a second broker about the topics of this client; say what it denies, or that none answers.

        What one broker says, be it that a log ends early or that a topic is another, is not the cluster's word
        where that broker may be cut off. Empty where for each partition a broker other than its leader names
        the same leader, in the same epoch, of the same topic; or where the cluster has one broker only.
        """
        doubted = dict(self._leaders)
        nodes = self.nodes()
        if len(nodes) == 1:
            return ""
        problem = "none is known"
        for node in nodes:
            try:
                request = MetadataRequest(sorted({topic for topic, _ in self._leaders}))
                _, seen = plain(await self.request(node, request, timeout_s=ANSWER_S))
            except KafkaError as error:
                problem = f"broker {node}: {error!r}"
                continue
            EPOCHS.hear(seen)
            for topic, topic_id in seen.ids.items():
                if topic_id != self.ids.get(topic, topic_id):
                    return f"broker {node} knows topic {topic} by another id"
            for tp, (leader, epoch) in [*doubted.items()]:
                said = seen.leaders.get(tp, (None, epoch))
                if said[1] > epoch:
                    return f"broker {node} says that {tp[0]}:{tp[1]} is led by broker {said[0]} by now"
                if said == (leader, epoch) and node != leader:
                    del doubted[tp]
            if not doubted:
                return ""
        names = ", ".join(f"{topic}:{number}" for topic, number in sorted(doubted)[:3])
        return f"no second broker has said who leads {names} ({problem})"

    def partitions(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions; empty if it is not known."""
        return set(self.inner.cluster.partitions_for_topic(topic) or ())

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
            async with self.inner.mutes.within((node, group), timeout_s):
                answer = await self.inner.send(node, request, group=group)
        except TimeoutError:
            self.inner.give_up(node, group)
            name = type(request).__name__
            raise RequestTimedOutError(f"{name} to broker {node}: no answer in {timeout_s} s") from None
        except NotImplementedError as error:  # aiokafka's word for a version that both would know
            raise IncompatibleBrokerVersion(str(error)) from error
        self.inner.silent.discard(node)
        return answer

    def nodes(self) -> list[int]:
        """Return all known brokers, those that have been silent last."""
        return [int(node) for node in self.inner.nodes()]

    async def any_node(self) -> int:
        """Return a known broker, for requests that any can answer."""
        node = self.inner.get_random_node()
        if node is None:
            raise NodeNotReadyError("no broker is known")
        return int(node)

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates ``transactional_id``."""
        return await self.inner.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)

    async def group_coordinator(self, group_id: str) -> int:
        """Return the broker that coordinates a consumer group."""
        return await self.inner.coordinator_lookup(CoordinationType.GROUP, group_id)


@asynccontextmanager
async def open_client(
    kafka: Kafka, client_id: str, topics: Iterable[str], advice: str = ""
) -> AsyncIterator[Client]:
    """Give a command connections to the brokers, and close them at its end.

    Raises:
        StopError: No broker answers, at the beginning or later; ``advice`` ends the message.
        ConfigError: Files of certificates or keys are wrong.
    """
    options = client_options(kafka)
    try:
        client = await Client.open(options, client_id, topics)
        try:
            yield client
        finally:
            await client.close()
    except (KafkaError, TimeoutError) as error:
        if hosts := await unresolved(kafka.bootstrap_servers):
            raise StopError(f"{cannot_resolve(hosts, kafka.bootstrap_servers)}{advice}") from error
        if nobody := await nobody_at(kafka.bootstrap_servers):
            raise StopError(f"{nobody}{advice}") from error
        if (refused := await why_refused(kafka)) is not None:
            raise StopError(f"cannot use Kafka at {kafka.bootstrap_servers}: {refused}{advice}") from error
        raise StopError(f"cannot reach Kafka at {kafka.bootstrap_servers}: {error!r}{advice}") from error
